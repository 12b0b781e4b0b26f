"""A run of consecutive bundles in one place: a segment file, or memory (the open segment, or a mapped WAL file)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from holdfast.encoded import EncodedBundle, EncodedSlot, decode_slot
from holdfast.segment import SegmentReader


class PlacedBundle(NamedTuple):
    """A bundle as it comes out of a shard; slots by number."""

    offset: int
    ingestion_time_ns: int
    event_time: tuple[int, int] | None
    attributes: bytes
    batches: Mapping[int, pa.RecordBatch]


class Span(Protocol):
    """Bundles `start` to `end`, the end not included."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def mean_size(self) -> int:
        """Bytes that a bundle takes here, on average."""
        ...

    def bundles(self, slots: Collection[int] | None) -> Iterator[PlacedBundle]:
        """Each bundle, with these slots only."""
        ...

    def batches(self, slot: int, columns: Sequence[str] | None, *, verify: bool) -> Iterator[pa.RecordBatch]:
        """The batches of one slot, bundle by bundle; columns that a batch lacks are left out of it.

        Whole batches are checked when they are first read; with `columns`, only if `verify` is set.
        """
        ...


class SegmentSpan:
    """Part of a segment file."""

    def __init__(self, reader: SegmentReader, start: int, end: int) -> None:
        self._reader, self.start, self.end = reader, start, end
        self.mean_size = reader.size // reader.bundle_count

    def bundles(self, slots: Collection[int] | None) -> Iterator[PlacedBundle]:
        reader, first = self._reader, self._reader.first_offset
        wanted = None if slots is None else set(slots)
        for offset in range(self.start, self.end):
            bundle = reader.bundle(offset - first, wanted)
            yield PlacedBundle(offset, bundle.ingestion_time_ns, bundle.event_time, bundle.attributes, bundle.batches)

    def batches(self, slot: int, columns: Sequence[str] | None, *, verify: bool) -> Iterator[pa.RecordBatch]:
        first = self._reader.first_offset
        return self._reader.batches(slot, self.start - first, self.end - first, columns, verify=verify)


class MemorySpan:
    """Encoded bundles, decoded as they are asked for."""

    def __init__(self, bundles: Sequence[EncodedBundle]) -> None:
        self._bundles = bundles
        self.mean_size = bundles[0].size  # near enough: bundles of one producer are much alike
        self.start = bundles[0].offset
        self.end = bundles[-1].offset + 1

    def bundles(self, slots: Collection[int] | None) -> Iterator[PlacedBundle]:
        for bundle in self._bundles:
            batches = {slot.slot: _decode(slot) for slot in bundle.slots if slots is None or slot.slot in slots}
            yield PlacedBundle(bundle.offset, bundle.ingestion_time_ns, bundle.event_time, bundle.attributes, batches)

    def batches(
        self,
        slot: int,
        columns: Sequence[str] | None,
        *,
        verify: bool,  # noqa: ARG002  these were checked when they were read from the WAL, or never left memory
    ) -> Iterator[pa.RecordBatch]:
        for bundle in self._bundles:
            for encoded in bundle.slots:
                if encoded.slot == slot:
                    batch = _decode(encoded)
                    yield batch if columns is None else _project(batch, columns)


def _decode(slot: EncodedSlot) -> pa.RecordBatch:
    return decode_slot(slot.kind, slot.data, slot.schema)


def _project(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    return batch.select([name for name in columns if batch.schema.get_field_index(name) >= 0])
