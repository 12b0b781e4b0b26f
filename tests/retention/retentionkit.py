"""What the tests of retention share: segments by a few words, shards made of files, a store that does as it is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.config import Cap, RetentionSettings
from holdfast.files import Files
from holdfast.retention import Budget, Deleter, Doomed, SegmentFacts, Situation, plan
from holdfast.segment import segment_name
from holdfast.testing import FakeClock

SECOND = 10**9
STORE = Path("/store")
GB = 10**9


def segment(first: int, kind: str = "blocked", *, size: int = 10, second: int | None = None) -> SegmentFacts:
    """A segment of ten bundles from `first` on, ingested in that second.

    kind    words of: finished, blocked (somebody with `on_full: block` needs it), expendable, delivering
    """
    words = set(kind.split())
    at = (first if second is None else second) * SECOND
    return SegmentFacts(
        first,
        first + 10,
        size,
        (at, at),
        finished="finished" in words,
        held_by_block="blocked" in words,
        delivering="delivering" in words,
    )


def segments(*kinds: str, size: int = 10) -> list[SegmentFacts]:
    """One segment for each kind, ten offsets and ten seconds apart."""
    return [segment(place * 10, kind, size=size) for place, kind in enumerate(kinds)]


def situation(**values: Any) -> Situation:
    return Situation(**{"now_ns": 1000 * SECOND, "free_bytes": GB, "disk_bytes": GB, **values})


def settings(**values: Any) -> RetentionSettings:
    return RetentionSettings.model_validate(values)


def put(files: Files, path: Path, size: int) -> None:
    """A file of that many bytes."""
    files.make_folder(path.parent)
    file = files.create(path)
    file.append([b"x" * size])
    file.sync()
    file.close()
    files.sync_folder(path.parent)


@dataclass
class Worker:
    """A process as the store would run it: one shard, its segments, its budget."""

    town: Town
    shard: Path
    budget: Budget
    deleter: Deleter
    segments: list[SegmentFacts] = field(default_factory=list)
    next_offset: int = 0
    lost: list[SegmentFacts] = field(default_factory=list)  # unfinished segments that were deleted

    def path(self, first: int) -> Path:
        return self.shard / "segments" / segment_name(first // 10, first)

    def write(self, size: int, kind: str = "blocked") -> bool:
        """Write a segment if that is admitted; whether it was."""
        if not self.budget.admit(size).ok:
            return False
        put(self.town.files, self.path(self.next_offset), size)
        second = self.town.clock.now_ns() // SECOND
        self.segments.append(segment(self.next_offset, kind, size=size, second=second))
        self.next_offset += 10
        self.budget.settle()
        return True

    def finish(self, place: int) -> None:
        self.segments[place] = self.segments[place]._replace(finished=True, held_by_block=False, delivering=False)

    def sweep(self, rules: RetentionSettings, *, relieve: bool = True) -> None:
        """Ask for relief, look at what is asked of us, plan, delete, settle: what a sweeper does."""
        own = self.budget.relieve().own_bytes if relieve else 0
        request = self.budget.request()
        over = max(own, request.over_bytes if request else 0)
        asked = request.asked_bytes if request else 0
        self.carry_out(rules, over, asked)
        if request:
            self.budget.answered()
        self.budget.settle()

    def carry_out(self, rules: RetentionSettings, over: int, asked: int) -> int:
        free, disk = self.town.files.free_bytes(STORE)
        trash = self.deleter.trash
        made = plan(
            rules,
            self.segments,
            Situation(self.town.clock.now_ns(), free, disk, over, asked, trash_bytes=trash.total_bytes()),
        )
        freed = trash.empty(made.empty_trash_bytes).freed_bytes if made.empty_trash_bytes else 0
        report = self.deleter.delete(Doomed(self.path(each.first), each) for each in made.deletions)
        gone = {each.deletion.first for each in report.deleted}
        self.lost += [each for each in self.segments if each.first in gone and not each.finished]
        self.segments = [each for each in self.segments if each.first not in gone]
        return freed + report.freed_bytes


class Town:
    """Workers on one disk. It implements `Neighbours` for all of them."""

    def __init__(self, files: Files, clock: FakeClock, caps: dict[str, tuple[Cap, ...]]) -> None:
        self.files, self.clock, self.caps = files, clock, caps
        self.workers: dict[Path, Worker] = {}
        self.reclaimed: list[tuple[Path, int]] = []

    def worker(self, topic: str, number: int = 0) -> Worker:
        shard = STORE / topic / f"shard-{number:04d}"
        self.files.make_folder(shard / "segments")
        budget = Budget(self.files, self.clock, STORE, shard, self.caps[topic], neighbours=self)
        worker = self.workers[shard] = Worker(self, shard, budget, Deleter(self.files, self.clock, shard, shard.name))
        return worker

    def finished(self, shard: Path) -> Iterable[SegmentFacts]:
        return [each for each in self.workers[shard].segments if each.finished]

    def reclaim(self, shard: Path, wanted_bytes: int) -> int:
        self.reclaimed.append((shard, wanted_bytes))
        return self.workers[shard].carry_out(settings(steady_state_headroom=GB), 0, wanted_bytes)

    def segment_bytes(self) -> int:
        """What is on disk in segments and trash, by looking at each file."""
        found = 0
        for worker in self.workers.values():
            for folder in (worker.shard / "segments", worker.shard / "trash"):
                if self.files.is_folder(folder):
                    found += sum(self.files.size(folder / name) for name in self.files.list(folder))
        return found
