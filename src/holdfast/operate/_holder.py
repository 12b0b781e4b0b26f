"""Who writes a shard, told without touching its lock.

Trying the lock, even for a moment and shared, could make a writer fail that starts just then. So this only looks: at
the note that the last holder left in the lock file, and at the kernel's own list of locks where there is one (Linux).
That list shows the processes of this machine (and of this container); a writer elsewhere, on a shared disk, is not
in it. Hence three answers, and "not seen" is not "free".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.files import Files
from holdfast.store.layout import LOCK

_KERNEL_LOCKS: Final = Path("/proc/locks")
_ENTRY: Final = re.compile(r"^\d+: FLOCK\s+\S+\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s", re.MULTILINE)
_NOTE: Final = re.compile(r"process (\d+) on ")
_NOTE_BYTES: Final = 4096


class Seen(StrEnum):
    """What is known of a shard's lock."""

    HELD = "held"
    NOT_SEEN = "not seen"  # no process of this machine holds it
    UNKNOWN = "unknown"  # this system does not say


@dataclass(frozen=True, slots=True)
class Writer:
    """The last process that took the lock, in its own words, and whether it is seen to hold it still."""

    last: str | None
    lock: Seen


def writer_of(files: Files, shard: Path) -> Writer:
    """Who wrote this shard last, and whether that goes on."""
    path = shard / LOCK
    try:
        note = files.read(path, 0, _NOTE_BYTES).decode(errors="replace").strip() or None
    except FileNotFoundError:
        return Writer(None, Seen.NOT_SEEN)
    return Writer(note, _seen(files, path, note or ""))


def _seen(files: Files, path: Path, note: str) -> Seen:
    try:
        entries = _ENTRY.findall(files.read(_KERNEL_LOCKS).decode(errors="replace"))
        status = os.stat(path)
    except OSError:
        return Seen.UNKNOWN
    writer = _NOTE.match(note)
    device = (os.major(status.st_dev), os.minor(status.st_dev))
    for process, major, minor, inode in entries:
        if int(inode) != status.st_ino:
            continue
        # Some filesystems show another device there than here: then the process has to be the one of the note.
        if (int(major, 16), int(minor, 16)) == device or (writer is not None and writer[1] == process):
            return Seen.HELD
    return Seen.NOT_SEEN
