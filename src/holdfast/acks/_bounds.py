"""Arithmetic on many intervals at once.

A set of offsets is written as its bounds: `[first, end, first, end, ...]`, strictly rising, so that intervals neither
overlap nor touch. An offset is in the set exactly if an odd number of bounds is at or below it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import InvalidPosition

Range: TypeAlias = tuple[int, int]  # of offsets, the end not included
Bounds: TypeAlias = NDArray[np.uint64]

MAX_END: Final = 2**63  # of a range; offsets lie below it, so that no sum of two leaves 64 bits


def offsets_array(offsets: Sequence[int] | NDArray[Any]) -> Bounds:
    """The offsets as 64-bit numbers; `InvalidPosition` if one could not be an offset."""
    given = offsets if isinstance(offsets, np.ndarray) else _whole_numbers(offsets)
    if given is None or given.ndim != 1 or given.dtype.kind not in "iu" or not _within(given, MAX_END - 1):
        raise InvalidPosition(f"{_shown(offsets)} are not offsets: whole numbers from 0 to {MAX_END - 1}")
    return given.astype(np.uint64, copy=False)


def ranges_array(ranges: Sequence[Range] | NDArray[Any]) -> Bounds:
    """The ranges as rows of two 64-bit numbers; `InvalidPosition` if one is empty or could not be a range."""
    given = ranges if isinstance(ranges, np.ndarray) else _pairs(ranges)
    if (
        given is None
        or given.ndim != 2
        or given.shape[1] != 2
        or given.dtype.kind not in "iu"
        or not _within(given, MAX_END)
        or not (given[:, 0] < given[:, 1]).all()
    ):
        raise InvalidPosition(f"{_shown(ranges)} are not ranges: pairs 0 <= first < end <= {MAX_END}")
    return given.astype(np.uint64, copy=False)


def _whole_numbers(values: Iterable[int]) -> Bounds | None:
    """An array of the standard library refuses what is negative or no whole number, and is quick for a few."""
    try:
        return np.frombuffer(array("Q", values), np.uint64)
    except (TypeError, OverflowError):
        return None


def _pairs(ranges: Sequence[Range]) -> Bounds | None:
    try:
        if any(len(pair) != 2 for pair in ranges):
            return None
    except TypeError:
        return None
    flat = _whole_numbers(chain.from_iterable(ranges))
    return None if flat is None else flat.reshape(-1, 2)


def _within(numbers: NDArray[Any], highest: int) -> bool:
    return not numbers.size or bool(numbers.min() >= 0 and numbers.max() <= highest)


def _shown(values: Any) -> str:
    text = repr(values)
    return text if len(text) <= 80 else f"{text[:77]}..."


def joined(starts: Bounds, ends: Bounds) -> Bounds:
    """The bounds of ranges in any order, which may overlap and touch."""
    if not len(starts):
        return starts
    if not (starts[1:] > starts[:-1]).all():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    begins = np.ones(len(starts), bool)  # does this range begin an interval?
    np.greater(starts[1:], reach[:-1], out=begins[1:])
    bounds = np.empty(2 * np.count_nonzero(begins), np.uint64)
    bounds[0::2] = starts[begins]
    bounds[1::2] = reach[np.append(begins[1:], True)]
    return bounds


def union(left: Bounds, right: Bounds) -> Bounds:
    """What is in either set."""
    position, in_left, in_right = _sweep(left, right)
    return _changes(position, in_left | in_right)


def difference(left: Bounds, right: Bounds) -> Bounds:
    """What is in `left` and not in `right`."""
    position, in_left, in_right = _sweep(left, right)
    return _changes(position, in_left & ~in_right)


def size(bounds: Bounds) -> int:
    """How many offsets are in the set."""
    return int((bounds[1::2] - bounds[0::2]).sum())


def _sweep(left: Bounds, right: Bounds) -> tuple[Bounds, NDArray[np.bool_], NDArray[np.bool_]]:
    """Every position where either set changes, and whether what follows it is in the left and in the right one."""
    position = np.concatenate([left, right])
    order = np.argsort(position, kind="stable")
    position = position[order]
    from_left = order < len(left)
    in_left = np.logical_xor.accumulate(from_left)
    in_right = np.logical_xor.accumulate(~from_left)
    last = np.append(position[1:] != position[:-1], True)  # where both change, the second says what follows
    return position[last], in_left[last], in_right[last]


def _changes(position: Bounds, inside: NDArray[np.bool_]) -> Bounds:
    changes = inside.copy()
    np.not_equal(inside[1:], inside[:-1], out=changes[1:])
    bounds: Bounds = position[changes]
    return bounds
