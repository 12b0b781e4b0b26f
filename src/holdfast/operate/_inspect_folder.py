"""A shard, topic or store, shown: a summary of every file in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.acks.format import file_name, list_acks
from holdfast.errors import HoldfastError
from holdfast.files import Files
from holdfast.operate._inspect_acks import inspect_acks
from holdfast.operate._inspect_small import inspect_checkpoint, inspect_wal
from holdfast.operate._kinds import shard_folders, topic_folders
from holdfast.operate._progress import Work
from holdfast.operate._subscribers import reading, subscriber_document
from holdfast.operate._topics import describe_shard, describe_topic
from holdfast.segment import SegmentReader
from holdfast.store.layout import ACKS, SHARD_CHECKPOINT, STORE_CHECKPOINT
from holdfast.store.segments import list_segments
from holdfast.wal import list_wal

Document = dict[str, Any]


def inspect_store(files: Files, path: Path, work: Work) -> Document:
    """Its identity, and every topic."""
    return {
        "checkpoint": _tried(lambda: inspect_checkpoint(files, path / STORE_CHECKPOINT)),
        "topics": [inspect_topic(files, folder, work) for folder in topic_folders(files, path)],
    }


def inspect_topic(files: Files, folder: Path, work: Work) -> Document:
    """Its slots, its subscribers, and every shard."""
    document = describe_topic(files, folder)
    document["subscribers"], document["subscribers_problem"] = _subscribers(files, folder)
    document["shards"] = [_shard(files, shard, work) for shard in shard_folders(files, folder)]
    return document


def inspect_shard(files: Files, folder: Path, work: Work) -> Document:
    """Its numbers, its checkpoint, its subscribers, and every segment, WAL and ack file."""
    found, problem = _subscribers(files, folder.parent)
    mine = [
        {**each, **shard, "watermark": {shard["shard"]: shard["watermark"]}, "shards": [shard]}
        for each in found
        for shard in each["shards"]
        if shard["shard"] == folder.name
    ]
    return {**_shard(files, folder, work), "subscribers": mine, "subscribers_problem": problem}


def _subscribers(files: Files, topic: Path) -> tuple[list[Document], str | None]:
    """How far each one is; or why that cannot be told: the store around the topic is damaged, or not there."""
    try:
        with reading(topic.parent.parent, f"{topic.parent.name}/{topic.name}", files) as opened:
            return [subscriber_document(view) for view in opened.subscribers().values()], None
    except HoldfastError as problem:
        return [], str(getattr(problem, "what", problem))


def _shard(files: Files, folder: Path, work: Work) -> Document:
    """What a writer moves meanwhile is left out."""
    document = describe_shard(files, folder)
    segments = list_segments(files, folder / "segments") if files.is_folder(folder / "segments") else []
    wal = list_wal(files, folder / "wal") if files.is_folder(folder / "wal") else []
    parts: list[tuple[str, Path, Callable[[Path], Document]]] = [
        ("segment_list", folder / "segments" / str(name), lambda path: _segment(files, path)) for name in segments
    ]
    parts += [
        ("wal_list", folder / "wal" / str(name), lambda path: inspect_wal(files, path, records=False)) for name in wal
    ]
    parts += [
        ("ack_list", folder / ACKS / file_name(number), lambda path: _acks(files, path))
        for number in list_acks(files, folder / ACKS)
    ]
    document["checkpoint"] = _tried(lambda: inspect_checkpoint(files, folder / SHARD_CHECKPOINT))
    document["segment_list"], document["wal_list"], document["ack_list"] = [], [], []
    for part, path, look in parts:
        try:
            size = files.size(path)
            found = _tried(lambda path=path, look=look: look(path))  # type: ignore[misc]
        except FileNotFoundError:
            continue
        document[part].append({"file": path.name, **found})
        work.did(path.name, size)
    return document


def _segment(files: Files, path: Path) -> Document:
    reader = SegmentReader(files, path)
    return {
        "segment_seq": reader.segment_seq,
        "first_offset": reader.first_offset,
        "end_offset": reader.end_offset,
        "bundles": reader.bundle_count,
        "streams": len(reader.streams),
        "rows": sum(stream.rows for stream in reader.streams),
        "bytes": reader.size,
    }


def _acks(files: Files, path: Path) -> Document:
    found = inspect_acks(files, path)
    return {**{key: found[key] for key in ("file_number", "bytes", "record_count")}, "damaged": len(found["damage"])}


def _tried(look: Callable[[], Document]) -> Document:
    """What `look` says, or what kept it from saying it."""
    try:
        return look()
    except HoldfastError as problem:
        return {"problem": str(getattr(problem, "what", problem))}
