"""Idempotent append: what a repeat gets back, how long, and what is done for it."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.durability import Durability
from holdfast.errors import Backpressure, DiskFull, InvalidBundle, TryAgain, WaitTimeout
from holdfast.store._key_receipt import FollowingReceipt
from holdfast.store.keys import KeyStatistics, encode_key
from holdfast.testing import FakeClock, SimulatedFiles, crash
from store.keykit import TOPIC, Process

KEYS = TOPIC / "keys"


def test_a_repeat_gets_the_first_receipt() -> None:
    """The second append with a key stores nothing and returns the very receipt of the first, pending or not."""
    process = Process(SimulatedFiles(), 0, FakeClock())
    first, repeated = process.append(b"key")
    assert not repeated
    assert process.append(b"key") == (first, True)
    process.commit()
    again, repeated = process.append(b"key")
    assert repeated
    assert (again.offset, again.durability) == (first.offset, Durability.FSYNC)
    assert len(process.enqueued) == 1


def test_a_repeat_in_another_process_resolves_with_the_first() -> None:
    """Its receipt names shard and offset of the first, and waits until that shard's tail shows the bundle."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"other")
    first.append(b"key")
    receipt, repeated = second.append(b"key")
    assert repeated
    assert (receipt.shard, receipt.offset) == (0, 1)
    with pytest.raises(WaitTimeout, match="offset 1 of shard 0, which another process appends to, was not at level"):
        receipt.wait(timeout=0)
    first.commit()
    assert receipt.wait() is Durability.FSYNC
    assert second.append(b"key")[0].durability is Durability.FSYNC


def test_a_following_receipt_can_be_awaited() -> None:
    """`await` looks without blocking the event loop, and returns the level reached."""
    looks = iter([False, False, True])
    receipt = FollowingReceipt(3, 4, Durability.FSYNC, lambda attend: next(looks), FakeClock())

    async def get() -> Durability:
        return await receipt

    assert asyncio.run(get()) is Durability.FSYNC
    assert next(looks, None) is None


def test_a_failed_append_is_told_so() -> None:
    """A receipt of a bundle that was given up raises why, also for a repeat that got it."""
    process = Process(SimulatedFiles(), 0, FakeClock())
    process.append(b"key")
    receipt, _ = process.append(b"key")
    process.fail(written=False)
    with pytest.raises(DiskFull, match="no room for it"):
        receipt.wait(timeout=0)
    assert process.append(b"key")[1] is False


def test_a_first_that_fails_fails_the_repeats_elsewhere() -> None:
    """Who waits in another process is told to append again, and that append is a new one."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"key")
    receipt, _ = second.append(b"key")
    first.fail(written=True)
    first.append(b"later")
    first.commit()
    with pytest.raises(
        TryAgain, match=r"the first append with the idempotency key b'key', to shard 0 at offset 0, failed"
    ):
        receipt.wait(timeout=0)
    fresh, repeated = second.append(b"key")
    assert (fresh.shard, fresh.offset, repeated) == (1, 0, False)


def test_the_owner_died_and_the_bundle_is_there() -> None:
    """Waiting for a process that was killed after it wrote recovers its shard, and the receipt resolves."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"key")
    receipt, _ = second.append(b"key")
    first.write()
    first.kill()
    assert resolved(receipt, clock) is Durability.FSYNC


def test_the_owner_died_and_the_bundle_is_not_there() -> None:
    """Waiting for a process that was killed before it wrote ends with an error that says to append again."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"key")
    receipt, _ = second.append(b"key")
    first.kill()
    with pytest.raises(TryAgain, match="append again"):
        resolved(receipt, clock)
    assert second.append(b"key")[1] is False


def resolved(receipt: object, clock: FakeClock) -> Durability:
    """Wait for it while time passes: each look moves the clock on."""
    assert isinstance(receipt, FollowingReceipt)
    look = receipt._look

    def look_later(attend: bool) -> bool:
        clock.advance(0.3)
        return look(attend)

    receipt._look = look_later
    return receipt.wait()


def test_an_unsettled_append_of_a_dead_process_is_settled_by_the_next() -> None:
    """A key without an offset, left by a kill between two writes, does not stop others from using it."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"warm")
    kill_at_second_write(first, b"key")
    receipt, repeated = second.append(b"key")
    assert (receipt.shard, repeated) == (1, False)


def test_an_unsettled_append_of_a_living_process_is_backpressure() -> None:
    """While its process cannot write the offset down, nobody else may guess: try again, says the error."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    files.fail("append", errno.ENOSPC, nth=2, path="*.keys")
    with capture_logs() as logs:
        receipt, _ = first.append(b"key")
    assert [each["event"] for each in logs] == ["key log could not be written; tried again"]
    assert first.keys.statistics().owed_records == 1
    with pytest.raises(Backpressure, match="idempotency key b'key' to shard 0 is not settled yet; try again"):
        second.append(b"key")
    first.commit()  # asks whether the tail may move, and that settles it
    again, repeated = second.append(b"key")
    assert (again.shard, again.offset, repeated) == (0, receipt.offset, True)


def kill_at_second_write(process: Process, key: bytes) -> None:
    class Killed(BaseException):
        pass

    writes = 0

    def before(operation: str, path: Path) -> None:
        nonlocal writes
        writes += operation == "append" and path.suffix == ".keys"
        if writes > 1:
            raise Killed

    files = process.files
    assert isinstance(files, SimulatedFiles)
    files.before = before
    with pytest.raises(Killed):
        process.append(key)
    files.before = None
    process.kill()


def test_a_refused_append_leaves_the_key_free() -> None:
    """Backpressure reaches the caller, who may use the same key again when there is room."""
    process = Process(SimulatedFiles(), 0, FakeClock())
    process.room = False
    with pytest.raises(Backpressure, match="still no room"):
        process.append(b"key")
    process.room = True
    assert process.append(b"key")[1] is False


def test_room_that_appears_is_used() -> None:
    """An append that found no room waits outside of the lock, and is tried again."""
    process = Process(SimulatedFiles(), 0, FakeClock())
    process.room = False

    other = Process(process.files, 1, process.clock)

    def wait_for_room() -> None:
        assert other.append(b"other")[1] is False
        process.room = True

    process._wait_for_room = wait_for_room  # type: ignore[method-assign]
    receipt, repeated = process.append(b"key")
    assert (receipt.offset, repeated) == (0, False)


def test_an_append_that_the_log_refuses_stores_nothing() -> None:
    """Without room for the key the bundle gets no offset, and the disk's error reaches the caller."""
    files = SimulatedFiles()
    process = Process(files, 0, FakeClock())
    process.append(b"warm")
    files.fail("append", errno.ENOSPC, path="*.keys", times=None, short=11)
    with pytest.raises(OSError, match="No space"):
        process.append(b"key")
    assert [each.key for each in process.enqueued] == [b"warm"]
    files.heal()
    assert process.append(b"key")[1] is False


def test_the_tail_waits_for_a_void() -> None:
    """While a failed append cannot be written down, other processes are shown nothing that lies behind it."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    first.append(b"key")
    files.fail("append", errno.ENOSPC, path="*.keys", times=None)
    first.fail(written=False)
    assert not first.keys.settled()
    receipt, repeated = second.append(b"key")
    assert (receipt.shard, repeated) == (0, True)
    with pytest.raises(WaitTimeout):
        receipt.wait(timeout=0)
    files.heal()
    assert first.keys.settled()
    assert second.append(b"key")[1] is False


def test_the_window_ends() -> None:
    """After `idempotency.window` the same key is a new one; until the last nanosecond it is not."""
    clock = FakeClock()
    process = Process(SimulatedFiles(clock=clock), 0, clock, window=60.0)
    process.append(b"key")
    clock.advance(59.999)
    assert process.append(b"key")[1] is True
    clock.advance(0.001)
    assert process.append(b"key")[1] is False
    assert process.append(b"key")[1] is True


def test_the_oldest_keys_go_first() -> None:
    """At least the youngest `idempotency.max_keys` are known, and hardly more."""
    process = Process(SimulatedFiles(), 0, FakeClock(), max_keys=16)
    for number in range(100):
        process.append(b"%d" % number)
    assert 16 <= process.keys.statistics().keys <= 19
    assert all(process.append(b"%d" % number)[1] for number in range(84, 100))
    assert process.append(b"50")[1] is False


def test_old_keys_leave_the_file_too() -> None:
    """The log stays in proportion to the keys that are within the window, however many have come."""
    clock = FakeClock()
    files = SimulatedFiles(clock=clock)
    process = Process(files, 0, clock, window=10.0)
    for number in range(500):
        process.append(b"%03d" % number)
        clock.advance(1.0)
    (name,) = [name for name in files.list(KEYS) if name.endswith(".keys")]
    assert name == f"{process.keys.statistics().generation:016d}.keys"
    assert files.size(KEYS / name) < 2000


@pytest.mark.parametrize("key", ["", b"", "x" * 257, "é" * 129])
def test_keys_have_1_to_256_bytes(key: str | bytes) -> None:
    """Anything else is refused, with what to do."""
    with pytest.raises(InvalidBundle, match=r"an idempotency key has 1 to 256 bytes, this one \d+; shorten or hash it"):
        encode_key(key)
    assert encode_key("é" * 128) == "é".encode() * 128


def test_the_longest_key_comes_back() -> None:
    """A key of 256 bytes with any byte in it survives switches and reopening."""
    files, clock = SimulatedFiles(), FakeClock()
    process, key = Process(files, 0, clock, switch_bytes=1), bytes(range(256))
    process.append(key)
    process.append(b"one more, so that the log switches")
    assert Process(files, 1, clock).append(key)[1] is True


def test_threads_append_together() -> None:
    """Sixteen threads with the same 200 keys: each key is stored once, and all threads get the same offsets."""
    process = Process(SimulatedFiles(), 0, FakeClock(), switch_bytes=5000)
    offsets: list[list[int]] = []

    def work() -> None:
        offsets.append([process.append(b"%d" % number)[0].offset for number in range(200)])

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(offsets) == 16
    assert all(each == offsets[0] for each in offsets)
    assert sorted(each.key for each in process.enqueued) == sorted(b"%d" % number for number in range(200))
    process.commit()
    statistics = process.keys.statistics()
    assert (statistics.appended, statistics.repeated) == (200, 16 * 200 - 200)


def test_topics_without_keys_have_no_key_log() -> None:
    """Opening and failing cost no file and no lock until a key is used."""
    files = SimulatedFiles()
    process = Process(files, 0, FakeClock())
    process.keys.lose(0, 0, 5)
    process.keys.before_seal()
    assert process.keys.settled()
    assert not files.exists(KEYS)
    assert process.keys.statistics() == KeyStatistics(0, 0, 0, 0, 0, 0, 0, 0)


def test_sealing_syncs_once() -> None:
    """`before_seal` syncs the log if this process wrote to it since the last time, and else touches nothing."""
    files = SimulatedFiles()
    process = Process(files, 0, FakeClock())
    process.append(b"key")
    before = files.calls["sync"]
    process.keys.before_seal()
    assert files.calls["sync"] == before + 1
    process.keys.before_seal()
    assert files.calls["sync"] == before + 1


def test_keys_of_sealed_bundles_survive_a_power_cut() -> None:
    """Once a bundle is sealed its WAL cannot bring its key back, and need not."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock)
    process.append(b"key")
    process.commit()
    process.seal()
    receipt, repeated = Process(crash(files), 1, clock).append(b"key")
    assert (receipt.shard, receipt.offset, receipt.durability, repeated) == (0, 0, Durability.FSYNC, True)


def test_keys_that_only_the_page_cache_had_survive_too() -> None:
    """After a kill the log shows keys that were never synced; whoever opens the shard makes them durable again."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock)
    process.append(b"key")
    process.commit()
    files = files.kill()
    Process(files, 0, clock).seal()
    assert Process(crash(files), 1, clock).append(b"key")[1] is True


def test_a_void_that_was_never_written_is_made_up_for() -> None:
    """The shard's own record of lost offsets is enough: the next owner voids what the first one could not."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock)
    process.append(b"key")
    files.fail("append", errno.ENOSPC, path="*.keys", times=None)
    process.fail(written=False)
    process._write_state([])
    process.kill()
    files.heal()
    assert Process(files, 1, clock).append(b"key")[1] is False


def test_no_key_is_used_while_a_shard_is_being_opened() -> None:
    """After a power cut a key may be in a WAL alone: who uses keys first waits for shards that others are opening."""
    files, clock = SimulatedFiles(), FakeClock()
    process = Process(files, 0, clock)
    process.append(b"key")
    process.commit()
    files = crash(files)
    assert files.list(KEYS)
    second = Process(files, 1, clock)
    opened, got = threading.Event(), []
    with second.keys.opening():  # stands for another process that has not come to shard 0 yet
        thread = threading.Thread(target=lambda: (opened.set(), got.append(second.append(b"key"))))
        thread.start()
        opened.wait()
        assert got == []
        Process._open(second, 0).release()
    thread.join()
    ((receipt, repeated),) = got
    assert (receipt.shard, receipt.offset, repeated) == (0, 0, True)


def test_a_failure_that_was_written_all_the_same_stays_a_failure() -> None:
    """Its process dies before the shard's checkpoint says so; the repeat is stored elsewhere, and only there."""
    files, clock = SimulatedFiles(), FakeClock()
    first, second = Process(files, 0, clock), Process(files, 1, clock)
    receipt, _ = first.append(b"key")
    first.fail(written=True)
    with pytest.raises(DiskFull):
        receipt.wait(timeout=0)
    assert second.append(b"key")[1] is False
    second.commit()
    first.kill()
    found = Process(files, 0, clock).stored()
    assert {place: each.key for place, each in found.items()} == {(1, 0): b"key"}


def test_clock_that_goes_back() -> None:
    """A key is remembered for at least the window from its first append, whatever the clock does meanwhile."""
    clock = FakeClock(now_ns=10**15)
    process = Process(SimulatedFiles(), 0, clock, window=10.0)
    process.append(b"key")
    process.clock = process.keys._clock = FakeClock(now_ns=10**15 - 10**12)
    assert process.append(b"key")[1] is True
