"""A shard as another process sees it: read-only, no lock, never past what is durable.

The writer moves data while we read: a WAL file goes when its segment is there, segments go when they are trimmed. So
nothing found missing is believed at once: first everything is listed again. Only what is in no listing, and that the
checkpoint does not explain, is lost.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.encoded import EncodedBundle
from holdfast.errors import Corruption, DataLost
from holdfast.files import Files
from holdfast.retention import SegmentFacts
from holdfast.store._span import MemorySpan, SegmentSpan, Span
from holdfast.store.layout import TAIL
from holdfast.store.segments import SegmentName, SegmentReaders, list_segments, rough_facts
from holdfast.store.shard_checkpoint import Range, ShardCheckpoint
from holdfast.wal import FILE_HEADER_BYTES, FileHeader, Tail, WalName, WalScan, list_wal, read_tail

BUNDLES_AT_A_TIME: Final = 1024  # decoded from the WAL before the next look at the segments
WINDOW_BYTES: Final = 1 << 20  # read from a WAL file at a time
_ATTEMPTS: Final = 20  # each one lists everything anew: more often in a row the writer cannot overtake a reader


class ShardFollower:
    """Reads a shard that somebody else writes, or nobody."""

    def __init__(self, number: int, folder: Path, files: Files, *, name: str) -> None:
        self.number, self.folder, self.name = number, folder, name
        self._files = files
        self._readers = SegmentReaders(files, folder / "segments")
        self._wal = _WalFollower(files, folder / "wal")
        self._lock = threading.Lock()
        self._segments: list[SegmentName] = []
        self._checkpoint: ShardCheckpoint | None = None

    def tail(self) -> Tail:
        try:
            return read_tail(self._files, self.folder / TAIL)
        except FileNotFoundError:  # made by its writer when it first opens the shard
            return Tail()

    @property
    def durable(self) -> int:
        return self.tail().durable

    @property
    def start(self) -> int:
        return ShardCheckpoint.read(self._files, self.folder).trimmed

    def span(self, position: int, end: int | None) -> Span | None:
        """As `Shard.span`."""
        problem: Corruption | None = None
        with self._lock:
            for attempt in range(_ATTEMPTS):
                tail = self.tail()
                stop = tail.durable if end is None else min(end, tail.durable)
                self._checkpoint = ShardCheckpoint.read(self._files, self.folder)
                if attempt:
                    self._look_again()
                position, stop = self._around_holes(max(position, self._checkpoint.trimmed), stop)
                if position >= stop:
                    return None
                try:
                    span = self._in_segments(position, stop) or self._in_wal(position, stop, tail)
                except FileNotFoundError:
                    continue
                except Corruption as found:
                    problem = found
                    continue
                if span is not None:
                    return span
            raise problem or DataLost(self.name, position, stop, "neither a segment nor the WAL holds them")

    def lost(self) -> list[Range]:
        """Offsets that never held anything."""
        with self._lock:
            return [*ShardCheckpoint.read(self._files, self.folder).lost, *self._wal.holes()]

    def facts(self) -> list[SegmentFacts]:
        """As `Shard.facts`."""
        found = []
        for name in list_segments(self._files, self.folder / "segments"):
            try:
                found.append(rough_facts(self._files, self.folder / "segments" / str(name)))
            except (FileNotFoundError, Corruption):  # deleted meanwhile, or left alone
                continue
        return found

    def unsealed_bytes(self) -> int:
        """Of the WAL, which holds what is not sealed, and perhaps a little more."""
        total = 0
        for name in list_wal(self._files, self.folder / "wal"):
            with contextlib.suppress(FileNotFoundError):
                total += self._files.size(self.folder / "wal" / str(name))
        return total

    def _look_again(self) -> None:
        self._segments = list_segments(self._files, self.folder / "segments")
        self._wal.look_again()

    def _in_segments(self, position: int, stop: int) -> Span | None:
        index = bisect.bisect_right(self._segments, position, key=lambda name: name.first_offset) - 1
        if index < 0:
            return None
        reader = self._readers.get(self._segments[index])
        if position >= reader.end_offset:
            return None
        return SegmentSpan(reader, position, min(stop, reader.end_offset))

    def _in_wal(self, position: int, stop: int, tail: Tail) -> Span | None:
        if position < tail.sealed:
            return None
        bundles = self._wal.bundles(position, min(stop, position + BUNDLES_AT_A_TIME), tail.durable)
        return MemorySpan(bundles) if bundles else None

    def _around_holes(self, position: int, stop: int) -> tuple[int, int]:
        """`position` moved past offsets that are lost, and `stop` down to where the next such offsets begin."""
        lost = [*(self._checkpoint.holes if self._checkpoint else ()), *self._wal.holes()]
        for first, end in sorted(lost):
            if first <= position < end:
                position = end
            elif position < first < stop and first < end:
                stop = first
        return position, stop

    def close(self) -> None:
        self._readers.close()
        self._wal.look_again()


class _WalFollower:
    """Remembers how far it has scanned, so that following a growing file costs only what is new."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._headers: list[tuple[WalName, FileHeader]] = []
        self._listed_at = -1
        self._scan: WalScan | None = None

    def look_again(self) -> None:
        self._listed_at = -1
        self._scan = None

    def bundles(self, position: int, stop: int, durable: int) -> list[EncodedBundle]:
        """Bundles from `position` on, as many as one file has below `stop`; none when no file holds it.

        They are copies: the writer may use the file again as soon as its bundles are sealed. So what fails a check
        here may only have been overwritten, and the caller looks for the bundles elsewhere before it believes it.
        """
        if durable != self._listed_at:  # a new file may supersede what we have listed
            self._list(durable)
        place = self._find(position)
        if place is None:
            return []
        name, header, limit = place
        path = self._folder / str(name)
        scan = self._scan
        if scan is None or scan.path != path or scan.offset > position:
            scan = self._scan = WalScan(path, header)
        stop = stop if limit is None else min(stop, limit)
        found: list[EncodedBundle] = []
        window = WINDOW_BYTES
        while not found and scan.offset < stop:
            base = scan.position
            data = self._files.read(path, base, window)
            found = [
                bundle for bundle in scan.advance(pa.py_buffer(data), stop, base=base) if bundle.offset >= position
            ]
            if scan.end is None or (scan.end.cut_short and scan.position > base):
                continue
            if not scan.end.cut_short or len(data) < window:
                what = scan.end.bad or "no record begins here"
                raise Corruption(path, scan.end.position, f"{what}, yet offset {scan.end.offset} was durable")
            window *= 4
        return found

    def holes(self) -> list[tuple[int, int]]:
        return [(header.supersedes, header.first_offset) for _, header in self._headers]

    def _list(self, durable: int) -> None:
        """A file whose header is not whole, or of an older file, is just being made, or a later one supersedes it."""
        known = dict(self._headers)
        headers: list[tuple[WalName, FileHeader]] = []
        limit: int | None = None
        for name in reversed(list_wal(self._files, self._folder)):
            header = known.get(name)
            if header is None:
                path = self._folder / str(name)
                try:
                    header = FileHeader.decode(self._files.read(path, 0, FILE_HEADER_BYTES), path)
                    if (header.generation, header.first_offset) != name:
                        raise Corruption(path, 32, "its header belongs to another file")
                except Corruption:
                    superseded = limit is not None and limit <= name.first_offset
                    if durable > name.first_offset and not superseded:
                        raise
                    continue
            headers.append((name, header))
            limit = header.supersedes if limit is None else min(limit, header.supersedes)
        self._headers, self._listed_at = headers[::-1], durable

    def _find(self, position: int) -> tuple[WalName, FileHeader, int | None] | None:
        """The newest file that begins at or below `position`, and from where on a newer one counts."""
        limit: int | None = None
        for name, header in reversed(self._headers):
            if name.first_offset <= position:
                return (name, header, limit) if limit is None or position < limit else None
            limit = header.supersedes if limit is None else min(limit, header.supersedes)
        return None
