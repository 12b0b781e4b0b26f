"""What one fault leaves behind must not hurt later, when another one comes."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import Backpressure, DiskFull, HoldfastError, ShardFailed
from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash, crash_states
from store.storekit import (
    BY_HAND,
    FOLDER,
    SEGMENTS,
    STORE,
    TOPIC,
    WAL,
    append,
    contents,
    open_store,
    put,
    put_failing,
    reopened,
    running_store,
    seen_by_others,
    until,
)


def test_failed_group_then_a_poisoned_file_then_a_power_cut() -> None:
    """A file that voids older ones and is itself poisoned passes its task on: the store opens after a power cut."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    acked = {put(topic, number): number for number in range(5)}
    files.fail("append", errno.ENOSPC, path="*.wal*", times=None)
    failed = [put_failing(topic, 5)[0], put_failing(topic, 6)[0]]
    files.heal()
    files.fail("append", errno.EIO, path="*.wal*", nth=2)  # the new file's header passes, its records do not
    acked[put(topic, 7)] = 7
    for mode in CrashMode:
        found = reopened(crash(files, mode))
        assert {offset: found.get(offset) for offset in acked} == acked, mode
        assert not set(failed) & set(found), mode


@pytest.mark.parametrize("short", [0, 10, 79])
def test_header_cut_by_a_full_disk_does_not_disturb_other_readers(short: int) -> None:
    """A WAL file that never got its header, and was superseded, is no damage for whoever reads."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        files.fail("append", errno.ENOSPC, path="*.wal*", short=short)
        assert put(topic, 0) == 0
        assert seen_by_others(files) == {0: 0}
        files.fail("append", errno.EIO, path="*.wal*", short=short)
        assert put(topic, 1) == 1
        assert seen_by_others(files) == {0: 0, 1: 1}
    assert reopened(files) == {0: 0, 1: 1}


@pytest.mark.parametrize("then", ["close", "truncate", "seal"])
def test_offsets_of_failed_appends_are_not_given_again(then: str) -> None:
    """The numbers of bundles that could not be stored stay unused after the store is opened again."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        files.fail("append", errno.ENOSPC, path="*.wal*", times=None)
        failed, error = put_failing(topic, 1)
        assert isinstance(error, DiskFull)
        files.heal()
        if then == "truncate":
            topic.truncate(10**6)
        elif then == "seal":
            topic.seal()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        assert failed not in contents(topic)
        assert put(topic, 2) > failed


def test_whole_frames_of_a_failed_group_do_not_come_back_after_it_was_recorded_as_lost() -> None:
    """What was reported as failed, and written down as lost, is not there after reopening."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        files.fail("rename", errno.EIO, path="*.seg*", times=None)  # so that the WAL is still needed
        files.fail("sync", errno.EIO, path="*.wal*", times=None)
        _, error = put_failing(topic, 1)
        assert isinstance(error, ShardFailed)
    files.heal()
    assert reopened(files) == {0: 0}


def test_bundle_larger_than_the_whole_wal_may_be() -> None:
    """A bundle above wal.max_size is stored, and appends go on once it is sealed."""
    files = SimulatedFiles()
    with running_store(files, wal={"file_size": 4096, "max_size": 8192}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0, width=20_000).wait(timeout=30)
        for number in range(1, 5):
            append(topic, number, timeout=30).wait(timeout=30)
        assert contents(topic) == {number: number for number in range(5)}


def test_wal_files_that_could_not_be_deleted_are_deleted_later() -> None:
    """Appends that wait because WAL files cannot be unlinked go on when the disk is well again."""
    files = SimulatedFiles()
    with running_store(files, wal={"file_size": 4096, "max_size": 8192}, segment={"target_size": 2000}) as store:
        topic = store.topic(TOPIC)
        for operation in ("unlink", "rename"):
            files.fail(operation, errno.EIO, path="*.wal*", times=None)
        number = 0
        with pytest.raises(Backpressure):  # noqa: PT012 (which of them is refused is not the point)
            for number in range(1000):
                append(topic, number, width=1000, timeout=0.5).wait(timeout=30)
        files.heal()
        append(topic, number, width=1000, timeout=30).wait(timeout=30)
        assert contents(topic) == {each: each for each in range(number + 1)}


def test_full_disk_does_not_fill_the_wal_folder_with_empty_files() -> None:
    """However often appends fail, the number of WAL files stays small."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        files.fail("append", errno.ENOSPC, path="*.wal*", times=None)
        for number in range(1, 31):
            put_failing(topic, number)
        assert len(files.list(WAL)) <= 4
        files.heal()
        assert put(topic, 31) == 31
        assert contents(topic) == {0: 0, 31: 31}
    assert reopened(files) == {0: 0, 31: 31}


def _new_slot(topic: hf.Topic) -> None:
    receipt = topic.append({"new": pa.record_batch({"id": [7]})}, attributes={"id": 7})
    topic.flush()
    receipt.wait(timeout=30)


def _check_new_slot(files: SimulatedFiles) -> None:
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        assert [each.to_pydict() for each in topic.read(slot="new")] == [{"id": [7]}]


def test_slot_whose_checkpoint_could_not_be_synced_at_first() -> None:
    """A bundle is acknowledged only when its slot's name is durable too, however often that had to be tried."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    put(topic, 0)
    files.fail("sync_folder", errno.EIO, path=FOLDER.as_posix())
    with pytest.raises(HoldfastError):
        _new_slot(topic)
    _new_slot(topic)
    _check_new_slot(crash(files))


def test_slot_of_a_process_that_was_killed_before_it_was_durable() -> None:
    """Who finds a slot in the page cache makes it durable before a bundle that uses it is acknowledged."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    put(topic, 0)
    topic.append({"new": pa.record_batch({"id": [1]})})
    renames = [place for place, each in enumerate(files.journal, 1) if "topic.checkpoint.tmp ->" in str(each)]
    killed = next(crash_states(files, modes=[CrashMode.KILLED], first=renames[-1], last=renames[-1])).files
    _new_slot(open_store(killed, seed=2).topic(TOPIC))
    _check_new_slot(crash(killed))


def test_half_made_shard_folder_after_a_failed_sync_and_a_power_cut() -> None:
    """A shard whose folders could not be synced when it was made is made again, and keeps what it acknowledges."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    files.fail("sync_folder", errno.EIO, path="*/shard-0000")
    with pytest.raises(HoldfastError):
        append(topic, 0)
    offset = put(topic, 1)
    assert reopened(crash(files, CrashMode.KEPT)) == {offset: 1}
    with open_store(crash(files, CrashMode.LOST), seed=3) as store:
        store.topic(TOPIC).positions()  # opens, whatever became of the shard


def test_segment_whose_name_a_dead_process_could_not_sync() -> None:
    """WAL files are kept until the segment that covers them is surely there, whoever renamed it."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    put(topic, 0)
    files.fail("sync_folder", errno.EIO, path=SEGMENTS.as_posix(), times=None)
    with pytest.raises((HoldfastError, OSError)):
        topic.seal()
    failed = next(place for place, each in enumerate(files.journal, 1) if str(each).endswith("(failed)"))
    killed = next(crash_states(files, modes=[CrashMode.KILLED], first=failed, last=failed)).files
    store = open_store(killed, seed=2)
    assert contents(store.topic(TOPIC)) == {0: 0}
    states = crash_states(killed, modes=CrashMode, per_prefix=40, first=len(killed.journal))
    for state in states:
        assert reopened(state.files) == {0: 0}, state.description


def test_shard_that_was_closed_is_left_alone() -> None:
    """When sealing fails at close, nobody touches the folder after the lock is given up: it may be another's."""
    files, clock = SimulatedFiles(), FakeClock()
    settings = {"buffer": BY_HAND, "topics": {"prod/other": {"segment": {"target_size": 1}}}}
    with hf.Store.open(STORE, settings=settings, files=files, clock=clock) as first:
        topic = first.topic(TOPIC)
        for number in range(3):
            put(topic, number)
        files.fail("rename", errno.EIO, path="*/logs/*.seg*", times=None)
        topic.close()
        _go_round(files, first, 1)
        files.heal()
        with open_store(files) as second:
            for number in range(3, 6):
                put(second.topic(TOPIC), number)
            second.topic(TOPIC).seal()
            clock.advance(3600)  # whatever is to be tried again is due now
            _go_round(files, first, 2)
            _go_round(files, first, 3)
    assert seen_by_others(files) == {number: number for number in range(6)}


def _go_round(files: SimulatedFiles, store: hf.Store, count: int) -> None:
    """Let the store's sealer seal something else, and with it whatever was due before."""
    put(store.topic("prod/other"), 0)
    until(lambda: len(files.list(FOLDER.parent / "other/shard-0000/segments")) == count)


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("mode", list(CrashMode))
def test_truncated_inside_the_open_segment_then_killed(before: int, mode: CrashMode) -> None:
    """A segment whose first bundles were deleted while it was open comes back, goes on and is sealed."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    for number in range(3):
        put(topic, number)
    assert topic.truncate(before) == {0: before}
    after = crash(files, mode)
    rest = {number: number for number in range(before, 3)}
    with open_store(after, seed=2) as store:
        topic = store.topic(TOPIC)
        assert contents(topic) == rest
        assert put(topic, 3) == 3
        topic.seal()
        assert contents(topic) == {**rest, 3: 3}
    assert reopened(after) == seen_by_others(after) == {**rest, 3: 3}


def test_torn_last_record_while_nothing_new_was_appended() -> None:
    """An offset that a crash tore is lost, and other processes pass over it, also before the next append."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    put(topic, 0)
    append(topic, 1, "os").wait(timeout=30)
    after = files.kill()
    (name,) = [each for each in after.list(WAL) if each.endswith(".wal")]
    torn = after.open(WAL / name)
    torn.truncate(len(after.read(WAL / name).rstrip(b"\0")) - 40)  # within the last record's payload
    torn.close()
    with open_store(after, seed=2) as store:
        topic = store.topic(TOPIC)
        assert contents(topic) == {0: 0}
        assert seen_by_others(after) == {0: 0}
        offset = put(topic, 2)
        assert offset > 1
        assert contents(topic) == seen_by_others(after) == {0: 0, offset: 2}
    assert reopened(after) == seen_by_others(after) == {0: 0, offset: 2}


def test_spares_that_cannot_be_deleted_when_there_is_no_room() -> None:
    """When even the spare files cannot be given back, receipts fail all the same, and the shard goes on later."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        for number in range(4):
            put(topic, number, width=3000)
        topic.seal()
        assert [name for name in files.list(WAL) if name.startswith("spare")]
        put(topic, 4, width=3000)
        put(topic, 5)
        files.fail("sync", errno.ENOSPC, path="*.wal*", times=None)
        files.fail("unlink", errno.EIO, path="*spare*", times=None)
        offset, error = put_failing(topic, 6)
        assert isinstance(error, DiskFull)
        files.heal()
        assert put(topic, 7) > offset
        assert list(contents(topic).values()) == [0, 1, 2, 3, 4, 5, 7]
    assert list(reopened(files).values()) == [0, 1, 2, 3, 4, 5, 7]


def test_torn_file_of_a_failed_group_that_comes_back_after_a_power_cut() -> None:
    """A deleted WAL file whose only record was torn, and is written down as lost, is no damage when it is back."""
    files = SimulatedFiles()
    with open_store(files) as store:
        put(store.topic(TOPIC), 0)
    with open_store(files, seed=2) as store:
        files.fail("append", errno.ENOSPC, path="*.wal*", nth=2, times=None, short=150)  # the header passes
        failed, _ = put_failing(store.topic(TOPIC), 1)
        files.heal()
    assert reopened(files) == {0: 0}
    for mode in CrashMode:
        after = crash(files, mode)
        with open_store(after, seed=3) as store:
            topic = store.topic(TOPIC)
            assert contents(topic) == {0: 0}, mode
            assert put(topic, 2) > failed
