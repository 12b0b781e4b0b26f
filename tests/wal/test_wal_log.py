"""The files of a shard that is being written: rotation, supersession, retirement, spares."""

from __future__ import annotations

import errno
from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.testing import CrashMode, SimulatedFiles, crash, crash_states
from holdfast.wal import FileHeader, WalName, list_spares, list_wal
from wal.walkit import FOLDER, bundle, disk, names, new_log, offsets, replayed, salt_of, scan, write, written


def header(files: SimulatedFiles, name: str) -> FileHeader:
    return FileHeader.decode(files.read(FOLDER / name), FOLDER / name)


def test_nothing_is_made_before_the_first_write() -> None:
    """A log that was only opened leaves no file."""
    files = disk()
    log = new_log(files)
    log.sync()
    log.finish_file()
    assert (names(files), log.size) == ([], 0)


def test_rotation_by_size() -> None:
    """A file ends before it would pass its size; the next begins at the next offset, and older ones are synced."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(30):
        log.write([bundle(offset, width=300)], 0)
    found = list_wal(files, FOLDER)
    assert len(found) > 3
    assert all(files.size(FOLDER / str(name)) <= 4096 for name in found)
    assert [name.generation for name in found] == list(range(len(found)))
    reached = 0
    for name in found:
        assert name.first_offset == reached
        reached = scan(files.read(FOLDER / str(name)))[0].offset
    assert reached == 30
    assert log.size == sum(len(written(files, FOLDER / str(name))) for name in found)
    survived = crash(files, CrashMode.LOST)  # the current file was never synced, all others were
    assert offsets(replayed(survived)) == list(range(found[-1].first_offset))


def test_one_group_over_several_files() -> None:
    """A group larger than a file is spread, and each file's header tells truly what was durable when it began."""
    files = disk()
    log = new_log(files, file_size=4096)
    log.write([bundle(offset, width=1500) for offset in range(6)], 0)
    found = names(files)
    assert len(found) == 3
    assert [header(files, name).supersedes for name in found] == [0, 2, 4]
    for count, mode in ((4, CrashMode.LOST), (6, CrashMode.KEPT)):
        assert offsets(replayed(crash(files, mode))) == list(range(count))


def test_oversized_bundle_gets_a_file_of_its_own() -> None:
    """A bundle larger than a WAL file is not refused; the one after it begins the next file."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset, width in enumerate([10, 50_000, 10]):
        log.write([bundle(offset, width=width)], offset)
    assert [name.first_offset for name in list_wal(files, FOLDER)] == [0, 1, 2]
    assert offsets(replayed(files)) == [0, 1, 2]


def test_each_file_repeats_its_schemas() -> None:
    """Any file can be read without the others."""
    files = disk()
    log = new_log(files, file_size=4096)
    slots = {0: pa.record_batch({"a": ["x" * 1500]}), 3: pa.record_batch({"b": [1.5]})}
    for offset in range(5):
        log.write([bundle(offset, slots=slots)], offset)
    for name in names(files):
        result, found = scan(files.read(FOLDER / name))
        assert found
        assert result.end is not None
        assert result.end.bad is None


def test_a_schema_is_written_once_per_file() -> None:
    """A bundle of a known schema costs its own record and nothing more."""
    files = disk()
    log = new_log(files)
    grown = []
    for offset in (0, 6, 12):
        before = log.size
        log.write([replace(bundle(offset), offset=offset // 6)], 0)
        grown.append(log.size - before)
    assert grown[1] == grown[2] < grown[0] - 80


def test_salts_differ_from_file_to_file() -> None:
    """Bytes of one file are no records in another."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(8):
        log.write([bundle(offset, width=1500)], offset)
    salts = [salt_of(files, FOLDER / name) for name in names(files)]
    assert len(set(salts)) == len(salts) > 2


def test_sync_includes_the_name() -> None:
    """After the first sync of a file, a power cut leaves it under its name."""
    files = disk()
    log = new_log(files)
    log.write([bundle(0)], 0)
    assert names(crash(files, CrashMode.LOST)) == []
    log.sync()
    assert offsets(replayed(crash(files, CrashMode.LOST))) == [0]


def test_supersede_voids_what_was_not_synced() -> None:
    """After a failed sync the same offsets are written again, and only the new file counts for them."""
    files = disk()
    log = write(files, range(3))
    log.write([bundle(3, width=10), bundle(4)], 3)
    log.supersede(3)
    log.write([bundle(3, width=20), bundle(4)], 3)
    log.sync()
    found = names(files)
    assert [header(files, name).supersedes for name in found] == [0, 3]
    for mode in CrashMode:
        result = replayed(crash(files, mode))
        assert offsets(result) == list(range(5)), mode
        assert result.bundles[3].size == bundle(3, width=20).size, mode
        assert (result.lost, result.torn) == ([], [])


def test_supersede_leaves_a_hole_for_what_is_lost() -> None:
    """Offsets that were given up stay empty, in every file that comes later."""
    files = disk()
    log = write(files, range(3))
    log.write([bundle(3), bundle(4)], 3)
    log.supersede(3)
    log.write([bundle(5)], 3)
    log.sync()
    for mode in CrashMode:
        result = replayed(crash(files, mode))
        assert offsets(result) == [0, 1, 2, 5], mode
        assert (result.lost, result.end, result.durable >= 3) == ([(3, 5)], 6, True)


def test_what_supersedes_is_passed_on_until_it_is_synced() -> None:
    """A file that voids older ones and fails in its turn leaves that to the next one."""
    files = disk()
    log = write(files, range(3))
    log.write([bundle(3)], 3)
    log.supersede(3)  # 3 is given up
    log.write([bundle(4)], 3)
    log.supersede(4)  # and the file that says so is poisoned
    log.write([bundle(4)], 3)
    log.sync()
    for mode in CrashMode:
        result = replayed(crash(files, mode))
        assert offsets(result) == [0, 1, 2, 4], mode
        assert result.lost[-1] == (3, 4)
    log.supersede(5)
    log.write([bundle(5)], 5)
    log.sync()
    assert header(files, names(files)[-1]).supersedes == 5  # synced: nothing is passed on any more


def test_failed_header_then_again() -> None:
    """A file that never got a whole header is superseded by the next, which has the same first offset."""
    files = disk()
    log = new_log(files)
    files.fail("append", errno.ENOSPC, short=33)
    with pytest.raises(OSError, match="No space"):
        log.write([bundle(0)], 0)
    log.supersede(0)
    log.write([bundle(0)], 0)
    log.sync()
    for mode in CrashMode:
        assert offsets(replayed(crash(files, mode))) == [0], mode


def test_take_retired_never_takes_the_current_file() -> None:
    """Only files that end at or below the offset are given up, oldest first."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(8):
        log.write([bundle(offset, width=1500)], offset)
    log.sync()
    assert [file.name.first_offset for file in log.take_retired(1)] == []
    assert [file.name.first_offset for file in log.take_retired(5)] == [0, 2]
    assert log.take_retired(5) == []
    retired = log.take_retired(100)
    assert [file.name.first_offset for file in retired] == [4]
    log.put_back(retired)
    assert [file.name.first_offset for file in log.take_retired(100)] == [4]
    log.finish_file()
    assert [file.name.first_offset for file in log.take_retired(100)] == [6]
    assert log.size == 0
    log.write([bundle(8)], 8)
    assert list_wal(files, FOLDER)[-1] == WalName(4, 8)


def test_finish_file_gives_room_back_and_the_next_write_begins_anew() -> None:
    """A finished file ends with its last record; it can be retired."""
    files = disk()
    log = write(files, range(2))
    log.finish_file()
    size = files.size(FOLDER / names(files)[0])
    assert size == log.size
    log.write([bundle(2)], 2)
    log.sync()
    assert [name.first_offset for name in list_wal(files, FOLDER)] == [0, 2]
    assert offsets(replayed(crash(files, CrashMode.LOST))) == [0, 1, 2]


def test_hole_between_offsets_begins_a_new_file() -> None:
    """Within a file offsets are consecutive."""
    files = disk()
    log = write(files, range(2))
    log.supersede(2)
    log.write([bundle(7)], 2)
    log.sync()
    assert list_wal(files, FOLDER)[-1].first_offset == 7


def test_spares_are_bounded_and_written_over() -> None:
    """Retired files are kept for use again, two at most; their old records never show under the new name."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(6):
        log.write([bundle(offset, width=3000)], offset)
    log.sync()
    for file in log.take_retired(5):
        log.discard(file)
    assert len(list_spares(files, FOLDER)) == 2
    assert len(names(files)) == 1
    created = files.calls["create"]
    log.write([bundle(6, width=100)], 6)
    log.sync()
    log.finish_file()
    log.write([bundle(7, width=100)], 7)
    log.sync()
    assert files.calls["create"] == created
    assert list_spares(files, FOLDER) == []
    assert offsets(replayed(files, start=5)) == [5, 6, 7]


def test_crash_at_every_step_of_using_a_spare() -> None:
    """Whatever a crash leaves while a spare is taken into use, all that was synced is there and nothing else."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(4):
        log.write([bundle(offset, width=3000)], offset)
    log.sync()
    for file in log.take_retired(3):
        log.discard(file)
    files.clear_journal()
    files.note(4)
    for offset in range(4, 8):
        log.write([bundle(offset, width=1200)], offset)
        log.sync()
        files.note(offset + 1)
    for state in crash_states(files, modes=CrashMode, per_prefix=12):
        durable = int(str(state.notes[-1])) if state.notes else 4
        found = offsets(replayed(state.files, start=3))
        assert found == list(range(3, 3 + len(found))), state.description
        assert len(found) >= durable - 3, state.description


def test_discarding_a_file_that_is_gone() -> None:
    """A retired file that somebody else unlinked is no error, whatever its size."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(3):
        log.write([bundle(offset, width=3000 if offset else 10)], offset)
    log.sync()
    for file in log.take_retired(2):
        files.unlink(FOLDER / str(file.name))
        log.discard(file)
    assert list_spares(files, FOLDER) == []


def test_dropped_spares_are_gone() -> None:
    """Spares are unlinked when their room is needed."""
    files = disk()
    log = new_log(files, file_size=4096)
    for offset in range(4):
        log.write([bundle(offset, width=3000)], offset)
    log.sync()
    for file in log.take_retired(3):
        log.discard(file)
    log.drop_spares()
    assert list_spares(files, FOLDER) == []
