"""The batch manifest and the chunk table: built from flat lists, read through flat views.

A bundle's slots are `(stream, chunk)` pairs. Both tables are plain buffers, so building them at sealing and
reading them back costs next to nothing per bundle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyarrow import compute as pc

from holdfast.clock import breathe
from holdfast.encoded import EncodedBundle
from holdfast.segment._ipc import StreamImage
from holdfast.segment._meta import CHUNKS, MANIFEST

_SLOTS: pa.DataType = MANIFEST.field("slots").type


def build_manifest(
    bundles: Sequence[EncodedBundle],
    signals: Sequence[str],
    ends: Sequence[int],
    streams: Sequence[int],
    chunks: Sequence[int],
) -> pa.RecordBatch:
    """`ends[i]` is where the pairs of bundle `i` end in `streams` and `chunks`."""
    times = [bundle.event_time for bundle in breathe(bundles)]
    pairs = pa.StructArray.from_arrays(
        [pa.array(streams, pa.uint32()), pa.array(chunks, pa.uint32())], fields=list(_SLOTS.value_type)
    )
    columns = [
        pa.array([bundle.ingestion_time_ns for bundle in breathe(bundles)], pa.int64()),
        pa.array([None if time is None else time[0] for time in times], pa.int64()),
        pa.array([None if time is None else time[1] for time in times], pa.int64()),
        pa.array(signals, pa.string()).dictionary_encode(),
        pa.array([bundle.attributes for bundle in breathe(bundles)], pa.large_binary()),
        pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), pairs, type=_SLOTS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MANIFEST)


def build_chunks(images: Sequence[StreamImage], starts: Sequence[int]) -> pa.RecordBatch:
    """The chunk table of the streams that begin at `starts`: in the order of streams, then of chunks."""
    columns: list[list[int]] = [[], [], [], [], []]
    stream, position, length, rows, checksum = columns
    for number, (image, start) in enumerate(zip(images, starts, strict=True)):
        stream += [number] * len(image.positions)
        position += [start + at for at in breathe(image.positions)]
        length += image.lengths
        rows += image.rows
        checksum += image.checksums
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, CHUNKS, strict=True)], schema=CHUNKS
    )


def flat_view(array: pa.Array, code: Literal["i", "I", "q"]) -> Any:
    """The values of a fixed-width array without nulls; `code` is its type as `struct` writes it."""
    buffer = array.buffers()[1]
    if not len(array) or buffer is None:
        return memoryview(b"").cast(code)
    return memoryview(buffer).cast("B").cast(code)[array.offset : array.offset + len(array)]


class Chunks:
    """The chunk table by column; chunk `c` of a stream is at that stream's first row plus `c`."""

    def __init__(self, table: pa.RecordBatch) -> None:
        self.count = table.num_rows
        self.positions = flat_view(table.column("position"), "q")
        self.lengths = flat_view(table.column("length"), "q")
        self.rows = flat_view(table.column("rows"), "q")
        self.checksums = flat_view(table.column("checksum"), "I")


class Places(NamedTuple):
    """Where one slot's batches are, in bundle order: three columns of equal length."""

    bundles: Any
    streams: Any
    chunks: Any

    def between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The `(stream, chunk)` of each bundle from `start` to before `end` that has the slot."""
        first, last = bisect_left(self.bundles, start), bisect_left(self.bundles, end)
        return zip(self.streams[first:last], self.chunks[first:last], strict=True)

    def placed(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """As `between`, each with the number of its bundle in front."""
        first, last = bisect_left(self.bundles, start), bisect_left(self.bundles, end)
        return zip(self.bundles[first:last], self.streams[first:last], self.chunks[first:last], strict=True)


class Manifest:
    """The manifest by bundle; what is not asked for is not decoded."""

    def __init__(self, table: pa.RecordBatch) -> None:
        self._table = table
        self._slots = table.column("slots")
        pairs = self._slots.values
        self._ends = flat_view(self._slots.offsets, "i")
        self._streams = flat_view(pairs.field(0), "I")
        self._chunks = flat_view(pairs.field(1), "I")

    @cached_property
    def ingestion_times(self) -> Sequence[int]:
        """Nanoseconds, per bundle."""
        view: Sequence[int] = flat_view(self._table.column("ingestion_time_ns"), "q")
        return view

    @cached_property
    def event_times(self) -> Sequence[tuple[int, int] | None]:
        """The inclusive range in nanoseconds, per bundle."""
        pairs = zip(self._column("event_time_min_ns"), self._column("event_time_max_ns"), strict=True)
        return [None if low is None else (low, high) for low, high in pairs]

    @cached_property
    def signals(self) -> Sequence[str]:
        signals: list[str] = self._table.column("signal").cast(pa.string()).to_pylist()
        return signals

    @cached_property
    def attributes(self) -> Sequence[bytes]:
        return self._column("attributes")

    def _column(self, name: str) -> list[Any]:
        values: list[Any] = self._table.column(name).to_pylist()
        return values

    def pairs(self, index: int) -> Iterator[tuple[int, int]]:
        """The `(stream, chunk)` of each slot of bundle `index`."""
        start, end = self._ends[index], self._ends[index + 1]
        return zip(self._streams[start:end], self._chunks[start:end], strict=True)

    def places(self, streams: Collection[int]) -> Places:
        """Every pair that names one of `streams`."""
        pairs = self._slots.values
        chosen = pc.is_in(pairs.field(0), value_set=pa.array(sorted(streams), pa.uint32()))
        return Places(
            flat_view(pc.list_parent_indices(self._slots).filter(chosen), "q"),
            flat_view(pairs.field(0).filter(chosen), "I"),
            flat_view(pairs.field(1).filter(chosen), "I"),
        )
