"""How a level stands against its cap, seen from one of its shards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.config import Cap
from holdfast.retention._claim import Claim
from holdfast.retention._usage import ShardUsage, Usage

WANT_SECONDS: Final = 2.0  # a worker that has not asked again for so long waits no more: that is several retries
_WANT_NS: Final = int(WANT_SECONDS * 1e9)


def level_number(cap: Cap) -> int:
    """0 for the store, 1 for a namespace, 2 for a topic."""
    return len(cap.folder.parts)


class Standing(NamedTuple):
    """The figures of one level."""

    cap: Cap
    committed_bytes: int  # on disk or promised; what this shard was promised itself is left out
    own_bytes: int  # of this shard, on disk
    share_bytes: int  # the cap divided by the number of live workers
    waiting_bytes: int  # what other live workers below their share wait for, this cap alone being in their way
    shards: tuple[ShardUsage, ...]
    live: frozenset[Path]  # the shards with a live worker, this one included

    @property
    def over_bytes(self) -> int:
        return max(0, self.committed_bytes - self.cap.size)

    @property
    def counted_bytes(self) -> int:
        """What stands against the cap when this shard asks: above its share, those that wait below theirs go first."""
        above = self.own_bytes >= self.share_bytes
        return self.committed_bytes + (self.waiting_bytes if above else 0)


def standing_of(cap: Cap, usage: Usage, own: Path, claims: Mapping[Path, Claim], now_ns: int) -> Standing:
    """The standing of a level with these bytes, in which other live workers have these claims."""
    share = cap.size // (1 + len(claims))
    own_bytes = promised = waiting = 0
    for shard in usage.shards:
        claim = claims.get(shard.folder)
        if shard.folder == own:
            own_bytes = shard.total_bytes
        elif claim is not None:
            promised += max(0, claim.limit - shard.total_bytes)
            here = claim.wanted_level == level_number(cap) and abs(now_ns - claim.wanted_at_ns) <= _WANT_NS
            waiting += claim.wanted if here and shard.total_bytes < share else 0
    committed = usage.total_bytes + promised
    return Standing(cap, committed, own_bytes, share, waiting, usage.shards, frozenset({*claims, own}))
