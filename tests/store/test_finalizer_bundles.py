"""Which bundles belong to a batch, and which batches may be open."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import InputError
from store.batchkit import DELIVERED, ERRORED, REJECTED, fill, found, opened, unanswered
from store.storekit import TOPIC, batch
from store.subkit import WAIT, ack_all, now, put, simulated


@pytest.fixture
def store() -> hf.Store:
    return simulated(clock=SystemClock())


def test_several_batches_share_a_bundle(store: hf.Store) -> None:
    """A bundle may belong to many batches; each is answered for its own bundles only."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            a, b, c = (opened(topic, number) for number in range(3))
            put(topic, 0, batches=[a])
            put(topic, 1, batches=[a, b])
            put(topic, 2, batches=[b, c])
            put(topic, 3, batches=[c])
            for each in (a, b, c):
                each.close()
            taken = now(sub)
            taken[0].ack()
            taken[1].ack()
            assert a.wait(WAIT) is DELIVERED
            assert unanswered(topic, b, c)
            taken[2].reject("bad row")
            assert b.wait(WAIT) is REJECTED
            assert unanswered(topic, c)
            taken[3].ack()
            assert c.wait(WAIT) is REJECTED


def test_bundle_for_a_closed_batch_is_refused_before_it_is_stored(store: hf.Store) -> None:
    """Nothing can be added to a closed batch, and what was refused is not in the topic."""
    with store:
        topic = store.topic(TOPIC)
        made = fill(topic, opened(topic), 0)
        with pytest.raises(InputError, match="batch '1' of 'source' is closed; open another"):
            made.append({"logs": batch(1)})
        with pytest.raises(InputError, match="closed"):
            put(topic, 1, batches=[opened(topic, 2), made])
        assert topic.positions()[0][1] == 1


def test_batch_of_another_topic_is_refused(store: hf.Store) -> None:
    """A batch belongs to one topic: a bundle of another one cannot be part of it, and is not stored."""
    with store:
        topic, other = store.topic(TOPIC), store.topic("prod/other")
        topic.subscribe("lake").close()
        put(topic, 0)
        made = opened(topic)
        with pytest.raises(InputError, match="another topic's"):
            put(other, 1, batches=[made])
        assert list(other.bundles()) == []


def test_open_batch_is_the_same_for_the_same_identity(store: hf.Store) -> None:
    """Two threads of a source that open the same batch append to one."""
    with store:
        topic = store.topic(TOPIC)
        assert opened(topic) is opened(topic)
        assert opened(topic) is not opened(topic, 2)
        assert found(topic) is opened(topic)


@pytest.mark.parametrize(
    "identity", [("", "r", "b"), ("s", "", "b"), ("s", "r", ""), ("s", "r", "x" * 129), ("s", 1, "b")]
)
def test_bad_identity(store: hf.Store, identity: Any) -> None:
    """Each part of a batch's identity is a text of 1 to 128 characters."""
    with store, pytest.raises(InputError, match="1 to 128 characters"):
        store.topic(TOPIC).batch(*identity)


def test_many_batches_at_once(store: hf.Store) -> None:
    """A thousand batches are open together, share bundles, and are all answered rightly."""
    count = 1_000
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake", window=2 * count) as sub:
            batches = [opened(topic, number) for number in range(count)]
            receipts = [
                topic.append(
                    {"logs": batch(number)},
                    attributes={"id": number},
                    batches=[batches[number], batches[(number + 1) % count]],
                )
                for number in range(count)
            ]
            for receipt in receipts:
                receipt.wait(timeout=WAIT)
            for each in batches:
                each.close()
            for held in sub.take(count, timeout=WAIT):
                if held.offset == 500:
                    held.reject("bad row")
                else:
                    held.ack()
            statuses = [each.wait(WAIT) for each in batches]
            assert [number for number, status in enumerate(statuses) if status is not DELIVERED] == [500, 501]
            assert {statuses[500], statuses[501]} == {REJECTED}


def test_too_many_unanswered_batches_are_backpressure(store: hf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound holds for batches, too: then opening one raises with a hint, and works again after an answer."""
    monkeypatch.setattr("holdfast.store._finalizers.MAX_BATCHES", 3)
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            first = opened(topic, 0)
            opened(topic, 1)
            opened(topic, 2)
            with pytest.raises(hf.errors.Backpressure) as refused:
                opened(topic, 3)
            assert refused.value.retry_after > 0
            fill(topic, first, 0)
            ack_all(now(sub))
            assert first.wait(WAIT) is DELIVERED
            opened(topic, 3)


class _Stored:
    """A receipt of a bundle that is durable."""

    durability, failed, shard = hf.Durability.FSYNC, None, 0

    def __init__(self, offset: int) -> None:
        self.offset = offset


def test_batch_that_cannot_be_written_down_stops_no_other(store: hf.Store) -> None:
    """One source's batch with too many scattered bundles is errored; other batches are answered."""
    with store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        monster = opened(topic, 1)
        for offset in range(0, 600_000, 2):
            monster.include(_Stored(offset))  # type: ignore[arg-type]
        monster.close()
        assert fill(topic, opened(topic, 2), 1).wait(20) is DELIVERED
        assert monster.wait(20) is ERRORED
