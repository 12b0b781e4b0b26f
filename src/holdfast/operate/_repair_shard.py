"""Carry out the repair of a shard. Whoever calls holds the shard's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from holdfast.clock import Clock, Ids
from holdfast.config import BufferSettings, IdempotencySettings
from holdfast.encoded import EncodedBundle
from holdfast.files import Files
from holdfast.operate._aside import Aside
from holdfast.operate._findings import Finding, Severity
from holdfast.operate._mend import Mend, numbered, plan
from holdfast.operate._ranges import Range, shown
from holdfast.operate._salvage import salvage
from holdfast.operate._survey import ShardSurvey
from holdfast.segment import segment_name, write_segment
from holdfast.store.keys import KeyIndex, NoShards
from holdfast.store.layout import SHARD_CHECKPOINT, TAIL
from holdfast.store.recovery import recover
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.wal import Tail, TailFile

Signal = Callable[[Iterable[int]], str]


def repair_shard(
    files: Files,
    found: ShardSurvey,
    findings: Sequence[Finding],
    aside: Aside,
    *,
    clock: Clock,
    ids: Ids,
    schemas: Iterable[pa.Schema],
    signal: Signal,
) -> None:
    """Make the shard one that opens, losing nothing that can be read.

    1. Copies of all files that change or go.     A crash before the end: run the repair again; it goes on from there.
    2. Stray bundles, into a folder beside them.
    3. The checkpoint: what is lost, and numbers that must not come again.
    4. Segments with what was saved. Each covers its part of the WAL at once.
    5. Damaged files go.
    6. Recovery, as at any opening: it writes a new tail.
    """
    for path in found.temporary:
        aside.remove(path)
    if not any(finding.severity is Severity.DAMAGE for finding in findings):
        return
    folder = found.folder
    wal_damaged = any(
        finding.severity is Severity.DAMAGE and Path(finding.path).parent == folder / "wal" for finding in findings
    )
    mend = plan(found, salvage(files, found, schemas), wal_damaged=wal_damaged)
    going = [look.path for look in mend.replaced] + ([look.path for look in found.wal] if mend.whole_wal else [])
    for path in (*going, folder / SHARD_CHECKPOINT, folder / TAIL):
        aside.copy(path)
    _keep_strays(files, mend, aside, found, ids, signal)
    checkpoint = _write_checkpoint(files, found, mend, aside, ids)
    written = _write_segments(files, folder, mend.sealed, checkpoint.shard_id, aside, signal)
    for path in going:
        if path not in written:
            aside.remove(path)
    _renew_tail(files, found, mend)
    # Its bounds are not the topic's: so it must not be the repair that forgets a key.
    keys = KeyIndex(files, folder.parent, clock, IdempotencySettings(window=1e9, max_keys=10**9), NoShards())
    with keys.opening():
        state = recover(files, folder, BufferSettings(), clock, ids, keys)
    state.log.finish_file()
    state.tail.close()
    aside.did(f"opened {folder} once: it goes on at offset {state.next_offset}")


def _keep_strays(files: Files, mend: Mend, aside: Aside, found: ShardSurvey, ids: Ids, signal: Signal) -> None:
    """As segment files of their own: `holdfast inspect` shows them."""
    if not mend.stray:
        return
    folder = aside.place("salvaged")
    files.make_folder(folder)
    for run in mend.stray:
        shard_id = found.shard_id or ids.random_bytes(16)
        bundles = numbered(run, run[0].segment_seq)  # a run may reach over several damaged segments
        info = write_segment(files, folder, bundles, shard_id=shard_id, signal=signal)
        span = shown((info.first_offset, info.end_offset))
        aside.did(f"saved {span} into {info.path}: there is no segment number left for them in the shard")


def _write_checkpoint(files: Files, found: ShardSurvey, mend: Mend, aside: Aside, ids: Ids) -> ShardCheckpoint:
    known = found.checkpoint
    base = known or ShardCheckpoint(found.shard_id or ids.random_bytes(16), trimmed=found.trimmed)
    checkpoint = replace(
        base.with_lost([each for each in (*found.lost, *mend.lost) if each not in base.deleted]),
        next_offset=max(base.next_offset, mend.next_offset),
        next_segment_seq=max(base.next_segment_seq, mend.next_segment_seq),
    )
    files.make_folder(found.folder / "wal")
    files.make_folder(found.folder / "segments")
    checkpoint.write(files, found.folder)
    if known is None:
        aside.did(
            f"rebuilt {found.folder / SHARD_CHECKPOINT}: shard {base.shard_id.hex()}, starts at offset {base.trimmed}; "
            "what had been recorded as lost or trimmed before cannot be told from what is missing now"
        )
    for span in mend.lost:
        aside.did(f"recorded as lost: {shown(span)}{_stray_hint(mend, span)}")
    return checkpoint


def _stray_hint(mend: Mend, span: Range) -> str:
    stray = any(span[0] <= run[0].offset < span[1] for run in mend.stray)
    return " (what could be read of them is kept, as said above)" if stray else ""


def _write_segments(
    files: Files,
    folder: Path,
    segments: Sequence[Sequence[EncodedBundle]],
    shard_id: bytes,
    aside: Aside,
    signal: Signal,
) -> set[Path]:
    written = set()
    for bundles in segments:
        path = folder / "segments" / segment_name(bundles[0].segment_seq, bundles[0].offset)
        write_segment(files, folder / "segments", bundles, shard_id=shard_id, signal=signal)
        written.add(path)
        aside.did(f"sealed {shown((bundles[0].offset, bundles[-1].offset + 1))} into {path}")
    return written


def _renew_tail(files: Files, found: ShardSurvey, mend: Mend) -> None:
    """Nothing may claim to be durable that is not there any more, or recovery would stop at it."""
    old = found.tail or Tail()
    if mend.whole_wal:
        old = old._replace(durable=mend.end, sealed=mend.end)
    TailFile(files, found.folder / TAIL, old).close()
