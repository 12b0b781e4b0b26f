"""Waiting for what others do to files."""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.files import Files, SystemFiles, Watch
from holdfast.files._watch import PollingWatch
from holdfast.testing import SimulatedFiles

Place = tuple[Files, Path]
LINUX_ONLY = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere watches poll")
SOON = 0.001  # seconds in which nothing is expected to happen, because nothing does
LONG = 60.0  # seconds in which it must have happened; never reached unless it failed


def write(files: Files, path: Path, data: bytes) -> None:
    file = files.create(path)
    file.append([data])
    file.close()


@contextlib.contextmanager
def watching(files: Files, *paths: Path) -> Iterator[Watch]:
    watch = files.watch()
    for path in paths:
        watch.add(path)
    try:
        yield watch
    finally:
        watch.close()


def _changes(files: Files, folder: Path) -> dict[str, Callable[[], Any]]:
    file, shared = files.open(folder / "file"), files.open_shared(folder / "file")
    lock = files.lock(folder / "LOCK", note="me")
    return {
        "append": lambda: file.append([b"x"]),
        "append shared": lambda: shared.append([b"x"]),
        "write in place": lambda: file.write_at(0, b"y"),
        "truncate": lambda: file.truncate(0),
        "create": lambda: files.create(folder / "new").close(),
        "make a folder": lambda: files.make_folder(folder / "sub" / "new"),
        "rename away": lambda: files.rename(folder / "file", folder / "elsewhere" / "file"),
        "rename within": lambda: files.rename(folder / "file", folder / "renamed"),
        "rename into": lambda: files.rename(folder / "elsewhere" / "other", folder / "other"),
        "replace": lambda: files.rename(folder / "elsewhere" / "other", folder / "file"),
        "unlink": lambda: files.unlink(folder / "file"),
        "note of a lock": lambda: files.lock(folder / "other lock", note="another").release(),
        "ring": lock.ring,
        "read": lambda: files.read(folder / "file"),
        "write below": lambda: write(files, folder / "elsewhere" / "new", b"x"),
        "nothing": lambda: None,
    }


FILE_CHANGES = {"append", "append shared", "write in place", "truncate"}
FOLDER_CHANGES = FILE_CHANGES | {
    "create",
    "make a folder",
    "rename away",
    "rename within",
    "rename into",
    "replace",
    "unlink",
    "note of a lock",
}


@LINUX_ONLY
@pytest.mark.parametrize("change", [*sorted(FOLDER_CHANGES), "ring", "read", "write below", "nothing"])
def test_what_wakes_whom(place: Place, change: str) -> None:
    """Writes wake who watches the file; writes and names who watches the folder; a ring who watches the lock."""
    files, folder = place
    files.make_folder(folder / "elsewhere")
    for path in (folder / "file", folder / "elsewhere" / "other"):
        write(files, path, b"abc")
    act = _changes(files, folder)[change]
    with watching(files, folder / "LOCK") as lock_watch, watching(files, folder) as folder_watch:
        act()
        assert lock_watch.wait(LONG if change == "ring" else SOON) is (change == "ring")
        assert folder_watch.wait(LONG if change in FOLDER_CHANGES else SOON) is (change in FOLDER_CHANGES)
        assert not folder_watch.wait(SOON), "told of once is told of"


@LINUX_ONLY
@pytest.mark.parametrize("change", sorted(FILE_CHANGES))
def test_writes_wake_who_watches_the_file(place: Place, change: str) -> None:
    """Each way to write a file wakes who watches this file, and not who watches another."""
    files, folder = place
    for name in ("file", "other"):
        write(files, folder / name, b"abc")
    act = _changes(files, folder)[change]
    with watching(files, folder / "file") as one, watching(files, folder / "other") as two:
        act()
        assert one.wait(LONG)
        assert not two.wait(SOON)


def test_waiting_thread_is_woken_each_time(place: Place) -> None:
    """A wait without a limit ends by an append, by a ring and by `wake`, however often."""
    files, folder = place
    write(files, folder / "log", b"")
    lock, log = files.lock(folder / "LOCK", note="me"), files.open_shared(folder / "log")
    told, ended = threading.Semaphore(0), False
    with watching(files, folder / "LOCK", folder / "log") as watch:

        def look() -> None:
            while not ended:
                assert watch.wait(None)
                told.release()

        thread = threading.Thread(target=look)
        thread.start()
        for _ in range(20):
            for act in (lambda: log.append([b"x"]), lock.ring, watch.wake):
                act()
                assert told.acquire(timeout=LONG)
        ended = True
        watch.wake()
        thread.join(LONG)
        assert not thread.is_alive()
    lock.release()
    log.close()


def test_nothing_is_missed_between_two_waits(place: Place) -> None:
    """A reader that looks after each wait and then waits again gets to see every byte of a busy writer."""
    files, folder = place
    write(files, folder / "log", b"")

    def append() -> None:
        log = files.open_shared(folder / "log")
        for _ in range(2000):
            log.append([b"x"])
        log.close()

    with watching(files, folder) as watch:
        thread = threading.Thread(target=append)
        thread.start()
        while files.size(folder / "log") < 2000:
            assert watch.wait(LONG), "an append went unnoticed"
        thread.join(LONG)


def test_wake_is_kept_for_the_next_wait(place: Place) -> None:
    """However often a watch is woken ahead of a wait, that wait ends at once; the one behind it does not."""
    with watching(place[0]) as watch:
        watch.wake()
        watch.wake()
        assert watch.wait(None)
        assert not watch.wait(SOON)


@pytest.mark.parametrize("timeout", [0, 0.0, -1.0, SOON])
def test_time_runs_out(place: Place, timeout: float) -> None:
    """With nothing to tell, a wait ends when its time is up; time that is up already is no time."""
    with watching(place[0], place[1]) as watch:
        assert watch.wait(timeout) is False


def test_very_long_timeouts_are_taken(place: Place) -> None:
    """A limit beyond what the system can count is as good as none."""
    with watching(place[0]) as watch:
        watch.wake()
        assert watch.wait(1e9)


def test_what_is_not_there_cannot_be_watched(place: Place) -> None:
    """Every kind of watch says so, in the same words of the system."""
    files, folder = place
    write(files, folder / "file", b"")
    kinds = [files.watch(), PollingWatch()] if isinstance(files, SystemFiles) else [files.watch()]
    for watch in kinds:
        with pytest.raises(FileNotFoundError) as raised:
            watch.add(folder / "missing")
        assert raised.value.filename is not None
        assert str(folder / "missing") == str(raised.value.filename)
        with pytest.raises(NotADirectoryError):
            watch.add(folder / "file" / "below")
        watch.remove(folder / "missing")
        watch.close()


@LINUX_ONLY
def test_removed_path_wakes_no_more(place: Place) -> None:
    """What is removed is silent, and what is watched beside it is not."""
    files, folder = place
    for name in ("one", "two"):
        write(files, folder / name, b"")
    with watching(files, folder / "one", folder / "two", folder / "two") as watch:
        watch.remove(folder / "one")
        watch.wait(SOON)  # that the watch has ended may be told too
        files.open(folder / "one").append([b"x"])
        assert not watch.wait(SOON)
        files.open(folder / "two").append([b"x"])
        assert watch.wait(LONG)


@LINUX_ONLY
def test_file_that_replaced_a_watched_one_is_watched_when_added(place: Place) -> None:
    """The name alone is not watched: after a replacement the new file is added again, and the old one is let go."""
    files, folder = place
    for name in ("file", "new"):
        write(files, folder / name, b"")
    with watching(files, folder / "file") as watch:
        files.rename(folder / "new", folder / "file")
        watch.wait(SOON)  # that the old file is gone may be told
        files.open(folder / "file").append([b"unheard"])
        assert not watch.wait(SOON)
        watch.add(folder / "file")
        files.open(folder / "file").append([b"heard"])
        assert watch.wait(LONG)


@LINUX_ONLY
def test_file_under_two_names_is_watched_until_both_are_removed(place: Place) -> None:
    """Taking back one of the names by which a file was added leaves the other."""
    files, folder = place
    write(files, folder / "old", b"")
    with watching(files, folder / "old") as watch:
        files.rename(folder / "old", folder / "new")
        watch.add(folder / "new")
        watch.remove(folder / "old")
        watch.wait(SOON)
        files.open(folder / "new").append([b"x"])
        assert watch.wait(LONG)


@LINUX_ONLY
def test_unlinked_file_takes_its_watch_along(place: Place) -> None:
    """A file that goes is no error, neither then nor when it is removed from the watch."""
    files, folder = place
    write(files, folder / "file", b"")
    with watching(files, folder / "file", folder) as watch:
        files.unlink(folder / "file")
        assert watch.wait(LONG)
        watch.remove(folder / "file")
        files.create(folder / "file").close()
        assert watch.wait(LONG)


def test_ring_changes_nothing(place: Place) -> None:
    """A ring leaves content and time of the lock's file alone, and writes nothing."""
    files, folder = place
    lock = files.lock(folder / "LOCK", note="me")
    before = files.read(folder / "LOCK"), files.modified_ns(folder / "LOCK")
    journal = files.journal if isinstance(files, SimulatedFiles) else ()
    lock.ring()
    assert (files.read(folder / "LOCK"), files.modified_ns(folder / "LOCK")) == before
    assert (files.journal if isinstance(files, SimulatedFiles) else ()) == journal
    lock.release()


@LINUX_ONLY
def test_ring_that_nobody_hears(place: Place) -> None:
    """A lock file without a byte in it, and a lock that was released, ring without effect and without error."""
    files, folder = place
    lock = files.lock(folder / "LOCK", note="")
    with watching(files, folder / "LOCK") as watch:
        lock.ring()
        lock.release()
        assert not watch.wait(SOON)
        lock = files.lock(folder / "LOCK", note="me")
        lock.release()
        assert watch.wait(LONG)
        lock.ring()
        assert not watch.wait(SOON)


@pytest.mark.parametrize("kind", ["best", "polling"])
def test_closing_ends_a_wait(place: Place, kind: str) -> None:
    """Threads that wait return `True`; later waits and additions are errors, and the other calls do nothing."""
    files, folder = place
    watch = files.watch() if kind == "best" else PollingWatch()
    answers: list[bool] = []
    begun = threading.Barrier(3)

    def wait() -> None:
        begun.wait(LONG)
        with contextlib.suppress(OSError):  # it may come too late
            answers.append(watch.wait(LONG))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(LONG)
    watch.close()
    for thread in threads:
        thread.join(LONG)
        assert not thread.is_alive()
    assert False not in answers
    for call in (lambda: watch.wait(SOON), lambda: watch.add(folder)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EBADF
    watch.wake()
    watch.remove(folder)
    watch.close()


def test_polling_says_that_something_may_have_happened() -> None:
    """Where the system does not tell, every wait is short and sends the caller to look."""
    watch = PollingWatch()
    for timeout in (None, 0.0, -1.0, SOON, LONG):
        assert watch.wait(timeout) is True
    watch.wake()
    assert watch.wait(None) is True
    watch.close()
