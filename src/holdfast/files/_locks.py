"""Locks by `flock`: they end with the process that holds them."""

from __future__ import annotations

import errno
import os
import sys
import threading

from holdfast.files._native import LOCKED_BYTE

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


def claim(descriptor: int, *, shared: bool, wait: bool) -> bool:
    """Lock the open file; `False` if others hold it. Windows knows no shared ones: all are exclusive."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


class SystemLock:
    """A claim on a lock file: the file, open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mutex = threading.Lock()  # a ring must not read from a descriptor that was closed and given away

    def ring(self) -> None:
        """Read a byte: on Linux that is an event, and no write of any kind. Elsewhere watches poll."""
        with self._mutex:
            if self._descriptor >= 0 and hasattr(os, "pread"):
                os.pread(self._descriptor, 1, 0)

    def release(self) -> None:
        with self._mutex:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)
