"""What every `Files` does alike: the real one and the simulated one run the same tests."""

from __future__ import annotations

import array
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.files import Files, LockHeld

Place = tuple[Files, Path]


def write(files: Files, path: Path, data: bytes) -> None:
    file = files.create(path)
    file.append([data])
    file.sync()
    file.close()


def test_appended_buffers_come_back_in_order(place: Place) -> None:
    """Buffers of every kind are written one behind the other, empty ones included, and counted in bytes."""
    files, folder = place
    file = files.create(folder / "a")
    buffers = [
        b"one",
        bytearray(b"two"),
        memoryview(b"three"),
        b"",
        pa.py_buffer(b"four"),
        array.array("H", [1, 2]),
    ]
    assert file.append(buffers) == 3 + 3 + 5 + 4 + 4
    assert file.append([]) == 0
    assert file.append([b"end"]) == 3
    file.close()
    assert files.read(folder / "a") == b"onetwothreefour" + array.array("H", [1, 2]).tobytes() + b"end"


def test_more_buffers_than_one_system_call_takes(place: Place) -> None:
    """An append of thousands of buffers is complete."""
    files, folder = place
    file = files.create(folder / "a")
    buffers = [bytes([number % 251]) for number in range(3000)]
    assert file.append(buffers) == 3000
    file.close()
    assert files.read(folder / "a") == b"".join(buffers)


def test_create_refuses_an_existing_name(place: Place) -> None:
    """`create` never opens what is there, be it a file or a folder."""
    files, folder = place
    write(files, folder / "a", b"old")
    files.make_folder(folder / "b")
    for name in ("a", "b"):
        with pytest.raises(FileExistsError):
            files.create(folder / name)
    assert files.read(folder / "a") == b"old"


def test_open_appends_at_the_end(place: Place) -> None:
    """A file that is opened again goes on where it ended."""
    files, folder = place
    write(files, folder / "a", b"old")
    file = files.open(folder / "a")
    assert file.path == folder / "a"
    file.append([b"new"])
    file.close()
    assert files.read(folder / "a") == b"oldnew"


def test_write_at_overwrites_and_leaves_the_end(place: Place) -> None:
    """A write inside the file moves nothing; one beyond the end moves it and fills the gap with zeros."""
    files, folder = place
    file = files.create(folder / "a")
    file.append([b"abcdef"])
    file.write_at(1, pa.py_buffer(b"XY"))
    file.append([b"g"])
    assert files.read(folder / "a") == b"aXYdefg"
    file.write_at(9, b"Z")
    file.write_at(0, b"")
    file.append([b"!"])
    file.close()
    assert files.read(folder / "a") == b"aXYdefg\0\0Z!"


def test_truncate_cuts_and_grows(place: Place) -> None:
    """Truncation sets the length either way, and appends follow it."""
    files, folder = place
    file = files.create(folder / "a")
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"X"])
    assert files.read(folder / "a") == b"abX"
    file.truncate(5)
    file.append([b"Y"])
    file.close()
    assert files.read(folder / "a") == b"abX\0\0Y"


def test_preallocation_keeps_the_length(place: Place) -> None:
    """Reserved room does not show in the file's size."""
    files, folder = place
    file = files.create(folder / "a")
    file.append([b"abc"])
    file.preallocate(100_000)
    file.append([b"d"])
    file.close()
    assert files.size(folder / "a") == 4
    assert files.read(folder / "a") == b"abcd"


def test_read_takes_any_range(place: Place) -> None:
    """Ranges are cut at the end of the file; beyond it there is nothing."""
    files, folder = place
    write(files, folder / "a", b"0123456789")
    assert files.read(folder / "a", 3) == b"3456789"
    assert files.read(folder / "a", 3, 4) == b"3456"
    assert files.read(folder / "a", 8, 100) == b"89"
    assert files.read(folder / "a", 10, 1) == b""
    assert files.read(folder / "a", 50) == b""
    assert files.read(folder / "a", 0, 0) == b""


def test_mapping_outlives_the_file(place: Place) -> None:
    """A mapped buffer is read-only and outlives an unlink of the file; an empty file maps to nothing."""
    files, folder = place
    write(files, folder / "a", b"content" * 1000)
    write(files, folder / "empty", b"")
    buffer = files.map(folder / "a")
    files.unlink(folder / "a")
    assert buffer.to_pybytes() == b"content" * 1000
    assert not buffer.is_mutable
    assert files.map(folder / "empty").size == 0


def test_unlinked_file_stays_open(place: Place) -> None:
    """A file without a name can still be written and synced by whoever has it open."""
    files, folder = place
    file = files.create(folder / "a")
    files.unlink(folder / "a")
    file.append([b"abc"])
    file.sync()
    file.close()
    assert not files.exists(folder / "a")


def test_listing_is_sorted(place: Place) -> None:
    """Files and folders are listed by name, in order, without those below."""
    files, folder = place
    for name in ("b", "a", "c"):
        write(files, folder / name, b"")
    files.make_folder(folder / "bb" / "deep")
    assert files.list(folder) == ["a", "b", "bb", "c"]


def test_exists_and_is_folder(place: Place) -> None:
    """Files, folders and nothing are told apart; a path through a file leads nowhere."""
    files, folder = place
    write(files, folder / "a", b"x")
    assert (files.exists(folder / "a"), files.is_folder(folder / "a")) == (True, False)
    assert (files.exists(folder), files.is_folder(folder)) == (True, True)
    assert (files.exists(folder / "b"), files.is_folder(folder / "b")) == (False, False)
    assert not files.exists(folder / "a" / "b")
    assert not files.is_folder(folder / "a" / "b")


def test_make_folder_makes_parents_and_is_content_with_what_exists(place: Place) -> None:
    """Missing parents are made, and a second call changes nothing."""
    files, folder = place
    files.make_folder(folder / "x" / "y" / "z")
    write(files, folder / "x" / "y" / "z" / "a", b"kept")
    files.make_folder(folder / "x" / "y" / "z")
    assert files.read(folder / "x" / "y" / "z" / "a") == b"kept"


def test_make_folder_refuses_to_stand_where_a_file_is(place: Place) -> None:
    """A file in the way is an error, and the file stays."""
    files, folder = place
    write(files, folder / "a", b"x")
    for path in (folder / "a", folder / "a" / "b"):
        with pytest.raises(FileExistsError):
            files.make_folder(path)
    assert files.read(folder / "a") == b"x"


def test_rename_replaces_the_target(place: Place) -> None:
    """The new name has the renamed file's bytes and the old name is gone; an open file follows its name."""
    files, folder = place
    write(files, folder / "old", b"old")
    file = files.create(folder / "new")
    file.append([b"new"])
    files.rename(folder / "new", folder / "old")
    file.append([b"er"])
    file.close()
    assert files.list(folder) == ["old"]
    assert files.read(folder / "old") == b"newer"


def test_rename_into_another_folder(place: Place) -> None:
    """A file can be set aside in another folder, and so can a whole folder."""
    files, folder = place
    files.make_folder(folder / "aside")
    files.make_folder(folder / "x")
    write(files, folder / "a", b"a")
    write(files, folder / "x" / "b", b"b")
    files.rename(folder / "a", folder / "aside" / "a")
    files.rename(folder / "x", folder / "aside" / "x")
    assert files.list(folder) == ["aside"]
    assert files.read(folder / "aside" / "a") == b"a"
    assert files.read(folder / "aside" / "x" / "b") == b"b"


def test_rename_onto_itself(place: Place) -> None:
    """Nothing happens."""
    files, folder = place
    write(files, folder / "a", b"a")
    files.rename(folder / "a", folder / "a")
    assert files.read(folder / "a") == b"a"


def test_modified_time_never_goes_back_by_writing(place: Place) -> None:
    """The time of the last change is there to read and does not fall when the file is written."""
    files, folder = place
    write(files, folder / "a", b"a")
    before = files.modified_ns(folder / "a")
    file = files.open(folder / "a")
    file.append([b"b"])
    file.close()
    assert 0 < before <= files.modified_ns(folder / "a")


def test_free_bytes_are_within_the_volume(place: Place) -> None:
    """The free room is not more than there is."""
    files, folder = place
    free, total = files.free_bytes(folder)
    assert 0 < free <= total


def _calls(files: Files, folder: Path) -> dict[str, Callable[[], Any]]:
    write(files, folder / "file", b"x")
    files.make_folder(folder / "full" / "inner")
    closed = files.create(folder / "closed")
    closed.close()
    closed.close()
    shared = files.open_shared(folder / "closed")
    shared.close()
    shared.close()
    missing, file, through = folder / "missing", folder / "file", folder / "file" / "below"
    return {
        "create in a missing folder": lambda: files.create(missing / "a"),
        "create below a file": lambda: files.create(through),
        "open nothing": lambda: files.open(missing),
        "open a folder": lambda: files.open(folder),
        "open below a file": lambda: files.open(through),
        "open nothing to share": lambda: files.open_shared(missing),
        "open a folder to share": lambda: files.open_shared(folder),
        "read nothing": lambda: files.read(missing),
        "read a folder": lambda: files.read(folder),
        "read below a file": lambda: files.read(through),
        "read from before the start": lambda: files.read(file, -1),
        "map nothing": lambda: files.map(missing),
        "map a folder": lambda: files.map(folder),
        "size of nothing": lambda: files.size(missing),
        "time of nothing": lambda: files.modified_ns(missing),
        "list nothing": lambda: files.list(missing),
        "list a file": lambda: files.list(file),
        "rename nothing": lambda: files.rename(missing, folder / "b"),
        "rename into a missing folder": lambda: files.rename(file, missing / "b"),
        "rename a file onto a folder": lambda: files.rename(file, folder / "full"),
        "rename a folder onto a file": lambda: files.rename(folder / "full", file),
        "rename a folder onto a full one": lambda: files.rename(folder / "full" / "inner", folder / "full"),
        "rename a folder into itself": lambda: files.rename(folder / "full", folder / "full" / "inner" / "x"),
        "unlink nothing": lambda: files.unlink(missing),
        "unlink a folder": lambda: files.unlink(folder / "full"),
        "unlink below a file": lambda: files.unlink(through),
        "sync a missing folder": lambda: files.sync_folder(missing),
        "lock in a missing folder": lambda: files.lock(missing / "LOCK", note=""),
        "lock a folder": lambda: files.lock(folder / "full", note=""),
        "room of nothing": lambda: files.free_bytes(missing),
        "append to a closed shared file": lambda: shared.append([b"x"]),
        "sync a closed shared file": shared.sync,
        "append to a closed file": lambda: closed.append([b"x"]),
        "write into a closed file": lambda: closed.write_at(0, b"x"),
        "truncate a closed file": lambda: closed.truncate(0),
        "sync a closed file": closed.sync,
        "preallocate a closed file": lambda: closed.preallocate(1),
    }


EXPECTED: dict[str, type[OSError]] = {
    "create in a missing folder": FileNotFoundError,
    "create below a file": NotADirectoryError,
    "open nothing": FileNotFoundError,
    "open a folder": IsADirectoryError,
    "open below a file": NotADirectoryError,
    "open nothing to share": FileNotFoundError,
    "open a folder to share": IsADirectoryError,
    "read nothing": FileNotFoundError,
    "read a folder": IsADirectoryError,
    "read below a file": NotADirectoryError,
    "read from before the start": OSError,
    "map nothing": FileNotFoundError,
    "map a folder": IsADirectoryError,
    "size of nothing": FileNotFoundError,
    "time of nothing": FileNotFoundError,
    "list nothing": FileNotFoundError,
    "list a file": NotADirectoryError,
    "rename nothing": FileNotFoundError,
    "rename into a missing folder": FileNotFoundError,
    "rename a file onto a folder": IsADirectoryError,
    "rename a folder onto a file": NotADirectoryError,
    "rename a folder onto a full one": OSError,
    "rename a folder into itself": OSError,
    "unlink nothing": FileNotFoundError,
    "unlink a folder": IsADirectoryError,
    "unlink below a file": NotADirectoryError,
    "sync a missing folder": FileNotFoundError,
    "lock in a missing folder": FileNotFoundError,
    "lock a folder": IsADirectoryError,
    "room of nothing": FileNotFoundError,
    "append to a closed shared file": OSError,
    "sync a closed shared file": OSError,
    "append to a closed file": OSError,
    "write into a closed file": OSError,
    "truncate a closed file": OSError,
    "sync a closed file": OSError,
    "preallocate a closed file": OSError,
}


@pytest.mark.parametrize("call", EXPECTED)
def test_impossible_call_raises_what_the_system_raises(place: Place, call: str) -> None:
    """Both filesystems name the same failure with exactly the same exception type."""
    files, folder = place
    with pytest.raises(OSError) as raised:
        _calls(files, folder)[call]()
    assert type(raised.value) is EXPECTED[call]


def test_exclusive_lock_keeps_everybody_out(place: Place) -> None:
    """While it is held, neither kind of claim succeeds, and the error says who holds it."""
    files, folder = place
    lock = files.lock(folder / "LOCK", note="pid 17 on host-a")
    for shared in (False, True):
        with pytest.raises(LockHeld, match="is held by pid 17 on host-a") as held:
            files.lock(folder / "LOCK", note="intruder", shared=shared)
        assert (held.value.path, held.value.note) == (folder / "LOCK", "pid 17 on host-a")
    assert files.read(folder / "LOCK") == b"pid 17 on host-a"
    lock.release()
    lock.release()
    files.lock(folder / "LOCK", note="x").release()
    assert files.read(folder / "LOCK") == b"x"


def test_shared_locks_coexist(place: Place) -> None:
    """Shared claims stand side by side and keep an exclusive one out until the last is gone."""
    files, folder = place
    one = files.lock(folder / "LOCK", note="", shared=True)
    two = files.lock(folder / "LOCK", note="", shared=True)
    for lock in (one, two):
        with pytest.raises(LockHeld, match="an unknown holder"):
            files.lock(folder / "LOCK", note="")
        lock.release()
    files.lock(folder / "LOCK", note="").release()


def test_locks_on_different_files_are_independent(place: Place) -> None:
    """A lock says nothing about another one."""
    files, folder = place
    one = files.lock(folder / "one", note="a")
    two = files.lock(folder / "two", note="b")
    one.release()
    two.release()


def test_waiting_for_a_lock_ends_when_it_is_released(place: Place) -> None:
    """With `wait` a claim blocks until the holder lets go."""
    files, folder = place
    lock = files.lock(folder / "LOCK", note="first")
    claiming, claimed = threading.Event(), threading.Event()

    def claim() -> None:
        claiming.set()
        files.lock(folder / "LOCK", note="second", wait=True).release()
        claimed.set()

    thread = threading.Thread(target=claim)
    thread.start()
    assert claiming.wait(60)
    assert not claimed.is_set()
    lock.release()
    thread.join(60)
    assert claimed.is_set()
    assert files.read(folder / "LOCK") == b"second"
