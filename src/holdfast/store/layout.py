"""The names in a store's folder.

<store>/store.checkpoint  store.lock
<store>/<namespace>/<topic>/topic.checkpoint  topic.lock  claims.lock  subscribers/  keys/
<store>/<namespace>/<topic>/shard-0000/shard.checkpoint  acks.checkpoint  LOCK  tail  wal/  segments/  acks/  torn/
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

STORE_CHECKPOINT: Final = "store.checkpoint"
STORE_LOCK: Final = "store.lock"
TOPIC_CHECKPOINT: Final = "topic.checkpoint"
TOPIC_LOCK: Final = "topic.lock"
CLAIMS_LOCK: Final = "claims.lock"  # while somebody finds out which shards nobody holds
SHARD_CHECKPOINT: Final = "shard.checkpoint"
LOCK: Final = "LOCK"  # the writer's
TAIL: Final = "tail"
WAL: Final = "wal"
SEGMENTS: Final = "segments"
ACKS: Final = "acks"
ACKS_LOCK: Final = "acks/LOCK"
TORN: Final = "torn"  # copies of torn tails

MAX_SHARDS: Final = 10_000  # of a topic: as many as four digits name
_SHARD: Final = re.compile(r"shard-(\d{4,})")


def shard_folder(topic: Path, number: int) -> Path:
    return topic / f"shard-{number:04d}"


def shard_number(name: str) -> int | None:
    """The number in a shard folder's name; `None` if it is no such name."""
    match = _SHARD.fullmatch(name)
    return None if match is None else int(match[1])
