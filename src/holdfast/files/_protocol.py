"""What Holdfast asks of a filesystem; every method raises `OSError` when the system does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

# Anything that exports bytes: bytes, bytearray, memoryview, pyarrow.Buffer.
Bytes = Any


class LockHeld(Exception):
    """The lock belongs to somebody else; `note` is what the holder wrote into the file."""

    def __init__(self, path: Path, note: str) -> None:
        super().__init__(f"{path} is held by {note or 'an unknown holder'}")
        self.path, self.note = path, note


class WritableFile(Protocol):
    """An open file. What was written is safe only after `sync`."""

    @property
    def path(self) -> Path: ...

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write all buffers at the end, in order; how many bytes. After an `OSError` the end is unknown."""
        ...

    def write_at(self, position: int, data: Bytes) -> None:
        """Write all of `data` at `position`; the end moves only if it lies beyond."""
        ...

    def preallocate(self, size: int) -> None:
        """Reserve room for `size` bytes, the length staying as it is; does nothing where unsupported."""
        ...

    def seek(self, position: int) -> None:
        """The next append goes to `position`; what is there stays until it is overwritten."""
        ...

    def truncate(self, size: int) -> None: ...

    def start_sync(self) -> None:
        """Ask the system to begin writing out what it holds, without waiting; where that is unsupported, do nothing."""
        ...

    def sync(self) -> None:
        """Return only when content and length are on the medium. The name is not: see `Files.sync_folder`."""
        ...

    def close(self) -> None: ...


class SharedFile(Protocol):
    """A file that several processes append to at once; no one of them knows its end. Safe only after `sync`."""

    @property
    def path(self) -> Path: ...

    def append(self, buffers: Sequence[Bytes]) -> int:
        """Write all buffers in one piece behind all that is there; how many bytes.

        After an `OSError` some of them may stand at the end, and others' appends behind them.
        """
        ...

    def sync(self) -> None:
        """As `WritableFile.sync`, and for what others have appended too."""
        ...

    def close(self) -> None: ...


class MappedFile(Protocol):
    """A small file that is overwritten in place, often: cheaper than a call of the system for each write."""

    def write_at(self, position: int, data: bytes) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive or shared claim that ends with `release` or with the process."""

    def ring(self) -> None:
        """Wake whoever watches the lock's file, changing nothing on the disk.

        Does nothing after `release`, and nothing if the file is empty: take the lock with a note once.
        """
        ...

    def release(self) -> None: ...


class Watch(Protocol):
    """Waits for what anybody on this machine does to some files, other processes included.

    One thread waits at a time; the other methods may be called from any. It may be woken for nothing. What is
    written through a `MappedFile`, or on another machine, goes unnoticed: for the first, ring a lock.
    """

    def add(self, path: Path) -> None:
        """Begin to watch, also what is watched already; raises `FileNotFoundError`.

        A file wakes when it is written or rung; reading it may wake too. A folder wakes when a name in it is
        made, replaced or removed, or a file in it is written. What is watched is the file, not its name: one
        that is unlinked is watched no more, and one that takes its place has to be added.
        """
        ...

    def remove(self, path: Path) -> None:
        """Watch it no more; does nothing if it was not watched."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds, or for ever; `False` when the time ran out and nothing happened.

        `True`: something may have happened since the last wait returned, or, the first time, since `add`.
        Where the system does not tell, the answer is `True` after 5 ms at most: then the caller polls.
        """
        ...

    def wake(self) -> None:
        """End the wait of another thread, or if none is waiting the next wait, with `True`."""
        ...

    def close(self) -> None:
        """End a wait with `True`, and watch nothing more; `wait` and `add` now raise `OSError`."""
        ...


class Files(Protocol):
    """A filesystem: the real one, or a simulated one that crashes on request."""

    def create(self, path: Path) -> WritableFile:
        """A new file, open for writing; raises `FileExistsError` if there is one already."""
        ...

    def open(self, path: Path) -> WritableFile:
        """An existing file, open for writing at its end; raises `FileNotFoundError`."""
        ...

    def open_shared(self, path: Path) -> SharedFile:
        """An existing file, open for appending beside other processes; raises `FileNotFoundError`."""
        ...

    def open_mapped(self, path: Path) -> MappedFile:
        """An existing file, to be overwritten in place within its present length."""
        ...

    def read(self, path: Path, start: int = 0, length: int | None = None) -> bytes:
        """Up to `length` bytes from `start`; fewer at the end of the file."""
        ...

    def map(self, path: Path) -> Any:
        """The file's content as a read-only `pyarrow.Buffer`; stays valid after the file is unlinked."""
        ...

    def size(self, path: Path) -> int: ...

    def modified_ns(self, path: Path) -> int: ...

    def exists(self, path: Path) -> bool: ...

    def is_folder(self, path: Path) -> bool: ...

    def list(self, folder: Path) -> list[str]:
        """The names in a folder, sorted; raises `FileNotFoundError` if there is no such folder."""
        ...

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents, each durable in its parent, also if it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomically; replaces `target`. Durable only after `sync_folder` of both parents."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file; raises `FileNotFoundError` if gone. A crash may undo it until `sync_folder`."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Make the names in this folder durable."""
        ...

    def lock(self, path: Path, *, note: str, shared: bool = False, wait: bool = False) -> Lock:
        """Take the lock file at `path`, made if need be, and write `note` into it; raises `LockHeld`.

        An empty `note` leaves what is in the file.
        """
        ...

    def watch(self) -> Watch:
        """A watch that has nothing to watch yet."""
        ...

    def free_bytes(self, path: Path) -> tuple[int, int]:
        """How many bytes are free for us on the volume of `path`, and how many it has."""
        ...
