"""Watches of the real filesystem: other processes, the kernel's bounds, descriptors."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.files import SystemFiles, _watch
from holdfast.files._watch import InotifyWatch, PollingWatch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere watches poll")

SOON, LONG = 0.001, 60.0

OBEY = """
import sys
from pathlib import Path
from holdfast.files import SystemFiles

files, folder = SystemFiles(), Path(sys.argv[1])
lock = files.lock(folder / "LOCK", note="the child")
log = files.open_shared(folder / "log")
print("ready", flush=True)
for line in sys.stdin:
    lock.ring() if line == "ring\\n" else log.append([b"x"])
"""


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("order", "watched"), [("ring", "LOCK"), ("append", "log"), ("append", ".")])
def test_another_process_wakes_us(tmp_path: Path, order: str, watched: str) -> None:
    """Each ring and each append of another process ends a wait, for who watches the file or its folder."""
    files = SystemFiles()
    files.create(tmp_path / "log").close()
    child = subprocess.Popen(
        [sys.executable, "-c", OBEY, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        watch = files.watch()
        watch.add(tmp_path / watched)
        for _ in range(50):
            assert not watch.wait(0)
            child.stdin.write(order.encode() + b"\n")
            child.stdin.flush()
            assert watch.wait(LONG)
        watch.close()


def test_more_events_than_the_kernel_keeps(tmp_path: Path) -> None:
    """After an overflow one wait says so, and the next one waits: what was kept is gone all at once."""
    files = SystemFiles()
    paths = [tmp_path / name for name in ("one", "two")]
    for path in paths:
        files.create(path).close()
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    logs = [files.open_shared(path) for path in paths]
    watch = files.watch()
    watch.add(tmp_path)
    for number in range(min(kept, 100_000) + 1000):
        logs[number % 2].append([b"x"])  # in turn: equal events in a row would be one
    assert watch.wait(LONG)
    waits = 1
    while watch.wait(SOON):
        waits += 1
        assert waits < 10, "the queue is not emptied"
    logs[0].append([b"x"])
    assert watch.wait(LONG)
    watch.close()
    for log in logs:
        log.close()


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """Closing gives back what a watch had open, whether or not somebody waited, and closing again nothing else."""
    before = open_descriptors()
    for _ in range(20):
        watch = SystemFiles().watch()
        watch.add(tmp_path)
        thread = threading.Thread(target=watch.wait, args=(SOON,))
        thread.start()
        thread.join(LONG)
        watch.close()
        watch.close()
    assert open_descriptors() == before


def test_descriptors_stay_while_somebody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A close in the middle of a wait leaves the descriptors to the waiter, who closes them on the way out."""
    before = open_descriptors()
    watch = InotifyWatch()
    waiting, go_on = threading.Event(), threading.Event()

    class HeldPoll:
        """A poll that begins when it is told to."""

        def __init__(self) -> None:
            self._poll = real()
            self.register = self._poll.register

        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            waiting.set()
            assert go_on.wait(LONG)
            return self._poll.poll(timeout)

    real = _watch.select.poll
    monkeypatch.setattr(_watch.select, "poll", HeldPoll)
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(watch.wait(None)))
    thread.start()
    assert waiting.wait(LONG)
    watch.close()
    assert open_descriptors() == before + 2
    go_on.set()
    thread.join(LONG)
    assert answers == [True]
    assert open_descriptors() == before


def test_what_comes_just_after_the_time_ran_out_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that answers `False` has taken nothing along: the next one tells of it."""
    files = SystemFiles()
    files.create(tmp_path / "log").close()
    log, watch = files.open_shared(tmp_path / "log"), files.watch()
    watch.add(tmp_path / "log")

    class LatePoll:
        """A poll whose time runs out a moment before something happens."""

        def __init__(self) -> None:
            self._poll = real()
            self.register = self._poll.register

        def poll(self, timeout: float | None) -> list[tuple[int, int]]:
            found = self._poll.poll(timeout)
            log.append([b"x"])
            return found

    real = _watch.select.poll
    with monkeypatch.context() as patch:
        patch.setattr(_watch.select, "poll", LatePoll)
        assert not watch.wait(SOON)
    assert watch.wait(LONG)
    watch.close()
    log.close()


def failing(code: int) -> Callable[..., int]:
    def fail(*_: Any) -> int:
        ctypes.set_errno(code)
        return -1

    return fail


def test_polls_when_the_kernel_has_no_more_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inotify, or at its bound, a watch polls; any other error is told."""
    best = SystemFiles().watch()
    assert isinstance(best, InotifyWatch)
    best.close()
    for init in (None, failing(errno.EMFILE), failing(errno.ENOSYS)):
        monkeypatch.setattr(_watch, "_inotify_init1", init)
        assert isinstance(SystemFiles().watch(), PollingWatch)
    monkeypatch.setattr(_watch, "_inotify_init1", failing(errno.EPERM))
    with pytest.raises(PermissionError):
        SystemFiles().watch()


def test_polls_when_the_kernel_watches_no_more_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that cannot be told of one of its files sends the caller to look, and is still woken by the others."""
    watch = SystemFiles().watch()
    watch.add(tmp_path)
    assert not watch.wait(SOON)
    with monkeypatch.context() as patch:
        patch.setattr(_watch, "_inotify_add_watch", failing(errno.ENOSPC))
        watch.add(tmp_path / "one too many")
    for timeout in (None, LONG, SOON, 0.0):
        assert watch.wait(timeout) is True
    watch.close()


def test_no_descriptor_is_left_of_a_watch_that_could_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """When descriptors run out half-way, the first is given back and the watch polls."""
    before = open_descriptors()

    def none_left(*_: Any) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "eventfd", none_left)
    assert isinstance(SystemFiles().watch(), PollingWatch)
    assert open_descriptors() == before
