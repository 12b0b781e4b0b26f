"""The token bucket, by a clock that stands still."""

from __future__ import annotations

from holdfast.receivers._pace import Pace
from holdfast.testing import FakeClock


def test_a_burst_at_once_then_by_the_clock() -> None:
    """A full bucket is given at once; then a block comes each time its rows have had their time."""
    clock = FakeClock()
    pace = Pace(100, 50, clock)
    assert [pace.take(25), pace.take(25)] == [0.0, 0.0]
    assert pace.take(25) == 0.25
    clock.advance(0.2)
    assert round(pace.take(25), 6) == 0.05
    clock.advance(0.05)
    assert pace.take(25) == 0.0


def test_time_that_was_not_used_is_not_made_up_for() -> None:
    """After a long pause no more than one burst comes at once."""
    clock = FakeClock()
    pace = Pace(100, 50, clock)
    clock.advance(1000)
    assert [pace.take(50) > 0, pace.take(1) > 0] == [False, True]


def test_a_block_larger_than_a_burst_goes_and_is_paid_for() -> None:
    """It needs a full bucket, and the next one waits for what it took too much."""
    clock = FakeClock()
    pace = Pace(100, 50, clock)
    assert pace.take(200) == 0.0
    assert pace.take(50) == 2.0
