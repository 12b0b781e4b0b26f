"""A filesystem in memory that can fail any call, fill up, and crash.

It keeps the promises of a POSIX disk and not one more: bytes are durable after `sync` of their file, names
after `sync_folder` of their folder, and until then anything may become of them. `crash_states` works out
what.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast.clock import Clock
from holdfast.files import LockHeld
from holdfast.testing._clock import FakeClock
from holdfast.testing._disk import ROOT, Disk, File, Folder
from holdfast.testing._faults import Fault, Faults, system_error
from holdfast.testing._handle import SimulatedFile, SimulatedSharedFile
from holdfast.testing._journal import (
    Create,
    LockNote,
    MakeFolder,
    Note,
    Operation,
    Rename,
    SyncFolder,
    Unlink,
)
from holdfast.testing._locks import LockTable, SimulatedLock
from holdfast.testing._tree import tree_digest
from holdfast.testing._watch import SimulatedWatch, WatchTable

_UNBOUNDED: Final = 2**40  # what a disk without a capacity says it has, in bytes
# A fault in these does not simply raise: part of the work happens first, or what was pending is stranded.
_FAIL_THEMSELVES: Final = frozenset({"sync", "sync_folder"})


class SimulatedFiles:
    """Implements `holdfast.files.Files`. Threads may share it. Relative paths count from the root.

    capacity    bytes the disk holds, or `None`; may be changed at any time
    before      called as `before(operation, path)` ahead of each call, unlocked: it may block, look, raise
    """

    def __init__(self, *, capacity: int | None = None, clock: Clock | None = None) -> None:
        self.capacity = capacity
        self.before: Callable[[str, Path], None] | None = None
        self._clock: Clock = clock or FakeClock()
        self._changed = threading.Condition()
        self._locks = LockTable(self._changed, self._rung)
        self._watches = WatchTable(self._changed, self._node)
        self._faults = Faults()
        self._start(Disk())

    def _start(self, disk: Disk) -> None:
        self._disk = disk
        self._base = disk.clone()
        self._journal: list[Operation] = []

    # -- what a test asks for --------------------------------------------------------------------------------

    @property
    def journal(self) -> tuple[Operation, ...]:
        """Every change so far, and every note, in order; `str()` of a record is one line."""
        with self._changed:
            return tuple(self._journal)

    def note(self, value: object) -> None:
        """Put an event of the test's own into the journal, such as "offset 17 was acknowledged here"."""
        with self._changed:
            self._record(Note(self._index, "note", Path(), value))

    def clear_journal(self) -> None:
        """Begin a new journal here; crash states then start from this disk, pending changes included."""
        with self._changed:
            self._start(self._disk)

    def kill(self) -> SimulatedFiles:
        """What the next process finds after `kill -9`: all that was written, as unsynced as it was.

        Nothing has become durable by it, so a successor that relies on what it reads must sync it first.
        """
        with self._changed:
            return self._successor(self._disk.clone())

    def fail(
        self,
        operation: str,
        error: int = errno.EIO,
        *,
        nth: int = 1,
        times: int | None = 1,
        path: str = "*",
        short: int | None = None,
    ) -> Fault:
        """Make calls fail: the `nth` that matches from now on and `times - 1` more, or all (`times=None`).

        `path` is a glob over the whole path (`*` matches `/` too). `short=n` lets a write put down n bytes
        first. A failed `sync` or `sync_folder` strands what was pending: no later one makes it durable.
        """
        fault = Fault(operation, error, nth, times, path, short)
        with self._changed:
            self._faults.rules.append(fault)
        return fault

    def heal(self) -> None:
        """Take back every `fail`."""
        with self._changed:
            self._faults.rules.clear()

    @property
    def calls(self) -> Counter[str]:
        """How often each operation was called so far, failed calls included."""
        with self._changed:
            return Counter(self._faults.calls)

    @property
    def digest(self) -> str:
        """Stable over processes; equal exactly for equal trees of names and bytes."""
        with self._changed:
            return tree_digest(self._disk.tree()).hex()

    # -- Files -----------------------------------------------------------------------------------------------

    def create(self, path: Path) -> SimulatedFile:
        with self._call("create", path):
            folder, name = self._parent(path)
            if name in folder.seen:
                raise system_error(errno.EEXIST, path)
            return SimulatedFile(self, path, self._create("create", path, folder))

    def open(self, path: Path) -> SimulatedFile:
        with self._call("open", path):
            return SimulatedFile(self, path, self._file(path))

    def open_shared(self, path: Path) -> SimulatedSharedFile:
        with self._call("open_shared", path):
            return SimulatedSharedFile(self, path, self._file(path))

    def open_mapped(self, path: Path) -> SimulatedFile:
        """A handle as from `open`: here both kinds come to the same."""
        with self._call("open_mapped", path):
            return SimulatedFile(self, path, self._file(path))

    def read(self, path: Path, start: int = 0, length: int | None = None) -> bytes:
        with self._call("read", path):
            if start < 0:
                raise system_error(errno.EINVAL, path)
            return self._file(path).seen.read(start, length)

    def map(self, path: Path) -> Any:
        """A copy: later changes of the file do not show in it."""
        with self._call("map", path):
            return pa.py_buffer(self._file(path).seen.read())

    def size(self, path: Path) -> int:
        with self._call("size", path):
            node = self._node(path)
            return node.seen.size if isinstance(node, File) else 0

    def modified_ns(self, path: Path) -> int:
        with self._call("modified_ns", path):
            return self._node(path).modified_ns

    def exists(self, path: Path) -> bool:
        with self._call("exists", path):
            return self._find(path) is not None

    def is_folder(self, path: Path) -> bool:
        with self._call("is_folder", path):
            return isinstance(self._find(path), Folder)

    def list(self, folder: Path) -> list[str]:
        with self._call("list", folder):
            return sorted(self._folder(folder).seen)

    def make_folder(self, path: Path) -> None:
        with self._call("make_folder", path):
            missing = []
            while not isinstance(self._find(path), Folder):
                missing.append(path)
                path = path.parent
        self.sync_folder(path.parent)
        for folder in reversed(missing):
            with self._changed:
                if not isinstance(self._find(folder), Folder):
                    self._make_one_folder(folder)
            try:
                self.sync_folder(folder.parent)
            except OSError:
                with self._changed:
                    parent = self._parent(folder)[0].number
                    self._record(Unlink(self._index, "unlink", folder, parent, self._clock.now_ns()))
                raise

    def rename(self, source: Path, target: Path) -> None:
        with self._call("rename", source):
            source_folder, name = self._parent(source)
            if name not in source_folder.seen:
                raise system_error(errno.ENOENT, source)
            target_folder, _ = self._parent(target)
            moved, replaced = self._node(source), self._find(target)
            if moved is replaced:
                return
            if isinstance(moved, Folder) and _names(target)[: len(_names(source))] == _names(source):
                raise system_error(errno.EINVAL, target)
            if isinstance(moved, File) and isinstance(replaced, Folder):
                raise system_error(errno.EISDIR, target)
            if isinstance(moved, Folder) and isinstance(replaced, File):
                raise system_error(errno.ENOTDIR, target)
            if isinstance(replaced, Folder) and replaced.seen:
                raise system_error(errno.ENOTEMPTY, target)
            numbers = source_folder.number, target_folder.number, moved.number
            self._record(Rename(self._index, "rename", source, target, *numbers, self._clock.now_ns()))

    def unlink(self, path: Path) -> None:
        with self._call("unlink", path):
            self._file(path)
            self._record(Unlink(self._index, "unlink", path, self._parent(path)[0].number, self._clock.now_ns()))

    def sync_folder(self, path: Path) -> None:
        with self._call("sync_folder", path) as fault:
            number = self._folder(path).number
            self._record(SyncFolder(self._index, "sync_folder", path, number, fault is not None))
            if fault is not None:
                raise system_error(fault.error, path)

    def lock(self, path: Path, *, note: str, shared: bool = False, wait: bool = False) -> SimulatedLock:
        with self._call("lock", path):
            if self._find(path) is None:
                self._create("lock", path, self._parent(path)[0])
            node = self._file(path)
            lock = self._locks.claim(node.number, shared=shared, wait=wait)
            if lock is None:
                raise LockHeld(path, node.seen.read().decode(errors="replace").strip())
            if note:
                encoded = note.encode()
                self._record(LockNote(self._index, "lock", path, node.number, encoded, self._clock.now_ns()))
            return lock

    def watch(self) -> SimulatedWatch:
        with self._call("watch", Path()):
            return self._watches.watch()

    def free_bytes(self, path: Path) -> tuple[int, int]:
        with self._call("free_bytes", path):
            self._node(path)
            total = _UNBOUNDED if self.capacity is None else self.capacity
            return max(0, total - self._disk.used_bytes()), total

    # -- inside ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _call(self, operation: str, path: Path) -> Iterator[Fault | None]:
        """Run the hook, take the lock, count the call; raise its fault or yield it to what fails in parts."""
        if self.before is not None:
            self.before(operation, path)
        with self._changed:
            fault = self._faults.strike(operation, path)
            if fault is not None and fault.short is None and operation not in _FAIL_THEMSELVES:
                raise system_error(fault.error, path)
            yield fault

    @property
    def _index(self) -> int:
        return len(self._journal)

    def _record(self, operation: Operation) -> None:
        operation.apply(self._disk)
        self._journal.append(operation)
        self._watches.notice(self._disk, operation.touched)

    def _rung(self, number: int) -> None:
        if self._disk.file(number).seen.size:  # a real ring reads a byte, and of no byte nothing is heard
            self._watches.hear(number)

    def _successor(self, disk: Disk) -> SimulatedFiles:
        """The same machine with another disk: no locks, no faults, no journal."""
        files = SimulatedFiles(capacity=self.capacity, clock=self._clock)
        files._start(disk)
        return files

    def _room(self) -> int:
        """How many bytes a file may still grow by."""
        return _UNBOUNDED if self.capacity is None else max(0, self.capacity - self._disk.used_bytes())

    def _create(self, operation: str, path: Path, folder: Folder) -> File:
        number = self._disk.next_number
        self._record(Create(self._index, operation, path, folder.number, number, self._clock.now_ns()))
        return self._disk.file(number)

    def _make_one_folder(self, path: Path) -> None:
        parent, name = self._parent(path)
        if name in parent.seen:
            raise system_error(errno.EEXIST, path)
        number = self._disk.next_number
        self._record(MakeFolder(self._index, "make_folder", path, parent.number, number, self._clock.now_ns()))

    def _walk(self, path: Path, names: tuple[str, ...]) -> File | Folder:
        node: File | Folder = self._disk.folder(ROOT)
        for name in names:
            if isinstance(node, File):
                raise system_error(errno.ENOTDIR, path)
            if name not in node.seen:
                raise system_error(errno.ENOENT, path)
            node = self._disk.nodes[node.seen[name]]
        return node

    def _node(self, path: Path) -> File | Folder:
        return self._walk(path, _names(path))

    def _find(self, path: Path) -> File | Folder | None:
        try:
            return self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _file(self, path: Path) -> File:
        node = self._node(path)
        if isinstance(node, Folder):
            raise system_error(errno.EISDIR, path)
        return node

    def _folder(self, path: Path) -> Folder:
        node = self._node(path)
        if isinstance(node, File):
            raise system_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: Path) -> tuple[Folder, str]:
        """The folder that a path's last name is in, and that name."""
        names = _names(path)
        if not names:
            raise system_error(errno.EISDIR, path)
        node = self._walk(path, names[:-1])
        if isinstance(node, File):
            raise system_error(errno.ENOTDIR, path)
        return node, names[-1]


def _names(path: Path) -> tuple[str, ...]:
    names = path.parts[1:] if path.anchor else path.parts
    if ".." in names:
        raise ValueError(f"{path}: the simulated disk does not follow '..'; pass the plain path")
    return names
