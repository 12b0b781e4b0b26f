"""An overview of a store's topics."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, NotAStore
from holdfast.files import Files, SystemFiles
from holdfast.operate._holder import writer_of
from holdfast.operate._kinds import Kind, recognise, shard_folders, topic_folders
from holdfast.retention import TRASH
from holdfast.segment import SegmentReader
from holdfast.store.layout import TAIL
from holdfast.store.segments import list_segments
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.store.topic_state import TopicState
from holdfast.wal import list_wal, read_tail

Document = dict[str, Any]


def topics(path: str | os.PathLike[str], *, files: Files | None = None) -> Document:
    """Every topic with its slots and shards. Reads names, sizes and small files only; takes no lock."""
    files = SystemFiles() if files is None else files
    store = Path(path)
    kind = recognise(files, store)
    if kind is not Kind.STORE:
        raise NotAStore(f"{store} is a {kind}, not a store; `holdfast inspect` shows what is in it")
    return {"path": str(store), "topics": [describe_topic(files, folder) for folder in topic_folders(files, store)]}


def describe_topic(files: Files, folder: Path) -> Document:
    """One topic; what cannot be read is told under `problem`, and the rest all the same."""
    document: Document = {
        "name": f"{folder.parent.name}/{folder.name}",
        "slots": {},
        "subscribers": None,
        "bytes": tree_bytes(files, folder),
        "problem": None,
    }
    try:
        state = TopicState(files, folder, note="")
        document["slots"] = dict(state.slots.names)
        document["subscribers"] = len(state.registry.subscribers)
    except FileNotFoundError:
        document["problem"] = "there is no topic.checkpoint"
    except HoldfastError as problem:
        document["problem"] = _brief(problem)
    document["shards"] = [describe_shard(files, shard) for shard in shard_folders(files, folder)]
    return document


def describe_shard(files: Files, folder: Path) -> Document:
    """Offsets, bundles and bytes of one shard, and who writes it."""
    problems: list[str] = []
    tail = None
    try:
        tail = read_tail(files, folder / TAIL)
    except FileNotFoundError:  # its writer has not opened it yet
        pass
    except HoldfastError as problem:
        problems.append(_brief(problem))
    wal_files, wal_bytes = _wal(files, folder / "wal")
    segments, segment_bytes, end = _segments(files, folder / "segments", problems)
    start = None
    try:
        checkpoint = ShardCheckpoint.read(files, folder)
        start = checkpoint.trimmed
    except FileNotFoundError:
        problems.append("there is no shard.checkpoint")
    except HoldfastError as problem:
        problems.append(_brief(problem))
    durable = None if tail is None else tail.durable
    sealed = end if tail is None else max(tail.sealed, end or 0)
    writer = writer_of(files, folder)
    return {
        "shard": folder.name,
        "start": start,
        "durable": durable,
        "sealed": sealed,
        "bundles_sealed": None if start is None else max(0, (sealed or 0) - start),
        "segments": segments,
        "segment_bytes": segment_bytes,
        "wal_files": wal_files,
        "wal_bytes": wal_bytes,
        "trash_bytes": tree_bytes(files, folder / TRASH),
        "bytes": tree_bytes(files, folder),
        "writer": {"lock": str(writer.lock), "last": writer.last},
        "problem": "; ".join(problems) or None,
    }


def _wal(files: Files, folder: Path) -> tuple[int, int]:
    if not files.is_folder(folder):
        return 0, 0
    sizes = [_size(files, folder / str(name)) for name in list_wal(files, folder)]
    return len(sizes), sum(sizes)


def _segments(files: Files, folder: Path, problems: list[str]) -> tuple[int, int, int | None]:
    if not files.is_folder(folder):
        return 0, 0, None
    names = list_segments(files, folder)
    size = sum(_size(files, folder / str(name)) for name in names)
    if not names:
        return 0, size, None
    try:
        return len(names), size, SegmentReader(files, folder / str(names[-1])).end_offset
    except FileNotFoundError:  # trimmed just now
        return len(names), size, None
    except HoldfastError as problem:
        problems.append(_brief(problem))
        return len(names), size, None


def tree_bytes(files: Files, folder: Path) -> int:
    """Of everything in a folder, whatever it is; what goes meanwhile does not count."""
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in files.list(folder):
            path = folder / name
            total += tree_bytes(files, path) if files.is_folder(path) else _size(files, path)
    return total


def _size(files: Files, path: Path) -> int:
    """A file that the writer has just unlinked has none."""
    with contextlib.suppress(FileNotFoundError):
        return files.size(path)
    return 0


def _brief(problem: HoldfastError) -> str:
    return str(getattr(problem, "what", problem))
