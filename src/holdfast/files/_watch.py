"""Waiting for what other processes do to files: by inotify on Linux, elsewhere by looking again and again."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import threading
from pathlib import Path
from typing import Final

from holdfast.files._native import linux
from holdfast.files._protocol import Watch

POLL_SECONDS: Final = 0.005  # how often to look where the system does not tell

# From <sys/inotify.h>. Reading is how a lock is rung, and only a file that is watched by itself is rung; in a
# folder it would only be readers at work.
_ACCESS, _MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x1, 0x2, 0x40, 0x80, 0x100, 0x200
_FILE_EVENTS: Final = _ACCESS | _MODIFY
_FOLDER_EVENTS: Final = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE
_ONLY_FOLDERS: Final = 0x0100_0000

# An event is 16 bytes and a name padded to 16; the kernel keeps 16,384 of them, and after those one that says
# "more". A queue that is longer than what is read leaves the next wait something to return for.
_DRAIN_BYTES: Final = 64 * 1024
_DRAIN_READS: Final = 16
_LONGEST_MS: Final = 2**31 - 1  # what poll() takes

_inotify_init1: Final = linux("inotify_init1", ctypes.c_int)
_inotify_add_watch: Final = linux("inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_inotify_rm_watch: Final = linux("inotify_rm_watch", ctypes.c_int, ctypes.c_int)


def open_watch() -> Watch:
    """The best that there is. A system that has run out of watches or descriptors is looked at instead."""
    if _inotify_init1 is not None:
        try:
            return InotifyWatch()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOSYS):
                raise
    return PollingWatch()


def _closed() -> OSError:
    return OSError(errno.EBADF, "the watch is closed")


class PollingWatch:
    """Knows nothing: each wait ends after 5 ms at most and says that something may have happened."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._closed = False

    def add(self, path: Path) -> None:
        if self._closed:
            raise _closed()
        path.stat()  # raises for what is not there, as the others do

    def remove(self, path: Path) -> None:
        """Nothing was kept."""

    def wait(self, timeout: float | None) -> bool:
        if self._closed:
            raise _closed()
        self._woken.wait(POLL_SECONDS if timeout is None else min(max(timeout, 0.0), POLL_SECONDS))
        self._woken.clear()
        return True

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        self._closed = True
        self._woken.set()


class InotifyWatch:
    """The kernel keeps what happened until it is asked, so nothing is missed between two waits.

    If it lets us watch no more files (fs.inotify.max_user_watches), waits end after 5 ms from then on.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()  # guards all below; never held while waiting
        self._numbers: dict[Path, int] = {}  # the kernel's number for each path; it may have dropped it already
        self._waiting = 0
        self._closed = False
        self._blind = False
        self._events = _checked(_inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), None)
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            os.close(self._events)
            raise

    def add(self, path: Path) -> None:
        with self._mutex:
            if self._closed:
                raise _closed()
            try:
                number = self._add(path)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._blind = True
                return
            old = self._numbers.get(path)
            self._numbers[path] = number
            if old is not None:
                self._drop(old)

    def _add(self, path: Path) -> int:
        name = os.fsencode(path)
        number = _inotify_add_watch(self._events, name, _FOLDER_EVENTS | _ONLY_FOLDERS)
        if number < 0 and ctypes.get_errno() == errno.ENOTDIR:
            number = _inotify_add_watch(self._events, name, _FILE_EVENTS)
        return _checked(number, path)

    def remove(self, path: Path) -> None:
        with self._mutex:
            number = self._numbers.pop(path, None)
            if number is not None and not self._closed:
                self._drop(number)

    def _drop(self, number: int) -> None:
        """Unless another path leads there too. That the kernel has dropped it already is no error."""
        if number not in self._numbers.values():
            _inotify_rm_watch(self._events, number)

    def wait(self, timeout: float | None) -> bool:
        poll = select.poll()
        with self._mutex:
            if self._closed:
                raise _closed()
            self._waiting += 1
            blind = self._blind
            poll.register(self._events, select.POLLIN)
            poll.register(self._bell, select.POLLIN)
        ready = False
        try:
            ready = bool(poll.poll(_milliseconds(timeout, POLL_SECONDS if blind else None)))
        finally:
            with self._mutex:
                self._waiting -= 1
                if ready and not self._closed:  # who is told of nothing must not lose what came since
                    self._drain()
                self._release_descriptors()
        return ready or blind

    def _drain(self) -> None:
        """Take what the kernel has kept, a few times the longest queue at most: a busy folder must not hold us here."""
        for descriptor in (self._events, self._bell):
            with contextlib.suppress(BlockingIOError):
                for _ in range(_DRAIN_READS):
                    os.read(descriptor, _DRAIN_BYTES)

    def wake(self) -> None:
        with self._mutex:
            if not self._closed:
                self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # rung 2**64 times and not heard: still ringing
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """A wait in another thread ends. The last to leave closes the descriptors, lest others get their numbers."""
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._ring()
                self._release_descriptors()

    def _release_descriptors(self) -> None:
        if self._closed and not self._waiting and self._events >= 0:
            os.close(self._events)
            os.close(self._bell)
            self._events = -1


def _milliseconds(timeout: float | None, longest: float | None) -> float | None:
    """`timeout` as poll() takes it, where less than nothing would be for ever."""
    if longest is not None:
        timeout = longest if timeout is None else min(timeout, longest)
    return None if timeout is None else min(max(timeout, 0.0) * 1000, _LONGEST_MS)


def _checked(result: int, path: Path | None) -> int:
    """What a call of the C library returned, or the error that it set."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), None if path is None else str(path))
    return result
