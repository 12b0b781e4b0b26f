"""The journal: one frozen record for each change of the disk, in the order in which they happened.

A record names files and folders by number, because a path may mean another file later. `apply` carries the
change out on a disk model: on the live one when it happens, and on a copy when crashes are worked out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.testing._disk import Disk, EntryChange, Extent, Resize, Standing


@dataclass(frozen=True, slots=True)
class Operation:
    """What every record has: its place in the journal, what was called and on which path."""

    index: int
    operation: str
    path: Path

    def apply(self, disk: Disk) -> None:
        """Change `disk` as this operation changed the live one; a mere note changes nothing."""

    @property
    def touched(self) -> tuple[int, ...]:
        """The files that were written and the folders whose names changed: whoever watches one is woken."""
        return ()

    def __str__(self) -> str:
        return f"{self.index} {self.operation} {self.path}{self._detail()}"

    def _detail(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Create(Operation):
    """A new, empty file under a new name."""

    folder: int
    number: int
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.folder,)

    def apply(self, disk: Disk) -> None:
        disk.add_file(self.number, self.at_ns)
        disk.folder(self.folder).change(EntryChange(self.index, ((self.path.name, self.number),)), self.at_ns)


@dataclass(frozen=True, slots=True)
class MakeFolder(Operation):
    """A new, empty folder."""

    folder: int
    number: int
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.folder,)

    def apply(self, disk: Disk) -> None:
        disk.add_folder(self.number, self.at_ns)
        disk.folder(self.folder).change(EntryChange(self.index, ((self.path.name, self.number),)), self.at_ns)


@dataclass(frozen=True, slots=True)
class Write(Operation):
    """Bytes at a position: an append or a write in place."""

    number: int
    position: int
    data: bytes = field(repr=False)
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.number,)

    def apply(self, disk: Disk) -> None:
        disk.file(self.number).change(Extent(self.position, self.data), self.at_ns)

    def _detail(self) -> str:
        return f" [{self.position}, {self.position + len(self.data)})"


@dataclass(frozen=True, slots=True)
class Truncate(Operation):
    """A new length."""

    number: int
    size: int
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.number,)

    def apply(self, disk: Disk) -> None:
        disk.file(self.number).change(Resize(self.size), self.at_ns)

    def _detail(self) -> str:
        return f" to {self.size}"


@dataclass(frozen=True, slots=True)
class Sync(Operation):
    """A file's sync that succeeded, or one that failed and stranded what was pending."""

    number: int
    failed: bool = False

    def apply(self, disk: Disk) -> None:
        standing = Standing.STRANDED if self.failed else Standing.CERTAIN
        disk.file(self.number).promote(Standing.POSSIBLE, standing)

    def _detail(self) -> str:
        return " (failed)" if self.failed else ""


@dataclass(frozen=True, slots=True)
class SyncFolder(Operation):
    """A folder's sync that succeeded, or one that failed and stranded what was pending."""

    number: int
    failed: bool = False

    def apply(self, disk: Disk) -> None:
        if self.failed:
            disk.folder(self.number).promote(Standing.POSSIBLE, Standing.STRANDED)
        else:
            disk.sync_folder(self.number)

    def _detail(self) -> str:
        return " (failed)" if self.failed else ""


@dataclass(frozen=True, slots=True)
class Rename(Operation):
    """A name changed, atomically; between two folders it is a new name there and a removal here."""

    target: Path
    source_folder: int
    target_folder: int
    number: int
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.source_folder, self.target_folder)

    def apply(self, disk: Disk) -> None:
        source, target = disk.folder(self.source_folder), disk.folder(self.target_folder)
        removed, bound = (self.path.name, None), (self.target.name, self.number)
        if source is target:
            source.change(EntryChange(self.index, (removed, bound)), self.at_ns)
        else:
            target.change(EntryChange(self.index, (bound,)), self.at_ns)
            source.change(EntryChange(self.index, (removed,), moved_to=self.target_folder), self.at_ns)

    def _detail(self) -> str:
        return f" -> {self.target}"


@dataclass(frozen=True, slots=True)
class Unlink(Operation):
    """A name removed."""

    folder: int
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.folder,)

    def apply(self, disk: Disk) -> None:
        disk.folder(self.folder).change(EntryChange(self.index, ((self.path.name, None),)), self.at_ns)


@dataclass(frozen=True, slots=True)
class LockNote(Operation):
    """The holder's note in a lock file; durable at once: only error messages read it."""

    number: int
    data: bytes
    at_ns: int

    @property
    def touched(self) -> tuple[int, ...]:
        return (self.number,)

    def apply(self, disk: Disk) -> None:
        file = disk.file(self.number)
        file.change(Resize(0), self.at_ns)
        file.change(Extent(0, self.data), self.at_ns)
        file.promote(Standing.POSSIBLE, Standing.CERTAIN)

    def _detail(self) -> str:
        return f" {self.data!r}"


@dataclass(frozen=True, slots=True)
class Note(Operation):
    """A test's own event; `value` is whatever the test passed to `SimulatedFiles.note`."""

    value: object

    def __str__(self) -> str:
        return f"{self.index} note {self.value!r}"
