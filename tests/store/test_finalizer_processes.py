"""Batches and subscribers in different processes."""

from __future__ import annotations

from pathlib import Path

import holdfast as hf
from store.batchkit import DELIVERED, fill, found, opened, unanswered
from store.storekit import TOPIC, until
from store.subkit import WAIT, Background, Child, ack_all, now, numbers, put

ACKS = Path("prod/logs/shard-0000/acks")


def test_subscriber_in_another_process_answers_the_source(tmp_path: Path) -> None:
    """A source waits here while the last subscriber finishes over there."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        put(topic, 0)
        child.call("subscribe", "lake", "latest")
        made = fill(topic, opened(topic), 1)
        waiting = Background(lambda: made.wait(WAIT))
        assert child.call("take", "lake") == [1]
        child.call("ack", 1)
        assert waiting.result() is DELIVERED


def test_subscriber_removed_by_another_process_while_the_source_waits(tmp_path: Path) -> None:
    """The owner of the shard hears of the removal, though it has no subscriber of its own."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        put(topic, 0)
        child.call("subscribe", "stuck", "latest")
        child.call("release", "stuck")
        made = fill(topic, opened(topic), 1)
        assert unanswered(topic, made)
        waiting = Background(lambda: made.wait(20))
        child.call("lifecycle", "remove", "stuck")
        assert waiting.result() is DELIVERED


def test_reader_is_told_of_the_owners_answer(tmp_path: Path) -> None:
    """Who found a batch in a process that does not own its shard is woken by the answer that the owner writes."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = fill(topic, opened(topic, 5), 0)
            assert unanswered(topic, made)
            child.send("status", 5, timeout=20)
            ack_all(now(sub))
            assert made.wait(WAIT) is DELIVERED
            assert child.answer() == "delivered"


def test_batch_survives_kill_nine_of_its_process(tmp_path: Path) -> None:
    """A source's process is killed after it closed its batch: the next one finds it and is answered."""
    with Child.on(tmp_path) as child:
        child.call("subscribe", "lake")
        child.call("batch", 1, 10, 11)
        assert child.call("take", "lake") == [10, 11]
        child.call("ack", 10)
        child.call("flush", "lake")
        assert child.call("status", 404) is None
        until(lambda: any(b"source" in path.read_bytes() for path in (tmp_path / ACKS).glob("*.acks")))
        child.kill()
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        made = found(topic)
        assert made is not None
        with topic.subscribe("lake") as sub:
            assert ack_all(now(sub)) == [11]
            assert made.wait(WAIT) is DELIVERED


def test_left_over_batch_of_a_shard_that_nobody_holds(tmp_path: Path) -> None:
    """A process with a shard of its own answers the batches of one whose process is gone."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            ack_all(now(sub))
            with Child.on(tmp_path) as child:
                child.call("batch", 1, 10)
                held = sub.take(10, timeout=WAIT)
                assert numbers(held) == [10]
                until(lambda: found(topic) is not None)
                child.kill()
            made = found(topic)
            assert made is not None
            for each in held:
                each.ack()
            assert made.wait(WAIT) is DELIVERED
