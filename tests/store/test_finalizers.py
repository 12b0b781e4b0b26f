"""Batches of sources: one status for all their bundles, the worst of all subscribers that decide, at least once."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import holdfast as hf
from holdfast.acks import BatchStatus
from holdfast.clock import SystemClock
from holdfast.errors import Closed, InputError, WaitTimeout
from holdfast.store._batch import Batch
from holdfast.testing import SimulatedFiles, crash
from store.storekit import SHARD, TOPIC, WAL, batch, until
from store.subkit import WAIT, Background, Child, ack_all, now, numbers, put, simulated

DELIVERED, ERRORED = BatchStatus.DELIVERED, BatchStatus.ERRORED
REJECTED, DROPPED = BatchStatus.REJECTED, BatchStatus.DROPPED
ACKS = Path("prod/logs/shard-0000/acks")


@pytest.fixture
def store() -> hf.Store:
    return simulated(clock=SystemClock())


def opened(topic: hf.Topic, number: int = 1) -> Batch:
    return topic.batch("source", "run", str(number))


def found(topic: hf.Topic, number: int = 1) -> Batch | None:
    return topic.find_batch("source", "run", str(number))


def fill(topic: hf.Topic, made: Batch, *given: int) -> Batch:
    """Append these bundles to the batch, durable, and close it."""
    put(topic, *given, batches=[made])
    made.close()
    return made


def unanswered(topic: hf.Topic, *batches: Batch) -> bool:
    """Nothing that is written so far answers them: the thread that would do it has looked since."""
    topic._upkeep.run()
    return all(each.status is None for each in batches)


# -- the status --------------------------------------------------------------------------------------------------------


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
                topic._keeper.forget(task)
            assert unanswered(topic, made)
        for operation in ("append", "create"):
            files.fail(operation, errno.EIO, times=None, path=f"{WAL}/*")
        topic.flush()
        with pytest.raises(hf.errors.HoldfastError):
            receipt.wait(timeout=WAIT)
        assert made.wait(20) is ERRORED


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


# -- which bundles -----------------------------------------------------------------------------------------------------


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


# -- found again -------------------------------------------------------------------------------------------------------


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


# -- from other processes ----------------------------------------------------------------------------------------------


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
