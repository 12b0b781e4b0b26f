"""Gather the payloads of each `(slot, fingerprint)`, and turn them into streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.clock import breathe
from holdfast.encoded import EncodedBundle, EncodedSlot, PayloadKind, decode_slot
from holdfast.segment._dictionaries import shared_dictionaries
from holdfast.segment._ipc import StreamImage, UnexpectedLayout, assemble, encode

EventTime = tuple[int, int] | None


@dataclass(slots=True)
class Group:
    """The payloads that share slot and schema, in bundle order, with their bundles' event times."""

    slot: int
    fingerprint: bytes
    schema: pa.Schema
    payloads: list[EncodedSlot] = field(default_factory=list)
    event_times: list[EventTime] = field(default_factory=list)

    def images(self, compression: str | None, max_dictionary_size: int) -> Iterator[StreamImage]:
        """The streams of this group: one, or several when dictionaries outgrow what they may share.

        A schema with a union is not compressed: pyarrow crashes on an empty union that it decoded itself.
        """
        payloads = self.payloads
        if compression is not None and any(_has_union(field.type) for field in self.schema):
            compression = None
        messages = all(payload.kind is PayloadKind.MESSAGE for payload in payloads)
        if messages and compression is None:
            try:
                yield assemble(
                    self.schema,
                    [payload.data for payload in payloads],
                    [payload.rows for payload in payloads],
                    [payload.checksum for payload in payloads],
                )
                return
            except UnexpectedLayout:  # another pyarrow lays files out otherwise: let it write them
                pass

        def decode(start: int, end: int) -> list[pa.RecordBatch]:
            return [decode_slot(payload.kind, payload.data, self.schema) for payload in payloads[start:end]]

        count = len(payloads)
        runs = [decode(0, count)] if messages else shared_dictionaries(decode, count, max_dictionary_size)
        for run in runs:
            yield encode(self.schema, run, compression)


def _has_union(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_union(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_union(kind.value_type)
    return pa.types.is_union(kind) or any(_has_union(kind.field(index).type) for index in range(kind.num_fields))


@dataclass(slots=True)
class Grouping:
    """All groups, and per payload in bundle order which group it went to and as what number."""

    groups: list[Group]
    pairs: tuple[list[int], list[int]]  # group and number in it
    ends: list[int]  # per bundle: where its pairs end


def group(bundles: Sequence[EncodedBundle]) -> Grouping:
    """Groups are numbered in the order in which they first appear."""
    numbers: dict[tuple[int, bytes], int] = {}
    groups: list[Group] = []
    pair_groups: list[int] = []
    pair_numbers: list[int] = []
    ends: list[int] = []
    for bundle in breathe(bundles):
        for payload in bundle.slots:
            key = (payload.slot, payload.fingerprint)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(groups)
                groups.append(Group(*key, payload.schema))
            members = groups[number]
            pair_groups.append(number)
            pair_numbers.append(len(members.payloads))
            members.payloads.append(payload)
            members.event_times.append(bundle.event_time)
        ends.append(len(pair_groups))
    return Grouping(groups, (pair_groups, pair_numbers), ends)


def union_of_times(times: Sequence[EventTime]) -> EventTime:
    """The smallest range that covers all that are known."""
    known = [time for time in times if time is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None
