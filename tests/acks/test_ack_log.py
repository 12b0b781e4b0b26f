"""The ack log of one shard, written and read by several at once."""

from __future__ import annotations

import threading

import pytest

from acks.ackkit import (
    ACK,
    DROPPED,
    FAILED,
    FOLDER,
    NACK,
    SHARD,
    SHARD_ID,
    answer,
    batch,
    batch_id,
    content,
    disk,
    finals,
    offsets,
    open_log,
    path,
    ranges,
    read,
    rotate,
)
from holdfast.acks import AckLog, Change
from holdfast.errors import Fenced
from holdfast.testing import CrashMode, SimulatedFiles, crash


def test_what_one_writes_the_other_reads() -> None:
    """Records of any number of logs are one state; a refresh says what it was about, once."""
    files = disk()
    one, two, reader = open_log(files), open_log(files), open_log(files)
    one.append([offsets(1, 0, 2)])
    two.append([ranges(2, (0, 5), outcome=DROPPED), batch(1, (0, 2))])
    change = reader.refresh()
    assert (change.subscribers, change.batches, change.damage, change.reloaded) == ({1, 2}, {batch_id(1)}, (), False)
    assert (reader.progress(1).watermark, reader.progress(2).dropped) == (1, 5)
    assert reader.refresh() == Change()
    one.append([answer(1)])
    assert reader.refresh().batches == {batch_id(1)}


def test_an_idle_refresh_asks_twice_and_reads_nothing() -> None:
    """Is there a next file, and has this one grown: no more than that."""
    files = disk()
    log = open_log(files)
    log.append([offsets(1, 0)])
    log.refresh()
    before = files.calls
    log.refresh()
    assert files.calls - before == {"exists": 1, "size": 1}


def test_the_guard_decides_under_the_lock() -> None:
    """What it raises is passed on and nothing is written; while it looks, nobody can rotate."""
    files = disk()
    log = open_log(files)

    def refuse() -> None:
        with pytest.raises(Exception, match="held by"):
            files.lock(FOLDER / "LOCK", note="")
        raise Fenced("taken over")

    with pytest.raises(Fenced):
        log.append([offsets(1, 0)], guard=refuse)
    assert not finals(read(files)[0].state, 1)
    log.append([offsets(1, 0)], guard=lambda: None)
    assert finals(read(files)[0].state, 1) == {0: ACK}


def test_a_shard_without_an_ack_log_has_an_empty_one() -> None:
    """A reader sees nothing and makes nothing; the first append makes it."""
    files = SimulatedFiles()
    files.make_folder(SHARD)
    reader, writer = open_log(files), open_log(files)
    assert reader.refresh() == Change()
    reader.sync()
    assert files.list(SHARD) == []
    writer.append([offsets(1, 0)], sync=True)
    reader.refresh()
    assert reader.progress(1).watermark == 1
    assert read(crash(files))[0].progress(1).watermark == 1


def test_create_is_durable_and_may_be_repeated() -> None:
    """A crash right behind it leaves the ack log; another call leaves it as it is."""
    files = disk()
    assert crash(files).exists(path(0))
    open_log(files).append([offsets(1, 0)])
    AckLog.create(files, SHARD, SHARD_ID)
    assert finals(read(files)[0].state, 1) == {0: ACK}


def test_synced_records_survive_and_others_may_not() -> None:
    """`sync` is what makes the difference after a power cut."""
    files = disk()
    log = open_log(files)
    log.append([offsets(1, 0)], sync=True)
    log.append([offsets(1, 1)])
    assert finals(read(crash(files))[0].state, 1) == {0: ACK}
    log.refresh()
    log.sync()
    assert finals(read(crash(files))[0].state, 1) == {0: ACK, 1: ACK}


def test_sync_costs_nothing_when_nothing_is_new() -> None:
    """Only what was read since the last one is a reason to go to the disk."""
    files = disk()
    log, other = open_log(files), open_log(files)
    other.append([offsets(1, 0)])
    log.refresh()
    log.sync()
    before = files.calls
    log.sync()
    other.append([offsets(1, 1)])
    log.sync()  # not read yet
    assert files.calls["sync"] == before["sync"]
    log.refresh()
    log.sync()
    assert files.calls["sync"] == before["sync"] + 1


def test_rotation_keeps_the_state_and_forgets_the_removed() -> None:
    """One empty file is left; subscribers that are not kept are gone, for every log."""
    files = disk()
    log, other = open_log(files), open_log(files)
    log.append([offsets(1, 0, 5), offsets(2, 3), offsets(1, 9, outcome=FAILED), batch(1, (0, 1)), answer(2)])
    other.refresh()
    before = content(other.state)
    rotate(log, keep=[1])
    assert log.statistics().files == 1
    change = other.refresh()
    assert change.reloaded
    assert change.subscribers == {1, 2}
    del before["progress"]["2"]
    for each in (log, other, read(files)[0]):
        assert content(each.state) == before
        assert 2 not in each.state.progress


def test_appends_follow_any_number_of_rotations() -> None:
    """A writer that slept through two of them does not write into a file that is gone."""
    files = disk()
    log, sleeper = open_log(files), open_log(files)
    sleeper.append([offsets(1, 0)])
    for number in range(1, 4):
        log.append([offsets(1, number)])
        rotate(log)
        if number != 2:
            sleeper.append([offsets(2, number)])
    state = read(files)[0].state
    assert finals(state, 1) == dict.fromkeys(range(4), ACK)
    assert finals(state, 2) == dict.fromkeys((1, 3), ACK)


def test_a_reader_follows_a_rotation_without_reloading() -> None:
    """While the old file is still there it is read to its end, and then the next one."""
    files = disk()
    log, reader = open_log(files), open_log(files)
    log.append([offsets(1, 0)])
    reader.refresh()
    log.append([offsets(1, 1)])
    files.fail("unlink", path="*.acks")
    with pytest.raises(OSError, match="Input/output"):
        rotate(log)
    log.append([offsets(1, 2)])
    assert not reader.refresh().reloaded
    assert finals(reader.state, 1) == dict.fromkeys(range(3), ACK)
    rotate(log)  # and the file that could not be unlinked goes now
    assert files.list(FOLDER) == ["0000000000000002.acks", "LOCK"]


def test_progress_is_another_object_after_a_reload() -> None:
    """Whoever keeps one can see that it is of yesterday."""
    files = disk()
    log, reader = open_log(files), open_log(files)
    log.append([offsets(1, 0)])
    reader.refresh()
    before = reader.progress(1)
    rotate(log)
    assert reader.refresh().reloaded
    assert reader.progress(1) is not before
    assert reader.progress(1).watermark == before.watermark


def test_a_rotation_that_fails_over_and_over_makes_no_more_files() -> None:
    """An empty file is used again until the checkpoint can be written."""
    files = disk()
    log = open_log(files)
    log.append([offsets(1, 0)])
    files.fail("rename", path="*acks.checkpoint.tmp", times=5)
    for _ in range(5):
        with pytest.raises(OSError, match="Input/output"):
            rotate(log)
    assert files.list(FOLDER) == ["0000000000000000.acks", "0000000000000001.acks", "LOCK"]
    rotate(log)
    assert files.list(FOLDER) == ["0000000000000001.acks", "LOCK"]
    assert finals(read(files)[0].state, 1) == {0: ACK}


def test_replay_is_bounded_by_rotation() -> None:
    """Past its bound a log asks to be rotated, and then has nothing to replay."""
    files = disk()
    log = open_log(files, rotate_bytes=500)
    for number in range(10):
        log.append([offsets(1, number)])
    log.refresh()
    assert not log.needs_rotation
    log.append([offsets(1, 10)])
    log.refresh()
    assert log.needs_rotation
    assert log.statistics().records == 11
    rotate(log)
    assert not log.needs_rotation
    assert (log.statistics().records, log.statistics().bytes) == (0, 48)


def test_rotation_is_for_the_holder_of_the_lock() -> None:
    """Outside `exclusive` it is refused: somebody might be appending."""
    with pytest.raises(RuntimeError, match="inside exclusive"):
        open_log(disk()).rotate([])


def test_inside_exclusive_everything_is_allowed() -> None:
    """Appending, syncing, rotating and locking again from the same thread wait for nobody."""
    files = disk()
    log = open_log(files)
    with log.exclusive():
        log.append([offsets(1, 0)], sync=True)
        with log.exclusive() as change:
            assert change.subscribers == {1}
        log.append([offsets(1, 1)])
        log.rotate([1])
        log.append([offsets(1, 2)])
        log.sync()
    assert log.refresh().subscribers == {1}
    assert finals(log.state, 1) == dict.fromkeys(range(3), ACK)


def test_what_a_rotation_read_is_told_by_the_next_refresh() -> None:
    """Nothing that came in between goes untold."""
    log = open_log(disk())
    with log.exclusive():
        log.append([offsets(3, 0)])
        log.rotate([3])
    assert log.refresh().subscribers == {3}


def test_exclusive_waits_for_appends_and_holds_them_off() -> None:
    """While one is inside, an append of another waits, and is there afterwards."""
    files = disk()
    log, other = open_log(files), open_log(files)
    waiting = threading.Event()
    files.before = lambda operation, _: waiting.set() if operation == "lock" else None
    with log.exclusive():
        waiting.clear()
        thread = threading.Thread(target=other.append, args=([offsets(1, 7)],))
        thread.start()
        assert waiting.wait(30)
        assert not log._refresh(alone=True).subscribers
        log.rotate([1])
    thread.join(30)
    assert log.refresh().subscribers == {1}
    assert files.list(FOLDER) == ["0000000000000000.acks", "LOCK"]  # it was empty, and was used again


def test_threads_share_a_log() -> None:
    """Appends, refreshes and rotations from many threads: every record counts, and counts once."""
    files = disk()
    log = open_log(files)
    rotating = threading.Event()

    def write(thread: int) -> None:
        for number in range(60):
            log.append([offsets(1, 4 * number + thread), offsets(2, thread, outcome=NACK)], sync=number % 20 == 0)
            if number % 7 == 0:
                log.refresh()
        if thread == 0:
            rotating.set()

    def turn() -> None:
        while not rotating.is_set():
            rotate(log)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)] + [threading.Thread(target=turn)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for each in (log, read(files)[0]):
        each.refresh()
        assert each.progress(1).watermark == 240
        assert [each.progress(2).attempts(number) for number in range(4)] == [(60, 0)] * 4


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_a_file_whose_sync_failed_is_never_relied_on(operation: str) -> None:
    """The append that failed is told; the next sync of anybody rotates, and then all of it survives a power cut."""
    files = disk()
    log, other = open_log(files), open_log(files)
    other.append([offsets(1, 0)])
    files.fail(operation, path="*acks*")
    with pytest.raises(OSError, match="Input/output"):
        log.append([offsets(1, 1)], sync=True)
    assert log.needs_rotation
    assert files.list(FOLDER) == ["0000000000000000.acks", "0000000000000000.distrusted", "LOCK"]
    other.append([offsets(1, 2)], sync=True)
    assert files.list(FOLDER) == ["0000000000000001.acks", "LOCK"]
    for mode in (CrashMode.LOST, CrashMode.REORDERED):
        assert finals(read(crash(files, mode))[0].state, 1) == dict.fromkeys(range(3), ACK)
    log.append([offsets(1, 1)], sync=True)
    assert files.list(FOLDER) == ["0000000000000001.acks", "LOCK"]


def test_a_failed_sync_of_what_was_read_is_made_good() -> None:
    """`sync` puts what it has read into the checkpoint when the file cannot be relied on."""
    files = disk()
    log, other = open_log(files), open_log(files)
    other.append([offsets(1, 0)])
    log.refresh()
    files.fail("sync", path="*.acks")
    log.sync()
    assert finals(read(crash(files))[0].state, 1) == {0: ACK}


def test_a_closed_log_opens_again() -> None:
    """Closing gives the file back, no more."""
    log = open_log(disk())
    log.append([offsets(1, 0)])
    log.close()
    log.close()
    log.append([offsets(1, 1)])
    log.refresh()
    assert finals(log.state, 1) == dict.fromkeys(range(2), ACK)
