"""Bundles on their way into a segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.config import SegmentSettings
from holdfast.encoded import EncodedBundle


@dataclass(slots=True, eq=False)
class OpenSegment:
    """Durable bundles that are not in a segment file yet, consecutive from `first_offset`."""

    segment_seq: int
    first_offset: int
    opened: float  # monotonic
    bundles: list[EncodedBundle] = field(default_factory=list)
    _tallied: int = 0
    _size: int = 0
    _ingested: tuple[int, int] = (0, 0)

    @property
    def end(self) -> int:
        return self.first_offset + len(self.bundles)

    def tally(self) -> tuple[int, tuple[int, int]]:
        """Bytes, first and last ingestion time; costs only what came since it was last asked. One thread at a time."""
        for bundle in self.bundles[self._tallied :]:
            time = bundle.ingestion_time_ns
            first, last = self._ingested if self._tallied else (time, time)
            self._ingested = min(first, time), max(last, time)
            self._size += bundle.size
            self._tallied += 1
        return self._size, self._ingested


class Planner:
    """Decides which segment each bundle goes to, before the bundle is written, so that its WAL frame can say so."""

    def __init__(self, settings: SegmentSettings, next_segment_seq: int, next_offset: int) -> None:
        self._settings = settings
        self.placed = next_offset  # every offset below has its place, or is lost
        self._seq = next_segment_seq
        self._index = 0
        self._bytes = 0
        self._streams: set[tuple[int, bytes]] = set()

    @property
    def bytes(self) -> int:
        """Of payload in the segment being planned."""
        return self._bytes

    @property
    def full(self) -> bool:
        return self._bytes >= self._settings.target_size or len(self._streams) >= self._settings.max_streams

    @property
    def next_segment_seq(self) -> int:
        """The number that the next bundle's segment has at least."""
        return self._seq

    def place(self, bundles: Sequence[EncodedBundle]) -> None:
        """Give each bundle its segment and its index there."""
        streams = self._streams
        self.placed = bundles[-1].offset + 1
        for bundle in bundles:
            if self.full:
                self.roll()
                streams = self._streams
            bundle.segment_seq = self._seq
            bundle.bundle_index = self._index
            self._index += 1
            self._bytes += bundle.size
            for slot in bundle.slots:
                streams.add((slot.slot, slot.fingerprint))

    def roll(self) -> None:
        """The next bundle begins a new segment; does nothing if this one is still empty."""
        if self._index:
            self._seq += 1
            self._index = 0
            self._bytes = 0
            self._streams = set()

    def resume(self, segment: OpenSegment) -> None:
        """Go on filling a segment that came back from the WAL."""
        self._seq, self._index = segment.segment_seq, len(segment.bundles)
        self._bytes = sum(bundle.size for bundle in segment.bundles)
        self._streams = {(slot.slot, slot.fingerprint) for bundle in segment.bundles for slot in bundle.slots}
