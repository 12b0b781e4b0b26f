"""The disk model: for every file and folder, what the process sees, what is durable, and what lies between.

           seen  =  durable  +  every change in `log`, in order

A change enters the log as POSSIBLE: a crash may keep or lose it. A sync turns it CERTAIN, and changes that
are certain and have nothing doubtful before them leave the log for `durable`. A *failed* sync turns it
STRANDED: the kernel has marked the page clean, the process still sees it, no later sync will write it, and a
crash may keep or lose it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from holdfast.testing._content import EMPTY, Content
from holdfast.testing._tree import Leaf, Tree

ROOT: Final = 0

Entries: TypeAlias = dict[str, int]  # name -> number of the file or folder
V = TypeVar("V")  # what a node holds
C = TypeVar("C", bound="Change[Any]")  # how that changes


class Standing(Enum):
    """How sure it is that a change survives a crash."""

    POSSIBLE = "possible"
    STRANDED = "stranded"
    CERTAIN = "certain"


class Change(Protocol[V]):
    """One step from one value to the next; never alters the value it is given."""

    def apply(self, value: V) -> V: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes written at a position."""

    position: int
    data: bytes

    @property
    def end(self) -> int:
        return self.position + len(self.data)

    def apply(self, value: Content) -> Content:
        return value.write(self.position, self.data)


@dataclass(frozen=True, slots=True)
class Resize:
    """A truncation, or a growth with zeros."""

    size: int

    def apply(self, value: Content) -> Content:
        return value.resize(self.size)


ContentChange: TypeAlias = Extent | Resize


@dataclass(frozen=True, slots=True)
class EntryChange:
    """Names bound and unbound in one folder, all at once.

    A move to another folder is two of these with the same `index`; the one that takes the name away knows in
    `moved_to` which folder must have the new name by then, so that a moved file is never in neither.
    """

    index: int
    names: tuple[tuple[str, int | None], ...]
    moved_to: int | None = None

    @property
    def is_unlink(self) -> bool:
        return self.moved_to is None and all(number is None for _, number in self.names)

    def apply(self, value: Entries) -> Entries:
        entries = dict(value)
        for name, number in self.names:
            if number is None:
                entries.pop(name, None)
            else:
                entries[name] = number
        return entries


class Node(Generic[V, C]):
    """A file or a folder."""

    __slots__ = ("durable", "log", "modified_ns", "number", "seen")

    def __init__(self, number: int, value: V, modified_ns: int) -> None:
        self.number = number
        self.seen = value
        self.durable = value
        self.log: list[tuple[C, Standing]] = []
        self.modified_ns = modified_ns

    def change(self, change: C, at_ns: int) -> None:
        self.seen = change.apply(self.seen)
        self.log.append((change, Standing.POSSIBLE))
        self.modified_ns = at_ns

    def promote(self, old: Standing, new: Standing, only: C | None = None) -> None:
        """Move changes (or `only` one) to another standing, and fold what is certain into `durable`."""
        self.log = [
            (change, new if standing is old and (only is None or change is only) else standing)
            for change, standing in self.log
        ]
        settled = 0
        while settled < len(self.log) and self.log[settled][1] is Standing.CERTAIN:
            self.durable = self.log[settled][0].apply(self.durable)
            settled += 1
        del self.log[:settled]
        if not self.log:
            self.durable = self.seen  # equal already; sharing it keeps its digest


class File(Node[Content, ContentChange]):
    __slots__ = ()


class Folder(Node[Entries, EntryChange]):
    __slots__ = ()


class Disk:
    """Every file and folder by number; those that nothing names any more stay until the disk goes."""

    def __init__(self) -> None:
        self.nodes: dict[int, File | Folder] = {ROOT: Folder(ROOT, {}, 0)}
        self.next_number = ROOT + 1

    @classmethod
    def holding(cls, tree: Tree) -> Disk:
        """A disk on which exactly `tree` is durable."""
        disk = cls()
        disk._fill(ROOT, tree)
        return disk

    def _fill(self, number: int, tree: Tree) -> None:
        entries: Entries = {}
        for name, part in tree.items():
            entries[name] = self.next_number
            self.next_number += 1
            if isinstance(part, Leaf):
                self.add_file(entries[name], part.modified_ns).seen = part.content
                self.file(entries[name]).durable = part.content
            else:
                self.add_folder(entries[name], 0)
                self._fill(entries[name], part)
        folder = self.folder(number)
        folder.seen = folder.durable = entries

    def clone(self) -> Disk:
        """An independent copy; contents are shared, being immutable."""
        disk = Disk()
        disk.next_number = self.next_number
        for number, node in self.nodes.items():
            copy: File | Folder
            if isinstance(node, File):
                copy = File(number, node.durable, node.modified_ns)
                copy.seen, copy.log = node.seen, list(node.log)
            else:
                copy = Folder(number, node.durable, node.modified_ns)
                copy.seen, copy.log = node.seen, list(node.log)
            disk.nodes[number] = copy
        return disk

    def file(self, number: int) -> File:
        node = self.nodes[number]
        if not isinstance(node, File):
            raise TypeError(f"node {number} is a folder")
        return node

    def folder(self, number: int) -> Folder:
        node = self.nodes[number]
        if not isinstance(node, Folder):
            raise TypeError(f"node {number} is a file")
        return node

    def add_file(self, number: int, at_ns: int) -> File:
        """A file without a name and without bytes."""
        file = self.nodes[number] = File(number, EMPTY, at_ns)
        self.next_number = max(self.next_number, number + 1)
        return file

    def add_folder(self, number: int, at_ns: int) -> Folder:
        folder = self.nodes[number] = Folder(number, {}, at_ns)
        self.next_number = max(self.next_number, number + 1)
        return folder

    def sync_folder(self, number: int) -> None:
        """The folder's names become durable, and with a name moved away the name it was moved to."""
        folder = self.folder(number)
        moves = [change for change, standing in folder.log if standing is Standing.POSSIBLE]
        for move in moves:
            if move.moved_to is not None:
                target = self.folder(move.moved_to)
                for change, standing in list(target.log):
                    if change.index == move.index:
                        target.promote(standing, Standing.CERTAIN, only=change)
        folder.promote(Standing.POSSIBLE, Standing.CERTAIN)

    def used_bytes(self) -> int:
        """The length of every file that has a name."""
        return self._used(ROOT)

    def _used(self, number: int) -> int:
        node = self.nodes[number]
        if isinstance(node, File):
            return node.seen.size
        return sum(map(self._used, node.seen.values()))

    def tree(self) -> Tree:
        """What the process sees."""
        return self._tree(ROOT)

    def _tree(self, number: int) -> Tree:
        tree: Tree = {}
        for name, child in self.folder(number).seen.items():
            node = self.nodes[child]
            tree[name] = Leaf(node.seen, node.modified_ns) if isinstance(node, File) else self._tree(child)
        return tree
