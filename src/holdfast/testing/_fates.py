"""What becomes of pending changes in a crash: the choices a disk has, one function each.

Certain changes always survive. For the others, contents and names are chosen apart, because a filesystem
writes them apart: a file may have its new length and none of its bytes, or its bytes and not its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from holdfast.testing._content import Content
from holdfast.testing._dice import Dice
from holdfast.testing._disk import ContentChange, Disk, EntryChange, Extent, File, Folder, Standing

SECTOR_BYTES: Final = 512  # what a drive writes whole or not at all

Fate: TypeAlias = Callable[[Content, ContentChange], Content]


def keep(value: Content, change: ContentChange) -> Content:
    return change.apply(value)


def drop(value: Content, change: ContentChange) -> Content:  # noqa: ARG001 (a fate takes both)
    return value


def extend_only(value: Content, change: ContentChange) -> Content:
    """The length reached the disk and the bytes did not: zeros where the file grew, old bytes elsewhere."""
    if isinstance(change, Extent) and change.end > value.size:
        return value.resize(change.end)
    return value


def cut_at(count: int) -> Fate:
    """The first `count` bytes of the write."""

    def fate(value: Content, change: ContentChange) -> Content:
        return value.write(change.position, change.data[:count]) if isinstance(change, Extent) else value

    return fate


def some_sectors(dice: Dice) -> Fate:
    """Each sector of the write by itself; the length may have grown to the write's end nevertheless."""

    def fate(value: Content, change: ContentChange) -> Content:
        if not isinstance(change, Extent):
            return value
        if dice.coin():
            value = extend_only(value, change)
        start = change.position
        while start < change.end:
            end = min(change.end, start - start % SECTOR_BYTES + SECTOR_BYTES)
            if dice.coin():
                value = value.write(start, change.data[start - change.position : end - change.position])
            start = end
        return value

    return fate


def torn(change: Extent, dice: Dice) -> Fate:
    """A write of which only a part survived: up to some byte, or some of its sectors."""
    return some_sectors(dice) if dice.coin() else cut_at(1 + dice.below(max(1, len(change.data) - 1)))


def any_fate(change: ContentChange, dice: Dice) -> Fate:
    chosen = dice.below(8)
    if chosen < 3:
        return keep
    if chosen < 6 or not isinstance(change, Extent):
        return drop
    return extend_only if chosen == 6 else torn(change, dice)


def content_after(file: File, fate_of: Callable[[int, ContentChange], Fate]) -> Content:
    """The file's bytes when each doubtful change meets the fate of `fate_of(place in the log, change)`."""
    value = file.durable
    for place, (change, standing) in enumerate(file.log):
        value = change.apply(value) if standing is Standing.CERTAIN else fate_of(place, change)(value, change)
    return value


def random_content(file: File, dice: Dice) -> Content:
    """All, nothing, the first few changes, or each by itself: later ones kept while earlier ones are lost."""
    chosen = dice.below(6)
    if chosen == 0:
        return file.seen
    if chosen == 1:
        return content_after(file, lambda _, __: drop)
    if chosen == 2:
        kept = dice.below(len(file.log) + 1)
        return content_after(file, lambda place, _: keep if place < kept else drop)
    return content_after(file, lambda _, change: any_fate(change, dice))


Choice: TypeAlias = list[bool]  # for each change in a folder's log: did it survive?


def all_names(folder: Folder) -> Choice:
    return [True] * len(folder.log)


def no_names(folder: Folder) -> Choice:
    return [standing is Standing.CERTAIN for _, standing in folder.log]


def first_names(folder: Folder, count: int) -> Choice:
    return [place < count or standing is Standing.CERTAIN for place, (_, standing) in enumerate(folder.log)]


def unlinks_undone(folder: Folder, dice: Dice | None = None) -> Choice:
    """Removals lost, all or some by chance, while every other change survived: deleted files are back."""
    return [
        standing is Standing.CERTAIN or not change.is_unlink or (dice is not None and dice.coin())
        for change, standing in folder.log
    ]


def scattered_names(folder: Folder, dice: Dice) -> Choice:
    """Each change by itself, except that none survives that builds on a lost one: same name or same file."""
    choice, lost = [], set[str | int]()
    for change, standing in folder.log:
        touched = _touched(change)
        survives = standing is Standing.CERTAIN or (dice.coin() and not touched & lost)
        if not survives and not change.is_unlink:  # a lost unlink does not stand in the way of a new file
            lost |= touched
        choice.append(survives)
    return choice


def random_names(folder: Folder, dice: Dice) -> Choice:
    chosen = dice.below(5)
    if chosen == 0:
        return all_names(folder)
    if chosen == 1:
        return no_names(folder)
    if chosen == 2:
        return first_names(folder, dice.below(len(folder.log) + 1))
    if chosen == 3:
        return unlinks_undone(folder, dice)
    return scattered_names(folder, dice)


def never_in_neither(disk: Disk, choices: dict[int, Choice]) -> None:
    """Where a name that moved to another folder is gone, the new one is there: a move is one transaction."""
    for number, choice in list(choices.items()):
        for (change, _), survived in zip(disk.folder(number).log, choice, strict=True):
            if survived and change.moved_to in choices:
                target = disk.folder(change.moved_to)
                for place, (other, _) in enumerate(target.log):
                    if other.index == change.index:
                        choices[change.moved_to][place] = True


def has_doubtful_unlink(folder: Folder) -> bool:
    return any(change.is_unlink and standing is not Standing.CERTAIN for change, standing in folder.log)


def _touched(change: EntryChange) -> set[str | int]:
    return {part for binding in change.names for part in binding if part is not None}
