"""What a shard knows of itself that its WAL and segments cannot say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.store.layout import SHARD_CHECKPOINT

Range = tuple[int, int]  # of offsets, the end not included


@dataclass(frozen=True, slots=True)
class ShardCheckpoint:
    """Identity, what was trimmed, what was lost, and numbers that may never be given out again."""

    shard_id: bytes
    trimmed: int = 0  # everything below was deleted
    next_offset: int = 0  # numbering goes on at this one or above
    next_segment_seq: int = 0
    lost: tuple[Range, ...] = ()  # offsets whose append failed: they hold nothing, and never will
    deleted: tuple[Range, ...] = ()  # segments above what was trimmed that were deleted before older ones

    @property
    def holes(self) -> tuple[Range, ...]:
        """Where nothing is to be found, and nothing is missing."""
        return _joined((*self.lost, *self.deleted), self.trimmed) if self.deleted else self.lost

    def with_lost(self, ranges: Iterable[Range]) -> ShardCheckpoint:
        """Adds ranges; adjacent ones join, those below what was trimmed go."""
        return replace(self, lost=_joined((*self.lost, *ranges), self.trimmed))

    def without(self, ranges: Iterable[Range]) -> ShardCheckpoint:
        """These ranges deleted; as far as they follow what was trimmed, they count as trimmed."""
        deleted = _joined((*self.deleted, *ranges), self.trimmed)
        trimmed = self.trimmed
        for first, end in sorted((*deleted, *self.lost)):
            if first > trimmed:
                break
            trimmed = max(trimmed, end)
        return replace(self, trimmed=trimmed, deleted=_joined(deleted, trimmed), lost=_joined(self.lost, trimmed))

    def write(self, files: Files, folder: Path) -> None:
        document: dict[str, Any] = {
            "kind": "shard",
            "shard_id": self.shard_id.hex(),
            "trimmed": self.trimmed,
            "next_offset": self.next_offset,
            "next_segment_seq": self.next_segment_seq,
            "lost": [list(each) for each in self.lost],
        }
        if self.deleted:
            document["deleted"] = [list(each) for each in self.deleted]
        write_checkpoint(files, folder / SHARD_CHECKPOINT, document)

    @classmethod
    def read(cls, files: Files, folder: Path) -> ShardCheckpoint:
        path = folder / SHARD_CHECKPOINT
        document = read_checkpoint(files, path)
        try:
            return cls.from_document(document)
        except (KeyError, TypeError, ValueError) as problem:
            raise Corruption(path, 20, f"not a shard's checkpoint: {problem!r}") from None

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> ShardCheckpoint:
        return cls(
            bytes.fromhex(document["shard_id"]),
            int(document["trimmed"]),
            int(document["next_offset"]),
            int(document["next_segment_seq"]),
            tuple((int(first), int(end)) for first, end in document["lost"]),
            tuple((int(first), int(end)) for first, end in document.get("deleted", ())),
        )


def _joined(ranges: Iterable[Range], above: int) -> tuple[Range, ...]:
    """In order, overlapping and adjacent ones as one; without those that end at or below `above`."""
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if end <= above:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return tuple(joined)
