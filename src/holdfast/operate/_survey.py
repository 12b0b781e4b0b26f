"""All that there is in a shard's folder, read without changing or locking anything.

A writer may be at work: it publishes a segment before it unlinks WAL files, and syncs "trimmed" before it unlinks
segments. So the order of looking is tail, WAL, segments, checkpoint: whatever has left one place by the time we look
there has arrived in the next. Before all that comes the ack log: nothing is finished in it that was not durable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from holdfast.acks.format import DISTRUSTED_SUFFIX, FOLDER, file_number
from holdfast.errors import Corruption, NewerVersion
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.operate._ack_folder import AckFolder, look_at_ack_folder
from holdfast.operate._progress import Work
from holdfast.operate._ranges import Range
from holdfast.operate._segment_look import SegmentLook, look_at_segment
from holdfast.operate._wal_look import WalLook, look_at_wal
from holdfast.retention import TRASH
from holdfast.segment import parse_segment_name
from holdfast.store.layout import LOCK, SHARD_CHECKPOINT, TAIL, shard_number
from holdfast.store.segments import SegmentName, list_segments
from holdfast.store.shard_checkpoint import ShardCheckpoint
from holdfast.wal import SPARE_PREFIX, Tail, WalName, read_tail
from holdfast.wal.tail import TAIL_BYTES, check_tail

ATTEMPTS: Final = 20  # each one looks anew at what a writer moved meanwhile
NO_CHECKPOINT: Final = "there is no shard.checkpoint"
_TORN_READS: Final = 5  # a slot of the tail may be read while it is being written

IN_TRASH: Final = re.compile(r"\d{20}-(.+)")  # when it was deleted, and its name before

Seen = dict[SegmentName, SegmentLook]  # segments never change: one look each is enough


@dataclass(slots=True)
class ShardSurvey:
    """A shard as found."""

    folder: Path
    tail: Tail | None = None  # None: missing, or neither slot is whole
    tail_problems: list[str] = field(default_factory=list)
    wal: list[WalLook] = field(default_factory=list)
    segments: list[SegmentLook] = field(default_factory=list)
    checkpoint: ShardCheckpoint | None = None
    checkpoint_problem: str | None = None
    temporary: list[Path] = field(default_factory=list)
    strange: list[Path] = field(default_factory=list)  # files that are nobody's
    acks: AckFolder = field(default_factory=AckFolder)

    @property
    def is_empty(self) -> bool:
        """Never finished being made: nothing was ever stored in it."""
        return not self.wal and not self.segments and self.tail is None and not self.tail_problems

    @property
    def is_unfinished(self) -> bool:
        """A crash kept it from being made."""
        return self.is_empty and self.checkpoint_problem == NO_CHECKPOINT

    @property
    def number(self) -> int:
        return shard_number(self.folder.name) or 0

    @property
    def shard_id(self) -> bytes | None:
        """By the checkpoint; without one, by what the files agree on most."""
        if self.checkpoint is not None:
            return self.checkpoint.shard_id
        ids = [look.shard_id for look in self.segments if look.shard_id is not None]
        ids += [look.header.shard_id for look in self.wal if look.header is not None]
        return max(ids, key=ids.count) if ids else self.acks.shard_id

    @property
    def own_segments(self) -> list[SegmentLook]:
        """Those of this shard; one whose owner cannot be told counts as its own."""
        return [look for look in self.segments if look.shard_id in {None, self.shard_id}]

    @property
    def own_wal(self) -> list[WalLook]:
        return [look for look in self.wal if look.header is None or look.header.shard_id == self.shard_id]

    @property
    def trimmed(self) -> int:
        """Everything below was deleted on request; without a checkpoint, what lies below the first file."""
        if self.checkpoint is not None:
            return self.checkpoint.trimmed
        firsts = [look.first for look in self.own_segments] + [look.name.first_offset for look in self.own_wal]
        return min(firsts, default=self.durable)

    @property
    def start(self) -> int:
        """From here on the WAL counts."""
        return max(
            [self.trimmed, *(look.end for look in self.own_segments if look.end is not None), *self._deleted_ends]
        )

    @property
    def _deleted_ends(self) -> list[int]:
        return [] if self.checkpoint is None else [end for _, end in self.checkpoint.deleted]

    def is_gone(self, look: SegmentLook) -> bool:
        """Is it on record that nothing of this segment is needed? Then its file is only left over."""
        if look.end is None:
            return False
        deleted = () if self.checkpoint is None else self.checkpoint.deleted
        return look.end <= self.trimmed or any(first <= look.first and look.end <= end for first, end in deleted)

    @property
    def durable(self) -> int:
        """Below this everything is known to have been synced."""
        marks = [0 if self.tail is None else self.tail.durable]
        marks += [look.end for look in self.own_segments if look.end is not None]
        marks += [look.scan.synced for look in self.own_wal if look.scan is not None]
        return max(marks)

    @property
    def lost(self) -> list[Range]:
        """Ranges recorded as holding nothing, in the checkpoint or before a WAL file."""
        recorded = [] if self.checkpoint is None else list(self.checkpoint.holes)
        for look in self.own_wal:
            if look.header is not None and look.header.supersedes < look.header.first_offset:
                recorded.append((look.header.supersedes, look.header.first_offset))
        return recorded

    @property
    def schemas(self) -> dict[int, dict[bytes, pa.Schema]]:
        """Every schema found, by slot and fingerprint."""
        found: dict[int, dict[bytes, pa.Schema]] = {}
        for segment in self.own_segments:
            for (slot, print_), schema in segment.schemas.items():
                found.setdefault(slot, {})[print_] = schema
        for look in self.own_wal:
            for bundle in look.bundles:
                for part in bundle.slots:
                    found.setdefault(part.slot, {})[part.fingerprint] = part.schema
        return found

    @property
    def signals(self) -> dict[int, str]:
        return {slot: name for look in self.own_segments for slot, name in look.signals.items()}


def survey(files: Files, folder: Path, work: Work, seen: Seen) -> ShardSurvey:
    """Read everything in the shard; `seen` keeps what is known of segments between calls."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _survey(files, folder, work, seen)
        except FileNotFoundError:
            continue
    return _survey(files, folder, work, seen)


def _survey(files: Files, folder: Path, work: Work, seen: Seen) -> ShardSurvey:
    found = ShardSurvey(folder, acks=look_at_ack_folder(files, folder, work))
    _read_tail(files, folder / TAIL, found, work)
    if files.is_folder(folder / "wal"):
        found.wal = look_at_wal(files, folder / "wal", work)
    if files.is_folder(folder / "segments"):
        found.segments = _segments(files, folder, work, seen)
    _read_checkpoint(files, folder, found, work)
    deleted = () if found.checkpoint is None else found.checkpoint.deleted
    gone = [(0, found.trimmed), *deleted]
    found.segments = [
        look for look in found.segments if look.size >= 0 or not any(first <= look.first < end for first, end in gone)
    ]
    if any(look.size < 0 for look in found.segments):
        raise FileNotFoundError(2, "a segment went that was not trimmed", str(folder))
    _list_others(files, folder, found)
    return found


def _read_tail(files: Files, path: Path, found: ShardSurvey, work: Work) -> None:
    for _ in range(_TORN_READS):
        try:
            data = files.read(path)
            found.tail_problems = check_tail(data[:TAIL_BYTES], path)
            found.tail = read_tail(files, path)
        except FileNotFoundError:
            return
        except (Corruption, NewerVersion) as problem:
            found.tail, found.tail_problems = None, [str(getattr(problem, "what", problem))]
        else:
            if len(data) != TAIL_BYTES:
                found.tail_problems.append(f"it has {len(data)} bytes, expected {TAIL_BYTES}")
        if not found.tail_problems:
            break
    work.did(TAIL, TAIL_BYTES)


def _segments(files: Files, folder: Path, work: Work, seen: Seen) -> list[SegmentLook]:
    names = list_segments(files, folder / "segments")
    sizes: dict[SegmentName, int] = {}
    for name in names:
        try:
            sizes[name] = files.size(folder / "segments" / str(name))
        except FileNotFoundError:
            sizes[name] = -1
        if name not in seen:
            work.expect(max(0, sizes[name]))
    looks = []
    for name in names:
        path = folder / "segments" / str(name)
        if name not in seen:
            try:
                seen[name] = look_at_segment(files, path, name)
            except FileNotFoundError:  # trimmed meanwhile, or so the checkpoint will have to say
                looks.append(SegmentLook(name, path, -1))
                continue
            work.did(path.name, seen[name].size)
        looks.append(seen[name])
    return looks


def _read_checkpoint(files: Files, folder: Path, found: ShardSurvey, work: Work) -> None:
    path = folder / SHARD_CHECKPOINT
    try:
        found.checkpoint = ShardCheckpoint.read(files, folder)
        found.checkpoint_problem = _contradiction(found.checkpoint)
        if found.checkpoint_problem is not None:
            found.checkpoint = None
        work.did(path.name, files.size(path))
    except FileNotFoundError:
        found.checkpoint_problem = NO_CHECKPOINT
    except Corruption as problem:
        found.checkpoint_problem = problem.what
    except NewerVersion as problem:
        found.checkpoint_problem = str(problem)


def _contradiction(checkpoint: ShardCheckpoint) -> str | None:
    if len(checkpoint.shard_id) != 16:
        return f"the shard id has {len(checkpoint.shard_id)} bytes, expected 16"
    if min(checkpoint.trimmed, checkpoint.next_offset, checkpoint.next_segment_seq) < 0:
        return "a number in it is negative"
    if any(not 0 <= first < end for first, end in checkpoint.holes):
        return f"a lost or deleted range in it is none: {checkpoint.holes}"
    return None


def _list_others(files: Files, folder: Path, found: ShardSurvey) -> None:
    for place in (folder, folder / "segments", folder / "wal", folder / "torn", folder / FOLDER, folder / TRASH):
        for name in files.list(place) if files.is_folder(place) else ():
            if name.endswith(TEMPORARY_SUFFIX):
                found.temporary.append(place / name)
            elif not _is_ours(place.name, name):
                found.strange.append(place / name)


def _is_ours(place: str, name: str) -> bool:
    match place:
        case "segments":
            return parse_segment_name(name) is not None
        case "wal":
            return WalName.parse(name) is not None or name.startswith(SPARE_PREFIX)
        case "acks":
            return file_number(name) is not None or name == LOCK or name.endswith(DISTRUSTED_SUFFIX)
        case "trash":
            return IN_TRASH.fullmatch(name) is not None
    return True
