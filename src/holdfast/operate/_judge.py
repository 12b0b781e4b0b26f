"""What a survey of a shard means: each thing that is not as it should be becomes a finding."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from holdfast.operate._findings import Finding, Severity
from holdfast.operate._ranges import Range, intersects, shown, subtract
from holdfast.operate._survey import ShardSurvey
from holdfast.operate._wal_look import WalLook
from holdfast.store.layout import SHARD_CHECKPOINT, TAIL
from holdfast.wal.format import FILE_HEADER_BYTES

REPAIR: Final = (
    "run `holdfast fsck --repair` on the shard; it keeps a copy, saves what can be read, records the rest as lost"
)
NOTHING: Final = "nothing: opening the store for writing tidies it up"
BACKUP: Final = "if you have a backup of the file, put it back first"


def damage(path: Path, position: int | None, what: str, advice: str = REPAIR) -> Finding:
    return Finding(Severity.DAMAGE, str(path), position, what, advice)


def warning(path: Path, position: int | None, what: str, advice: str) -> Finding:
    return Finding(Severity.WARNING, str(path), position, what, advice)


def note(path: Path, position: int | None, what: str, advice: str = NOTHING) -> Finding:
    return Finding(Severity.NOTE, str(path), position, what, advice)


def judge(found: ShardSurvey) -> list[Finding]:
    """All findings about one shard, file by file."""
    if found.is_unfinished:
        return [note(found.folder, None, "a shard that was never finished being made; it holds nothing")]
    missing, unheld = missing_offsets(found), unheld_offsets(found)
    return [
        *_checkpoint(found),
        *_tail(found),
        *_segments(found),
        *_order(found),
        *(finding for look in found.wal for finding in _wal_file(found, look, unheld)),
        *(_missing(found, span) for span in missing),
        *_lost(found),
        *_others(found),
    ]


def missing_offsets(found: ShardSurvey) -> list[Range]:
    """What was durable, and is in no segment, in no WAL record that counts, and not recorded as lost or trimmed."""
    return [left for span in unheld_offsets(found) for left in subtract(span, found.lost)]


def unheld_offsets(found: ShardSurvey) -> list[Range]:
    """The same, whether recorded as lost or not: a WAL file that is bad there keeps the shard from opening."""
    held = [(0, found.trimmed)]
    held += [(look.first, look.first if look.end is None else look.end) for look in found.own_segments]
    start = found.start  # below it the WAL is not read any more
    for look in found.own_wal:
        counted = look.counted
        if counted and counted[-1].offset >= start:
            held.append((max(start, counted[0].offset), counted[-1].offset + 1))
    return subtract((0, found.durable), held)


def _checkpoint(found: ShardSurvey) -> Iterator[Finding]:
    path = found.folder / SHARD_CHECKPOINT
    if found.checkpoint is None:
        yield damage(path, 0, f"{found.checkpoint_problem}: the shard cannot be opened", f"{BACKUP}; else {REPAIR}")


def _tail(found: ShardSurvey) -> Iterator[Finding]:
    path = found.folder / TAIL
    if found.tail is None and found.tail_problems:
        yield damage(
            path,
            0,
            f"{found.tail_problems[0]}: other processes cannot read the shard",
            "open the store for writing, or " + REPAIR,
        )
    elif found.tail is None and not found.is_empty:
        yield warning(
            path, None, "it is missing: other processes see nothing of this shard", "open the store for writing once"
        )
    else:
        for problem in found.tail_problems:
            yield warning(
                path,
                None,
                f"{problem}; the other slot counts",
                "nothing: a crash may leave that, the next write mends it",
            )
    if found.tail is not None and found.tail.sealed > found.tail.durable:
        yield damage(path, None, f"says sealed up to {found.tail.sealed}, beyond durable {found.tail.durable}")


def _segments(found: ShardSurvey) -> Iterator[Finding]:
    for look in found.segments:
        gone = found.is_gone(look)
        if look.shard_id is not None and look.shard_id != found.shard_id:
            owner = "this one" if found.shard_id is None else f"this one ({found.shard_id.hex()})"
            yield damage(look.path, 32, f"belongs to shard {look.shard_id.hex()}, not to {owner}")
        for each in look.damage:
            if gone:
                yield note(look.path, each.position, f"{each.what}; all of it was deleted before")
            else:
                yield damage(look.path, each.position, each.what)
        if gone and not look.damage:
            if look.end is not None and look.end <= found.trimmed:
                what = f"all of it was trimmed (the shard starts at offset {found.trimmed})"
            else:
                what = "left over: shard.checkpoint says that all of it was deleted"
            yield note(look.path, None, what)


def _order(found: ShardSurvey) -> Iterator[Finding]:
    looks = found.own_segments
    for before, look in pairwise(looks):
        if look.name.segment_seq == before.name.segment_seq:
            yield damage(
                look.path, None, f"two segments have the number {look.name.segment_seq}: this and {before.path.name}"
            )
        if before.end is not None and look.first < before.end:
            yield damage(
                look.path, None, f"begins at offset {look.first}, yet {before.path.name} reaches to {before.end - 1}"
            )


def _wal_file(found: ShardSurvey, look: WalLook, unheld: list[Range]) -> Iterator[Finding]:
    if look.problem is not None:
        yield from _wal_header(found, look)
        return
    if look.header is None or look.scan is None or look.scan.end is None:
        return
    if look.header.shard_id != found.shard_id:
        yield damage(look.path, 16, f"belongs to shard {look.header.shard_id.hex()}, not to this one")
        return
    for fault in look.faults:
        yield damage(look.path, None, f"{fault}, though the checksums are right")
    end = look.scan.end
    if end.bad is None:
        if look.limit is not None and end.offset < min(look.limit, found.start):
            what = f"ends at offset {end.offset}, a later file begins at {look.limit}; segments hold what is between"
            yield note(look.path, end.position, what)
        return
    needed = (end.offset, found.durable if look.limit is None else look.limit)
    if intersects(needed, unheld):
        yield damage(look.path, end.position, f"{end.bad}, yet offset {end.offset} was durable")
    elif look.limit is not None and end.offset >= look.limit:
        yield note(look.path, end.position, f"{end.bad}; a later file has what was written here")
    elif end.offset < found.start or end.offset < found.durable:
        yield warning(
            look.path,
            end.position,
            f"{end.bad}; segments, or another WAL file, hold all of it",
            "nothing: the file goes when it is retired",
        )
    else:
        yield note(
            look.path,
            end.position,
            f"torn tail (normal after a crash): {end.bad}; nothing of it was acknowledged at fsync",
        )


def _wal_header(found: ShardSurvey, look: WalLook) -> Iterator[Finding]:
    """Without its header nothing says what a file held; the shard opens only if none of that can have counted."""
    if look.problem is None:
        return
    first, position, what = look.name.first_offset, look.problem.position, look.problem.what
    superseded = look.limit is not None and look.limit <= first
    if not superseded and found.durable > first:
        yield damage(look.path, position, f"{what}, yet offset {first} was durable")
    elif look.spare:
        return
    elif look.size < FILE_HEADER_BYTES or not any(memoryview(look.data)):
        yield note(look.path, position, f"torn tail (normal after a crash): {what}")
    else:
        advice = "nothing: the next opening sets it aside"
        yield warning(look.path, position, f"{what}; nothing that was durable is missing", advice)


def _missing(found: ShardSurvey, span: Range) -> Finding:
    what = f"{shown(span)} were durable and are missing: in no segment, in no WAL file, and not recorded as lost"
    if span[1] == span[0] + 1:
        what = what.replace("were", "was", 1).replace("are", "is", 1)
    return damage(found.folder, None, what)


def _lost(found: ShardSurvey) -> Iterator[Finding]:
    for span in () if found.checkpoint is None else found.checkpoint.lost:
        yield note(
            found.folder / SHARD_CHECKPOINT,
            None,
            f"recorded as lost: {shown(span)}",
            "nothing: they hold nothing, and never will",
        )


def _others(found: ShardSurvey) -> Iterator[Finding]:
    for path in found.temporary:
        yield note(path, None, "a temporary file: being written now, or left by a crash")
    for path in found.strange:
        yield warning(path, None, "not a file of Holdfast's", "move it elsewhere")


def highest_offset(found: ShardSurvey) -> int:
    """One above every offset seen anywhere, also in records that are not whole; outcomes do not count."""
    seen = [found.durable, found.trimmed]
    seen += [0 if found.checkpoint is None else found.checkpoint.next_offset]
    seen += [look.first + 1 for look in found.segments]
    for look in found.own_wal:
        seen.append(look.name.first_offset)
        if look.scan is not None:
            seen.append(look.scan.highest_offset + 1)
    seen += [end for _, end in found.lost]
    return max(seen)
