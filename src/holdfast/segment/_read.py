"""Open a sealed segment by mapping it, and hand out its bundles and batches without copying."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.segment._check import check_references
from holdfast.segment._manifest import Chunks, Manifest, Places
from holdfast.segment._meta import StreamEntry, decode_meta
from holdfast.segment._stream import ReadChunk, StreamReader
from holdfast.segment._verify import find_damage
from holdfast.segment.format import decode_footer, decode_header


class SealedBundle(NamedTuple):
    """A bundle as a segment holds it; `batches` are by slot number."""

    offset: int
    ingestion_time_ns: int
    event_time: tuple[int, int] | None
    signal: str
    attributes: bytes
    batches: dict[int, pa.RecordBatch]


class SegmentReader:
    """A segment, open for reading; threads may share it, and it stays readable after the file is unlinked.

    Opening checks header, footer, meta block and all cross-references; payload is checked when it is first
    handed out. Raises `Corruption`, `NewerVersion`, or `FileNotFoundError`.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._buffer = files.map(path)
        view = memoryview(self._buffer)
        header = decode_header(view, path)
        self._footer = footer = decode_footer(view, header, path)
        self._meta = decode_meta(
            self._buffer.slice(footer.meta_position, footer.meta_length), path, footer.meta_position
        )
        self._chunks = Chunks(self._meta.chunks)
        check_references(self._meta, self._chunks, footer, path)
        self.segment_seq = header.segment_seq
        self.shard_id = header.shard_id
        self.first_offset = header.first_offset
        self.bundle_count = header.bundle_count
        self.size = footer.file_size
        self.streams: tuple[StreamEntry, ...] = self._meta.directory.streams
        self.manifest = Manifest(self._meta.manifest)
        self._firsts = list(accumulate((stream.chunks for stream in self.streams), initial=0))
        self._lock = threading.Lock()
        self._slot_of = [stream.slot for stream in self.streams]
        self._readers: dict[int, StreamReader] = {}
        self._whole: dict[int, ReadChunk] = {}
        self._places: dict[int, Places] = {}

    @property
    def end_offset(self) -> int:
        """The offset after the last bundle."""
        return self.first_offset + self.bundle_count

    @property
    def slots(self) -> Collection[int]:
        """The numbers of all slots that some bundle has."""
        return self._meta.directory.representatives.keys()

    def representative(self, slot: int) -> pa.Schema:
        """The schema that covers all streams of the slot; raises `KeyError` if no bundle has the slot."""
        return self._meta.representative(slot)

    def schema(self, stream: StreamEntry) -> pa.Schema:
        """The stream's own schema."""
        return self._stream(stream.id).schema

    def bounds(self, stream: StreamEntry) -> pa.RecordBatch | None:
        """Two rows, minimum and maximum, for the columns of the stream that have bounds."""
        return self._meta.bounds(stream)

    def bundle(self, index: int, slots: Collection[int] | None = None) -> SealedBundle:
        """Bundle number `index`, with all its slots or those named."""
        if not 0 <= index < self.bundle_count:
            raise IndexError(f"{self.path} has {self.bundle_count} bundles, asked for number {index}")
        manifest, batches = self.manifest, {}
        slot_of, whole = self._slot_of, self._whole
        for stream, chunk in manifest.pairs(index):
            slot = slot_of[stream]
            if slots is None or slot in slots:
                read = whole.get(stream)
                if read is None:
                    read = whole[stream] = self._stream(stream).reader()
                batches[slot] = read(chunk)
        return SealedBundle(
            self.first_offset + index,
            manifest.ingestion_times[index],
            manifest.event_times[index],
            manifest.signals[index],
            manifest.attributes[index],
            batches,
        )

    def batches(
        self,
        slot: int,
        start_index: int = 0,
        end_index: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        verify: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The slot's batches of bundles `start_index` to before `end_index`, in bundle order.

        With `columns`, each batch has those of them that its stream has, in the order asked for, and their
        bytes alone are touched: nothing of the payload is checked, unless `verify` is set.
        """
        end = self.bundle_count if end_index is None else min(end_index, self.bundle_count)
        readers: dict[int, ReadChunk] = {}
        for stream, chunk in self._slot_places(slot).between(start_index, end):
            read = readers.get(stream)
            if read is None:
                read = readers[stream] = self._stream(stream).reader(columns, verify=verify)
            yield read(chunk)

    def chunks(
        self,
        slot: int,
        start_index: int,
        end_index: int,
        columns: Sequence[str] | None = None,
        *,
        keep: Callable[[StreamEntry], bool] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """As `batches`, each with the number of its bundle; streams that `keep` declines are passed over unread."""
        readers: dict[int, ReadChunk | None] = {}
        for index, stream, chunk in self._slot_places(slot).placed(start_index, end_index):
            if stream not in readers:
                wanted = keep is None or keep(self.streams[stream])
                readers[stream] = self._stream(stream).reader(columns) if wanted else None
            read = readers[stream]
            if read is not None:
                yield index, read(chunk)

    def rows(self, slot: int, start_index: int, end_index: int) -> NDArray[np.int64]:
        """How many rows each bundle of a range has in the slot."""
        return self._per_bundle(slot, self._chunks.rows, start_index, end_index)

    def sizes(self, slot: int, start_index: int, end_index: int) -> NDArray[np.int64]:
        """How many bytes the slot takes in each bundle of a range."""
        return self._per_bundle(slot, self._chunks.lengths, start_index, end_index)

    def kinds(self, slot: int, start_index: int, end_index: int) -> NDArray[np.int64]:
        """For each bundle the stream that its slot is in, -1 without: the batches of a stream have one schema."""
        places = self._slot_places(slot)
        bundles = np.asarray(places.bundles)
        first, last = np.searchsorted(bundles, [start_index, end_index])
        kinds = np.full(end_index - start_index, -1, np.int64)
        kinds[bundles[first:last] - start_index] = np.asarray(places.streams)[first:last]
        return kinds

    def schemas(self, slot: int, start_index: int, end_index: int) -> Iterator[tuple[int, pa.Schema]]:
        """Every schema that the slot has in a range of bundles, with the number of the first bundle that has it."""
        places = self._slot_places(slot)
        bundles, streams = np.asarray(places.bundles), np.asarray(places.streams)
        first, last = np.searchsorted(bundles, [start_index, end_index])
        numbers, at = np.unique(streams[first:last], return_index=True)
        for number, position in zip(numbers.tolist(), at.tolist(), strict=True):
            yield int(bundles[first + position]), self._stream(number).schema

    def _per_bundle(self, slot: int, values: Any, start_index: int, end_index: int) -> NDArray[np.int64]:
        places = self._slot_places(slot)
        bundles = np.asarray(places.bundles)
        first, last = np.searchsorted(bundles, [start_index, end_index])
        at = np.asarray(self._firsts)[np.asarray(places.streams)[first:last]] + np.asarray(places.chunks)[first:last]
        counts = np.zeros(end_index - start_index, np.int64)
        np.add.at(counts, bundles[first:last] - start_index, np.asarray(values)[at])
        return counts

    def open_streams(self) -> None:
        """Open every stream: schemas, dictionaries and footers are checked, chunks are not."""
        for stream in range(len(self.streams)):
            self._stream(stream).reader()

    def verify(self) -> list[Corruption]:
        """All damage in the file: every byte is checked, and every batch decoded. Empty if it is sound."""
        streams = map(self._stream, range(len(self.streams)))
        return find_damage(self._buffer, self.path, self._footer, streams)

    def _stream(self, number: int) -> StreamReader:
        reader = self._readers.get(number)
        if reader is None:
            with self._lock:
                reader = self._readers.get(number)
                if reader is None:
                    reader = StreamReader(
                        self.streams[number], self._firsts[number], self._chunks, self._buffer, self.path
                    )
                    self._readers[number] = reader
        return reader

    def _slot_places(self, slot: int) -> Places:
        places = self._places.get(slot)
        if places is None:
            places = self.manifest.places([stream.id for stream in self.streams if stream.slot == slot])
            self._places[slot] = places
        return places
