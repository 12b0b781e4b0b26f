"""What a batch of a source is told: one status for all its bundles, the worst of all subscribers that decide."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from structlog.testing import capture_logs

import holdfast as hf
from holdfast.acks import BatchStatus
from holdfast.clock import SystemClock
from holdfast.errors import InputError, WaitTimeout
from holdfast.testing import SimulatedFiles
from store.batchkit import DELIVERED, DROPPED, ERRORED, REJECTED, fill, found, opened, unanswered
from store.storekit import TOPIC, WAL, batch, until
from store.subkit import WAIT, Background, ack_all, now, put, simulated


@pytest.fixture
def store() -> hf.Store:
    return simulated(clock=SystemClock())


def test_delivered_once_every_subscriber_has_finished(store: hf.Store) -> None:
    """All bundles and all subscribers must finish; then the source is told, once and for all."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("one") as one, topic.subscribe("two") as two:
            made = fill(topic, opened(topic), 0, 1)
            first, second = now(one)
            ack_all(now(two))
            two.flush()
            first.ack()
            one.flush()
            assert unanswered(topic, made)
            with pytest.raises(WaitTimeout, match=r"batch '1' of 'source' is not finished after 0\.01 s"):
                made.wait(0.01)
            second.ack()
            assert made.wait(WAIT) is DELIVERED
            assert (made.status, made.wait(0)) == (DELIVERED, DELIVERED)


def test_open_batch_is_not_answered(store: hf.Store) -> None:
    """A batch that may still grow has no status, even when all it holds so far is finished."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = opened(topic)
            put(topic, 0, batches=[made])
            ack_all(now(sub))
            sub.flush()
            assert unanswered(topic, made)
            put(topic, 1, batches=[made])
            made.close()
            assert unanswered(topic, made)
            ack_all(now(sub))
            assert made.wait(WAIT) is DELIVERED


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["ack", "ack"], DELIVERED),
        (["reject", "ack"], REJECTED),
        (["ack", "reject"], REJECTED),
        (["drop", "ack"], DROPPED),
        (["drop", "reject"], DROPPED),
        (["drop", "drop"], DROPPED),
    ],
)
def test_worst_outcome_wins(store: hf.Store, answers: list[str], expected: BatchStatus) -> None:
    """Over the bundles of a batch: dropped is worse than rejected, which is worse than delivered."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = fill(topic, opened(topic), 0, 1)
            for held, answer in zip(now(sub), answers, strict=True):
                if answer == "ack":
                    held.ack()
                elif answer == "reject":
                    held.reject("bad row")
            sub.flush()
            if "drop" in answers:
                topic.seal()
                topic.truncate(2)
            assert made.wait(WAIT) is expected


def test_worst_subscriber_wins(store: hf.Store) -> None:
    """One subscriber that rejects makes the batch rejected for its source, whatever the others say."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("good") as good, topic.subscribe("picky") as picky:
            made = fill(topic, opened(topic), 0)
            now(picky)[0].reject("bad row")
            assert unanswered(topic, made)
            ack_all(now(good))
            assert made.wait(WAIT) is REJECTED


def test_rejected_rows_do_not_make_a_batch_rejected(store: hf.Store) -> None:
    """Delivered with some rows dead-lettered is delivered."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = fill(topic, opened(topic), 0)
            (held,) = now(sub)
            held.reject_rows("logs", [0], "bad row")
            held.ack()
            assert made.wait(WAIT) is DELIVERED


def test_early_rejection_is_not_forgotten_when_its_segment_goes() -> None:
    """The first bundle is rejected and its segment deleted long before the last one is finished: still rejected."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = opened(topic)
            put(topic, 0, batches=[made])
            topic.seal()
            put(topic, 1, batches=[made])
            made.close()
            held, last = now(sub)
            held.reject("bad row")
            until(lambda: topic.positions()[0][0] == 1)
            assert unanswered(topic, made)
            last.ack()
            assert made.wait(WAIT) is REJECTED


def test_only_authoritative_subscribers_decide(store: hf.Store) -> None:
    """With an authoritative subscriber the others' outcomes count for nothing, good or bad."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake", authoritative=True) as lake, topic.subscribe("alerts") as alerts:
            made = fill(topic, opened(topic), 0)
            now(alerts)[0].reject("bad row")
            assert unanswered(topic, made)
            ack_all(now(lake))
            assert made.wait(WAIT) is DELIVERED


def test_two_authoritative_subscribers(store: hf.Store) -> None:
    """All authoritative ones must finish."""
    with store:
        topic = store.topic(TOPIC)
        with (
            topic.subscribe("one", authoritative=True) as one,
            topic.subscribe("two", authoritative=True) as two,
            topic.subscribe("three"),
        ):
            made = fill(topic, opened(topic), 0)
            ack_all(now(one))
            one.flush()
            assert unanswered(topic, made)
            ack_all(now(two))
            assert made.wait(WAIT) is DELIVERED


def test_subscriber_that_starts_behind_the_batch_has_no_say(store: hf.Store) -> None:
    """What was never its business holds up no answer."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as lake:
            made = fill(topic, opened(topic), 0)
            with topic.subscribe("new", "latest"):
                ack_all(now(lake))
                assert made.wait(WAIT) is DELIVERED


def test_without_subscribers_durable_is_delivered_with_a_warning(store: hf.Store) -> None:
    """Nobody could ever finish it, so the source is answered at durable, and somebody is told once."""
    with store, capture_logs() as logs:
        topic = store.topic(TOPIC)
        for number in range(3):
            assert fill(topic, opened(topic, number), number).wait(WAIT) is DELIVERED
        warnings = [each for each in logs if each["log_level"] == "warning" and "no subscriber" in each["event"]]
        assert len(warnings) == 1
        assert warnings[0]["topic"] == TOPIC


def test_subscriber_removed_while_the_source_waits(store: hf.Store) -> None:
    """Its outcomes are no longer waited for: the others decide."""
    with store:
        topic = store.topic(TOPIC)
        topic.subscribe("stuck").close()
        with topic.subscribe("lake") as lake:
            made = fill(topic, opened(topic), 0)
            ack_all(now(lake))
            lake.flush()
            assert unanswered(topic, made)
            waiting = Background(lambda: made.wait(WAIT))
            topic.remove("stuck")
            assert waiting.result() is DELIVERED


def test_last_subscriber_removed_while_the_source_waits(store: hf.Store) -> None:
    """With nobody left the batch is answered as durable."""
    with store:
        topic = store.topic(TOPIC)
        topic.subscribe("stuck").close()
        made = fill(topic, opened(topic), 0)
        assert unanswered(topic, made)
        topic.remove("stuck")
        assert made.wait(WAIT) is DELIVERED


@pytest.mark.parametrize("closed", ["before", "after"])
def test_batch_that_could_not_be_stored_is_errored(closed: str) -> None:
    """A bundle that the disk refuses makes its batch errored at once, whether it was closed before that or is later."""
    files = SimulatedFiles()
    with simulated(files, SystemClock(), wal={"flush_interval": "1h"}) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("lake").close()
        put(topic, 0)
        made = opened(topic)
        receipt = made.append({"logs": batch(1)})
        if closed == "before":
            made.close()
            # Nothing but the failure itself may bring the answer: not what happens to be sealed or heard after it.
            topic._listener.remove(topic._heard)
            assert topic.own is not None
            topic.own.sealed_one = lambda: None
            for task in (topic._upkeep.check, topic._upkeep.run):
                topic._upkeep._keeper.forget(task)
            assert unanswered(topic, made)
        for operation in ("append", "create"):
            files.fail(operation, errno.EIO, times=None, path=f"{WAL}/*")
        topic.flush()
        with pytest.raises(hf.errors.HoldfastError):
            receipt.wait(timeout=WAIT)
        assert made.wait(20) is ERRORED


def test_batch_whose_upkeep_came_between_publishing_and_the_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is answered although all that was woken by its bundle looked just before the receipt resolved."""
    files = SimulatedFiles()
    with simulated(files, SystemClock(), wal={"flush_interval": "1h"}) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        made = opened(topic)
        receipt = made.append({"logs": batch(1)})
        made.close()
        assert topic.own is not None
        publish = topic.own.publish

        def looked_at_once(bundles: Any) -> None:
            publish(bundles)
            assert unanswered(topic, made)
            for task in (topic._upkeep.check, topic._upkeep.run):
                topic._upkeep._keeper.forget(task)

        monkeypatch.setattr(topic.own, "publish", looked_at_once)
        topic._listener.remove(topic._heard)
        topic.flush()
        receipt.wait(timeout=WAIT)
        assert made.wait(20) is DELIVERED


def test_block_that_ended_with_an_error_is_errored(store: hf.Store) -> None:
    """A source that breaks off leaves an incomplete batch, which is never reported as delivered."""
    with store:
        topic = store.topic(TOPIC)
        made = opened(topic)
        put(topic, 0, batches=[made])
        with pytest.raises(ZeroDivisionError), made:
            1 / 0
        assert made.wait(WAIT) is ERRORED
        with pytest.raises(InputError, match="is closed; open another"):
            made.append({"logs": batch(1)})


def test_empty_batch_is_delivered(store: hf.Store) -> None:
    """Nothing to deliver is delivered at once, also with subscribers, and when found again."""
    with store:
        topic = store.topic(TOPIC)
        topic.subscribe("lake").close()
        with opened(topic) as made:
            pass
        assert made.wait(WAIT) is DELIVERED
        again = found(topic)
        assert again is not None
        assert again.wait(WAIT) is DELIVERED


def test_bundles_at_a_lower_level_count_when_they_are_synced() -> None:
    """A batch of bundles at level memory is not answered before they are on the disk."""
    with simulated(SimulatedFiles(), SystemClock(), wal={"flush_interval": "1h"}) as store:
        topic = store.topic(TOPIC)
        made = opened(topic)
        made.append({"logs": batch(1)}, durability="memory")
        made.close()
        assert unanswered(topic, made)
        topic.flush()
        assert made.wait(WAIT) is DELIVERED
