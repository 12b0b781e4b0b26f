"""Deliveries that nobody answers in time, and answers that come late."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import AlreadySettled
from holdfast.testing import FakeClock, SimulatedFiles
from store.storekit import TOPIC
from store.subkit import (
    DEAD,
    now,
    put,
    simulated,
    watermark,
)

ONE_SECOND: dict[str, Any] = {"retry_initial": 1, "retry_max": 1}


def test_silence_until_the_deadline_counts_as_a_transient_nack() -> None:
    """A delivery that nobody answers comes again, shows in the statistics, and uses up no attempt."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10, max_attempts=1, **ONE_SECOND) as sub:
            for attempt in (1, 2, 3):
                (held,) = now(sub)
                assert held.attempt == attempt
                clock.advance(9.9)
                assert now(sub) == []
                assert sub.statistics().deadline_misses == attempt - 1
                clock.advance(0.2)
                assert now(sub) == [], "it has a pause like any other nack"
                counts = sub.statistics()
                assert (counts.deadline_misses, counts.nacked, counts.in_flight) == (attempt, attempt, 0)
                assert (counts.retrying, counts.rejected) == (1, 0)
                clock.advance(1)


def test_lapsed_attempts_survive_a_kill() -> None:
    """That a deadline passed is written down like any other nack."""
    clock, files = FakeClock(), SimulatedFiles()
    with simulated(files, clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10) as sub:
            now(sub)
            clock.advance(11)
            now(sub)
            sub.flush()
            files = files.kill()
    with simulated(files, seed=2) as store, store.topic(TOPIC).subscribe("lake") as sub:
        assert now(sub)[0].attempt == 2


def test_a_waiting_take_lets_deadlines_pass() -> None:
    """A take that waits wakes at a deadline and delivers the bundle again, though nobody else does anything."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=0.02, retry_initial=0.001, retry_max=0.001) as sub:
            (held,) = now(sub)
            (again,) = sub.take(1)
            assert (again.offset, again.attempt, held.attempt) == (0, 2, 1)


def test_late_ack_is_final_and_stops_the_retry() -> None:
    """An ack after the deadline counts, and the bundle is not delivered again."""
    clock, files = FakeClock(), SimulatedFiles()
    with simulated(files, clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10, **ONE_SECOND) as sub:
            (held,) = now(sub)
            clock.advance(11)
            assert now(sub) == []
            assert sub.statistics().retrying == 1
            held.ack()
            assert sub.statistics().retrying == 0
            clock.advance(100)
            assert now(sub) == []
            sub.flush()
            assert watermark(topic, "lake") == 1
            with pytest.raises(AlreadySettled):
                held.ack()


def test_late_ack_while_the_bundle_is_in_hand_again() -> None:
    """The first delivery is acked late: whatever the second one is answered with, there is no third."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake", deadline=10, **ONE_SECOND) as sub:
            first = now(sub)
            clock.advance(11)
            now(sub)
            clock.advance(1)
            second = now(sub)
            assert [each.attempt for each in second] == [2, 2]
            for each in first:
                each.ack()
            sub.flush()
            second[0].nack("too late", retry_in=0)
            assert now(sub) == []
            second[1].ack()
            clock.advance(100)
            assert now(sub) == []
            assert (watermark(topic, "lake"), sub.statistics().in_flight) == (2, 0)


def test_late_nack_changes_nothing() -> None:
    """Silence was taken for a nack already: a nack after the deadline is not counted twice."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10, **ONE_SECOND) as sub:
            (held,) = now(sub)
            clock.advance(11)
            now(sub)
            held.nack("late", retry_in=1000)
            clock.advance(1)
            (again,) = now(sub)
            assert again.attempt == 2
            assert sub.statistics().nacked == 1


def test_late_reject_is_final() -> None:
    """A bundle that is rejected after its deadline is dead-lettered and not delivered again."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10, **ONE_SECOND) as sub:
            (held,) = now(sub)
            clock.advance(11)
            now(sub)
            held.reject("bad row")
            clock.advance(100)
            assert now(sub) == []
            assert len(list(store.topic(DEAD).bundles())) == 1
