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
    trimmed: int = 0  # everything below was deleted on request
    next_offset: int = 0  # numbering goes on at this one or above
    next_segment_seq: int = 0
    lost: tuple[Range, ...] = ()  # offsets whose append failed: they hold nothing, and never will

    def with_lost(self, ranges: Iterable[Range]) -> ShardCheckpoint:
        """Adds ranges; adjacent ones join, those below what was trimmed go."""
        joined: list[Range] = []
        for first, end in sorted((*self.lost, *ranges)):
            if end <= self.trimmed:
                continue
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            else:
                joined.append((first, end))
        return replace(self, lost=tuple(joined))

    def write(self, files: Files, folder: Path) -> None:
        document = {
            "kind": "shard",
            "shard_id": self.shard_id.hex(),
            "trimmed": self.trimmed,
            "next_offset": self.next_offset,
            "next_segment_seq": self.next_segment_seq,
            "lost": [list(each) for each in self.lost],
        }
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
        )
