"""Answers: acks, nacks and their pauses, deadlines, attempts, and what may not be answered twice."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import AlreadySettled, Closed, InputError
from holdfast.testing import OPERATIONS, FakeClock, SimulatedFiles, crash
from store.storekit import SHARD, TOPIC, until
from store.subkit import (
    DEAD,
    WAIT,
    Background,
    ack_all,
    now,
    numbers,
    put,
    simulated,
    unfinished,
    watermark,
)

ONE_SECOND: dict[str, Any] = {"retry_initial": 1, "retry_max": 1}


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


# -- deadline ----------------------------------------------------------------------------------------------------------


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


# -- answering twice, or too late --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["ack", "nack", "reject"])
@pytest.mark.parametrize("second", ["ack", "nack", "reject", "reject_rows"])
def test_second_answer_is_refused(first: str, second: str) -> None:
    """Whatever a delivery was answered with, a second answer of any kind raises and changes nothing."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            getattr(held, first)(*(() if first == "ack" else ("why",)))
            before = sub.statistics()
            args: dict[str, tuple[Any, ...]] = {"ack": (), "reject_rows": ("logs", [0], "why")}
            with pytest.raises(AlreadySettled, match="offset 0 of shard 0 was answered before"):
                getattr(held, second)(*args.get(second, ("why",)))
            assert sub.statistics() == before


@pytest.mark.parametrize("answer", ["ack", "nack", "reject", "reject_rows"])
def test_answer_after_close_is_refused_and_not_written(answer: str) -> None:
    """A closed subscriber takes no answers of any kind: what was in hand is the next holder's, as its first attempt."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        sub = topic.subscribe("lake")
        (held,) = now(sub)
        sub.close()
        args: dict[str, tuple[Any, ...]] = {"ack": (), "reject_rows": ("logs", [0], "why")}
        with pytest.raises(Closed, match="subscriber 'lake' is closed; subscribe again"):
            getattr(held, answer)(*args.get(answer, ("why",)))
        with topic.subscribe("lake") as again:
            assert [each.attempt for each in now(again)] == [1]
        assert store.topics() == [TOPIC]


def test_delivery_as_a_context_manager_acks() -> None:
    """A block that ends well acks; one that answered for itself is left alone."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            one, two = now(sub)
            with one as same:
                assert same is one
            with two:
                two.nack("away", retry_in=100)
            counts = sub.statistics()
            assert (counts.acked, counts.nacked) == (1, 1)
            with pytest.raises(AlreadySettled):
                one.ack()


def test_delivery_as_a_context_manager_nacks_with_the_error() -> None:
    """A block that fails is a failed attempt with the error as its reason, and the error goes on."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=1) as sub:
            (held,) = now(sub)
            with pytest.raises(ZeroDivisionError), held:
                1 / 0
        (letter,) = store.topic(DEAD).bundles()
        assert "ZeroDivisionError: division by zero" in letter.attributes["holdfast.dead"]["reason"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_being_told_to_stop_is_not_the_bundles_fault(kind: type[BaseException]) -> None:
    """An interrupt in the middle of a block costs the bundle no attempt, so that it never ends in the dead letters."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=1, **ONE_SECOND) as sub:
            (held,) = now(sub)
            with pytest.raises(kind), held:
                raise kind
            counts = sub.statistics()
            assert (counts.rejected, counts.nacked) == (0, 1)


def test_reason_may_be_any_text() -> None:
    """A reason that is long, or that holds what UTF-8 cannot, stands in nobody's way."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            one, two, three = now(sub)
            one.nack("file \udcff is no text", retry_in=0)
            two.nack("ä" * 5_000, retry_in=0)
            three.ack()
            sub.flush()
            for each in now(sub):
                each.reject("\udcff" + "ä" * 5_000)
            assert watermark(topic, "lake") == 3
        assert len(list(store.topic(DEAD).bundles())) == 2


# -- written, synced, and a disk that fails ----------------------------------------------------------------------------


def test_acks_are_written_down_by_themselves() -> None:
    """Without any further call an ack is in the log soon: what the process forgets, the next one knows."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            now(sub)[0].ack()
            until(lambda: watermark(topic, "lake") == 1)
            with simulated(files.kill(), seed=2) as successor:
                assert unfinished(successor.topic(TOPIC), "lake") == [1]


def test_acks_after_a_lapse_are_written_down_by_themselves() -> None:
    """Also behind a deadline that passed, whose record nobody asked to be written."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", deadline=10) as sub:
            now(sub)
            clock.advance(11)
            put(topic, 1)
            (held,) = now(sub)
            held.ack()
            clock.advance(0.1)
            until(lambda: topic.subscribers()["lake"].shards[0].finished_above == 1)


def test_acks_after_a_failed_flush_are_written_down_by_themselves() -> None:
    """A disk that refuses one flush does not keep later acks from being written."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            files.fail("append", times=None, path=f"{SHARD}/acks/*")
            with pytest.raises(hf.errors.TryAgain):
                taken[0].reject("bad row")
            files.heal()
            taken[1].ack()
            until(lambda: watermark(topic, "lake") == 2)


@pytest.mark.parametrize("written", [False, True])
def test_synced_flush_survives_a_power_cut(written: bool) -> None:
    """On return of `flush(sync=True)` all answers are durable, also those that an earlier flush only wrote."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            ack_all(now(sub))
            if written:
                sub.flush()
            sub.flush(sync=True)
            files = crash(files)
    with simulated(files, seed=2) as store:
        assert unfinished(store.topic(TOPIC), "lake") == []


def test_acks_that_cannot_be_written_are_kept() -> None:
    """While the disk refuses, answers stay in memory; once it is well they are all written."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(4))
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            files.fail("append", errno.ENOSPC, times=None, path=f"{SHARD}/acks/*")
            taken[0].ack()
            taken[1].nack("away", retry_in=100)
            with pytest.raises(hf.errors.TryAgain):
                sub.flush()
            taken[3].ack()
            files.heal()
            sub.flush(sync=True)
            files = crash(files)
    with simulated(files, seed=2) as store, store.topic(TOPIC).subscribe("lake") as sub:
        assert [(each.offset, each.attempt) for each in now(sub)] == [(1, 2), (2, 1)]


def test_many_acks_on_a_failing_disk_are_not_forgotten() -> None:
    """More acks than are written at once, all while the disk fails: each is taken once, and written when it is well."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(700))
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            files.fail("append", errno.EIO, times=None, path=f"{SHARD}/acks/*")
            for each in taken:
                each.ack()
            files.heal()
            until(lambda: watermark(topic, "lake") == 700)


def test_read_error_does_not_lose_a_retry() -> None:
    """A disk that cannot be read for a moment, just when a retry is due, delays it and nothing more."""
    files, clock = SimulatedFiles(), FakeClock()
    with simulated(files, clock) as writer, simulated(files, clock, seed=2, read_only=True) as store:
        put(writer.topic(TOPIC), 0, 1)
        with store.topic(TOPIC).subscribe("lake") as sub:
            sub.take(1, timeout=0)[0].nack("away", retry_in=0)
            sub.flush()
            put(writer.topic(TOPIC), 2)
            for operation in OPERATIONS:
                files.fail(operation, times=None, path=f"{SHARD}/wal*")
            with pytest.raises(hf.errors.TryAgain):
                now(sub)
            files.heal()
            assert sorted(numbers(now(sub))) == [0, 1, 2]


def test_read_error_does_not_lose_what_was_read_before_it() -> None:
    """Bundles of one shard that were read when another shard fails are delivered, now or with the next take."""
    files, clock = SimulatedFiles(), FakeClock()
    with simulated(files, clock) as one, simulated(files, clock, seed=2) as two:
        put(one.topic(TOPIC), 0, 1)
        put(two.topic(TOPIC), 10)
        with one.topic(TOPIC).subscribe("lake", deadline=60, **ONE_SECOND) as sub:
            sub.take(1, timeout=0)[0].ack()
            for operation in OPERATIONS:
                files.fail(operation, times=None, path="*/shard-0001/wal*")
            found = []
            try:
                found += numbers(now(sub))
            except hf.errors.TryAgain:
                found += []
            files.heal()
            found += numbers(now(sub))
            clock.advance(61)
            now(sub)
            clock.advance(2)
            found += numbers(now(sub))
            assert {1, 10} <= set(found)


def test_wait_after_all_is_answered_ends_with_new_data() -> None:
    """A subscriber that has finished everything waits for what comes, also after retries and deadlines."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            one, two = now(sub)
            one.nack("away", retry_in=0)
            two.ack()
            assert ack_all(sub.take(5, timeout=WAIT)) == [0]
            waiting = Background(lambda: sub.take(5))
            until(lambda: sub._waiting)
            put(topic, 2)
            assert numbers(waiting.result()) == [2]
