"""What retention knows of each sealed segment of a shard: a row of facts, and many rows in little room.

A shard may hold 100,000 segments, and objects of their own would take 40 MB. The table keeps columns instead, 57 bytes
a segment, and makes a row when it is asked for one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from itertools import compress, starmap
from typing import Final, NamedTuple, overload


class SegmentFacts(NamedTuple):
    """A segment as retention sees it. Times are first and last of its bundles, in nanoseconds."""

    first: int
    end: int  # the offset after its last bundle
    size: int
    ingested: tuple[int, int]
    event_time: tuple[int, int] | None = None  # `None`: no bundle in it has one
    finished: bool = False  # every subscriber has; without subscribers nothing is ever finished
    held_by_block: bool = True  # a subscriber with `on_full: block` still needs it, or there is no subscriber at all
    delivering: bool = False  # some bundle of it is out with a subscriber right now


_FINISHED: Final = 1
_HELD_BY_BLOCK: Final = 2
_DELIVERING: Final = 4
_EVENT_TIME: Final = 8
_COLUMNS: Final = "QQQqqqqB"  # the fields in their order, pairs as two columns, then the flags


class SegmentTable(Sequence[SegmentFacts]):
    """The segments of a shard, oldest first. One thread at a time."""

    def __init__(self) -> None:
        self._columns = tuple(array(code) for code in _COLUMNS)

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, index: int) -> SegmentFacts: ...
    @overload
    def __getitem__(self, index: slice) -> list[SegmentFacts]: ...
    def __getitem__(self, index: int | slice) -> SegmentFacts | list[SegmentFacts]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        return _row(*(column[index] for column in self._columns))

    def __iter__(self) -> Iterator[SegmentFacts]:
        return starmap(_row, zip(*self._columns, strict=True))

    def __reversed__(self) -> Iterator[SegmentFacts]:
        return starmap(_row, zip(*map(reversed, self._columns), strict=True))

    def append(self, facts: SegmentFacts) -> None:
        """Add a segment; it must lie above all the others."""
        ends = self._columns[1]
        if not facts.first < facts.end or (ends and facts.first < ends[-1]):
            after = f" after one that ends at {ends[-1]}" if ends else ""
            raise ValueError(f"segment from {facts.first} to {facts.end}{after}: offsets must rise")
        event, event_last = facts.event_time or (0, 0)
        flags = _flags(facts.finished, facts.held_by_block, facts.delivering)
        flags |= _EVENT_TIME if facts.event_time is not None else 0
        row = (facts.first, facts.end, facts.size, *facts.ingested, event, event_last, flags)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def mark(self, index: int, *, finished: bool, held_by_block: bool, delivering: bool) -> None:
        """Say anew who needs a segment; the rest of its facts never changes."""
        flags = self._columns[-1]
        flags[index] = flags[index] & _EVENT_TIME | _flags(finished, held_by_block, delivering)

    def find(self, first: int) -> int:
        """The index of the segment that begins at offset `first`; raises `KeyError`."""
        firsts = self._columns[0]
        index = bisect_left(firsts, first)
        if index == len(firsts) or firsts[index] != first:
            raise KeyError(first)
        return index

    def remove(self, firsts: Collection[int]) -> None:
        """Take out the segments that begin at these offsets, those that are there."""
        gone = set(firsts)
        kept = bytes(first not in gone for first in self._columns[0])
        for column in self._columns:
            column[:] = array(column.typecode, compress(column, kept))


def _flags(finished: bool, held_by_block: bool, delivering: bool) -> int:
    return finished * _FINISHED | held_by_block * _HELD_BY_BLOCK | delivering * _DELIVERING


def _row(
    first: int, end: int, size: int, ingested: int, ingested_last: int, event: int, event_last: int, flags: int
) -> SegmentFacts:
    return SegmentFacts(
        first,
        end,
        size,
        (ingested, ingested_last),
        (event, event_last) if flags & _EVENT_TIME else None,
        flags & _FINISHED != 0,
        flags & _HELD_BY_BLOCK != 0,
        flags & _DELIVERING != 0,
    )
