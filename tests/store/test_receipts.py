"""Receipts: which level is reached when, who waits for what, and who is told of a failure."""

from __future__ import annotations

import asyncio
import errno
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast as hf
from holdfast import Durability
from holdfast.errors import InvalidSettings, ShardFailed, WaitTimeout
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC, Gate, append, batch, contents, open_store, put, running_store, until


def test_each_level_resolves_when_it_is_reached_and_not_before() -> None:
    """`memory` resolves at once, `os` after the write, `fsync` after the sync; the level reached can be asked for."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        with Gate(files, "append", ".wal") as written:
            memory = append(topic, 1, "memory")
            assert memory.wait(timeout=0) is Durability.MEMORY
            at_os = append(topic, 2, "os")
            assert written.reached.wait(30)
            with pytest.raises(WaitTimeout):
                at_os.wait(timeout=0.01)
            assert at_os.durability is Durability.MEMORY
        assert at_os.wait(timeout=30) >= Durability.OS
        with Gate(files, "sync", ".wal") as synced:
            at_os = append(topic, 3, "os")
            at_fsync = append(topic, 4)
            assert synced.reached.wait(30)
            with pytest.raises(WaitTimeout):
                at_fsync.wait(timeout=0.01)
            assert at_fsync.durability < Durability.FSYNC
            assert 4 not in contents(topic)
        assert at_fsync.wait(timeout=30) is Durability.FSYNC
        until(lambda: at_os.durability is Durability.FSYNC and memory.durability is Durability.FSYNC)
        assert contents(topic) == {number: number for number in range(5)}


def test_os_resolves_while_the_sync_is_still_to_come() -> None:
    """A bundle at level `os` does not wait for the disk."""
    files = SimulatedFiles()
    store = open_store(files)
    topic = store.topic(TOPIC)
    put(topic, 0)
    syncs = files.calls["sync"]
    receipt = append(topic, 1, "os")
    assert receipt.wait(timeout=30) is Durability.OS
    assert files.calls["sync"] == syncs
    topic.flush()
    assert receipt.durability is Durability.FSYNC
    store.close()


def test_timeout_then_success() -> None:
    """A wait that ran out says so, and the same receipt resolves later."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        with Gate(files, "sync", ".wal"):
            receipt = append(topic, 1)
            with pytest.raises(WaitTimeout) as caught:
                receipt.wait(timeout=0.01)
        assert str(caught.value) == "offset 1 was not at level fsync within 0.01 s; it may still get there"
        assert isinstance(caught.value, TimeoutError)
        assert receipt.wait(timeout=30) is Durability.FSYNC
        assert repr(receipt) == "Receipt(shard=0, offset=1, durability=fsync)"


def test_timeout_holds_while_the_caller_could_commit_itself() -> None:
    """A timeout is kept even when nobody else commits and the disk hangs."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        with Gate(files, "sync", ".wal"):
            for number in range(1, 4):
                with pytest.raises(WaitTimeout):
                    append(topic, number).wait(timeout=0.01)


def test_awaited_by_many_tasks() -> None:
    """Any number of tasks may await receipts, the same one or others, without blocking the loop."""
    files = SimulatedFiles()

    async def one(topic: hf.Topic, number: int) -> tuple[int, Durability]:
        receipt = append(topic, number)
        first, second = await asyncio.gather(_awaited(receipt), _awaited(receipt))
        assert first is second
        return receipt.offset, first

    async def main() -> list[tuple[int, Durability]]:
        with running_store(files) as store:
            topic = store.topic(TOPIC)
            return await asyncio.gather(*(one(topic, number) for number in range(50)))

    assert sorted(asyncio.run(main())) == [(offset, Durability.FSYNC) for offset in range(50)]


async def _awaited(receipt: hf.Receipt) -> Durability:
    return await receipt


def test_await_that_was_given_up() -> None:
    """A task that no longer waits does no harm; the receipt resolves for others."""
    files = SimulatedFiles()

    async def main() -> None:
        with running_store(files) as store:
            topic = store.topic(TOPIC)
            await append(topic, 0)
            with Gate(files, "sync", ".wal"):
                receipt = append(topic, 1)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(_awaited(receipt), 0.01)
            assert await receipt is Durability.FSYNC

    asyncio.run(main())


def test_failure_reaches_everyone_in_the_group() -> None:
    """All receipts of a group that failed raise, each an exception of its own, waiting or awaiting, now and later."""
    files = SimulatedFiles()
    store = open_store(files)
    topic = store.topic(TOPIC)
    put(topic, 0)
    receipts = [append(topic, number) for number in range(1, 6)]
    files.fail("sync", errno.EIO, path="*.wal*", times=None)
    topic.flush()
    raised = []
    for receipt in receipts * 2:
        with pytest.raises(ShardFailed) as caught:
            receipt.wait(timeout=30)
        raised.append(caught.value)
    with pytest.raises(ShardFailed):
        asyncio.run(_awaited(receipts[0]))
    assert len({id(error) for error in raised}) == len(raised)
    assert "prod/logs/0" in str(raised[0])
    assert "Input/output error" in str(raised[0])
    assert "read-only until the store is reopened" in str(raised[0])
    files.heal()
    store.close()


def test_failed_sync_is_made_good_elsewhere() -> None:
    """After one failed sync the group is written again into a new file, and its receipts resolve."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        before = len(files.list(topic._folder / "shard-0000/wal"))
        files.fail("sync", errno.EIO, path="*.wal*")
        assert put(topic, 1) == 1
        assert len(files.list(topic._folder / "shard-0000/wal")) == before + 1
        statistics = topic.statistics()
        assert statistics is not None
        assert (statistics.commits.rewrites, statistics.commits.failed_bundles) == (1, 0)


def test_many_threads_share_syncs() -> None:
    """Concurrent appends are committed together: far fewer syncs than appends."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        before = files.calls["sync"]
        with Gate(files, "sync", ".wal") as gate:
            first = append(topic, 1)
            assert gate.reached.wait(30)  # while this one is synced, the others gather
            others = [append(topic, number) for number in range(2, 102)]
        for receipt in [first, *others]:
            assert receipt.wait(timeout=30) is Durability.FSYNC
        assert files.calls["sync"] - before <= 4
        statistics = topic.statistics()
        assert statistics is not None
        assert statistics.commits.bundles == 102


def test_threads_that_wait_for_each_append() -> None:
    """Every one of many threads gets its own offset, and finds its own bundle there."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)

        def work(first: int) -> dict[int, int]:
            done = {}
            for number in range(first, first + 25):
                receipt = append(topic, number)
                assert receipt.wait() is Durability.FSYNC
                done[receipt.offset] = number
            return done

        with ThreadPoolExecutor(8) as pool:
            parts = list(pool.map(work, range(0, 200, 25)))
        told = {offset: number for part in parts for offset, number in part.items()}
        assert sorted(told) == list(range(200))
        assert contents(topic) == dict(sorted(told.items()))
        for part in parts:
            assert list(part.values()) == sorted(part.values())  # a thread's own bundles keep their order


def test_lone_caller_commits_in_its_own_thread() -> None:
    """Who waits alone does not pay for a change of threads."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait()
        threads: set[int] = set()
        files.before = lambda operation, path: threads.add(threading.get_ident()) if operation == "sync" else None
        for number in range(1, 200):
            append(topic, number).wait()
            if threading.get_ident() in threads:
                break
        files.before = None
        assert threading.get_ident() in threads


def test_flush_interval_gathers() -> None:
    """With a flush interval nothing is synced before it is over, then everything at once, without another append."""
    files = SimulatedFiles()
    with running_store(files, wal={"flush_interval": "150ms"}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        before = files.calls["sync"]
        receipts = [append(topic, number) for number in range(1, 21)]
        for receipt in receipts:
            assert receipt.wait(timeout=30) is Durability.FSYNC
        assert files.calls["sync"] - before <= 2
        assert topic.statistics().commits.groups <= 3  # type: ignore[union-attr]


def test_no_sync_before_the_flush_interval_is_over() -> None:
    """The clock decides: while it stands still, nothing is synced."""
    files = SimulatedFiles()
    store = open_store(files)
    topic = store.topic(TOPIC)
    put(topic, 0)
    before = files.calls["sync"]
    receipt = append(topic, 1)
    with pytest.raises(WaitTimeout):
        receipt.wait(timeout=0.05)
    assert files.calls["sync"] == before
    store.close()
    assert receipt.durability is Durability.FSYNC


def test_relaxed_levels_are_synced_by_the_timer() -> None:
    """What was appended at level memory becomes durable by itself, soon."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        receipts = [append(topic, 0, "memory"), append(topic, 1, "os")]
        until(lambda: all(receipt.durability is Durability.FSYNC for receipt in receipts))
        assert contents(topic) == {0: 0, 1: 1}


def test_close_makes_everything_durable() -> None:
    """No receipt is left open by a store that closes."""
    files = SimulatedFiles()
    store = open_store(files)
    topic = store.topic(TOPIC)
    receipts = [append(topic, number, level) for number, level in enumerate(["memory", "os", "fsync"])]
    store.close()
    assert [receipt.durability for receipt in receipts] == [Durability.FSYNC] * 3


@pytest.mark.parametrize("level", ["sure", "", 7, "object"])
def test_impossible_levels(level: object) -> None:
    """A level that this store cannot reach is refused before anything is stored."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        with pytest.raises(InvalidSettings):
            append(topic, 0, level)  # type: ignore[arg-type]
        assert contents(topic) == {}


def test_default_level_is_the_topics() -> None:
    """Without a level, the topic's setting holds."""
    files = SimulatedFiles()
    with open_store(files, buffer={"durability": "os"}) as store:
        receipt = store.topic(TOPIC).append({"logs": batch(0)})
        assert receipt.level is Durability.OS
        assert receipt.wait(timeout=30) is Durability.OS
