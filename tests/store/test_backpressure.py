"""Bounds: what is full holds appends back with a clear error, and lets them go on when there is room again."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from holdfast.errors import Backpressure, Closed, DiskFull, ShardFailed
from holdfast.store import _sealer
from holdfast.store._sealing import MAX_UNSEALED_SEGMENTS
from holdfast.testing import SimulatedFiles
from store.storekit import SEGMENTS, TOPIC, WAL, Gate, append, contents, open_store, put, reopened, running_store, until


def test_too_much_pending() -> None:
    """While the disk hangs, appends are taken up to wal.max_pending and then refused, with a hint when to retry."""
    files = SimulatedFiles()
    with running_store(files, wal={"max_pending": 5000}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        taken = []
        with Gate(files, "sync", ".wal"):
            with pytest.raises(Backpressure) as caught:  # noqa: PT012 (which of them is refused is not the point)
                for number in range(1, 100):
                    taken.append(append(topic, number, width=1000, timeout=0))  # noqa: PERF401
            assert 2 <= len(taken) <= 5
            assert caught.value.retry_after > 0
            assert "wal.max_pending is 5000" in str(caught.value)
            assert "prod/logs/0" in str(caught.value)
            with pytest.raises(Backpressure):
                append(topic, 99, width=1000, timeout=0.01)
        for receipt in taken:
            receipt.wait(timeout=30)
        append(topic, 99, width=1000, timeout=30).wait(timeout=30)
        assert list(contents(topic).values()) == [*range(len(taken) + 1), 99]


def test_append_waits_for_room_and_then_goes_on() -> None:
    """An append that may wait is taken as soon as there is room, in any number of threads."""
    files = SimulatedFiles()
    with running_store(files, wal={"max_pending": 2000}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        threads = []
        with Gate(files, "sync", ".wal") as gate:
            append(topic, 1, width=1500)
            assert gate.reached.wait(30)
            for number in range(2, 6):
                thread = threading.Thread(target=append, args=(topic, number), kwargs={"width": 1500, "timeout": 60})
                thread.start()
                threads.append(thread)
        for thread in threads:
            thread.join(60)
        topic.flush()
        assert sorted(contents(topic).values()) == list(range(6))


def test_one_bundle_above_max_pending_is_taken_alone() -> None:
    """A bound does not make a large bundle impossible."""
    files = SimulatedFiles()
    with running_store(files, wal={"max_pending": 100}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0, width=10_000, timeout=0).wait(timeout=30)
        assert contents(topic) == {0: 0}


def test_waiting_append_is_told_when_the_store_closes() -> None:
    """Nobody waits for room in a store that is gone."""
    files = SimulatedFiles()
    store = running_store(files, wal={"max_pending": 2000})
    topic = store.topic(TOPIC)
    append(topic, 0).wait(timeout=30)
    raised: list[Exception] = []

    def wait_for_room() -> None:
        try:
            append(topic, 2, width=1500, timeout=60)
        except Exception as error:
            raised.append(error)

    with Gate(files, "sync", ".wal") as gate:
        append(topic, 1, width=1500)
        assert gate.reached.wait(30)
        waiting = threading.Thread(target=wait_for_room)
        waiting.start()
        until(lambda: topic.own is not None and bool(topic.own._committer._room._waiters))  # type: ignore[attr-defined]
        closing = threading.Thread(target=store.close)
        closing.start()
        waiting.join(60)
    closing.join(60)
    assert [type(error) for error in raised] == [Closed]


def test_sealing_that_fails_keeps_everything_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """While segments cannot be written all bundles stay readable and in the WAL; when they can, they are sealed."""
    monkeypatch.setattr(_sealer, "FIRST_RETRY_SECONDS", 0.01)
    files = SimulatedFiles()
    with running_store(files, segment={"target_size": 1500}) as store:
        topic = store.topic(TOPIC)
        fault = files.fail("rename", errno.EIO, path="*.seg*", times=None)
        for number in range(4):
            append(topic, number, width=500).wait(timeout=30)
        until(lambda: fault.fired >= 3)
        assert contents(topic) == {number: number for number in range(4)}
        assert [name for name in files.list(SEGMENTS) if name.endswith(".seg")] == []
        assert reopened(files.kill()) == {number: number for number in range(4)}
        files.heal()
        until(lambda: len(files.list(SEGMENTS)) >= 1)
        until(lambda: topic.statistics().unsealed_segments == 0)  # type: ignore[union-attr]
        assert contents(topic) == {number: number for number in range(4)}
    assert reopened(files) == {number: number for number in range(4)}


def test_too_many_unsealed_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded while sealing fails: appends are refused, told why, and go on after it works again."""
    monkeypatch.setattr(_sealer, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(_sealer, "LAST_RETRY_SECONDS", 0.05)
    files = SimulatedFiles()
    with running_store(files, segment={"target_size": 1}) as store:
        topic = store.topic(TOPIC)
        files.fail("sync", errno.EIO, path="*.seg*", times=None)
        number = 0
        with pytest.raises(Backpressure) as caught:  # noqa: PT012 (which of them is refused is not the point)
            for number in range(100):
                append(topic, number, timeout=0.2).wait(timeout=30)
        assert number == MAX_UNSEALED_SEGMENTS
        assert not isinstance(caught.value, DiskFull)
        until(lambda: topic.own is not None and topic.own._sealing.problem is not None)
        with pytest.raises(Backpressure) as caught:
            append(topic, number, timeout=0)
        assert "3 full segments wait to be sealed; sealing fails: [Errno 5] Input/output error" in str(caught.value)
        assert contents(topic) == {each: each for each in range(number)}
        files.heal()
        append(topic, number, timeout=60).wait(timeout=30)
        assert contents(topic) == {each: each for each in range(number + 1)}


def test_wal_above_its_size_is_sealed_and_then_holds_appends_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """At wal.max_size the open segment is sealed early; only if that fails are appends refused."""
    monkeypatch.setattr(_sealer, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(_sealer, "LAST_RETRY_SECONDS", 0.05)
    files = SimulatedFiles()
    with running_store(files, wal={"file_size": 4096, "max_size": 10_000}) as store:
        topic = store.topic(TOPIC)
        for number in range(40):
            append(topic, number, width=1000, timeout=30).wait(timeout=30)
        statistics = topic.statistics()
        assert statistics is not None
        assert statistics.segments >= 2
        files.fail("create", errno.EIO, path="*.seg*", times=None)
        with pytest.raises(Backpressure, match="the WAL is over 10000 bytes"):  # noqa: PT012 (as above)
            for number in range(40, 100):
                append(topic, number, width=1000, timeout=0.2).wait(timeout=30)
        files.heal()
        append(topic, number, width=1000, timeout=60).wait(timeout=30)
        assert contents(topic) == {each: each for each in range(number + 1)}
        assert sum(files.size(WAL / name) for name in files.list(WAL) if name.endswith(".wal")) < 20_000


def test_full_disk_and_room_again() -> None:
    """Without room appends fail as DiskFull, reading goes on, and with room so do appends; the shard stays open."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, width=3000)
        free, total = files.free_bytes(Path("/"))
        files.capacity = total - free
        receipt = append(topic, 1, width=3000)
        topic.flush()
        with pytest.raises(DiskFull) as caught:
            receipt.wait(timeout=30)
        assert "no room for offsets 1 to 1" in str(caught.value)
        assert "free some space" in str(caught.value)
        assert caught.value.retry_after > 0
        assert contents(topic) == {0: 0}
        files.capacity = None
        offset = put(topic, 2)
        assert contents(topic) == {0: 0, offset: 2}
    assert reopened(files) == {0: 0, offset: 2}


def test_shard_that_failed_is_read_only_until_reopened() -> None:
    """After a write and its repetition failed, appends are refused at once; reading, sealing and closing work."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        files.fail("sync", errno.EIO, path="*.wal*", times=None)
        receipt = append(topic, 1)
        topic.flush()
        with pytest.raises(ShardFailed):
            receipt.wait(timeout=30)
        files.heal()
        with pytest.raises(ShardFailed, match="read-only until the store is reopened"):
            append(topic, 2)
        assert contents(topic) == {0: 0}
        topic.seal()
        assert contents(topic) == {0: 0}
    with open_store(files, seed=2) as store:
        offset = put(store.topic(TOPIC), 3)
        assert contents(store.topic(TOPIC)) == {0: 0, offset: 3}


def test_pending_appends_behind_a_failure_fail_too() -> None:
    """A bundle that waits behind one that could not be stored is not acknowledged, and not nested in its error."""
    files = SimulatedFiles()
    with running_store(files) as store:
        topic = store.topic(TOPIC)
        append(topic, 0).wait(timeout=30)
        with Gate(files, "sync", ".wal") as gate:
            first = append(topic, 1)
            assert gate.reached.wait(30)
            behind = [append(topic, number) for number in range(2, 5)]
            files.fail("sync", errno.EIO, path="*.wal*", times=None)
        for receipt in (first, *behind):
            with pytest.raises(ShardFailed) as caught:
                receipt.wait(timeout=30)
            assert str(caught.value).count("read-only until") == 1
        files.heal()
    assert reopened(files) == {0: 0}
