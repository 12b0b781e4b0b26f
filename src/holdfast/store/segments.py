"""The segment files of a shard: their listing is the index."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.retention import SegmentFacts
from holdfast.segment import SegmentReader, parse_segment_name, read_header, segment_name

OPEN_READERS: Final = 8  # a reader is a memory map and its decoded directory; a scan uses one at a time


class SegmentName(NamedTuple):
    """A segment file's name, taken apart."""

    segment_seq: int
    first_offset: int

    def __str__(self) -> str:
        return segment_name(self.segment_seq, self.first_offset)


def list_segments(files: Files, folder: Path) -> list[SegmentName]:
    """The segments in a folder, oldest first."""
    parsed = (parse_segment_name(name) for name in files.list(folder))
    return sorted(SegmentName(*each) for each in parsed if each is not None)


def facts_of(reader: SegmentReader) -> SegmentFacts:
    """From the segment's own manifest."""
    times = np.asarray(reader.manifest.ingestion_times)
    events = [each for each in reader.manifest.event_times if each is not None]
    event_time = (min(first for first, _ in events), max(last for _, last in events)) if events else None
    ingested = int(times.min()), int(times.max())
    return SegmentFacts(reader.first_offset, reader.end_offset, reader.size, ingested, event_time)


def rough_facts(files: Files, path: Path) -> SegmentFacts:
    """From the file's header and its times: it was written after its last bundle came, so it is taken for younger."""
    header, written = read_header(files, path), files.modified_ns(path)
    end = header.first_offset + header.bundle_count
    return SegmentFacts(header.first_offset, end, files.size(path), (written, written))


class SegmentReaders:
    """Keeps the last few readers open, shared by all who read this shard."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._lock = threading.Lock()
        self._open: OrderedDict[SegmentName, SegmentReader] = OrderedDict()

    def get(self, name: SegmentName) -> SegmentReader:
        """Raises `FileNotFoundError` when the file is gone."""
        with self._lock:
            reader = self._open.get(name)
            if reader is not None:
                self._open.move_to_end(name)
                return reader
        reader = SegmentReader(self._files, self._folder / str(name))
        if (reader.segment_seq, reader.first_offset) != name:
            what = f"by its header this is segment {reader.segment_seq} from offset {reader.first_offset} on"
            raise Corruption(reader.path, 16, what)
        with self._lock:
            self._open[name] = reader
            while len(self._open) > OPEN_READERS:
                self._open.popitem(last=False)
        return reader

    def forget(self, name: SegmentName) -> None:
        with self._lock:
            self._open.pop(name, None)

    def close(self) -> None:
        with self._lock:
            self._open.clear()
