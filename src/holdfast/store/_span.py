"""A run of consecutive bundles in one place: a segment file, or memory (the open segment, or a mapped WAL file)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.encoded import EncodedBundle, EncodedSlot, decode_slot
from holdfast.segment import SegmentReader, StreamEntry


class PlacedBundle(NamedTuple):
    """A bundle as it comes out of a shard; slots by number."""

    offset: int
    ingestion_time_ns: int
    event_time: tuple[int, int] | None
    attributes: bytes
    batches: Mapping[int, pa.RecordBatch]


class StreamFacts(NamedTuple):
    """What is known of many batches without reading them; `bounds` has two rows, minimum and maximum."""

    schema: pa.Schema
    rows: int
    null_counts: Sequence[int | None]
    bounds: pa.RecordBatch | None


Keep = Callable[[StreamFacts], bool]


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

    def chunks(
        self, slot: int, columns: Sequence[str] | None, keep: Keep | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """As `batches`, each with the offset of its bundle; what `keep` declines, by its statistics, is passed over."""
        ...

    def rows(self, slot: int) -> NDArray[np.int64]:
        """How many rows of the slot each bundle has."""
        ...

    def sizes(self, slot: int) -> NDArray[np.int64]:
        """How many bytes the slot takes in each bundle."""
        ...

    def kinds(self, slot: int) -> Sequence[object]:
        """Something for each bundle that is equal only where the slot has the same schema."""
        ...

    def schemas(self, slot: int) -> Iterator[tuple[int, pa.Schema]]:
        """Every schema that the slot has here, with the offset of the first bundle that has it."""
        ...

    def attributes(self) -> Sequence[bytes]:
        """Of each bundle, encoded."""
        ...

    def ingestion_times(self) -> Sequence[int]:
        """Of each bundle, in nanoseconds."""
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
        return self._reader.batches(slot, *self._indexes, columns, verify=verify)

    def chunks(
        self, slot: int, columns: Sequence[str] | None, keep: Keep | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        reader, first = self._reader, self._reader.first_offset

        def judge(stream: StreamEntry) -> bool:
            facts = StreamFacts(reader.schema(stream), stream.rows, stream.null_counts, reader.bounds(stream))
            return keep is None or keep(facts)

        found = reader.chunks(slot, *self._indexes, columns, keep=None if keep is None else judge)
        return ((first + index, batch) for index, batch in found)

    def rows(self, slot: int) -> NDArray[np.int64]:
        return self._reader.rows(slot, *self._indexes)

    def sizes(self, slot: int) -> NDArray[np.int64]:
        return self._reader.sizes(slot, *self._indexes)

    def kinds(self, slot: int) -> Sequence[object]:
        kinds: list[object] = self._reader.kinds(slot, *self._indexes).tolist()
        return kinds

    def schemas(self, slot: int) -> Iterator[tuple[int, pa.Schema]]:
        first = self._reader.first_offset
        return ((first + index, schema) for index, schema in self._reader.schemas(slot, *self._indexes))

    def attributes(self) -> Sequence[bytes]:
        return self._reader.manifest.attributes[slice(*self._indexes)]

    def ingestion_times(self) -> Sequence[int]:
        return self._reader.manifest.ingestion_times[slice(*self._indexes)]

    @property
    def _indexes(self) -> tuple[int, int]:
        return self.start - self._reader.first_offset, self.end - self._reader.first_offset


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

    def chunks(
        self,
        slot: int,
        columns: Sequence[str] | None,
        keep: Keep | None = None,  # noqa: ARG002  nothing is measured before it is sealed
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        for bundle in self._bundles:
            for encoded in bundle.slots:
                if encoded.slot == slot:
                    batch = _decode(encoded)
                    yield bundle.offset, batch if columns is None else _project(batch, columns)

    def rows(self, slot: int) -> NDArray[np.int64]:
        return np.array([sum(each.rows for each in bundle.slots if each.slot == slot) for bundle in self._bundles])

    def sizes(self, slot: int) -> NDArray[np.int64]:
        return np.array([sum(len(each.data) for each in bundle.slots if each.slot == slot) for bundle in self._bundles])

    def kinds(self, slot: int) -> Sequence[object]:
        return [
            next((each.fingerprint for each in bundle.slots if each.slot == slot), None) for bundle in self._bundles
        ]

    def schemas(self, slot: int) -> Iterator[tuple[int, pa.Schema]]:
        seen: set[bytes] = set()
        for bundle in self._bundles:
            for each in bundle.slots:
                if each.slot == slot and each.fingerprint not in seen:
                    seen.add(each.fingerprint)
                    yield bundle.offset, each.schema

    def attributes(self) -> Sequence[bytes]:
        return [bytes(bundle.attributes) for bundle in self._bundles]

    def ingestion_times(self) -> Sequence[int]:
        return [bundle.ingestion_time_ns for bundle in self._bundles]


def _decode(slot: EncodedSlot) -> pa.RecordBatch:
    return decode_slot(slot.kind, slot.data, slot.schema)


def _project(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    return batch.select([name for name in columns if batch.schema.get_field_index(name) >= 0])
