"""What a shard holds, as its readers see it: in segment files, in memory, or lost."""

from __future__ import annotations

import bisect
import threading
from collections import deque
from pathlib import Path

import structlog

from holdfast.errors import DataLost
from holdfast.files import Files
from holdfast.retention import SegmentFacts
from holdfast.store._open_segment import OpenSegment
from holdfast.store._sealed_segments import SealedSegments
from holdfast.store._span import MemorySpan, SegmentSpan, Span
from holdfast.store.keys import KeyIndex
from holdfast.store.recovery import ShardState
from holdfast.store.segments import SegmentName
from holdfast.store.topic_state import TopicState

_log = structlog.get_logger("holdfast.store")


class Contents:
    """Read by anyone, under the view; changed by the shard and its sealing alone."""

    def __init__(
        self,
        state: ShardState,
        folder: Path,
        files: Files,
        topic: TopicState,
        keys: KeyIndex,
        *,
        name: str,
        exact: bool,
    ) -> None:
        self._name, self._topic, self._keys = name, topic, keys
        self.view = threading.Lock()  # guards what readers see
        self.checkpoint = state.checkpoint
        self.checkpoint_dirty = False  # there is more in it than in its file
        self.segments = SealedSegments(state.segments, folder / "segments", files, self.view, shard=name, exact=exact)
        self.sealed = state.sealed
        self.durable = state.next_offset
        self.full = deque(state.unsealed[:-1])
        self.open = state.unsealed[-1] if state.unsealed else None
        self._tail = state.tail
        self._tail_lock = threading.Lock()  # committer and sealer both write it

    def span(self, position: int, end: int | None) -> Span | None:
        """What holds the first bundle at or above `position` and below `end`; `None` when there is none yet."""
        while True:
            with self.view:
                stop = self.durable if end is None else min(end, self.durable)
                position = max(position, self.checkpoint.trimmed)
                if position >= stop:
                    return None
                names = self.segments.names
                index = bisect.bisect_right(names, position, key=lambda name: name.first_offset) - 1
                candidate = names[index] if index >= 0 else None
                memory = self._in_memory(position)
                if memory is not None:
                    first = memory.first_offset
                    return MemorySpan(memory.bundles[position - first : min(stop, memory.end) - first])
                following = self._following(position, stop)
            if candidate is not None:
                try:
                    reader = self.segments.readers.get(candidate)
                except FileNotFoundError:
                    if self._is_trimmed(candidate):
                        continue
                    raise DataLost(self._name, position, stop, f"{candidate} is not there") from None
                if position < reader.end_offset:
                    return SegmentSpan(reader, position, min(stop, reader.end_offset))
            if not self._is_lost(position, min(following, stop)):
                raise DataLost(self._name, position, following, "neither a segment nor the WAL holds them")
            position = following

    def _in_memory(self, position: int) -> OpenSegment | None:
        unsealed = [*self.full, self.open] if self.open is not None else self.full
        for segment in unsealed:
            if segment.first_offset <= position < segment.end:
                return segment
        return None

    def _following(self, position: int, stop: int) -> int:
        """The lowest first offset above `position` of anything that is here; `stop` if nothing is."""
        starts = [segment.first_offset for segment in (*self.full, *([self.open] if self.open else []))]
        names = self.segments.names
        index = bisect.bisect_right(names, position, key=lambda name: name.first_offset)
        if index < len(names):
            starts.append(names[index].first_offset)
        return min((start for start in starts if start > position), default=stop)

    def _is_trimmed(self, name: SegmentName) -> bool:
        with self.view:
            return name not in self.segments.names

    def _is_lost(self, first: int, end: int) -> bool:
        return any(start <= first and end <= stop for start, stop in self.checkpoint.holes)

    def oldest_unsealed(self) -> SegmentFacts | None:
        """The oldest segment that is not sealed, as retention sees it."""
        with self.view:
            segment = self.full[0] if self.full else self.open
            if segment is None or not segment.bundles:
                return None
            return SegmentFacts(segment.first_offset, segment.end, *segment.tally())

    def unsealed_bytes(self) -> int:
        """Of bundles that are not in a segment file yet."""
        with self.view:
            unsealed = [*self.full, *([self.open] if self.open else [])]
            return sum(segment.tally()[0] for segment in unsealed)

    def take_deleted(self) -> list[SegmentName]:
        """Take segments out of the readers' view that the checkpoint says are deleted. Called with the view."""
        return self.segments.take_deleted(self.checkpoint, self.sealed)

    def write_tail(self) -> None:
        """Tell other processes how far they may read."""
        if not self._keys.settled():
            return  # others would take a bundle that was lost for one that is there
        try:
            with self._tail_lock:
                self._tail.write(self.durable, self.sealed, self._topic.schema_count)
        except OSError as problem:  # a lower bound for others, nothing more: the data itself is durable
            _log.warning("tail could not be written; other processes read late", shard=self._name, error=str(problem))

    def close(self) -> None:
        """Nobody writes the tail any more."""
        self._tail.close()
