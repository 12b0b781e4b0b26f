"""What a subscriber is given: everything durable, once, in order, wherever it lies, and no more than it can hold."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Closed, InputError
from holdfast.testing import FakeClock, SimulatedFiles
from store.storekit import SEGMENTS, TOPIC, Gate, append, open_store, until
from store.subkit import (
    WAIT,
    Background,
    CountingClock,
    ack_all,
    now,
    numbers,
    put,
    simulated,
    unfinished,
    watermark,
)


def test_bundles_come_in_order_with_what_was_appended() -> None:
    """Every bundle is delivered once, in offset order, with its rows, attributes, place and attempt."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 10, 11, 12)
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            assert numbers(taken) == [10, 11, 12]
            assert [(each.shard, each.offset, each.attempt) for each in taken] == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
            assert now(sub) == []


def test_nothing_is_delivered_before_it_is_durable() -> None:
    """A bundle that is accepted but not synced is not delivered, not even in its own process."""
    with open_store(SimulatedFiles()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            append(topic, 1)
            assert now(sub) == []
            topic.flush()
            assert numbers(now(sub)) == [1]


def test_delivery_goes_on_from_memory_log_and_segments() -> None:
    """One order over all tiers: a segment file, a second one, the log of an earlier writer, and what is new."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        topic.seal()
        put(topic, 2)
        topic.seal()
        put(topic, 3, 4)
        files = files.kill()
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        put(topic, 5)
        with topic.subscribe("lake") as sub:
            assert [numbers(sub.take(1, timeout=0)) for _ in range(3)] == [[0], [1], [2]]
            put(topic, 6)
            topic.seal()
            put(topic, 7)
            assert numbers(now(sub)) == [3, 4, 5, 6, 7]


def test_sealing_under_a_subscriber_changes_nothing() -> None:
    """What is sealed between two takes, and half way through a run of bundles, is delivered neither twice nor never."""
    with simulated(segment={"target_size": 4096}) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            found: list[int] = []
            for first in range(0, 60, 6):
                put(topic, *range(first, first + 6), width=700)
                found += ack_all(sub.take(5, timeout=0))
                topic.seal()
            while taken := now(sub, 7):
                found += ack_all(taken)
            assert found == list(range(60))


def test_finished_segments_are_deleted_under_a_subscriber() -> None:
    """A segment that everyone finished goes, and a bundle of it that is still in hand can be read all the same."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            put(topic, 0, 1)
            topic.seal()
            taken = now(sub)
            for each in taken:
                each.ack()
            sub.flush()
            until(lambda: not files.list(SEGMENTS))
            assert numbers(taken) == [0, 1]
            put(topic, 2)
            assert ack_all(sub.take(1, timeout=WAIT)) == [2]
        assert unfinished(topic, "lake") == []


def test_a_bundle_in_hand_is_not_deleted() -> None:
    """What one subscriber has not answered stays, however far another one is."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("slow") as slow, topic.subscribe("fast") as fast:
            put(topic, 0, 1)
            topic.seal()
            held = now(slow)
            ack_all(now(fast))
            fast.flush(sync=True)
            held[0].ack()
            slow.flush(sync=True)
            topic.find_batch("nobody", "asks", "this")
            assert len(files.list(SEGMENTS)) == 1
            held[1].ack()
            slow.flush()
            until(lambda: not files.list(SEGMENTS))


def test_no_more_than_the_window_is_in_flight() -> None:
    """Unanswered deliveries never exceed `window`, whatever is asked for; each answer makes room for one."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(20))
        with topic.subscribe("lake", window=4) as sub:
            taken = now(sub)
            assert numbers(taken) == [0, 1, 2, 3]
            assert now(sub) == []
            taken[2].ack()
            taken[0].nack("later", retry_in=100)
            assert numbers(now(sub)) == [4, 5]
            assert now(sub) == []
            assert sub.statistics().in_flight == 4


def test_retries_count_in_the_window() -> None:
    """A retry that is due waits for room like everything else, and then comes first."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake", window=1) as sub:
            now(sub)[0].nack("later", retry_in=1)
            (held,) = now(sub)
            clock.advance(2)
            assert now(sub) == []
            held.ack()
            assert numbers(now(sub)) == [0]


def test_take_wants_a_count_of_one_or_more() -> None:
    """A count below one is refused, with what was given."""
    with simulated() as store, store.topic(TOPIC).subscribe("lake") as sub:
        for count in (0, -1):
            with pytest.raises(InputError, match=f"count is {count}"):
                sub.take(count, timeout=0)


def test_take_returns_what_there_is() -> None:
    """With something to deliver, take neither waits for `count` nor gives more than it."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            assert numbers(sub.take(2, timeout=None)) == [0, 1]
            assert numbers(sub.take(2, timeout=None)) == [2]


def test_take_gives_up_after_its_timeout() -> None:
    """With nothing to deliver, take returns an empty list when its time is up."""
    with simulated(clock=SystemClock()) as store, store.topic(TOPIC).subscribe("lake") as sub:
        assert sub.take(1, timeout=0) == []
        assert sub.take(1, timeout=0.02) == []
        assert sub.take(1, timeout=-1) == []


def test_take_without_a_timeout_waits_for_the_next_bundle() -> None:
    """A waiting take ends with the bundle that becomes durable meanwhile."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            waiting = Background(lambda: sub.take(10))
            until(lambda: sub._waiting)
            put(topic, 5)
            assert numbers(waiting.result()) == [5]


def test_take_that_waits_for_room_in_the_window_is_woken_by_an_answer() -> None:
    """An ack from another thread lets a take go on that found the window full."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake", window=1) as sub:
            (held,) = now(sub)
            waiting = Background(lambda: sub.take(1))
            until(lambda: sub._waiting)
            held.ack()
            assert numbers(waiting.result()) == [1]


def test_late_answer_makes_room_among_the_retries() -> None:
    """A take that waits because too many bundles are to be retried goes on when one of those is acked late."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        slow: dict[str, Any] = {"retry_initial": 3600, "retry_max": 3600}
        with topic.subscribe("lake", window=1, max_retrying=1, deadline=0.05, **slow) as sub:
            (held,) = now(sub)
            waiting = Background(lambda: sub.take(1))
            until(lambda: sub.statistics().retrying == 1)
            until(lambda: sub._waiting)
            held.ack()
            assert numbers(waiting.result()) == [1]


@pytest.mark.parametrize("why", ["window", "paused"])
def test_take_does_not_spin_on_a_retry_that_it_cannot_deliver(why: str) -> None:
    """A retry that is due while the window is full, or the subscriber paused, is waited for without a busy loop."""
    clock = CountingClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake", window=1) as sub:
            now(sub)[0].nack("at once", retry_in=0.001)
            if why == "paused":
                topic.pause("lake")
            else:
                assert numbers(sub.take(1, timeout=0)) in ([0], [1])
            before = clock.asked
            assert sub.take(1, timeout=0.3) == []
            assert clock.asked - before < 1_000


def test_threads_that_share_a_subscriber_get_each_bundle_once() -> None:
    """Four threads take and ack from one subscriber while another one appends: every bundle goes to one of them."""
    count = 2_000
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake", window=64)
        found: Counter[int] = Counter()
        most = 0
        lock = threading.Lock()

        def work() -> None:
            nonlocal most
            with contextlib.suppress(Closed):
                while True:
                    taken = sub.take(7)
                    with lock:
                        most = max(most, sub.statistics().in_flight)
                        found.update(numbers(taken))
                    for each in taken:
                        each.ack()

        workers = [Background(work) for _ in range(4)]
        for first in range(0, count, 100):
            put(topic, *range(first, first + 100))
        until(lambda: found.total() >= count)
        until(lambda: watermark(topic, "lake") == count)
        sub.close()
        for worker in workers:
            worker.result()
        assert found == Counter(range(count))
        assert most <= 64
        assert unfinished(topic, "lake") == []


def test_acks_in_any_order_move_the_watermark_over_contiguous_finals_only() -> None:
    """The watermark is the lowest unfinished offset, whatever is finished above it."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(6))
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            for index, expected in ((3, 0), (1, 0), (0, 2), (5, 2), (2, 4), (4, 6)):
                taken[index].ack()
                sub.flush()
                assert watermark(topic, "lake") == expected
            view = topic.subscribers()["lake"].shards[0]
            assert (view.gaps, view.finished_above, view.lag) == (0, 0, 0)


def test_gaps_are_delivered_again_to_the_next_holder_and_nothing_else() -> None:
    """After a restart exactly what has no final outcome comes again, in order."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(10))
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            for index in (1, 2, 5, 9):
                taken[index].ack()
            sub.flush()
            view = topic.subscribers()["lake"].shards[0]
            assert (view.watermark, view.gaps, view.finished_above, view.lag) == (0, 3, 4, 6)
    with simulated(files, seed=2) as store:
        assert unfinished(store.topic(TOPIC), "lake") == [0, 3, 4, 6, 7, 8]


def test_subscribers_do_not_see_each_others_progress() -> None:
    """Each subscriber gets everything, at its own pace."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("one") as one, topic.subscribe("two") as two:
            assert ack_all(now(one)) == [0, 1, 2]
            one.flush()
            assert ack_all(two.take(1, timeout=0)) == [0]
            two.flush()
            assert (watermark(topic, "one"), watermark(topic, "two")) == (3, 1)


def test_a_shard_with_a_backlog_does_not_starve_the_others() -> None:
    """Over several shards each gets its turn, however much the first of them has."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), *range(40))
        put(two.topic(TOPIC), *range(100, 140))
        with one.topic(TOPIC).subscribe("lake") as sub:
            first = [each for _ in range(4) for each in sub.take(5, timeout=0)]
            assert {each.shard for each in first} == {0, 1}
            rest = now(sub)
            for shard, start in ((0, 0), (1, 100)):
                found = numbers(each for each in (*first, *rest) if each.shard == shard)
                assert found == list(range(start, start + 40))


def test_flush_waits_for_a_write_that_is_under_way() -> None:
    """On return of `flush` every answer given before it is written, also one that another thread was just writing."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            with Gate(files, "append", ".acks") as gate:
                held.ack()
                assert gate.reached.wait(WAIT)

                def flush() -> SimulatedFiles:
                    sub.flush()
                    return files.kill()

                written = Background(flush)
                until(lambda: sub.statistics().unwritten == 0)
                gate.open()
                found = written.result()
    with simulated(found, seed=2) as store:
        assert unfinished(store.topic(TOPIC), "lake") == []


def test_statistics_count_what_was_done() -> None:
    """Delivered bundles and bytes, answers by kind and what is in hand are all counted."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(5))
        with topic.subscribe("lake") as sub:
            taken = [*sub.take(1, timeout=0)]
            each_bytes = sub.statistics().delivered_bytes
            assert each_bytes >= taken[0].bundle.nbytes
            taken += now(sub)
            taken[0].ack()
            taken[1].ack()
            taken[2].nack("away", retry_in=0)
            again = now(sub)
            assert numbers(again) == [2]
            counts = sub.statistics()
            assert (counts.delivered, counts.acked, counts.nacked, counts.retries) == (6, 2, 1, 1)
            assert (counts.in_flight, counts.retrying, counts.rejected, counts.deadline_misses) == (3, 0, 0, 0)
            assert counts.delivered_bytes == 6 * each_bytes


def test_a_real_disk_gives_the_same(tmp_path: Path) -> None:
    """Appending, sealing, delivering, acking and going on after a restart on a real disk."""
    found: list[int] = []
    for life in range(3):
        with hf.Store.open(tmp_path, settings={"buffer": {"segment": {"target_size": 2_000}}}) as store:
            topic = store.topic(TOPIC)
            put(topic, *range(life * 50, life * 50 + 50), width=200)
            with topic.subscribe("lake") as sub:
                while taken := sub.take(9, timeout=0):
                    found += ack_all(taken)
                    if len(found) % 2 == 0 and life % 2 == 0:
                        topic.seal()
    assert found == list(range(150))
