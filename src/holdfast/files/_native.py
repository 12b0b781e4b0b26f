"""Calls of the system that differ from one to the next, each under one name."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Final

from holdfast.files._protocol import Bytes

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BINARY: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
LOCKED_BYTE: Final = 2**30  # Windows locks bytes: this one is far behind all that others must be able to read
_F_FULLFSYNC: Final = 51  # macOS: fsync alone leaves the data in the drive's cache


def linux(name: str, *arguments: Any) -> Any:
    """A function of the C library that Python does not offer, or `None` where there is no such function."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = arguments
    return function


def sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, _F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def write_at(descriptor: int, data: Bytes, position: int) -> int:
    """Write some of `data` at `position` and return how much; Windows can only seek and write."""
    if sys.platform == "win32":
        os.lseek(descriptor, position, os.SEEK_SET)
        return os.write(descriptor, data)
    return os.pwrite(descriptor, data, position)


def append_once(descriptor: int, data: Bytes) -> int:
    """Write `data` behind all that is there by one call; how much of it was written. Needs `O_APPEND`.

    Windows seeks and then writes, which are two steps: a lock that every such call takes makes them one.
    """
    if sys.platform == "win32":
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        try:
            return os.write(descriptor, data)
        finally:
            os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    return os.write(descriptor, data)
