"""Dead letters: what a subscriber rejected is kept, once each, with all that is needed to judge and replay it."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import InputError, InvalidBundle, UnknownSlot
from holdfast.store.dead_letters import DeadLetter
from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash, crash_states
from store.storekit import SHARD, TOPIC, batch
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


def letters(store: hf.Store) -> list[DeadLetter]:
    if DEAD not in store.topics():
        return []
    return [DeadLetter.from_bundle(each) for each in store.topic(DEAD).bundles()]


def put_one(topic: hf.Topic, rows: int = 1, **attributes: Any) -> None:
    receipt = topic.append({"logs": batch(7, rows), "more": batch(8, 2)}, attributes={"id": 7, **attributes})
    topic.flush()
    receipt.wait(timeout=60)


def test_rejected_bundle_is_kept_with_its_story() -> None:
    """The letter says who rejected what, where it stood, why, after how many attempts and when; nothing is missing."""
    clock = FakeClock()
    with simulated(clock=clock) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        record = hf.RecordBundle({"logs": batch(7, 3), "more": batch(8, 2)}, {"id": 7, "x": [1]}, event_time=(5, 9))
        topic.append(record).wait(timeout=60)
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            taken[1].nack("away", retry_in=0)
            taken[0].ack()
            clock.advance(100)
            (again,) = now(sub)
            again.reject("the third column is not a number")
        (letter,) = letters(store)
        assert (letter.topic, letter.subscriber, letter.shard, letter.offset) == (TOPIC, "lake", 0, 1)
        assert (letter.reason, letter.attempts) == ("the third column is not a number", 2)
        assert letter.time_ns == clock.now_ns()
        assert (letter.slot, letter.rows) == (None, None)
        assert letter.original() == record
        assert letter.bundle.attributes["x"] == [1]


def test_rejected_rows_are_kept_and_the_rest_is_acked() -> None:
    """Only the rows that were named are in the letter, with their numbers; the bundle itself counts as delivered."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        rows = pa.record_batch({"id": pa.array([7] * 6, pa.int64()), "n": pa.array(range(6), pa.int64())})
        topic.append({"logs": rows, "more": batch(8)}, attributes={"id": 7, "host": "a"}).wait(timeout=60)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            held.reject_rows("logs", [4, 1, 2, 1], "negative")
            held.reject_rows("more", iter([0]), "empty")
            assert sub.statistics().in_flight == 1
            held.ack()
        assert topic.subscribers()["lake"].shards[0].rejected == 0
        one, two = letters(store)
        assert (one.slot, one.rows, one.reason) == ("logs", (1, 2, 4), "negative")
        assert one.bundle["logs"]["n"].to_pylist() == [1, 2, 4]
        assert list(one.bundle.slots) == ["logs"]
        assert one.bundle.attributes["host"] == "a"
        assert (two.slot, two.rows) == ("more", (0,))
        assert watermark(topic, "lake") == 1


@pytest.mark.parametrize("rows", [[], [3], [-1], [0, 99]])
def test_rows_that_are_not_there(rows: list[int]) -> None:
    """Rows that the slot does not have are refused, with those it has; the delivery stays open."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put_one(topic, rows=3)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            with pytest.raises(InputError, match="'logs': it has the rows 0 to 2"):
                held.reject_rows("logs", rows, "bad")
            with pytest.raises(UnknownSlot, match="'nope'"):
                held.reject_rows("nope", [0], "bad")
            held.ack()
        assert letters(store) == []


def test_rows_as_numpy_finds_them() -> None:
    """Row numbers may come straight from a mask."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put_one(topic, rows=5)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            held.reject_rows("logs", np.flatnonzero([0, 1, 0, 1, 1]), "bad")
            held.ack()
        (letter,) = letters(store)
        assert letter.rows == (1, 3, 4)


def test_very_many_rows() -> None:
    """Tens of thousands of scattered rows can be rejected: all of them are kept, each once."""
    count = 60_000
    with simulated() as store:
        topic = store.topic(TOPIC)
        put_one(topic, rows=count)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            held.reject_rows("logs", range(0, count, 2), "bad")
            held.ack()
        found = [row for letter in letters(store) for row in letter.rows or ()]
        assert found == list(range(0, count, 2))
        assert sum(letter.bundle["logs"].num_rows for letter in letters(store)) == count // 2


@pytest.mark.parametrize("spare", [40, 200, 1_000, 2_000])
def test_attributes_that_leave_no_room_for_the_story(spare: int) -> None:
    """A bundle whose own attributes are as large as allowed can be rejected like any other."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put_one(topic, large="y" * (64 * 1024 - spare))
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject("bad row")
        (letter,) = letters(store)
        assert (letter.offset, letter.reason) == (0, "bad row")
        assert letter.bundle["logs"].num_rows == 1
        assert unfinished(topic, "lake") == []


def test_long_reason_is_cut() -> None:
    """A reason is a sentence, not a place for data: what goes beyond a thousand characters is left off."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject("ä" * 100_000)
        (letter,) = letters(store)
        assert 0 < len(letter.reason) <= 1024
        assert set(letter.reason) == {"ä"}


def test_each_subscriber_rejects_for_itself() -> None:
    """Two subscribers that reject one bundle leave two letters; a third that takes it leaves none."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        for name in ("one", "two"):
            with topic.subscribe(name) as sub:
                now(sub)[0].reject(f"{name} does not like it")
        with topic.subscribe("three") as sub:
            assert ack_all(now(sub)) == [0]
        assert [letter.subscriber for letter in letters(store)] == ["one", "two"]


def test_rejecting_dead_letters_is_refused() -> None:
    """There is no topic behind the dead letters: a subscriber of theirs can only ack and nack."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject("bad row")
        with store.topic(DEAD).subscribe("repair") as sub:
            (held,) = now(sub)
            with pytest.raises(InvalidBundle, match=r"prod/logs\.dead holds dead letters"):
                held.reject("still bad")
            with pytest.raises(InvalidBundle, match=r"prod/logs\.dead holds dead letters"):
                held.reject_rows("logs", [0], "still bad")
            held.ack()
        assert store.topics() == [TOPIC, DEAD]


def test_dead_letters_never_run_out_of_attempts() -> None:
    """In a dead-letter topic a failing bundle is retried for ever: there is nowhere left to put it."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject("bad row")
        with store.topic(DEAD).subscribe("repair", max_attempts=2) as sub:
            for attempt in range(1, 6):
                (held,) = now(sub)
                assert held.attempt == attempt
                held.nack("still bad", retry_in=0)
            assert numbers(now(sub)) == [0]


def test_users_cannot_forge_dead_letters() -> None:
    """The attribute that makes a bundle a dead letter is Holdfast's own, and an ordinary bundle is none."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        with pytest.raises(InvalidBundle, match=r"holdfast\.dead"):
            topic.append({"logs": batch(1)}, attributes={"holdfast.dead": {}})
        put(topic, 0)
        (bundle,) = topic.bundles()
        with pytest.raises(InvalidBundle, match="is no dead letter"):
            DeadLetter.from_bundle(bundle)


# -- once each, whatever happens ---------------------------------------------------------------------------------------


def test_reject_is_durable_on_return() -> None:
    """After `reject` returned a power cut changes nothing: the letter is there, the bundle is final."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject("bad row")
            files = crash(files)
    with simulated(files, seed=2) as store:
        assert [letter.offset for letter in letters(store)] == [0]
        assert unfinished(store.topic(TOPIC), "lake") == [1]


def test_reject_rows_is_durable_on_return() -> None:
    """After `reject_rows` returned the rows are there, whatever happens before the ack."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put_one(topic, rows=3)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject_rows("logs", [1], "bad row")
            files = crash(files)
    with simulated(files, seed=2) as store:
        assert [letter.rows for letter in letters(store)] == [(1,)]
        assert unfinished(store.topic(TOPIC), "lake") == [7]


def test_killed_between_the_copy_and_the_outcome() -> None:
    """The copy is there, the outcome is not: it is delivered and rejected again, and still kept once."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            files.fail("append", errno.EIO, times=None, path=f"{SHARD}/acks/*")
            with pytest.raises(hf.errors.TryAgain):
                held.reject("bad row")
            killed = files.kill()
            files.heal()
    with simulated(killed, seed=2) as store:
        topic = store.topic(TOPIC)
        assert len(letters(store)) == 1
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            held.reject("bad row")
        assert len(letters(store)) == 1
        assert unfinished(topic, "lake") == []


def test_rows_rejected_again_after_a_kill() -> None:
    """Rows that are rejected, then again after a kill, then some others: each is kept once."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put_one(topic, rows=4)
        with topic.subscribe("lake") as sub:
            now(sub)[0].reject_rows("logs", [1, 2], "bad row")
            files = files.kill()
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            held.reject_rows("logs", [1, 2], "bad row")
            held.reject_rows("logs", [2, 1], "bad row")
            held.reject_rows("logs", [3], "bad row")
            held.ack()
        assert [letter.rows for letter in letters(store)] == [(1, 2), (3,)]


def test_crash_at_any_moment_of_a_rejection() -> None:
    """Wherever a rejection is cut off, doing it again leaves one letter and a final outcome."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            files.clear_journal()
            held, other = now(sub)
            held.reject("bad row")
            other.ack()
            sub.flush(sync=True)
            end = len(files.journal)
    seen = set()
    for state in crash_states(files, modes=[CrashMode.LOST, CrashMode.KEPT], last=end, per_prefix=1):
        with simulated(state.files, seed=2) as store:
            topic = store.topic(TOPIC)
            before = len(letters(store))
            with topic.subscribe("lake") as sub:
                again = now(sub)
                seen.add((before, tuple(numbers(again))))
                for each in again:
                    if each.offset == 0:
                        each.reject("bad row")
                    else:
                        each.ack()
            assert [letter.offset for letter in letters(store)] == [0], state.description
            assert watermark(topic, "lake") == 2, state.description
    assert {(0, (0, 1)), (1, (0, 1)), (1, (1,)), (1, ())} <= seen, "no crash hit the moments that matter"


def test_two_threads_reject_the_same_delivery() -> None:
    """One of them is told that it is too late; the letter is kept once."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            both = [Background(lambda: held.reject("bad row")) for _ in range(2)]
            told = []
            for each in both:
                try:
                    each.result()
                except hf.errors.AlreadySettled:
                    told.append("settled")
            assert len(told) <= 1
        assert len(letters(store)) == 1
        assert topic.subscribers()["lake"].shards[0].rejected == 1


def test_new_subscriber_of_an_old_name_rejects_for_itself() -> None:
    """A subscriber that was removed and registered anew is another one: what it rejects is kept, too."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        for _ in range(2):
            with topic.subscribe("lake") as sub:
                now(sub)[0].reject("bad row")
            topic.remove("lake")
        assert [letter.subscriber for letter in letters(store)] == ["lake", "lake"]
