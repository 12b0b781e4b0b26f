"""Where the bytes come from that a cap is over by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from holdfast.retention._neighbours import Neighbours
from holdfast.retention._standing import Standing
from holdfast.retention._victims import oldest_finished


class Relief(NamedTuple):
    """Who frees how much."""

    own_bytes: int = 0  # for `Situation.over_bytes` of one's own shard
    ask: Mapping[Path, tuple[int, int]] = {}  # of live owners: (trash and finished, unfinished) bytes
    reclaim: Mapping[Path, int] = {}  # of shards without an owner: trash and finished bytes
    short_bytes: int = 0  # what trash and finished segments everywhere cannot cover
    freed_bytes: int = 0  # by `reclaim`


class _Choice:
    """What was chosen so far, shard by shard."""

    def __init__(self) -> None:
        self.trash: Counter[Path] = Counter()
        self.finished: Counter[Path] = Counter()
        self.segments: Counter[Path] = Counter()  # how many make up `finished`
        self.unfinished: Counter[Path] = Counter()

    def of(self, shard: Path) -> int:
        return self.trash[shard] + self.finished[shard] + self.unfinished[shard]


def choose(own: Path, standings: Sequence[Standing], neighbours: Neighbours) -> Relief:
    """Trash first, then the oldest finished segments of all, then unfinished ones; `standings` are the widest first.

    The narrowest level chooses first: what it takes lies under the wider ones too, and counts there.
    """
    choice = _Choice()
    short = 0
    for standing in reversed(standings):
        wanted = standing.over_bytes - sum(choice.of(shard.folder) for shard in standing.shards)
        wanted = _take_trash(choice, standing, wanted)
        wanted = _take_finished(choice, standing, wanted, neighbours)
        if wanted > 0:
            short += wanted
            _take_unfinished(choice, own, standing, wanted)
    live = standings[0].live if standings else frozenset()
    chosen = [shard for shard in {*choice.trash, *choice.finished, *choice.unfinished} if choice.of(shard) > 0]
    return Relief(
        own_bytes=choice.of(own),
        ask={
            shard: (choice.trash[shard] + choice.finished[shard], choice.unfinished[shard])
            for shard in chosen
            if shard != own and shard in live
        },
        reclaim={shard: choice.of(shard) for shard in chosen if shard not in live},
        short_bytes=short,
    )


def _take_trash(choice: _Choice, standing: Standing, wanted: int) -> int:
    for shard in standing.shards:
        there = max(0, min(wanted, shard.trash_bytes - choice.trash[shard.folder]))
        choice.trash[shard.folder] += there
        wanted -= there
    return wanted


def _take_finished(choice: _Choice, standing: Standing, wanted: int, neighbours: Neighbours) -> int:
    if wanted <= 0:
        return wanted
    left = {
        shard.folder: islice(neighbours.finished(shard.folder), choice.segments[shard.folder], None)
        for shard in standing.shards
    }
    for victim in oldest_finished(left, wanted):
        choice.finished[victim.shard] += victim.size
        choice.segments[victim.shard] += 1
        wanted -= victim.size
    return wanted


def _take_unfinished(choice: _Choice, own: Path, standing: Standing, wanted: int) -> None:
    """Of the shards above their even share, the one that is furthest first, down to that share; else of one's own."""
    above = {
        shard.folder: shard.total_bytes - choice.of(shard.folder) - standing.share_bytes
        for shard in standing.shards
        if shard.folder in standing.live
    }
    if not any(excess > 0 for shard, excess in above.items() if shard != own):
        choice.unfinished[own] += wanted
        return
    for shard, excess in sorted(above.items(), key=lambda each: (-each[1], each[0])):
        part = max(0, min(wanted, excess))
        choice.unfinished[shard] += part
        wanted -= part
