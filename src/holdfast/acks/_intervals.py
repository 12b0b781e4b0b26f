"""A set of offsets as intervals: small for runs, quick for single offsets, vectorised for many at once.

The bounds (see `_bounds.py`) are kept in blocks of bounded length, each with whole intervals: an insertion moves the
rest of one block and not of the whole set, and every question is two binary searches.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from holdfast.acks._bounds import MAX_END, Bounds, Range, difference, size, union

_BLOCK: Final = 1024  # bounds in a block, at most: 8 KiB to move
_PART: Final = 1 << 17  # bounds that are merged at a time: this bounds the memory of a merge
_SPARSE: Final = 16  # so many times fewer new bounds than old ones are cheaper one by one
if _BLOCK % 8 or _PART % 2:
    raise RuntimeError("a half and three quarters of a block, and a part, must hold whole intervals")


class IntervalSet:
    """Offsets, as sorted intervals that neither overlap nor touch. Not thread-safe."""

    __slots__ = ("_blocks", "_count", "_firsts", "_size")

    def __init__(self) -> None:
        self._blocks = [array("Q")]  # only the first may be empty, and only when it is alone
        self._firsts = [0]  # the first bound of each block; of the first block a number that is not above it
        self._count = 0
        self._size = 0

    @classmethod
    def from_bounds(cls, bounds: Bounds) -> IntervalSet:
        """A set from `[first, end, first, end, ...]`; raises `ValueError` unless they are whole and strictly rising."""
        if len(bounds) % 2 or not (bounds[1:] > bounds[:-1]).all():
            raise ValueError(f"{len(bounds)} bounds of intervals; expected pairs, strictly rising")
        if len(bounds) and bounds[-1] > MAX_END:
            raise ValueError(f"an interval ends at {bounds[-1]}; expected {MAX_END} at most")
        made = cls()
        made._replace(0, 1, made.bounds(), bounds)
        return made

    @property
    def count(self) -> int:
        """How many intervals there are."""
        return self._count

    @property
    def size(self) -> int:
        """How many offsets are in the set."""
        return self._size

    @property
    def first(self) -> int:
        """The lowest offset in the set, which must not be empty."""
        return self._blocks[0][0]

    @property
    def end(self) -> int:
        """One above the highest offset in the set; 0 for an empty one."""
        return self._blocks[-1][-1] if self._count else 0

    def __contains__(self, offset: int) -> bool:
        block = self._blocks[bisect_right(self._firsts, offset, 1) - 1]
        return bisect_right(block, offset) & 1 == 1

    def __iter__(self) -> Iterator[Range]:
        """The intervals, in order."""
        for block in self._blocks:
            yield from zip(block[0::2], block[1::2], strict=True)

    def bounds(self) -> Bounds:
        """All intervals as `[first, end, first, end, ...]`."""
        return self._flat(0, len(self._blocks))

    def next_absent(self, offset: int) -> int:
        """The lowest offset from this one on that is not in the set."""
        block = self._blocks[bisect_right(self._firsts, offset, 1) - 1]
        place = bisect_right(block, offset)
        return block[place] if place & 1 else offset

    def next_present(self, offset: int) -> int | None:
        """The lowest offset from this one on that is in the set."""
        number = bisect_right(self._firsts, offset, 1) - 1
        block = self._blocks[number]
        place = bisect_right(block, offset)
        if place & 1:
            return offset
        if place < len(block):
            return block[place]
        return self._firsts[number + 1] if number + 1 < len(self._blocks) else None

    def overlaps(self, first: int, end: int) -> bool:
        """Whether any offset of `[first, end)` is in the set."""
        found = self.next_present(first)
        return found is not None and found < end

    def gaps(self, first: int, end: int) -> list[Range]:
        """The parts of `[first, end)` that are not in the set."""
        found: list[Range] = []
        while (first := self.next_absent(first)) < end:
            present = self.next_present(first)
            found.append((first, end if present is None else min(present, end)))
            first = found[-1][1]
        return found

    def missing(self, bounds: Bounds) -> Bounds:
        """The part of the set `bounds` that is not in this one."""
        parts = []
        for part, first, last in self._parts(bounds):
            if self._is_sparse(part, first, last):
                gaps = [self.gaps(*pair) for pair in zip(part[0::2].tolist(), part[1::2].tolist(), strict=True)]
                parts.append(np.array([bound for each in gaps for gap in each for bound in gap], np.uint64))
            else:
                parts.append(difference(part, self._flat(first, last)))
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)

    def add(self, first: int, end: int) -> None:
        """Put `[first, end)` in."""
        firsts = self._firsts
        number = bisect_right(firsts, first, 1) - 1
        last = number + 1
        if last < len(firsts) and end >= firsts[last]:
            last = bisect_right(firsts, end, last)
            self._join(number, last)
        block = self._blocks[number]
        left = bisect_left(block, first)
        right = bisect_right(block, end, left)
        if left == right:
            if left & 1 == 0:  # it lies by itself
                block.insert(left, end)
                block.insert(left, first)
                self._count += 1
                self._size += end - first
                if len(block) > _BLOCK:
                    self._split(number)
            return
        # What lies between goes; a bound comes where [first, end) does not begin or end within an interval.
        bounds = ([] if left & 1 else [first]) + ([] if right & 1 else [end])
        self._size -= _sum(block[left:right], left)
        block[left:right] = array("Q", bounds)
        self._size += _sum(bounds, left)
        self._count += (len(bounds) - (right - left)) // 2

    def add_bounds(self, bounds: Bounds) -> None:
        """Put a whole set in."""
        for part, first, last in self._parts(bounds):
            if self._is_sparse(part, first, last):
                for pair in zip(part[0::2].tolist(), part[1::2].tolist(), strict=True):
                    self.add(*pair)
            else:
                old = self._flat(first, last)
                self._replace(first, last, old, union(old, part))

    def discard_below(self, before: int) -> None:
        """Take out every offset below `before`."""
        last = bisect_left(self._firsts, before, 1)
        old = self._flat(0, last)
        rest = old[np.searchsorted(old, np.uint64(before), "right") :]
        if len(rest) % 2:  # `before` lies within an interval
            rest = np.concatenate([np.array([before], np.uint64), rest])
        self._replace(0, last, old, rest)

    def pop_first(self) -> Range:
        """Take out the first interval; there must be one."""
        block = self._blocks[0]
        first, end = block[0], block[1]
        del block[:2]
        if not block and len(self._blocks) > 1:
            del self._blocks[0], self._firsts[0]
        self._count -= 1
        self._size -= end - first
        return first, end

    # -- blocks ------------------------------------------------------------------------------------------------------

    def _flat(self, first: int, last: int) -> Bounds:
        """The bounds of some blocks, as a copy: an array that others look into cannot grow."""
        return np.concatenate([np.array(block, np.uint64) for block in self._blocks[first:last]])

    def _parts(self, bounds: Bounds) -> Iterator[tuple[Bounds, int, int]]:
        """`bounds` in pieces, each with the blocks that it may overlap or touch."""
        for start in range(0, len(bounds), _PART):
            part = bounds[start : start + _PART]
            first = max(0, bisect_left(self._firsts, int(part[0]), 1) - 1)
            yield part, first, bisect_right(self._firsts, int(part[-1]), first + 1)

    def _is_sparse(self, part: Bounds, first: int, last: int) -> bool:
        return (last - first) * (_BLOCK // 2) > _SPARSE * len(part)

    def _join(self, first: int, last: int) -> None:
        """Make one block of several."""
        whole = self._blocks[first]
        for block in self._blocks[first + 1 : last]:
            whole.extend(block)
        del self._blocks[first + 1 : last], self._firsts[first + 1 : last]

    def _split(self, number: int) -> None:
        """Make blocks of half the bounded length, so that each can grow again."""
        block = self._blocks[number]
        step = _BLOCK // 2
        halves = [block[start : start + step] for start in range(0, len(block), step)]
        self._blocks[number : number + 1] = halves
        self._firsts[number + 1 : number + 1] = [half[0] for half in halves[1:]]

    def _replace(self, first: int, last: int, old: Bounds, new: Bounds) -> None:
        """Put `new` bounds in the place of some blocks, which hold the `old` ones."""
        self._count += len(new) // 2 - len(old) // 2
        self._size += size(new) - size(old)
        step = _BLOCK * 3 // 4  # a third more can come before it is split
        made = [array("Q", new[start : start + step].tobytes()) for start in range(0, len(new), step)]
        self._blocks[first:last] = made
        self._firsts[first:last] = [block[0] for block in made]
        if not self._blocks:
            self._blocks, self._firsts = [array("Q")], [0]


def _sum(bounds: Sequence[int], place: int) -> int:
    """What these bounds, of which the first stands at `place`, add to the number of offsets."""
    return sum(bounds[1 - place % 2 :: 2]) - sum(bounds[place % 2 :: 2])
