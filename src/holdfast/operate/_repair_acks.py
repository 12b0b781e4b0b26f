"""Repair the ack log of a shard: go on from the outcomes that can be read. Whoever calls holds the shard's lock."""

from __future__ import annotations

from dataclasses import replace

from holdfast.acks import AckLog
from holdfast.acks.format import CHECKPOINT, FOLDER, file_name, list_acks
from holdfast.clock import Clock
from holdfast.files import Files
from holdfast.operate._aside import Aside
from holdfast.operate._judge_acks import beyond_the_end
from holdfast.operate._survey import ShardSurvey
from holdfast.store.layout import SHARD_CHECKPOINT
from holdfast.store.registry import Registry
from holdfast.store.shard_checkpoint import ShardCheckpoint


def repair_acks(files: Files, found: ShardSurvey, registry: Registry | None, aside: Aside, clock: Clock) -> None:
    """Set damage aside, and make numbering go on above every outcome. What cannot be read is delivered again.

    1. Copies of all files of the log.                  A crash before the end: run the repair again.
    2. A checkpoint with what can be read, in a new file: a rotation, as it happens every so often.
    3. The shard's checkpoint, if outcomes reach beyond the numbers that were given out.
    """
    if found.is_unfinished or found.acks.newer is not None:
        return
    if found.acks.damage:
        _rebuild(files, found, registry, aside, clock)
    beyond = beyond_the_end(found, registry)
    if beyond:
        last = max(beyond.values())
        aside.copy(found.folder / SHARD_CHECKPOINT)
        checkpoint = ShardCheckpoint.read(files, found.folder)
        replace(checkpoint, next_offset=max(checkpoint.next_offset, last)).write(files, found.folder)
        aside.did(f"numbering in {found.folder} goes on at offset {last}, where {', '.join(beyond)} goes on")


def _rebuild(files: Files, found: ShardSurvey, registry: Registry | None, aside: Aside, clock: Clock) -> None:
    folder = found.folder / FOLDER
    for path in [*(folder / file_name(number) for number in list_acks(files, folder)), found.folder / CHECKPOINT]:
        aside.copy(path)
    checkpoint = ShardCheckpoint.read(files, found.folder)
    log = AckLog(files, found.folder, checkpoint.shard_id, clock=clock)
    try:
        with log.exclusive():
            numbers = set(log.state.progress) if registry is None else registry.numbers
            for number in numbers:  # what was deleted cannot be delivered again
                log.progress(number).begin(checkpoint.trimmed)
            log.rotate(numbers)
            watermarks = {number: log.progress(number).watermark for number in sorted(numbers)}
    finally:
        log.close()
    names = {} if registry is None else {each.number: name for name, each in registry.subscribers.items()}
    shown = ", ".join(f"{names.get(number, f'number {number}')} at {mark}" for number, mark in watermarks.items())
    aside.did(
        f"rebuilt the ack log of {found.folder} from what can be read; watermarks now: {shown or 'none'}; "
        "what is not on record any more is delivered again"
    )
