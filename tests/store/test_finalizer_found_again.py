"""A batch found again by its identity: after its answer, after a restart, after a crash; and waiting for it."""

from __future__ import annotations

import asyncio

import pytest

import holdfast as hf
from holdfast.acks import BatchStatus
from holdfast.clock import SystemClock
from holdfast.errors import Closed, InputError
from holdfast.store._batch import Batch
from holdfast.testing import SimulatedFiles, crash
from store.batchkit import DELIVERED, REJECTED, fill, found, opened, unanswered
from store.storekit import SHARD, TOPIC, batch
from store.subkit import WAIT, Background, ack_all, now, put, simulated


@pytest.fixture
def store() -> hf.Store:
    return simulated(clock=SystemClock())


def test_answer_is_found_by_identity(store: hf.Store) -> None:
    """An answered batch can be asked for again and says the same; an unknown one is None."""
    with store:
        topic = store.topic(TOPIC)
        made = fill(topic, opened(topic), 0)
        assert made.wait(WAIT) is DELIVERED
        again = found(topic)
        assert again is not None
        assert again.wait(0) is DELIVERED
        assert found(topic, 2) is None
        assert topic.find_batch("source", "another run", "1") is None


def test_answer_is_found_after_reopening() -> None:
    """The next run of a source is told what became of the batches of the last one."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            one, two = fill(topic, opened(topic, 1), 0), fill(topic, opened(topic, 2), 1)
            held, other = now(sub)
            held.ack()
            other.reject("bad row")
            assert (one.wait(WAIT), two.wait(WAIT)) == (DELIVERED, REJECTED)
    with simulated(files, SystemClock(), seed=2) as store:
        topic = store.topic(TOPIC)
        statuses = [each.wait(WAIT) for number in (1, 2) if (each := found(topic, number)) is not None]
        assert statuses == [DELIVERED, REJECTED]


def test_waiting_ends_when_the_store_closes() -> None:
    """Who waits is told to ask again, and the batch is answered in the next life of the store."""
    files = SimulatedFiles()
    store = simulated(files, SystemClock())
    topic = store.topic(TOPIC)
    topic.subscribe("lake").close()
    made = fill(topic, opened(topic), 0)
    assert unanswered(topic, made)
    waiting = Background(lambda: made.wait(WAIT))
    store.close()
    with pytest.raises(Closed, match="open it and ask again"):
        waiting.result()
    with simulated(files, SystemClock(), seed=2) as store:
        topic = store.topic(TOPIC)
        again = found(topic)
        assert again is not None
        assert unanswered(topic, again)
        with pytest.raises(InputError, match="closed"):
            again.append({"logs": batch(1)})
        with topic.subscribe("lake") as sub:
            assert ack_all(now(sub)) == [0]
            assert again.wait(WAIT) is DELIVERED


@pytest.mark.parametrize("cut", ["kill", "power"])
def test_closed_batch_is_found_after_a_crash(cut: str) -> None:
    """A batch that was answered, and one that was closed and not answered, are both found, and never reported worse."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            answered = fill(topic, opened(topic, 1), 0)
            ack_all(now(sub))
            assert answered.wait(WAIT) is DELIVERED
            pending = fill(topic, opened(topic, 2), 1)
            assert unanswered(topic, pending)
            sub.flush(sync=True)
            files = files.kill() if cut == "kill" else crash(files)
    with simulated(files, SystemClock(), seed=2) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            again = found(topic, 2)
            ack_all(now(sub))
            assert again is not None
            assert again.wait(WAIT) is DELIVERED
            old = found(topic, 1)
            assert old is not None
            assert old.wait(WAIT) is DELIVERED


def test_answer_is_never_early() -> None:
    """Whoever was told "delivered" is told so after a power cut right then: the acks were synced before the answer."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            made = fill(topic, opened(topic), 0)
            ack_all(now(sub))
            assert made.wait(WAIT) is DELIVERED
            files = crash(files)
    with simulated(files, SystemClock(), seed=2) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            assert now(sub) == [], "the source was told delivered, but the ack is gone"


def test_batch_open_at_the_crash_is_unknown() -> None:
    """A batch that was not closed is not known as a whole: its source sends it again."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, batches=[opened(topic)])
        files = files.kill()
    with simulated(files, SystemClock(), seed=2) as store:
        assert found(store.topic(TOPIC)) is None


def test_identity_used_again_after_its_answer(store: hf.Store) -> None:
    """A source that missed its answer and sends the batch again under its identity gets an answer, it does not hang."""
    with store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            first = fill(topic, opened(topic), 0)
            ack_all(now(sub))
            assert first.wait(WAIT) is DELIVERED
            second = opened(topic)
            if second.status is None:
                fill(topic, second, 1)
                ack_all(now(sub))
            assert second.wait(5) is DELIVERED


def test_await_a_batch(store: hf.Store) -> None:
    """Batches can be awaited, many in one event loop, before and after their answer."""

    async def main() -> list[BatchStatus]:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            batches = [opened(topic, number) for number in range(10)]
            for number, each in enumerate(batches):
                await each.append({"logs": batch(number)}, attributes={"id": number})

            async def status(each: Batch) -> BatchStatus:
                return await each

            waiting = [asyncio.create_task(status(each)) for each in batches]
            await asyncio.sleep(0)
            assert ack_all(sub.take(100, timeout=WAIT)) == list(range(10))
            statuses = await asyncio.wait_for(asyncio.gather(*waiting), WAIT)
            return [*statuses, await batches[0]]

    with store:
        assert asyncio.run(main()) == [DELIVERED] * 11


def test_awaiting_ends_when_the_store_closes(store: hf.Store) -> None:
    """An awaited batch raises `Closed` when the store closes first."""

    async def main() -> None:
        topic = store.topic(TOPIC)
        topic.subscribe("lake").close()
        made = fill(topic, opened(topic), 0)

        async def status() -> BatchStatus:
            return await made

        task = asyncio.create_task(status())
        await asyncio.sleep(0.01)
        Background(store.close)
        with pytest.raises(Closed):
            await asyncio.wait_for(task, WAIT)

    asyncio.run(main())


def test_sources_without_batches_cost_nothing() -> None:
    """Without a batch, appends and acks leave nothing about batches in the ack log, and nothing in memory."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, *range(20))
        acks = SHARD / "acks"
        before = {name: files.size(acks / name) for name in files.list(acks)}
        put(topic, *range(20, 40))
        topic._upkeep.run()
        assert {name: files.size(acks / name) for name in files.list(acks)} == before
        with topic.subscribe("lake") as sub:
            ack_all(now(sub))
            sub.flush()
            topic._upkeep.run()
        log = topic.acks(0)
        log.refresh()
        assert (log.state.batches, log.state.answers) == ({}, {})
