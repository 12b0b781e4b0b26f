"""What the budget must know and have done in other shards, for the store to provide."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from holdfast.retention._facts import SegmentFacts


class Neighbours(Protocol):
    """The shards under the same caps, one's own among them."""

    def finished(self, shard: Path) -> Iterable[SegmentFacts]:
        """The sealed segments that everyone has finished, oldest first; none if that cannot be told."""
        ...

    def reclaim(self, shard: Path, wanted_bytes: int) -> int:
        """Claim a shard that nobody holds, free so many bytes of trash and finished segments; how many it were.

        The plan for it has `asked_bytes=wanted_bytes`. If an owner came meanwhile, nothing is done and it was 0.
        """
        ...
