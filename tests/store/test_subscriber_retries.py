"""Nacks: pauses, bounds on what waits, attempts and where they end."""

from __future__ import annotations

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import AlreadySettled, InputError
from holdfast.testing import FakeClock, SimulatedFiles, crash
from store.storekit import TOPIC, until
from store.subkit import (
    DEAD,
    Background,
    ack_all,
    now,
    numbers,
    put,
    simulated,
    unfinished,
    watermark,
)

# -- nack --------------------------------------------------------------------------------------------------------------


def test_nack_with_a_pause_of_its_own() -> None:
    """`retry_in` says when: not a moment earlier, and then as the next attempt."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].nack("away", retry_in=5)
            clock.advance(4.999)
            assert now(sub) == []
            clock.advance(0.001)
            (again,) = now(sub)
            assert (again.offset, again.attempt) == (0, 2)


def test_retries_do_not_hold_up_the_others() -> None:
    """While a bundle waits for its next attempt, everything behind it is delivered and can be finished."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(5))
        with topic.subscribe("lake") as sub:
            sub.take(1, timeout=0)[0].nack("away", retry_in=60)
            assert ack_all(now(sub)) == [1, 2, 3, 4]
            put(topic, 5)
            assert ack_all(now(sub)) == [5]
            sub.flush()
            assert watermark(topic, "lake") == 0
            clock.advance(60)
            assert ack_all(now(sub)) == [0]
            sub.flush()
            assert watermark(topic, "lake") == 6


def test_pauses_double_up_to_the_longest_with_jitter_within_bounds() -> None:
    """The n-th pause lies between half of and all of `retry_initial` times 2**n, and never above `retry_max`."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(40))
        with topic.subscribe("lake", retry_initial=8, retry_max=32, deadline=1000) as sub:
            taken = now(sub)
            for longest in (8, 16, 32, 32, 32):
                for each in taken:
                    each.nack("away", transient=True)
                clock.advance(longest / 2 - 0.001)
                assert now(sub) == [], "a retry came before half of its pause"
                clock.advance(longest / 4)
                taken = now(sub)
                assert 0 < len(taken) < 40, "all pauses are alike: there is no jitter"
                clock.advance(longest / 4 + 0.001)
                taken += now(sub)
                assert sorted(numbers(taken)) == list(range(40)), "a retry came after all of its pause"


def test_pause_does_not_grow_beyond_all_bounds() -> None:
    """After hundreds of attempts the pause is still `retry_max` at most."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", retry_initial=0.001, retry_max=2) as sub:
            for attempt in range(1, 300):
                (again,) = now(sub)
                assert again.attempt == attempt
                again.nack("away", transient=True)
                clock.advance(2)


@pytest.mark.parametrize("retry_in", [-1, float("nan")])
def test_impossible_pause_is_refused_and_the_delivery_stays_open(retry_in: float) -> None:
    """A pause below zero, or none at all, is refused; the same delivery can then be answered properly."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            with pytest.raises(InputError, match="retry_in"):
                held.nack("away", retry_in=retry_in)
            held.ack()


def test_nothing_new_once_enough_bundles_wait_for_a_retry() -> None:
    """With `max_retrying` bundles waiting for another attempt nothing new is delivered; one that goes makes room."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(10))
        with topic.subscribe("lake", window=2, max_retrying=2) as sub:
            for each in now(sub):
                each.nack("away", retry_in=10)
            assert sub.statistics().retrying == 2
            assert now(sub) == []
            clock.advance(10)
            assert ack_all(sub.take(1, timeout=0)) == [0]
            assert numbers(now(sub)) == [1, 2]


def test_waiting_bundles_are_bounded_by_retries_and_window_together() -> None:
    """However much is nacked, no more than `max_retrying` and a window wait for another attempt."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(50))
        with topic.subscribe("lake", window=5, max_retrying=3) as sub:
            while taken := now(sub):
                for each in taken:
                    each.nack("away", retry_in=100)
            assert sub.statistics().retrying <= 8


def test_take_wakes_for_a_retry_that_becomes_due() -> None:
    """A take that waits ends when a retry is due, without anything else happening."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].nack("away", retry_in=0.03)
            assert numbers(sub.take(1)) == [0]


def test_nack_wakes_a_waiting_take() -> None:
    """A nack whose retry is due at once goes to another thread that waits in take."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            waiting = Background(lambda: sub.take(1))
            until(lambda: sub._waiting)
            held.nack("away", retry_in=0)
            assert numbers(waiting.result()) == [0]


# -- attempts ----------------------------------------------------------------------------------------------------------


def test_transient_failures_never_use_up_attempts() -> None:
    """A sink that is away for a hundred attempts costs the bundle none of them."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=2) as sub:
            for attempt in range(1, 101):
                (held,) = now(sub)
                assert held.attempt == attempt
                held.nack("the sink is away", retry_in=0, transient=True)
            now(sub)[0].nack("bad row", retry_in=0)
            assert now(sub)[0].attempt == 102
            assert sub.statistics().rejected == 0
            assert store.topics() == [TOPIC]


def test_permanent_failures_end_in_the_dead_letters_once() -> None:
    """The last of `max_attempts` failures is final: the bundle is kept once, and never delivered again."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake", max_attempts=3) as sub:
            for _ in range(2):
                sub.take(1, timeout=0)[0].nack("bad row", retry_in=0)
            (last,) = sub.take(1, timeout=0)
            last.nack("bad row", retry_in=0)
            assert sub.statistics().rejected == 1
            assert ack_all(now(sub)) == [1]
            sub.flush()
            assert watermark(topic, "lake") == 2
            assert topic.subscribers()["lake"].shards[0].rejected == 1
            with pytest.raises(AlreadySettled):
                last.nack("bad row")
        (letter,) = store.topic(DEAD).bundles()
        about = letter.attributes["holdfast.dead"]
        assert about["attempts"] == 3
        assert "bad row" in about["reason"]
    with simulated(files, seed=2) as store:
        assert unfinished(store.topic(TOPIC), "lake") == []
        assert len(list(store.topic(DEAD).bundles())) == 1


def test_attempts_survive_a_restart() -> None:
    """Failures and tries are counted on by the next holder: a bundle cannot outlive its attempts by restarts."""
    files = SimulatedFiles()
    for life in range(1, 4):
        with simulated(files, seed=life) as store:
            topic = store.topic(TOPIC)
            if life == 1:
                put(topic, 0)
            with topic.subscribe("lake", max_attempts=3) as sub:
                (held,) = now(sub)
                assert held.attempt == life
                held.nack("bad row", retry_in=0)
                assert sub.statistics().rejected == (life == 3)
    with simulated(files, seed=9) as store:
        assert unfinished(store.topic(TOPIC), "lake") == []


def test_attempts_survive_a_power_cut_once_written() -> None:
    """What `flush(sync=True)` wrote about failures is there after a crash."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].nack("bad row", retry_in=0)
            sub.flush(sync=True)
            files = crash(files)
    with simulated(files, seed=2) as store, store.topic(TOPIC).subscribe("lake") as sub:
        assert now(sub)[0].attempt == 2
