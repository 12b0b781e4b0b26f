"""Which finished segments go first when several shards share a cap: the oldest, wherever it is."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.retention._facts import SegmentFacts


class Victim(NamedTuple):
    """A finished segment that is to make room."""

    shard: Path
    first: int
    end: int
    size: int


def oldest_finished(shards: Mapping[Path, Iterable[SegmentFacts]], wanted_bytes: int) -> list[Victim]:
    """The oldest finished segments of all shards (each oldest first) that together have `wanted_bytes`, or all."""
    victims = []
    for _, _, victim in heapq.merge(*(_dated(shard, facts) for shard, facts in shards.items())):
        if wanted_bytes <= 0:
            break
        victims.append(victim)
        wanted_bytes -= victim.size
    return victims


def _dated(shard: Path, segments: Iterable[SegmentFacts]) -> Iterator[tuple[int, str, Victim]]:
    """Victims with the time they are taken by; where the clock was set back, a shard's own order still holds."""
    latest = 0
    for facts in segments:
        if facts.finished:
            latest = max(latest, facts.ingested[0])
            yield latest, str(shard), Victim(shard, facts.first, facts.end, facts.size)
