"""Check, and on request repair."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.clock import Clock, Ids, SystemClock, SystemIds
from holdfast.files import Files, SystemFiles
from holdfast.operate._check import check
from holdfast.operate._findings import FsckReport
from holdfast.operate._kinds import recognise
from holdfast.operate._progress import Progress, Work
from holdfast.operate._repair import repair as mend


def fsck(
    path: str | os.PathLike[str],
    *,
    repair: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    progress: Progress | None = None,
) -> FsckReport:
    """Verify every checksum and cross-reference of a store, topic, shard or single file.

    Without `repair` nothing is changed and nothing locked, and a writer may be at work. With it, every shard is locked
    first (`ShardTaken` names who holds one), and what is reported is how things stand afterwards.
    """
    files = SystemFiles() if files is None else files
    where = Path(path)
    kind = recognise(files, where)
    done = None
    if repair:
        clock, ids = clock or SystemClock(), ids or SystemIds()
        done = mend(files, where, kind, Work(progress), clock=clock, ids=ids)
    work = Work(progress)
    findings = check(files, where, kind, work)
    return FsckReport(str(where), str(kind), tuple(findings), work.files, work.bytes, done)
