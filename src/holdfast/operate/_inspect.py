"""Show what is in a file or folder, whatever it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.files import Files, SystemFiles
from holdfast.operate._inspect_acks import inspect_acks, inspect_claim, inspect_keys
from holdfast.operate._inspect_folder import inspect_shard, inspect_store, inspect_topic
from holdfast.operate._inspect_segment import inspect_segment
from holdfast.operate._inspect_small import inspect_checkpoint, inspect_tail, inspect_wal
from holdfast.operate._kinds import Kind, recognise
from holdfast.operate._progress import Progress, Work


def inspect(
    path: str | os.PathLike[str],
    *,
    bundles: bool = False,
    files: Files | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """What is at `path`, as JSON values; `bundles` lists every bundle of a segment.

    Changes nothing, and holds no lock; who holds a subscriber is found out by a look at the lock of its lease.
    """
    files = SystemFiles() if files is None else files
    where = Path(path)
    kind = recognise(files, where)
    work = Work(progress)
    match kind:
        case Kind.STORE | Kind.TOPIC | Kind.SHARD:
            looks = {Kind.STORE: inspect_store, Kind.TOPIC: inspect_topic, Kind.SHARD: inspect_shard}
            found = looks[kind](files, where, work)
        case Kind.SEGMENT:
            found = inspect_segment(files, where, bundles=bundles)
        case Kind.WAL:
            found = inspect_wal(files, where, records=True)
        case Kind.TAIL:
            found = inspect_tail(files, where)
        case Kind.CHECKPOINT:
            found = inspect_checkpoint(files, where)
        case Kind.ACKS:
            found = inspect_acks(files, where)
        case Kind.KEYS:
            found = inspect_keys(files, where)
        case Kind.CLAIM:
            found = inspect_claim(files, where)
    return {"path": str(where), "kind": str(kind), **found}
