"""Opening a shard for writing: find out what is there, and make it whole again.

1. Take the folder's lock; read the checkpoint, the tail and the listing of segments.
2. Read the WAL from where segments end (`holdfast.wal.replay`). What is damaged below a synced mark stops here.
3. Write down what is lost, and numbers that must not come again. Only then cut a torn tail, a copy kept.
4. Write again, into a new file, whole frames that nobody knows to have been synced: the page cache may show what the
   medium never got (a failed sync is reported once, then forgotten). From here on everything found is durable.
5. Tell the key log what is there and what is not (`KeyIndex.recovered`), then write a new tail.

A crash anywhere in between leaves a shard that can be opened again in the same way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from holdfast.acks import AckLog
from holdfast.bundle import decode_attributes
from holdfast.clock import Clock, Ids
from holdfast.config import BufferSettings
from holdfast.encoded import EncodedBundle
from holdfast.errors import Corruption, ShardTaken
from holdfast.files import TEMPORARY_SUFFIX, Files, Lock, LockHeld, replace_file
from holdfast.segment import SegmentReader
from holdfast.store._open_segment import OpenSegment
from holdfast.store.keys import KeyIndex, ReplayedKey
from holdfast.store.layout import LOCK, SHARD_CHECKPOINT, TAIL, TORN, shard_number
from holdfast.store.reserved import KEY
from holdfast.store.segments import SegmentName, list_segments
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.wal import (
    Progress,
    Replay,
    Tail,
    TailFile,
    WriteAheadLog,
    cut_torn_tail,
    list_spares,
    list_wal,
    read_tail,
    replay,
)

_log = structlog.get_logger("holdfast.store")


@dataclass(slots=True)
class ShardState:
    """What opening a shard found out, and what `Shard` starts from."""

    checkpoint: ShardCheckpoint
    segments: list[tuple[SegmentName, int]]  # with their sizes; oldest first
    sealed: int
    unsealed: list[OpenSegment]  # the last one is open
    log: WriteAheadLog
    next_offset: int
    next_segment_seq: int
    tail: TailFile


def lock_shard(files: Files, folder: Path, *, note: str) -> Lock:
    """The writer's lock; `ShardTaken` names who holds it."""
    try:
        return files.lock(folder / LOCK, note=note)
    except LockHeld as held:
        raise ShardTaken(
            f"{folder} is being written by {held.note or 'another process'}; "
            "a shard has one writer: use another shard, or open the store with read_only=True"
        ) from None


def create_shard(files: Files, folder: Path, ids: Ids) -> None:
    """Make an empty shard; whoever calls holds the topic's lock."""
    files.make_folder(folder / "wal")
    files.make_folder(folder / "segments")
    shard_id = ids.random_bytes(16)
    AckLog.create(files, folder, shard_id)
    ShardCheckpoint(shard_id).write(files, folder)


def recover(
    files: Files,
    folder: Path,
    settings: BufferSettings,
    clock: Clock,
    ids: Ids,
    keys: KeyIndex,
    progress: Progress | None = None,
    *,
    floor: int = 0,
) -> ShardState:
    """Steps 1 to 5 above; the caller holds the lock. No offset below `floor` is given out."""
    for place in (folder / "wal", folder / "segments"):
        files.make_folder(place)
    _sweep_temporary(files, folder)
    number = shard_number(folder.name)
    if number is None:
        raise Corruption(folder, 0, f"{folder.name} is not the name of a shard")
    # What an append was told to have failed is not to come back: its key may be stored elsewhere by now.
    checkpoint = ShardCheckpoint.read(files, folder).with_lost(keys.lost(number))
    segments = list_segments(files, folder / "segments")
    sealed, next_seq = _sealed(files, folder, segments, checkpoint)
    sealed = max([sealed, *(end for _, end in checkpoint.deleted)])
    start = max(sealed, checkpoint.trimmed)
    tail = _tail(files, folder)
    found = replay(
        files, folder / "wal", checkpoint.shard_id,
        start=start, tail_durable=tail.durable, lost=checkpoint.holes, progress=progress,
    )  # fmt: skip
    next_seq = max(next_seq, found.next_segment_seq, checkpoint.next_segment_seq)
    next_offset = max(found.highest, checkpoint.next_offset, floor, *(end for _, end in checkpoint.holes))
    checkpoint = _settle(files, folder, checkpoint, found, next_offset, next_seq)
    log = WriteAheadLog(
        files, folder / "wal", checkpoint.shard_id,
        file_size=settings.wal.file_size, clock=clock, ids=ids,
        next_generation=found.next_generation, spares=list_spares(files, folder / "wal"), earlier=found.log_files,
    )  # fmt: skip
    _write_again(log, found)
    if next_offset > found.end:
        log.supersede(found.end)
    keys.recovered(number, next_offset, checkpoint.lost, _keys_of(found.bundles))
    unsealed = _group(found.bundles, segments[-1].segment_seq + 1 if segments else 0, clock.monotonic())
    next_seq = max([next_seq, *(segment.segment_seq for segment in unsealed)])
    if unsealed and unsealed[-1].end < next_offset:  # a hole follows: the next bundle cannot have the next index
        unsealed.append(OpenSegment(next_seq + 1, next_offset, clock.monotonic()))
    return ShardState(
        checkpoint,
        [(name, files.size(folder / "segments" / str(name))) for name in segments],
        sealed,
        unsealed,
        log,
        next_offset,
        next_seq,
        TailFile(files, folder / TAIL, Tail(next_offset, sealed, tail.schemas, tail.turn)),
    )


def _keys_of(bundles: Iterable[EncodedBundle]) -> Iterator[ReplayedKey]:
    for bundle in bundles:
        if bundle.attributes and (key := decode_attributes(bundle.attributes).get(KEY)) is not None:
            yield ReplayedKey(key, bundle.offset, bundle.ingestion_time_ns)


def _sweep_temporary(files: Files, folder: Path) -> None:
    for place in (folder, folder / "wal", folder / "segments", folder / TORN):
        if files.is_folder(place):
            for name in files.list(place):
                if name.endswith(TEMPORARY_SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        files.unlink(place / name)


def _sealed(files: Files, folder: Path, segments: list[SegmentName], checkpoint: ShardCheckpoint) -> tuple[int, int]:
    """Up to where segments reach, and the lowest segment number that is free."""
    if not segments:
        return checkpoint.trimmed, 0
    _publish_again(files, folder, segments[-1])
    last = SegmentReader(files, folder / "segments" / str(segments[-1]))
    if last.shard_id != checkpoint.shard_id:
        raise Corruption(
            folder / "segments" / str(segments[-1]), 32,
            f"belongs to shard {last.shard_id.hex()}, not to this one ({checkpoint.shard_id.hex()})",
        )  # fmt: skip
    return last.end_offset, segments[-1].segment_seq + 1


def _publish_again(files: Files, folder: Path, last: SegmentName) -> None:
    """Make the last segment's name durable: its writer may have died before that, or been told that it failed.

    A folder whose sync failed once may never make that name durable, so a copy of the segment takes its place. Once
    the WAL no longer reaches back that far, the name was durable before.
    """
    wal = list_wal(files, folder / "wal")
    if any(name.first_offset <= last.first_offset for name in wal):
        path = folder / "segments" / str(last)
        replace_file(files, path, [files.map(path)])


def _tail(files: Files, folder: Path) -> Tail:
    try:
        return read_tail(files, folder / TAIL)
    except (FileNotFoundError, Corruption) as problem:
        if isinstance(problem, Corruption):
            _log.warning("tail is damaged; the WAL alone says what was durable", error=str(problem))
        return Tail()


def _settle(
    files: Files, folder: Path, checkpoint: ShardCheckpoint, found: Replay, next_offset: int, next_seq: int
) -> ShardCheckpoint:
    lost = [each for each in found.lost if each not in checkpoint.deleted]
    lost += [(found.end, next_offset)] if next_offset > found.end else []
    settled = checkpoint.with_lost(lost)
    if found.torn or settled != checkpoint:
        settled = replace(settled, next_offset=next_offset, next_segment_seq=next_seq)
    settled.write(files, folder)  # always: whoever wrote it before may have been killed before it was durable
    for torn in found.torn:
        try:
            copy = cut_torn_tail(files, torn, folder / TORN)
        except OSError as problem:  # a full disk: the next WAL file supersedes the tail, cut or not
            _log.warning("torn tail stays: no copy could be kept", file=str(torn.path), error=str(problem))
        else:
            _log.warning(
                "torn tail cut",
                file=str(torn.path),
                position=torn.position,
                reason=torn.reason,
                copy=str(copy),
            )
    return settled


def _write_again(log: WriteAheadLog, found: Replay) -> None:
    unsynced = [bundle for bundle in found.bundles if bundle.offset >= found.durable]
    if unsynced:
        log.write_again(unsynced, found.durable)


def _group(bundles: list[EncodedBundle], free_seq: int, now: float) -> list[OpenSegment]:
    """The same segments with the same numbers as before.

    Unless a truncation took their first bundles, or a segment was sealed under their number before a failure: then
    they are counted anew, above what is taken.
    """
    segments: list[OpenSegment] = []
    last: int | None = None
    for bundle in bundles:
        if bundle.segment_seq != last or bundle.offset != segments[-1].end:
            last = bundle.segment_seq
            free_seq = max(free_seq, last)
            segments.append(OpenSegment(free_seq, bundle.offset, now))
            free_seq += 1
        bundle.segment_seq = segments[-1].segment_seq
        bundle.bundle_index = len(segments[-1].bundles)
        segments[-1].bundles.append(bundle)
    return segments


def is_shard(files: Files, folder: Path) -> bool:
    """False for one that was never finished being made; raises `Corruption` if it holds data all the same."""
    if files.exists(folder / SHARD_CHECKPOINT):
        return True
    for place in (folder / "wal", folder / "segments"):
        if files.is_folder(place) and any(not name.endswith(TEMPORARY_SUFFIX) for name in files.list(place)):
            raise Corruption(folder / SHARD_CHECKPOINT, 0, "missing, although the shard holds data")
    return False
