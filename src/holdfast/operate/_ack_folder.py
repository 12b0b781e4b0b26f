"""The ack log of a shard as found: what it says of each subscriber, what is damaged, where it ends."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.acks import AckLog, Damage
from holdfast.acks.format import (
    CHECKPOINT,
    DISTRUSTED_SUFFIX,
    FILE_HEADER_BYTES,
    FOLDER,
    HEAD,
    RECORD_MAGIC,
    FileHeader,
    file_name,
    list_acks,
)
from holdfast.clock import SystemClock
from holdfast.errors import Corruption, HoldfastError, NewerVersion
from holdfast.files import Files
from holdfast.operate._ack_look import look_at_acks
from holdfast.operate._progress import Work
from holdfast.store.shard_checkpoint import ShardCheckpoint

_FAR: Final = 1 << 62  # above every offset


@dataclass(slots=True)
class AckFolder:
    """What was found. `ends`: by subscriber's number, one above the highest offset that is final for it."""

    damage: list[Damage] = field(default_factory=list)
    remnants: list[Damage] = field(default_factory=list)  # records that a crash cut short, and others follow
    torn: tuple[Path, int] | None = None  # a record cut short at the end of the last file
    distrusted: list[Path] = field(default_factory=list)  # marks of files whose sync failed
    ends: dict[int, int] = field(default_factory=dict)
    shard_id: bytes | None = None  # as the files say it
    newer: NewerVersion | None = None  # then nothing else is known


def look_at_ack_folder(files: Files, shard: Path, work: Work) -> AckFolder:
    """Read all of the ack log, beside whoever writes it; takes no lock."""
    found = AckFolder()
    folder = shard / FOLDER
    numbers = list_acks(files, folder)
    found.shard_id = _shard_id_inside(files, [folder / file_name(number) for number in numbers])
    shard_id = _shard_id(files, shard) or found.shard_id
    if shard_id is None:
        return found
    log = AckLog(files, shard, shard_id, clock=SystemClock())
    try:
        damage = log.refresh().damage
    except NewerVersion as problem:
        found.newer = problem
        return found
    if numbers:
        damage = (*damage, *_at_the_end(files, folder / file_name(numbers[-1]), found))
    for each in damage:
        (found.remnants if _is_remnant(files, each) else found.damage).append(each)
    found.ends = {number: each.unfinished(0, _FAR)[-1][0] for number, each in log.state.progress.items()}
    for path in [*(folder / file_name(number) for number in numbers), shard / CHECKPOINT]:
        with contextlib.suppress(FileNotFoundError):  # rotated away, or not there yet
            work.did(path.name, files.size(path))
    if numbers:
        marks = [name for name in files.list(folder) if name.endswith(DISTRUSTED_SUFFIX)]
        found.distrusted = [folder / name for name in marks]
    return found


def _shard_id(files: Files, shard: Path) -> bytes | None:
    with contextlib.suppress(FileNotFoundError, HoldfastError):
        return ShardCheckpoint.read(files, shard).shard_id
    return None


def _shard_id_inside(files: Files, paths: list[Path]) -> bytes | None:
    for path in reversed(paths):
        with contextlib.suppress(FileNotFoundError, Corruption, NewerVersion):
            return FileHeader.decode(files.read(path, 0, FILE_HEADER_BYTES), path).shard_id
    return None


def _at_the_end(files: Files, path: Path, found: AckFolder) -> list[Damage]:
    """What is wrong with the last record: a reader of the log waits for it to become whole, and says nothing."""
    with contextlib.suppress(FileNotFoundError):
        look = look_at_acks(files.read(path), path, entries=False)
        if look.torn is not None:
            found.torn = path, look.torn
        return [
            Damage(str(path), at, size, "a record that is not whole")
            for at, size, _ in look.damage
            if at >= FILE_HEADER_BYTES and at + size == look.size
        ]
    return []


def _is_remnant(files: Files, damage: Damage) -> bool:
    """Is this what a crash leaves of a record that was being written, others having been written behind it since?

    Then the beginning of a record stands there, and less of it than it says; or nothing but zeros.
    """
    with contextlib.suppress(FileNotFoundError):
        data = files.read(Path(damage.path), damage.position, damage.length) if damage.length else b""
        if len(data) < HEAD.size:
            return bool(data) and RECORD_MAGIC.startswith(data[: len(RECORD_MAGIC)])
        magic, _, length = HEAD.unpack_from(data)
        return not any(data) or bool(magic == RECORD_MAGIC and HEAD.size + length > len(data))
    return False
