"""What file sinks ask of a disk: durable what others wrote, one writer at a time, errors that say where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import HoldfastError, SinkFailed
from holdfast.files import Files, LockHeld, replace_file


def sync_file(files: Files, path: Path, *, anew: bool = False) -> None:
    """Make a file durable that somebody else has written; its name is not: that is its folder's.

    After a sync that failed the system may call the bytes written that it has lost, so they are written once more:
    here, and with `anew` when it was a sync of the folder.
    """
    if anew:
        replace_file(files, path, [files.read(path)])
        return
    file = files.open(path)
    try:
        file.sync()
    except OSError:
        replace_file(files, path, [files.read(path)])
    finally:
        file.close()


@contextmanager
def explained(name: str) -> Iterator[None]:
    """An error of the disk as one that a sink raises."""
    try:
        yield
    except HoldfastError:  # one of them is a TimeoutError too, and so an OSError
        raise
    except OSError as problem:
        raise SinkFailed(f"{name}: {problem}") from problem


@contextmanager
def locked(files: Files, path: Path, name: str) -> Iterator[None]:
    """Hold the lock of a subscriber's commits, which are short: who finds it taken fails, and tries again."""
    try:
        lock = files.lock(path, note="")
    except LockHeld as problem:
        raise SinkFailed(f"{name}: somebody else is writing there in this subscriber's name; try again") from problem
    try:
        yield
    finally:
        lock.release()
