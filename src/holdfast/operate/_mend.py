"""The plan of a shard's repair: which bundles are sealed anew, under which numbers, and which offsets are lost.

Undamaged segments stay as they are. What lies between two of them can only be sealed under the segment numbers that
are free between theirs, for numbers rise with the offsets: if there are more runs of whole bundles than free numbers,
the longest ones get them, and the others are *stray*: kept beside the copies, and recorded as lost in the shard. What
comes after the last undamaged segment, the WAL included, gets fresh numbers above all that were ever seen, so nothing
that can be read is stray there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.encoded import EncodedBundle
from holdfast.operate._judge import highest_offset, missing_offsets
from holdfast.operate._ranges import Range, runs, subtract
from holdfast.operate._segment_look import SegmentLook
from holdfast.operate._survey import ShardSurvey

MAX_SEALED_BYTES: Final = 32_000_000  # of payload in one segment that a repair writes


@dataclass(slots=True)
class Mend:
    """What is to be done. `sealed` are bundles of one segment each, numbered already."""

    sealed: list[list[EncodedBundle]] = field(default_factory=list)
    stray: list[list[EncodedBundle]] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)
    replaced: list[SegmentLook] = field(default_factory=list)  # segments that go
    whole_wal: bool = False  # the WAL goes: what can be read of it is in `sealed`
    next_offset: int = 0
    next_segment_seq: int = 0
    end: int = 0  # one above the last bundle that is there afterwards, if the WAL goes


def plan(found: ShardSurvey, salvaged: Mapping[int, EncodedBundle], *, wal_damaged: bool) -> Mend:
    """What to do about a surveyed shard; `salvaged` is what could be read besides undamaged segments."""
    mend = Mend()
    sound = _sound(found, mend)
    mend.next_segment_seq = fresh_segment_seq(found, salvaged)
    at, free_from = found.trimmed, 0
    for segment in sound:
        end = segment.first if segment.end is None else segment.end
        free = range(free_from, segment.name.segment_seq)
        _between(mend, found, (at, segment.first), salvaged, free)
        at, free_from = max(at, end), segment.name.segment_seq + 1
    mend.end = at
    if wal_damaged or _wal_disagrees(found, mend) or _reaches_beyond(found, mend, at):
        _after(mend, found, at, salvaged)
    mend.next_offset = max(found.durable, highest_offset(found), max(salvaged, default=-1) + 1)
    return mend


def _wal_disagrees(found: ShardSurvey, mend: Mend) -> bool:
    """Would WAL records name other segments for bundles than those that they are sealed in now?"""
    renumbered = {bundle.offset for run in mend.sealed for bundle in run}
    return any(bundle.offset in renumbered for look in found.own_wal for bundle in look.counted)


def _reaches_beyond(found: ShardSurvey, mend: Mend, at: int) -> bool:
    """Does anything that is missing, or that has to go, lie after the last undamaged segment?"""
    ends = [end for _, end in missing_offsets(found)]
    ends += [look.first + 1 if look.end is None else look.end for look in mend.replaced]
    return any(end > at for end in ends)


def _sound(found: ShardSurvey, mend: Mend) -> list[SegmentLook]:
    """Undamaged segments that follow each other; the rest is to go. What was deleted is left for the next opening."""
    sound: list[SegmentLook] = []
    for look in found.segments:
        if found.is_gone(look):
            continue
        contradicts = bool(sound) and (
            look.first < (sound[-1].end or 0) or look.name.segment_seq <= sound[-1].name.segment_seq
        )
        if look.damage or look.shard_id != found.shard_id or contradicts:
            mend.replaced.append(look)
        else:
            sound.append(look)
    return sound


def _between(mend: Mend, found: ShardSurvey, span: Range, salvaged: Mapping[int, EncodedBundle], free: range) -> None:
    """Seal what can be read of a gap under the numbers that are free there."""
    gaps = subtract(span, found.lost)
    candidates = [
        run for first, end in gaps for run in runs(salvaged[each] for each in sorted(salvaged) if first <= each < end)
    ]
    longest = sorted(candidates, key=len, reverse=True)[: len(free)]
    chosen = sorted(longest, key=lambda run: run[0].offset)
    for number, run in zip(free[len(free) - len(chosen) :], chosen, strict=True):
        mend.sealed.append(numbered(run, number))
    mend.stray += [run for run in candidates if run not in chosen]
    held = [(run[0].offset, run[-1].offset + 1) for run in chosen]
    mend.lost += [left for gap in gaps for left in subtract(gap, held)]


def _after(mend: Mend, found: ShardSurvey, start: int, salvaged: Mapping[int, EncodedBundle]) -> None:
    """Seal all that can be read from `start` on under fresh numbers; the WAL is not needed after that."""
    mend.whole_wal = True
    end = max([found.durable, *(offset + 1 for offset in salvaged)], default=start)
    pieces = [
        piece for run in runs(salvaged[each] for each in sorted(salvaged) if each >= start) for piece in _cut(run)
    ]
    for piece in pieces:
        mend.sealed.append(numbered(piece, mend.next_segment_seq))
        mend.next_segment_seq += 1
        mend.end = piece[-1].offset + 1
    held = [(piece[0].offset, piece[-1].offset + 1) for piece in pieces]
    mend.lost += subtract((start, end), [*held, *found.lost])


def _cut(run: Sequence[EncodedBundle]) -> list[list[EncodedBundle]]:
    """Where a new segment was planned, or this one gets large."""
    pieces: list[list[EncodedBundle]] = []
    size = 0
    for bundle in run:
        if not pieces or bundle.segment_seq != pieces[-1][-1].segment_seq or size >= MAX_SEALED_BYTES:
            pieces.append([])
            size = 0
        pieces[-1].append(bundle)
        size += bundle.size
    return pieces


def numbered(run: Sequence[EncodedBundle], segment_seq: int) -> list[EncodedBundle]:
    """Copies, for the cut above still looks at the old numbers."""
    return [
        EncodedBundle(
            each.offset,
            segment_seq,
            index,
            each.ingestion_time_ns,
            each.event_time,
            each.attributes,
            each.slots,
            each.size,
        )
        for index, each in enumerate(run)
    ]


def fresh_segment_seq(found: ShardSurvey, salvaged: Mapping[int, EncodedBundle]) -> int:
    """Above every segment number seen anywhere."""
    seen = [0 if found.checkpoint is None else found.checkpoint.next_segment_seq]
    seen += [look.name.segment_seq + 1 for look in found.segments]
    seen += [look.scan.next_segment_seq + 1 for look in found.own_wal if look.scan is not None]
    seen += [bundle.segment_seq + 1 for bundle in salvaged.values()]
    return max(seen)
