"""Sets of offsets as intervals, against plain sets."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.acks import IntervalSet, _intervals
from holdfast.acks._bounds import joined, offsets_array, ranges_array
from holdfast.errors import InvalidPosition

PAIRS = st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda pair: (pair[0], pair[0] + pair[1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(PAIRS, min_size=1, max_size=1)),
        st.tuples(st.just("bulk"), st.lists(PAIRS, min_size=1, max_size=12)),
        st.tuples(st.just("below"), st.lists(PAIRS, min_size=1, max_size=1)),
        st.tuples(st.just("pop"), st.just([])),
    ),
    max_size=30,
)


def bounds_of(pairs: list[tuple[int, int]]) -> np.ndarray:
    given = ranges_array(pairs)
    return joined(given[:, 0], given[:, 1])


def check(found: IntervalSet, expected: set[int]) -> None:
    """Every question has the answer that a plain set gives."""
    edges = (
        sorted(x for x in expected if x - 1 not in expected),
        sorted(x + 1 for x in expected if x + 1 not in expected),
    )
    pairs = list(zip(*edges, strict=True))
    assert list(found) == pairs
    assert found.bounds().tolist() == [bound for pair in pairs for bound in pair]
    assert (found.count, found.size) == (len(pairs), len(expected))
    if pairs:
        assert found.first == min(expected)
    for offset in range(75):
        assert (offset in found) == (offset in expected)
        assert found.next_absent(offset) == next(x for x in range(offset, 99) if x not in expected)
        assert found.next_present(offset) == min((x for x in expected if x >= offset), default=None)
    for first, end in ((0, 75), (10, 30), (33, 34), (20, 20)):
        gaps = found.gaps(first, end)
        assert {x for gap in gaps for x in range(*gap)} == set(range(first, end)) - expected
        assert all(one[1] < two[0] for one, two in pairwise(gaps))
        assert found.overlaps(first, end) == bool(expected & set(range(first, end)))
    asked = bounds_of([(3, 20), (25, 26), (40, 70)])
    missing = found.missing(asked).reshape(-1, 2).tolist()
    assert {x for pair in missing for x in range(*pair)} == {*range(3, 20), 25, *range(40, 70)} - expected


@pytest.mark.parametrize("sparse", [0, 10**9], ids=["one by one", "in bulk"])
@given(steps=STEPS)
@settings(max_examples=150, deadline=None)
def test_intervals_are_a_set(sparse: int, steps: list[tuple[str, list[tuple[int, int]]]]) -> None:
    """Whatever is added, taken out and asked, in tiny blocks: the answers are those of a plain set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_intervals, "_BLOCK", 8)
        patch.setattr(_intervals, "_PART", 8)
        patch.setattr(_intervals, "_SPARSE", sparse)
        found, expected = IntervalSet(), set[int]()
        for what, pairs in steps:
            if what == "pop":
                if expected:
                    first, end = found.pop_first()
                    expected -= set(range(first, end))
            elif what == "below":
                found.discard_below(pairs[0][0])
                expected = {x for x in expected if x >= pairs[0][0]}
            elif what == "add":
                found.add(*pairs[0])
                expected |= set(range(*pairs[0]))
            else:
                found.add_bounds(bounds_of(pairs))
                expected |= {x for pair in pairs for x in range(*pair)}
            check(found, expected)
        check(IntervalSet.from_bounds(found.bounds()), expected)


@pytest.mark.parametrize("bounds", [[1], [1, 2, 2, 3], [2, 1], [5, 5], [1, 2**63 + 1]])
def test_bounds_that_are_no_intervals_are_refused(bounds: list[int]) -> None:
    """Odd, touching, falling or endless bounds raise."""
    with pytest.raises(ValueError, match="interval"):
        IntervalSet.from_bounds(np.array(bounds, np.uint64))


@pytest.mark.parametrize("wrong", [[-1], [2**63], [1.5], ["1"], np.array([1.5]), np.array([-1]), np.array([[1, 2]])])
def test_what_is_no_offset_is_refused(wrong: list[int]) -> None:
    """Negative, endless, broken and nested numbers raise, and the text shows them."""
    with pytest.raises(InvalidPosition, match="are not offsets"):
        offsets_array(wrong)


@pytest.mark.parametrize("wrong", [[(2, 2)], [(3, 2)], [(-1, 2)], [(0, 2**63 + 1)], [(0.5, 2)], [1, 2], [(1, 2, 3)]])
def test_what_is_no_range_is_refused(wrong: list[tuple[int, int]]) -> None:
    """Empty, backward, negative, endless and malformed ranges raise."""
    with pytest.raises(InvalidPosition, match="are not ranges"):
        ranges_array(wrong)


def memory_of(fill: Callable[[IntervalSet], None]) -> tuple[int, int, IntervalSet]:
    """Bytes held by a set, and the most there were while it was filled."""
    gc.collect()
    tracemalloc.start()
    try:
        made = IntervalSet()
        fill(made)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held, most, made


def scattered() -> np.ndarray:
    numbers = np.arange(1, 2_000_001, 2, dtype=np.uint64)
    np.random.default_rng(3).shuffle(numbers)
    return numbers


def test_a_million_scattered_offsets_in_bulk_stay_below_100_mb() -> None:
    """A million intervals of one offset, none touching another, also while they are merged in ten parts."""
    parts = np.array_split(scattered(), 10)

    def fill(made: IntervalSet) -> None:
        for part in parts:
            made.add_bounds(joined(part, part + np.uint64(1)))

    held, most, made = memory_of(fill)
    assert made.count == 1_000_000
    assert held < 40_000_000
    assert most < 100_000_000


@pytest.mark.long
def test_a_million_scattered_offsets_one_by_one_stay_below_100_mb() -> None:
    """The same, each put in by itself."""
    numbers = scattered().tolist()

    def fill(made: IntervalSet) -> None:
        for number in numbers:
            made.add(number, number + 1)

    held, most, made = memory_of(fill)
    assert made.count == 1_000_000
    assert held < 50_000_000
    assert most < 100_000_000


def test_a_million_offsets_in_runs_stay_below_1_mb() -> None:
    """A thousand runs of a thousand offsets, which come in any order, take almost nothing."""
    starts = [run * 1001 for run in range(1000)]
    Random(5).shuffle(starts)

    def fill(made: IntervalSet) -> None:
        for start in starts:
            made.add(start, start + 500)
            made.add(start + 500, start + 1000)

    held, most, made = memory_of(fill)
    assert (made.count, made.size) == (1000, 1_000_000)
    assert most < 1_000_000
    assert held < 1_000_000
