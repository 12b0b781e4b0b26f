"""A subscriber and a writer in different processes: waking up, new shards, dead letters of a reader."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.store.dead_letters import DeadLetter
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC, Gate, until
from store.subkit import (
    DEAD,
    WAIT,
    Background,
    Child,
    ack_all,
    now,
    numbers,
    put,
    simulated,
    unfinished,
    watermark,
)


def test_data_of_another_process_wakes_a_waiting_take(tmp_path: Path) -> None:
    """A take that waits for ever ends with what another process appends; how soon is printed."""
    clock = SystemClock()
    with Child.on(tmp_path) as child:
        child.call("append", 0)
        with hf.Store.open(tmp_path, read_only=True) as store, store.topic(TOPIC).subscribe("lake") as sub:
            assert ack_all(sub.take(1, timeout=WAIT)) == [0]
            delays = []
            for number in range(1, 6):
                waiting = Background(lambda: (sub.take(10), clock.monotonic()))
                until(lambda: sub._waiting)
                child.call("append", number)
                written = child.call("moment")
                taken, woken = waiting.result()
                assert ack_all(taken) == [number]
                delays.append(woken - written)
            print("woken after the writer's receipt, ms:", [round(1e3 * delay, 1) for delay in delays])


def test_data_of_this_process_wakes_a_child(tmp_path: Path) -> None:
    """The other way round, with the reader beside a running writer."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        put(topic, 0)
        child.call("subscribe", "lake")
        assert child.call("take", "lake") == [0]
        for number in (1, 2, 3):
            child.send("take", "lake", timeout=None)
            put(topic, number)
            assert child.answer() == [number]
            topic.seal()
        child.call("ack", 0, 1, 2, 3)
        child.call("release", "lake")
        assert watermark(topic, "lake") == 4


def test_new_shard_of_another_process_is_delivered(tmp_path: Path) -> None:
    """A take that waits ends with the first bundle of a shard that did not exist when it began to wait."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            ack_all(now(sub))
            waiting = Background(lambda: sub.take(10))
            until(lambda: sub._waiting)
            with Child.on(tmp_path) as child:
                assert child.call("append", 7) == [[1, 0]]
                (taken,) = waiting.result()
                assert (taken.shard, taken.offset, numbers([taken])) == (1, 0, [7])
                taken.ack()
                waiting = Background(lambda: sub.take(10))
                child.call("append", 8)
                assert ack_all(waiting.result()) == [8]


def test_new_shard_that_is_heard_of_before_it_is_whole() -> None:
    """A folder that is only just being made is looked at again when it has become a shard."""
    files, clock = SimulatedFiles(), SystemClock()
    with simulated(files, clock) as one, simulated(files, clock, seed=2) as two:
        put(one.topic(TOPIC), 0)
        topic = two.topic(TOPIC)
        with simulated(files, clock, seed=3, read_only=True) as reader, reader.topic(TOPIC).subscribe("lake") as sub:
            ack_all(now(sub))
            waiting = Background(lambda: sub.take(10))
            until(lambda: sub._waiting)
            with Gate(files, "rename", "shard-0001/shard.checkpoint.tmp") as gate:
                making = Background(lambda: put(topic, 7))
                assert gate.reached.wait(WAIT)
                until(lambda: sub._waiting and not sub._lanes_changed)
                gate.open()
                making.result()
            assert numbers(waiting.result()) == [7]


def test_first_shard_of_a_topic_wakes_a_reader(tmp_path: Path) -> None:
    """Who subscribes to a topic that has nothing in it yet hears of the first bundle, too."""
    with hf.Store.open(tmp_path) as maker:
        maker.topic(TOPIC)
    with (
        hf.Store.open(tmp_path, read_only=True) as store,
        store.topic(TOPIC).subscribe("lake") as sub,
        Child.on(tmp_path) as child,
    ):
        waiting = Background(lambda: sub.take(10))
        until(lambda: sub._waiting)
        child.call("append", 7)
        assert ack_all(waiting.result()) == [7]


def test_writer_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """A reader that waits goes on with the next writer of the same shard, which may have replaced its files."""
    with Child.on(tmp_path) as first:
        assert first.call("append", 0) == [[0, 0]]
        with hf.Store.open(tmp_path, read_only=True) as store, store.topic(TOPIC).subscribe("lake") as sub:
            assert ack_all(sub.take(1, timeout=WAIT)) == [0]
            waiting = Background(lambda: sub.take(10))
            until(lambda: sub._waiting)
            first.kill()
            with Child.on(tmp_path) as second:
                assert second.call("append", 1) == [[0, 1]]
                assert ack_all(waiting.result()) == [1]


def test_read_only_store_subscribes_beside_a_writer_and_rejects(tmp_path: Path) -> None:
    """A reader's rejected bundle goes into a dead-letter shard of its own, which the writer reads."""
    with hf.Store.open(tmp_path) as writer, Child.on(tmp_path, read_only=True) as child:
        topic = writer.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("here") as here:
            now(here)[0].reject("refused here")
        child.call("subscribe", "there")
        assert child.call("take", "there") == [0, 1, 2]
        child.call("reject", 1, "refused there")
        child.call("ack", 0, 2)
        child.call("flush", "there")
        assert watermark(topic, "there") == 3
        letters = [DeadLetter.from_bundle(each) for each in writer.topic(DEAD).bundles()]
        assert {(each.subscriber, each.offset, each.reason) for each in letters} == {
            ("here", 0, "refused here"),
            ("there", 1, "refused there"),
        }
        assert {each.bundle.shard for each in letters} == {0, 1}


def test_read_only_store_cannot_append() -> None:
    """That it may write dead letters does not make a read-only store a writer of the topic."""
    files = SimulatedFiles()
    with simulated(files) as writer, simulated(files, seed=2, read_only=True) as reader:
        put(writer.topic(TOPIC), 0)
        with reader.topic(TOPIC).subscribe("lake") as sub:
            now(sub)[0].reject("bad row")
            with pytest.raises(hf.errors.ReadOnly):
                put(reader.topic(TOPIC), 1)
        assert writer.topic(TOPIC).positions() == {0: (0, 1)}
        assert unfinished(writer.topic(TOPIC), "lake") == []


def test_two_stores_over_one_topic_object_each(tmp_path: Path) -> None:
    """A topic opened twice in one process, once for a shard of its own, delivers both shards to one subscriber."""
    with hf.Store.open(tmp_path) as store:
        one, two = store.topic(TOPIC, shard=0), store.topic(TOPIC, shard=1)
        put(one, 0)
        with one.subscribe("lake") as sub:
            ack_all(now(sub))
            waiting = Background(lambda: sub.take(10))
            until(lambda: sub._waiting)
            put(two, 10)
            assert ack_all(waiting.result()) == [10]


@pytest.mark.long
def test_writers_and_a_reader_in_processes_under_kills(tmp_path: Path) -> None:
    """Holders are killed again and again in the middle of their work: every bundle is delivered, none is skipped."""
    count = 300
    found: set[int] = set()
    with hf.Store.open(tmp_path, settings={"buffer": {"segment": {"target_size": 4_000}}}) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(count))
        for life in range(6):
            with Child.on(tmp_path, read_only=True) as child:
                child.call("subscribe", "lake", window=50)
                taken = child.call("take", "lake", 50, timeout=1)
                done = taken[life % 3 :: 2]
                child.call("ack", *done)
                if life % 2:
                    child.call("flush", "lake")
                child.kill()
            found |= set(done)
        with topic.subscribe("lake") as sub:
            rest = ack_all(now(sub))
        assert found | set(rest) == set(range(count))
        assert rest == sorted(rest)
        assert unfinished(topic, "lake") == []
