"""Answers on their way to the disk: written, synced, and a disk that fails."""

from __future__ import annotations

import errno
from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.testing import OPERATIONS, FakeClock, SimulatedFiles, crash
from store.storekit import SHARD, TOPIC, until
from store.subkit import (
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
