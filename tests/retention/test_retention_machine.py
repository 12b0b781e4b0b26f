"""Plan and budget together, by hypothesis, against what can be seen on the disk.

Three workers in two topics share the store's cap. They are granted room, write, finish, deliver, sweep, die and come
back in any order. What must hold is checked with plain sums over files and lists.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.config import Cap, RetentionSettings
from holdfast.retention import SegmentFacts
from holdfast.testing import FakeClock, SimulatedFiles
from retention.retentionkit import SECOND, Town, Worker, put, segment
from retention.retentionkit import settings as retention

CAP = 100
SMALLEST, LARGEST = 20, 40  # a few segments reach the cap
SHARDS = [("a/x", 0), ("a/x", 1), ("b/y", 0)]
WORKERS = st.sampled_from(SHARDS)
SIZES = st.integers(SMALLEST, LARGEST)


class Retention(RuleBasedStateMachine):
    @initialize(
        drop_oldest=st.booleans(),
        headroom=st.sampled_from([1000, 50, 0]),
        trash=st.booleans(),
        expendable=st.booleans(),
    )
    def start(self, drop_oldest: bool, headroom: int, trash: bool, expendable: bool) -> None:
        self.rules: RetentionSettings = retention(
            size_cap_policy="drop_oldest" if drop_oldest else "backpressure",
            steady_state_headroom=headroom,
            trash_age="1h" if trash else None,
            min_free_disk=0,
        )
        self.kind = "expendable" if expendable else "blocked"
        self.clock = FakeClock()
        self.files = SimulatedFiles(clock=self.clock)
        cap = Cap("store", Path(), CAP)
        self.town = Town(self.files, self.clock, {"a/x": (cap,), "b/y": (cap,)})
        self.workers: dict[tuple[str, int], Worker] = {key: self.town.worker(*key) for key in SHARDS}
        self.granted: dict[tuple[str, int], int] = {}
        self.alive = set(SHARDS)

    def may_lose(self) -> bool:
        return self.rules.size_cap_policy == "drop_oldest" or self.kind == "expendable"

    @rule(key=WORKERS, size=SIZES)
    def ask(self, key: tuple[str, int], size: int) -> None:
        """A grant is given exactly while what is on disk or promised to others is not above the cap.

        A worker above its share may be refused before that, for one that waits below its own.
        """
        if key not in self.alive or key in self.granted:
            return
        committed = self.town.segment_bytes() + sum(self.granted.values())
        ok = self.workers[key].budget.admit(size).ok
        if ok:
            assert committed <= CAP
            self.granted[key] = size
        elif self.on_disk(key) < CAP // len(self.alive):
            assert committed > CAP

    def on_disk(self, key: tuple[str, int]) -> int:
        standing = self.workers[key].budget.standings()[0]
        return next(each.total_bytes for each in standing.shards if each.folder == self.workers[key].shard)

    @rule(order=st.permutations(SHARDS), sizes=st.lists(SIZES, min_size=3, max_size=3), rounds=st.integers(1, 3))
    def rush(self, order: list[tuple[str, int]], sizes: list[int], rounds: int) -> None:
        """Everybody asks, and only then does anybody write."""
        for _ in range(rounds):
            for key, size in zip(order, sizes, strict=True):
                self.ask(key, size)
            for place, key in enumerate(order):
                self.write(key, 1, delivering=place > 0)

    @rule(key=WORKERS, seconds=st.integers(0, 2), delivering=st.booleans())
    def write(self, key: tuple[str, int], seconds: int, delivering: bool) -> None:
        """Spend a grant."""
        if key not in self.granted:
            return
        self.clock.advance(seconds)
        worker, size = self.workers[key], self.granted.pop(key)
        put(self.files, worker.path(worker.next_offset), size)
        second = self.clock.now_ns() // SECOND
        kind = f"{self.kind} delivering" if delivering else self.kind
        worker.segments.append(segment(worker.next_offset, kind, size=size, second=second))
        worker.next_offset += 10

    @rule(key=WORKERS, at=st.integers(0, 100), delivering=st.booleans())
    def subscribers_move(self, key: tuple[str, int], at: int, delivering: bool) -> None:
        """Some segment is finished, or out for delivery."""
        worker = self.workers[key]
        if worker.segments:
            place = at % len(worker.segments)
            if delivering and not worker.segments[place].finished:
                worker.segments[place] = worker.segments[place]._replace(delivering=True)
            else:
                worker.finish(place)

    @rule(key=WORKERS, relieve=st.booleans())
    def sweep(self, key: tuple[str, int], relieve: bool) -> None:
        if key not in self.alive:
            return
        worker = self.workers[key]
        before, lost = list(worker.segments), len(worker.lost)
        worker.sweep(self.rules, relieve=relieve)
        worker.budget.settle(self.granted.get(key, 0))
        self.check_order(before, worker.segments, worker.lost[lost:])

    def check_order(self, before: list[SegmentFacts], after: list[SegmentFacts], lost: list[SegmentFacts]) -> None:
        left = {each.first for each in after}
        gone = [each.first for each in before if each.finished and each.first not in left]
        assert not gone or all(each.first > max(gone) for each in after if each.finished), "a newer one was taken first"
        if lost:
            assert self.may_lose()
            assert not any(each.finished for each in after), "unfinished data went before finished"
        if any(each.delivering for each in lost):
            assert not any(not each.delivering for each in after), "what was being delivered went first"

    @rule(key=WORKERS)
    def die_or_return(self, key: tuple[str, int]) -> None:
        """A worker ends with its grant unspent, or comes back to what is on disk."""
        old = self.workers[key]
        if key in self.alive:
            old.budget.close()
            self.alive.discard(key)
            self.granted.pop(key, None)
        else:
            new = self.workers[key] = self.town.worker(*key)
            new.segments, new.next_offset, new.lost = old.segments, old.next_offset, old.lost
            self.alive.add(key)

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: hasattr(self, "town"))
    @invariant()
    def the_cap_holds(self) -> None:
        """On disk and promised together exceed the cap by at most the one grant that crossed it."""
        assert self.town.segment_bytes() + sum(self.granted.values()) <= CAP + LARGEST

    @precondition(lambda self: hasattr(self, "town"))
    @invariant()
    def only_the_plan_deletes(self) -> None:
        """The files in `segments` are those that nobody deleted, and nothing needed is lost under `backpressure`."""
        for worker in self.workers.values():
            names = [worker.path(each.first).name for each in worker.segments]
            assert self.files.list(worker.shard / "segments") == names
            assert self.may_lose() or not worker.lost

    def teardown(self) -> None:
        """Once everything is finished, sweeps make room for everybody: nobody waits for ever."""
        if not hasattr(self, "town"):
            return
        for key in sorted(set(SHARDS) - self.alive):
            self.die_or_return(key)
        for worker in self.workers.values():
            for place in range(len(worker.segments)):
                worker.finish(place)
        rules = retention(trash_age=None, min_free_disk=0)
        for worker in self.workers.values():
            worker.sweep(rules)
            worker.deleter.trash.expire(self.clock.now_ns(), None)
            worker.budget.settle()
        assert self.town.segment_bytes() == 0
        assert all(worker.budget.admit(1).ok for worker in self.workers.values())


def run(examples: int, steps: int) -> None:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Retention,
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=quiet),
    )


def test_retention_machine() -> None:
    """No order of events breaks a promise of retention."""
    run(60, 40)


@pytest.mark.long
def test_retention_machine_at_length() -> None:
    """The same, for longer."""
    run(600, 80)
