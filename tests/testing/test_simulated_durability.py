"""What the simulated disk keeps and loses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast.files import Files, LockHeld
from holdfast.testing import CrashMode, CrashState, SimulatedFiles, crash, crash_states

FOLDER = Path("/store")
A, B = FOLDER / "a", FOLDER / "b"


def new_disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folder(FOLDER)
    return files


def durable(files: Files, path: Path, data: bytes) -> None:
    file = files.create(path)
    file.append([data])
    file.sync()
    file.close()
    files.sync_folder(path.parent)


def states_now(files: SimulatedFiles, per_prefix: int = 60) -> list[CrashState]:
    """Many ways in which the power can fail at this moment."""
    end = len(files.journal)
    return list(crash_states(files, first=end, last=end, per_prefix=per_prefix))


def contents_now(files: SimulatedFiles, path: Path) -> set[bytes | None]:
    return {state.files.read(path) if state.files.exists(path) else None for state in states_now(files)}


def test_synced_bytes_under_a_synced_name_always_survive() -> None:
    """After `sync` and `sync_folder` there is one possible state, and it has everything."""
    files = new_disk()
    durable(files, A, b"safe")
    assert contents_now(files, A) == {b"safe"}
    assert len(states_now(files)) == 1


def test_unsynced_bytes_may_be_lost() -> None:
    """An append without a sync may be there, be gone, be cut anywhere, or be a length of zeros."""
    files = new_disk()
    durable(files, A, b"safe")
    file = files.open(A)
    file.append([b"XYZ"])
    found = contents_now(files, A)
    assert {b"safe", b"safeXYZ", b"safeX", b"safeXY", b"safe\0\0\0"} == found


def test_a_sync_does_not_make_the_name_durable() -> None:
    """A synced file may be missing after a crash until its folder is synced."""
    files = new_disk()
    file = files.create(A)
    file.append([b"data"])
    file.sync()
    assert contents_now(files, A) == {None, b"data"}
    files.sync_folder(FOLDER)
    assert contents_now(files, A) == {b"data"}


def test_a_synced_name_does_not_make_the_bytes_durable() -> None:
    """A file whose folder alone was synced may be empty."""
    files = new_disk()
    file = files.create(A)
    file.append([b"data"])
    files.sync_folder(FOLDER)
    found = contents_now(files, A)
    assert {b"", b"data", b"\0\0\0\0"} <= found
    assert None not in found


def test_later_writes_may_survive_earlier_ones() -> None:
    """Without a sync between them, the second write may be there with a hole of zeros where the first was."""
    files = new_disk()
    durable(files, A, b"")
    file = files.open(A)
    file.append([b"1111"])
    file.append([b"2222"])
    found = contents_now(files, A)
    assert {b"", b"1111", b"11112222", b"\0\0\0\x002222"} <= found
    file.sync()
    assert contents_now(files, A) == {b"11112222"}


def test_overwrite_in_place_may_leave_old_bytes() -> None:
    """Of a write in place either content may be found, or a mixture, and the length stays."""
    files = new_disk()
    durable(files, A, b"oldold")
    files.open(A).write_at(0, b"NEWNEW")
    found = contents_now(files, A)
    assert {b"oldold", b"NEWNEW", b"NEWold"} <= found
    assert {len(content) for content in found if content is not None} == {6}


def test_truncation_is_pending_until_synced() -> None:
    """Cut bytes may come back."""
    files = new_disk()
    durable(files, A, b"abcdef")
    file = files.open(A)
    file.truncate(2)
    assert contents_now(files, A) == {b"ab", b"abcdef"}
    file.sync()
    assert contents_now(files, A) == {b"ab"}


def test_rename_is_atomic() -> None:
    """After a rename over a file there is the old one or the new one, never none and never a mixture."""
    files = new_disk()
    durable(files, A, b"old")
    durable(files, B, b"new")
    files.rename(B, A)
    found = {
        tuple((name, state.files.read(FOLDER / name)) for name in state.files.list(FOLDER))
        for state in states_now(files)
    }
    assert found == {(("a", b"old"), ("b", b"new")), (("a", b"new"),)}
    files.sync_folder(FOLDER)
    assert contents_now(files, A) == {b"new"}
    assert contents_now(files, B) == {None}


def test_unlinked_file_may_be_back() -> None:
    """An unlink is undone by a crash before the folder's sync, even when a later file survived."""
    files = new_disk()
    durable(files, A, b"deleted")
    files.unlink(A)
    durable_later = files.create(B)
    durable_later.append([b"later"])
    durable_later.sync()
    assert {tuple(state.files.list(FOLDER)) for state in states_now(files)} == {
        (),
        ("a",),
        ("b",),
        ("a", "b"),
    }
    files.sync_folder(FOLDER)
    assert contents_now(files, A) == {None}


def test_resurrected_mode_brings_deleted_files_back_beside_later_ones() -> None:
    """The mode by itself: all unlinks undone, all else kept."""
    files = new_disk()
    durable(files, A, b"deleted")
    files.unlink(A)
    files.create(B).append([b"later"])
    state = next(crash_states(files, modes=[CrashMode.RESURRECTED], first=len(files.journal)))
    assert (state.files.read(A), state.files.read(B)) == (b"deleted", b"later")


def test_names_of_one_folder_survive_as_a_prefix_or_scattered() -> None:
    """Of three new names any number may be lost, also an earlier one while a later one stays."""
    files = new_disk()
    for name in "abc":
        files.create(FOLDER / name)
    found = {"".join(state.files.list(FOLDER)) for state in states_now(files, per_prefix=200)}
    assert found == {"", "a", "ab", "abc", "b", "c", "ac", "bc"}


def test_move_between_folders_never_loses_the_file() -> None:
    """A moved file is under its old name, its new one or both, whichever folder is synced."""
    for synced, expected in (
        (None, {(True, False), (False, True), (True, True)}),
        (FOLDER, {(False, True)}),
        (FOLDER / "aside", {(True, True), (False, True)}),
    ):
        files = new_disk()
        durable(files, A, b"a")
        files.make_folder(FOLDER / "aside")
        files.rename(A, FOLDER / "aside" / "a")
        if synced is not None:
            files.sync_folder(synced)
        found = {(state.files.exists(A), state.files.exists(FOLDER / "aside" / "a")) for state in states_now(files)}
        assert found == expected, synced


def test_made_folders_are_durable() -> None:
    """`make_folder` returns when the folder and its parents survive any crash."""
    files = SimulatedFiles()
    files.make_folder(FOLDER / "x" / "y")
    assert [state.files.is_folder(FOLDER / "x" / "y") for state in states_now(files)] == [True]


def test_kill_keeps_bytes_and_leaves_them_unsynced() -> None:
    """After `kill -9` the next process sees everything, and a power cut can still take it."""
    files = new_disk()
    file = files.create(A)
    file.append([b"data"])
    lock = files.lock(FOLDER / "LOCK", note="first")
    survivor = files.kill()
    assert survivor.read(A) == b"data"
    survivor.lock(FOLDER / "LOCK", note="second").release()
    assert not crash(survivor).exists(A)
    survivor.open(A).sync()
    survivor.sync_folder(FOLDER)
    assert crash(survivor).read(A) == b"data"
    file.append([b"!"])
    assert survivor.read(A) == b"data"
    lock.release()


def test_folder_made_by_a_killed_process_becomes_durable_when_asked_for_again() -> None:
    """`make_folder` does not trust that the name of a folder it finds was ever synced."""
    files = SimulatedFiles()
    files.fail("sync_folder", nth=2)
    with pytest.raises(OSError):
        files.make_folder(FOLDER)
    for state in crash_states(files, modes=[CrashMode.KILLED]):
        if state.last is not None and state.last.operation == "make_folder":
            assert state.files.exists(FOLDER)
            assert not crash(state.files).exists(FOLDER)
            state.files.make_folder(FOLDER)
            assert crash(state.files).exists(FOLDER)
            break
    else:
        pytest.fail("no crash between making the folder and syncing its name")


def test_locks_vanish_in_a_crash() -> None:
    """What was locked is free on the disk that a crash leaves, and still locked on the one that lives."""
    files = new_disk()
    files.lock(A, note="holder")
    for state in states_now(files):
        state.files.lock(A, note="successor").release()
    with pytest.raises(LockHeld, match="holder"):
        files.lock(A, note="late")


def test_failed_sync_is_never_made_good_by_a_later_one() -> None:
    """After a failed sync the process sees its bytes, the next sync succeeds, and a crash can lose them."""
    files = new_disk()
    durable(files, A, b"safe|")
    file = files.open(A)
    file.append([b"gone|"])
    files.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.append([b"later"])
    file.sync()
    assert files.read(A) == b"safe|gone|later"
    assert {b"safe|gone|later", b"safe|\0\0\0\0\0later"} <= contents_now(files, A)
    assert all(content is not None and content.endswith(b"later") for content in contents_now(files, A))


def test_bytes_written_again_after_a_failed_sync_are_safe() -> None:
    """What was stranded can be made durable by writing it anew, elsewhere or in place."""
    files = new_disk()
    durable(files, A, b"")
    file = files.open(A)
    file.append([b"data"])
    files.fail("sync")
    with pytest.raises(OSError):
        file.sync()
    durable(files, B, b"data")
    assert contents_now(files, B) == {b"data"}
    file.write_at(0, b"data")
    file.sync()
    assert contents_now(files, A) == {b"data"}


def test_failed_folder_sync_is_never_made_good_by_a_later_one() -> None:
    """A name whose sync failed may be lost though the next sync of the folder succeeds; a new name not."""
    files = new_disk()
    files.create(A)
    files.fail("sync_folder")
    with pytest.raises(OSError):
        files.sync_folder(FOLDER)
    files.create(B)
    files.sync_folder(FOLDER)
    assert {tuple(state.files.list(FOLDER)) for state in states_now(files)} == {("b",), ("a", "b")}


def test_crash_state_is_durable_as_a_whole() -> None:
    """A second power cut right after a first one changes nothing."""
    files = new_disk()
    files.create(A).append([b"x" * 2000])
    for state in states_now(files):
        assert crash(state.files).digest == state.digest == state.files.digest
