"""A torn tail is cut only after a copy is kept."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash_states
from holdfast.wal import TornTail, cut_torn_tail
from holdfast.wal._repair import KEPT_COPIES
from wal.walkit import bundle, disk, new_log, offsets, only, replace, replayed, write, written

COPIES = Path("/shard/torn")


def torn_disk(clock: FakeClock | None = None) -> tuple[SimulatedFiles, TornTail, bytes]:
    files = SimulatedFiles(clock=clock or FakeClock())
    files.make_folder(Path("/shard/wal"))
    write(files, range(3), synced=0)
    data = written(files)[:-5]
    replace(files, only(files), data)
    (torn,) = replayed(files).torn
    return files, torn, data


def test_copy_is_kept_and_the_rest_cut() -> None:
    """What follows the last whole record is in the copy; the file ends with that record."""
    files, torn, data = torn_disk()
    copy = cut_torn_tail(files, torn, COPIES)
    assert copy == COPIES / f"{torn.path.name}.{torn.position}.torn"
    assert files.read(copy) == data[torn.position :]
    assert files.read(torn.path) == data[: torn.position]
    result = replayed(files)
    assert (offsets(result), result.torn) == ([0, 1], [])


def test_file_without_a_header_goes_whole() -> None:
    """Of a file that never got its header the copy is all that stays."""
    files, torn, data = torn_disk()
    replace(files, torn.path, data[:20])
    copy = cut_torn_tail(files, TornTail(torn.path, 0, "cut"), COPIES)
    assert files.read(copy) == data[:20]
    assert not files.exists(torn.path)


def test_crash_while_cutting() -> None:
    """Wherever a crash falls, the tail is still uncut, or its copy is there whole."""
    files, torn, data = torn_disk()
    file = files.open(torn.path)
    file.sync()
    files.sync_folder(torn.path.parent)
    files.clear_journal()
    copy = cut_torn_tail(files, torn, COPIES)
    for state in crash_states(files, modes=CrashMode, per_prefix=10):
        kept = state.files.exists(copy) and state.files.read(copy) == data[torn.position :]
        assert kept or state.files.read(torn.path) == data, state.description
        assert offsets(replayed(state.files)) == [0, 1], state.description


@pytest.mark.parametrize("operation", ["append", "sync", "rename", "sync_folder", "create", "make_folder"])
def test_no_copy_no_cut(operation: str) -> None:
    """When the copy cannot be kept, the tail stays as it is."""
    files, torn, data = torn_disk()
    files.fail(operation, errno.ENOSPC, times=None)
    with pytest.raises(OSError, match="No space"):
        cut_torn_tail(files, torn, COPIES)
    files.heal()
    assert files.read(torn.path) == data
    cut_torn_tail(files, torn, COPIES)
    assert files.read(torn.path) == data[: torn.position]


def test_oldest_copies_make_room() -> None:
    """Only so many copies are kept, the newest ones."""
    clock = FakeClock()
    files, torn, _ = torn_disk(clock)
    copies = []
    for number in range(KEPT_COPIES + 4):
        clock.advance(1)
        path = torn.path.with_name(f"{number}.wal")
        file = files.create(path)
        file.append([b"x"])
        file.close()
        copies.append(cut_torn_tail(files, TornTail(path, 0, "cut"), COPIES))
    assert files.list(COPIES) == sorted(copy.name for copy in copies[-KEPT_COPIES:])


def test_cut_file_can_go_on_to_be_replayed_with_later_ones() -> None:
    """After the cut, later generations follow on as if the tail had never been."""
    files, torn, _ = torn_disk()
    cut_torn_tail(files, torn, COPIES)
    log = new_log(files, generation=1)
    log.supersede(2)
    log.write([bundle(3)], 2)
    log.sync()
    assert offsets(replayed(files)) == [0, 1, 3]
    assert disk().list(Path("/shard/wal")) == []
