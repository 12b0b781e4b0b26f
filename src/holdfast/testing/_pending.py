"""What is undecided at one moment, and the disks that come of deciding it.

kept          everything pending reached the disk; also what `kill -9` leaves
lost          nothing pending did
reordered     any part of it did: later writes without earlier ones, lengths without bytes, names alone
torn          one pending write in part, up to some byte or some of its sectors
resurrected   removals are undone while what came after them survived
killed        as `kept`, but still pending: the process died, the machine went on
"""

from __future__ import annotations

from enum import StrEnum

from holdfast.testing import _fates as fates
from holdfast.testing._content import Content
from holdfast.testing._dice import Dice
from holdfast.testing._disk import ROOT, ContentChange, Disk, Entries, Extent, File, Folder, Standing
from holdfast.testing._journal import Operation, Write
from holdfast.testing._tree import Leaf, Tree


class CrashMode(StrEnum):
    """What became of pending changes; drawn at the top of this file."""

    KEPT = "kept"
    LOST = "lost"
    REORDERED = "reordered"
    TORN = "torn"
    RESURRECTED = "resurrected"
    KILLED = "killed"


class Pending:
    """What is undecided at one prefix, and the trees that come of deciding it."""

    def __init__(self, disk: Disk, last: Operation | None) -> None:
        self._disk = disk
        nodes = disk.nodes.values()
        self._folders = [node for node in nodes if isinstance(node, Folder) and node.log]
        named = _nameable(disk)  # a file that no outcome gives a name plays no part
        self._files = [node for node in nodes if isinstance(node, File) and node.log and node.number in named]
        self._last = last
        self._writes = [
            (file, place)
            for file in self._files
            for place, (change, standing) in enumerate(file.log)
            if isinstance(change, Extent) and standing is not Standing.CERTAIN
        ]

    @property
    def nothing(self) -> bool:
        return not self._files and not self._folders

    def variants(self, mode: CrashMode, per_prefix: int) -> int:
        if mode is CrashMode.REORDERED:
            return per_prefix
        if mode is CrashMode.TORN:
            return per_prefix if self._writes else 0
        if mode is CrashMode.RESURRECTED:
            return per_prefix if any(map(fates.has_doubtful_unlink, self._folders)) else 0
        return 1

    def tree(self, mode: CrashMode, variant: int, dice: Dice) -> Tree:
        contents = {file.number: file.seen for file in self._files}
        choices = {folder.number: fates.all_names(folder) for folder in self._folders}
        if mode is CrashMode.LOST:
            contents, choices = self._no_contents(), self._no_names()
        elif mode is CrashMode.REORDERED:
            if variant == 0:
                contents = self._no_contents()
            elif variant == 1:
                choices = self._no_names()
            else:
                contents = {file.number: fates.random_content(file, dice) for file in self._files}
                choices = {folder.number: fates.random_names(folder, dice) for folder in self._folders}
        elif mode is CrashMode.TORN:
            self._tear(contents, variant, dice)
        elif mode is CrashMode.RESURRECTED:
            some = None if variant == 0 else dice
            choices = {folder.number: fates.unlinks_undone(folder, some) for folder in self._folders}
        fates.never_in_neither(self._disk, choices)
        return self._resolve(ROOT, contents, choices)

    def _no_contents(self) -> dict[int, Content]:
        return {file.number: fates.content_after(file, lambda _, __: fates.drop) for file in self._files}

    def _no_names(self) -> dict[int, fates.Choice]:
        return {folder.number: fates.no_names(folder) for folder in self._folders}

    def _tear(self, contents: dict[int, Content], variant: int, dice: Dice) -> None:
        """Every other time the write the crash fell into, if it did; else any. The rest mostly survives."""
        hit = self._last.number if variant % 2 == 0 and isinstance(self._last, Write) else None
        fallen_into = [write for write in self._writes if write[0].number == hit][-1:]
        target, torn_place = dice.pick(fallen_into or self._writes)
        others_survive = dice.below(4) > 0

        def fate_of(place: int, change: ContentChange) -> fates.Fate:
            if place == torn_place and isinstance(change, Extent):
                return fates.torn(change, dice)
            return fates.keep if others_survive or place > torn_place else fates.any_fate(change, dice)

        contents[target.number] = fates.content_after(target, fate_of)

    def _resolve(self, number: int, contents: dict[int, Content], choices: dict[int, fates.Choice]) -> Tree:
        folder = self._disk.folder(number)
        entries: Entries = folder.durable
        for (change, _), survived in zip(folder.log, choices.get(number, ()), strict=True):
            if survived:
                entries = change.apply(entries)
        tree: Tree = {}
        for name, child in entries.items():
            node = self._disk.nodes[child]
            if isinstance(node, File):
                tree[name] = Leaf(contents.get(child, node.durable), node.modified_ns)
            else:
                tree[name] = self._resolve(child, contents, choices)
        return tree


def _nameable(disk: Disk) -> set[int | None]:
    """The numbers that some folder names durably, or would if a pending change survived."""
    numbers: set[int | None] = set()
    for node in disk.nodes.values():
        if isinstance(node, Folder):
            numbers.update(node.durable.values())
            numbers.update(number for change, _ in node.log for _, number in change.names)
    return numbers
