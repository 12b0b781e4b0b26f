"""`acks.checkpoint`: the state that a shard's ack files begin with. Written under the exclusive lock alone."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from holdfast.acks._state import AckState
from holdfast.acks.format import CHECKPOINT
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint


@dataclass(frozen=True, slots=True)
class AckCheckpoint:
    """What was recorded in every file below `replay_from`, and how much of it was damaged."""

    state: AckState
    replay_from: int
    damage_count: int = 0
    damage_bytes: int = 0

    def write(self, files: Files, folder: Path, shard_id: bytes, keep: Collection[int]) -> None:
        """Replace the checkpoint in the shard's folder; on return it is durable."""
        document = {
            "kind": "acks",
            "shard_id": shard_id.hex(),
            "replay_from": self.replay_from,
            "damage": [self.damage_count, self.damage_bytes],
            **self.state.to_document(keep),
        }
        write_checkpoint(files, folder / CHECKPOINT, document)

    @classmethod
    def read(cls, files: Files, folder: Path, shard_id: bytes) -> AckCheckpoint | None:
        """`None` if there is none yet; raises `Corruption` or `NewerVersion`."""
        path = folder / CHECKPOINT
        try:
            document = read_checkpoint(files, path)
        except FileNotFoundError:
            return None
        try:
            if document["kind"] != "acks" or document["shard_id"] != shard_id.hex():
                raise ValueError(f"it is of kind {document['kind']!r} and shard {document['shard_id']!r}")
            count, damaged = document["damage"]
            return cls(AckState.from_document(document), int(document["replay_from"]), int(count), int(damaged))
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise Corruption(path, 20, f"not the ack checkpoint of shard {shard_id.hex()}: {problem!r}") from None
