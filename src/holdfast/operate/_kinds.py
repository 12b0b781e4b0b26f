"""What a path is: told by its content, not by its name."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.acks.format import FILE_MAGIC as ACKS_MAGIC
from holdfast.acks.format import SUFFIX as ACKS_SUFFIX
from holdfast.errors import NotAStore
from holdfast.files import Files
from holdfast.files.checkpoint import MAGIC as CHECKPOINT_MAGIC
from holdfast.retention import CLAIM, REQUEST
from holdfast.segment.format import END_MAGIC as SEGMENT_END_MAGIC
from holdfast.segment.format import MAGIC as SEGMENT_MAGIC
from holdfast.store.key_format import FILE_MAGIC as KEYS_MAGIC
from holdfast.store.layout import SHARD_CHECKPOINT, STORE_CHECKPOINT, TAIL, TOPIC_CHECKPOINT, TOPIC_LOCK
from holdfast.wal.format import FILE_MAGIC as WAL_MAGIC
from holdfast.wal.tail import MAGIC as TAIL_MAGIC
from holdfast.wal.tail import SLOT_BYTES

SHARD_NAME: Final = re.compile(r"shard-(\d{4,})")


class Kind(StrEnum):
    """Everything that can be inspected and checked."""

    STORE = "store"
    TOPIC = "topic"
    SHARD = "shard"
    SEGMENT = "segment"
    WAL = "wal"
    TAIL = "tail"
    CHECKPOINT = "checkpoint"
    ACKS = "acks"
    KEYS = "keys"
    CLAIM = "claim"

    @property
    def is_folder(self) -> bool:
        return self in {Kind.STORE, Kind.TOPIC, Kind.SHARD}


CLAIM_MAGIC: Final = b"HFCLAIM\n"
_MAGICS: Final = {
    SEGMENT_MAGIC: Kind.SEGMENT,
    WAL_MAGIC: Kind.WAL,
    TAIL_MAGIC: Kind.TAIL,
    CHECKPOINT_MAGIC: Kind.CHECKPOINT,
    ACKS_MAGIC: Kind.ACKS,
    KEYS_MAGIC: Kind.KEYS,
    CLAIM_MAGIC: Kind.CLAIM,
}
_NAMES: Final = {TAIL: Kind.TAIL, CLAIM: Kind.CLAIM, REQUEST: Kind.CHECKPOINT}
_SUFFIXES: Final = {
    ".seg": Kind.SEGMENT,
    ".wal": Kind.WAL,
    ".checkpoint": Kind.CHECKPOINT,
    ".lease": Kind.CHECKPOINT,
    ACKS_SUFFIX: Kind.ACKS,
    ".keys": Kind.KEYS,
}


def recognise(files: Files, path: Path) -> Kind:
    """The kind of thing at `path`; `FileNotFoundError` if nothing is, `NotAStore` if it is not Holdfast's."""
    if not files.exists(path):
        raise FileNotFoundError(2, "No such file or directory", str(path))
    kind = _folder(files, path) if files.is_folder(path) else _file(files, path)
    if kind is None:
        raise NotAStore(
            f"{path} is not Holdfast's: expected a store, topic or shard folder, or a segment, WAL, tail, "
            "checkpoint, ack, lease, key or claim file"
        )
    return kind


def _file(files: Files, path: Path) -> Kind | None:
    """By the magic at its start; damaged ones by what else identifies them, the name last."""
    start = files.read(path, 0, 8)
    if start in _MAGICS:
        return _MAGICS[start]
    if files.read(path, SLOT_BYTES, 8) == TAIL_MAGIC:
        return Kind.TAIL
    if files.read(path, max(0, files.size(path) - 8), 8) == SEGMENT_END_MAGIC:
        return Kind.SEGMENT
    return _NAMES.get(path.name) or _SUFFIXES.get(path.suffix)


def _folder(files: Files, path: Path) -> Kind | None:
    names = set(files.list(path))
    if STORE_CHECKPOINT in names:
        return Kind.STORE
    if TOPIC_CHECKPOINT in names or TOPIC_LOCK in names or any(map(SHARD_NAME.fullmatch, names)):
        return Kind.TOPIC
    if SHARD_CHECKPOINT in names or {"wal", "segments"} <= names:
        return Kind.SHARD
    return Kind.STORE if topic_folders(files, path) else None


def topic_folders(files: Files, store: Path) -> list[Path]:
    """Every topic of a store, also one whose checkpoint is gone."""
    found = []
    for namespace in files.list(store):
        if namespace.startswith(".") or not files.is_folder(store / namespace):
            continue
        for name in files.list(store / namespace):
            folder = store / namespace / name
            if files.is_folder(folder) and _folder_is_topic(files, folder):
                found.append(folder)
    return found


def _folder_is_topic(files: Files, folder: Path) -> bool:
    names = files.list(folder)
    return TOPIC_CHECKPOINT in names or any(map(SHARD_NAME.fullmatch, names))


def shard_folders(files: Files, topic: Path) -> list[Path]:
    """Every shard of a topic in the order of numbers, also one whose checkpoint is gone."""
    numbered = [(int(match[1]), name) for name in files.list(topic) if (match := SHARD_NAME.fullmatch(name))]
    return [topic / name for _, name in sorted(numbered)]
