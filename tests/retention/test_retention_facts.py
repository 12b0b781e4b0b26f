"""The table of segments: what goes in comes out, in little room."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.retention import MAX_DELETIONS, SegmentFacts, SegmentTable, plan
from retention.retentionkit import SECOND, segment, settings, situation

TIMES = st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
FACTS = st.builds(
    SegmentFacts,
    st.just(0),
    st.integers(1, 2**20),
    st.integers(0, 2**40),
    TIMES,
    st.none() | TIMES,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def table_of(rows: list[SegmentFacts]) -> SegmentTable:
    table = SegmentTable()
    for row in rows:
        table.append(row)
    return table


@given(st.lists(FACTS, max_size=20))
def test_rows_come_back(rows: list[SegmentFacts]) -> None:
    """Each row reads as it was appended, by index, slice, iteration and from the end."""
    start, placed = 0, []
    for row in rows:
        placed.append(row._replace(first=start, end=start + row.end))
        start = placed[-1].end
    table = table_of(placed)
    assert list(table) == placed
    assert list(reversed(table)) == placed[::-1]
    assert table[1:5] == placed[1:5]
    assert [table.find(row.first) for row in placed] == list(range(len(placed)))


def test_offsets_rise() -> None:
    """A segment that overlaps the last one, or is empty, is refused; a hole is not."""
    table = table_of([segment(10)])
    with pytest.raises(ValueError, match="from 15 to 25 after one that ends at 20: offsets must rise"):
        table.append(segment(15))
    with pytest.raises(ValueError, match="from 30 to 30"):
        table.append(segment(30)._replace(end=30))
    table.append(segment(40))
    assert [row.first for row in table] == [10, 40]


def test_marks_change_who_needs_it_and_nothing_else() -> None:
    """A mark replaces the three answers; times, sizes and offsets stay."""
    row = segment(0, "blocked delivering")._replace(event_time=(1, 2))
    table = table_of([row, segment(10)])
    table.mark(0, finished=True, held_by_block=False, delivering=False)
    assert table[0] == row._replace(finished=True, held_by_block=False, delivering=False)
    assert table[1] == segment(10)


def test_removal() -> None:
    """Segments leave by their first offset, from anywhere; unknown ones are no error."""
    table = table_of([segment(first) for first in range(0, 60, 10)])
    table.remove([0, 30, 50, 77])
    assert [row.first for row in table] == [10, 20, 40]
    for first in (0, 15, 50):
        with pytest.raises(KeyError):
            table.find(first)


def test_a_hundred_thousand_segments_in_ten_megabytes() -> None:
    """The facts of 100,000 segments, and a plan over them, stay under 10 MB."""
    tracemalloc.start()
    try:
        table = SegmentTable()
        for number in range(100_000):
            at = number * SECOND + 10**18
            table.append(
                SegmentFacts(number, number + 1, 32 * 10**6 + number, (at, at + 1), (at, at + 1), number % 2 == 0)
            )
        rules = settings(max_age="1s", size_cap_policy="drop_oldest", max_segments=1)
        made = plan(rules, table, situation(now_ns=2 * 10**18, over_bytes=10**15))
        table.remove([each.first for each in made.deletions])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(made.deletions), made.more, len(table)) == (MAX_DELETIONS, True, 100_000 - MAX_DELETIONS)
    assert peak < 10 * 10**6
