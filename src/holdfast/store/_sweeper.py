"""Retention of one shard that this process owns: `holdfast.retention` decides, this carries it out.

A sweep that deletes:

1. Make sure that the subscribers on record are durable. Lock the ack log exclusively and read it to its end; nobody can
   register or finish anything now, and the plan is made again from what is certain.
2. Of what is unfinished and goes all the same, write `dropped` outcomes for each subscriber that needs it, synced.
3. Sync the ack log: what it says is acted upon.
4. Sync a record in the shard that nothing of it is needed; readers no longer find it.
5. Let go of the lock and unlink the files. A crash before: the next writer finds them to be deleted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from holdfast.acks import AckLog, Outcome, OutcomeRecord, Progress
from holdfast.clock import Clock, breathe
from holdfast.config import BufferSettings, Cap
from holdfast.errors import Backpressure
from holdfast.files import Files
from holdfast.retention import (
    REQUEST,
    Budget,
    Deleter,
    Deletion,
    Doomed,
    Neighbours,
    Plan,
    Report,
    SegmentFacts,
    SegmentTable,
    Shortfall,
    Situation,
    plan,
)
from holdfast.store._shard import Shard
from holdfast.store._subscriptions import progress_of
from holdfast.store.registry import Registration, Registry
from holdfast.store.shard_checkpoint import Range
from holdfast.units import format_bytes

BUDGET = "size_cap"  # what blocks appends, as the shard calls it
PRESSURE = "retention"
FULL_LOOK_PAUSE: Final = 20  # times as long as the look took: at most a twentieth of one core
GRANTS: Final = 2  # a segment, and the WAL that holds its bundles until it is sealed
_log = structlog.get_logger("holdfast.retention")


@dataclass(slots=True)
class SweepCounts:
    """What was done so far, for the metrics."""

    evictions: dict[str, int] = field(default_factory=dict)  # by reason
    files_deleted: int = 0
    bytes_reclaimed: int = 0
    errors: int = 0
    emergencies: int = 0  # times that unfinished data had to go
    segments_dropped: int = 0
    bundles_dropped: dict[str, int] = field(default_factory=dict)  # by subscriber
    last_run_ns: int = 0


class Sweeper:
    """One for each shard that this process owns."""

    def __init__(
        self,
        shard: Shard,
        acks: AckLog,
        settings: BufferSettings,
        caps: Sequence[Cap],
        *,
        store: Path,
        files: Files,
        clock: Clock,
        registry: Callable[[], Registry],
        secure: Callable[[], None],
        is_secure: Callable[[], bool],
        delivering: Callable[[], Iterable[int]],
        neighbours: Neighbours,
    ) -> None:
        self._shard, self._acks, self._settings = shard, acks, settings
        self._files, self._clock = files, clock
        self._registry, self._delivering = registry, delivering
        self._secure, self._is_secure = secure, is_secure
        self._deleter = Deleter(files, clock, shard.folder, shard.name)
        self.capped = bool(caps)
        self.budget = Budget(
            files, clock, store, shard.folder, caps,
            neighbours=neighbours, min_free_disk=settings.retention.min_free_disk, who=shard.name,
        )  # fmt: skip
        self._next_full_look = 0.0
        self._is_short = False  # appends wait, because the last sweep could not make enough room
        self._granted_until = 0  # appended bytes up to which the budget has agreed
        self.counts = SweepCounts()

    # -- the budget ---------------------------------------------------------------------------------------------

    def spent(self) -> bool:
        """Bundles were appended: is half of the grant used up? Blocks appends once all of it is.

        Called under the commit lock.
        """
        if not self.capped:
            return False
        left = self._granted_until - self._shard.appended_bytes
        if left <= 0:
            self._block(BUDGET, "the size cap leaves no room; waiting for a grant", 0.1)
        return left < self._grant_size // 2

    @property
    def _grant_size(self) -> int:
        return GRANTS * self._settings.segment.target_size

    def ask_for_grant(self) -> float | None:
        """Ask the budget for more. Seconds after which to ask again, if it refuses; `None` if it agrees."""
        if not self.capped:
            return None
        verdict = self.budget.admit(self._grant_size)
        if verdict.ok:
            self._granted_until = self._shard.appended_bytes + self._grant_size
            self._shard.block(BUDGET, None)
            return None
        if self._granted_until <= self._shard.appended_bytes:
            self._block(BUDGET, verdict.reason, verdict.retry_after)
        return verdict.retry_after

    def _block(self, bound: str, why: str, retry_after: float) -> None:
        name = self._shard.name
        self._shard.block(
            bound,
            lambda: Backpressure(
                f"{name}: {why}; try again later, finish or remove slow subscribers, or raise the bound",
                retry_after=retry_after,
            ),
        )

    # -- sweeping -----------------------------------------------------------------------------------------------

    def sweep(self, *, asked_bytes: int = 0, pressed: bool = True) -> bool:
        """Delete what may go. True if there is more to do at once.

        Without `pressed`, only a look whether something was finished; what that costs is bounded.
        """
        self.counts.last_run_ns = self._clock.now_ns()
        if not pressed and not self._may_have_finished():
            return False
        request = self.budget.request() if self.capped and pressed else None
        relief = self.budget.relieve() if self.capped and pressed else None
        over = 0 if relief is None else relief.own_bytes
        if request is not None:
            over, asked_bytes = max(over, request.over_bytes), max(asked_bytes, request.asked_bytes)
        first_look = self._plan(over, asked_bytes)
        done = first_look
        if first_look.deletions:
            done = self._carry_out(over, asked_bytes)
        if done.empty_trash_bytes:
            self._deleter.trash.empty(done.empty_trash_bytes)
        self._deleter.trash.expire(self._clock.now_ns(), self._settings.retention.trash_age)
        if not first_look.deletions and self._deleter.failed:
            self._count(self._deleter.delete())
        if done.seal_open:
            self._shard.roll()
            self._shard.seal_next()
        if self.capped:
            if request is not None:
                self.budget.answered()
            if pressed or done.deletions or done.empty_trash_bytes:
                self.budget.settle(max(0, self._granted_until - self._shard.appended_bytes))
        self._press(done.still_over)
        return done.more or (done.seal_open and bool(done.still_over))

    @property
    def is_pressed(self) -> bool:
        """Is a bound reached, or does another worker ask for room? Cheap enough to be asked often."""
        if self._is_short or (self.capped and self._files.exists(self._shard.folder / REQUEST)):
            return True
        free, total = self._files.free_bytes(self._shard.folder)
        retention = self._settings.retention
        return free < total * retention.min_free_disk or self._shard.segment_count > retention.max_segments

    def _may_have_finished(self) -> bool:
        """Could a segment be finished that was not? False is certain, but for gaps that are looked at later."""
        held = self._held(list(self._registry().subscribers.values()))
        with self._shard.table_lock:
            table = self._shard.table()
            if not held or not len(table):
                return False
            first_end = table[0].end
        if all(not progress.gap_count for progress, _ in held):
            return min(progress.watermark for progress, _ in held) >= first_end
        now = self._clock.monotonic()
        if now < self._next_full_look:
            return False
        started = self._clock.monotonic()
        with self._shard.table_lock:
            found = any(_judge(facts, held, ())[0] for facts in self._shard.table())
        self._next_full_look = now + FULL_LOOK_PAUSE * (self._clock.monotonic() - started)
        return found

    def _press(self, still_over: Sequence[Shortfall]) -> None:
        """What no rule could bring under its bound makes appends wait; a cap does so through its grants."""
        self._is_short = bool(still_over)
        for shortfall in still_over:
            if shortfall.reason == "free_disk":
                self._block(PRESSURE, f"the disk is {format_bytes(shortfall.amount)} short of min_free_disk", 1.0)
                return
            if shortfall.reason == "count":
                self._block(PRESSURE, f"{shortfall.amount} segments more than max_segments", 1.0)
                return
        self._shard.block(PRESSURE, None)

    def _plan(self, over: int, asked: int) -> Plan:
        registrations = list(self._registry().subscribers.values())
        free, total = self._files.free_bytes(self._shard.folder)
        delivering = sorted(self._delivering())
        opened = self._shard.open_facts()
        with self._shard.table_lock:
            table = self._shard.table()
            self._mark(table, registrations, delivering)
            situation = Situation(
                self._clock.now_ns(), free, total,
                over_bytes=over, asked_bytes=asked, trash_bytes=self._deleter.trash.total_bytes(),
                open=None if opened is None else self._marked(opened, registrations, delivering),
            )  # fmt: skip
            return plan(self._settings.retention, table, situation)

    def _mark(self, table: SegmentTable, registrations: Sequence[Registration], delivering: Sequence[int]) -> None:
        held = self._held(registrations)
        for index in breathe(range(len(table)), every=25):
            facts = table[index]
            finished, by_block, in_hand = _judge(facts, held, delivering)
            table.mark(index, finished=finished, held_by_block=by_block, delivering=in_hand)

    def _marked(
        self, facts: SegmentFacts, registrations: Sequence[Registration], delivering: Sequence[int]
    ) -> SegmentFacts:
        finished, by_block, in_hand = _judge(facts, self._held(registrations), delivering)
        return facts._replace(finished=finished, held_by_block=by_block, delivering=in_hand)

    def _held(self, registrations: Sequence[Registration]) -> list[tuple[Progress, bool]]:
        """Each subscriber's progress, and whether it may hold data back."""
        number = self._shard.number
        return [(progress_of(self._acks, each, number), each.on_full == "block") for each in registrations]

    def _carry_out(self, over: int, asked: int) -> Plan:
        """Steps 1 to 5 at the top of this module."""
        self._secure()
        with self._acks.exclusive():
            final = self._plan(over, asked)
            if not final.deletions:
                return final
            if not self._is_secure():  # somebody changed them just now: look again
                return replace(final, deletions=(), more=True)
            ranges = [(each.first, each.end) for each in final.deletions]
            self._finish_lost(ranges)
            self._give_up([each for each in final.deletions if each.unfinished])
            self._acks.sync()
            paths = {_first_of(path): path for path in self._shard.delete(ranges)}
        for each in final.deletions:
            self.counts.evictions[each.reason] = self.counts.evictions.get(each.reason, 0) + 1
        doomed = [Doomed(paths[each.first], each) for each in final.deletions if each.first in paths]
        self._count(self._deleter.delete(doomed))
        return final

    def _give_up(self, deletions: Sequence[Deletion]) -> None:
        """Step 2."""
        if not deletions:
            return
        ranges = [(each.first, each.end) for each in deletions]
        self._record(self.dropping(ranges, f"retention: {deletions[0].reason}"))
        if any(each.reason != "age" for each in deletions):
            self.counts.emergencies += 1
        self.counts.segments_dropped += len(deletions)

    def _finish_lost(self, ranges: Sequence[Range]) -> None:
        """Offsets around `ranges` that never held anything are finished.

        They would otherwise be taken for deleted ones, once the record of them goes with their neighbours.
        """
        lost = self._shard.lost()
        if not lost or not ranges:
            return
        records = []
        for registration in self._registry().subscribers.values():
            progress = progress_of(self._acks, registration, self._shard.number)
            parts = [part for first, end in lost for part in progress.unfinished(first, end)]
            if parts:
                records.append(OutcomeRecord.of_ranges(registration.number, Outcome.ACK, parts))
        self._record(records)

    def _record(self, records: Sequence[OutcomeRecord]) -> None:
        if records:
            self._acks.append(records, sync=True)
            self._acks.refresh()

    def dropping(self, ranges: Sequence[Range], reason: str) -> list[OutcomeRecord]:
        """`dropped` for everything in `ranges` that a subscriber has not finished; counted and logged."""
        records = []
        for registration in self._registry().subscribers.values():
            progress = progress_of(self._acks, registration, self._shard.number)
            lost = [part for first, end in ranges for part in progress.unfinished(first, end)]
            if lost:
                count = sum(end - first for first, end in lost)
                records.append(OutcomeRecord.of_ranges(registration.number, Outcome.DROPPED, lost, reason=reason))
                before = self.counts.bundles_dropped.get(registration.name, 0)
                self.counts.bundles_dropped[registration.name] = before + count
                _log.warning(
                    "bundles given up before they were delivered",
                    shard=self._shard.name,
                    subscriber=registration.name,
                    bundles=count,
                    first=lost[0][0],
                    end=lost[-1][1],
                    reason=reason,
                )
        return records

    def truncate(self, before: int) -> int:
        """Delete everything below `before` on request; what is unfinished counts as dropped."""
        start = self._truncate(before)
        if self._is_short:  # appends may be waiting for just this
            self.sweep()
        return start

    def _truncate(self, before: int) -> int:
        while True:
            self._secure()
            with self._acks.exclusive():
                if not self._is_secure():  # somebody changed the subscribers just now
                    continue
                self._shard.flush()
                before = min(before, self._shard.durable)  # what comes later is not asked for
                if before > self._shard.start:
                    self._finish_lost([(self._shard.start, before)])
                    self._record(self.dropping([(self._shard.start, before)], "truncated on request"))
                    self._acks.sync()
                return self._shard.truncate(before)

    def _count(self, report: Report) -> None:
        self.counts.files_deleted += len(report.deleted)
        self.counts.bytes_reclaimed += report.freed_bytes
        self.counts.errors += len(report.failed)

    def close(self) -> None:
        self.budget.close()


def _judge(
    facts: SegmentFacts, held: Sequence[tuple[Progress, bool]], delivering: Sequence[int]
) -> tuple[bool, bool, bool]:
    """Finished by everyone; held by somebody who may; being delivered right now. `delivering` is sorted."""
    unfinished = [blocks for progress, blocks in held if progress.next_unfinished(facts.first) < facts.end]
    next_in_hand = bisect_left(delivering, facts.first)
    in_hand = next_in_hand < len(delivering) and delivering[next_in_hand] < facts.end
    return bool(held) and not unfinished, not held or any(unfinished), in_hand


def _first_of(path: Path) -> int:
    return int(path.stem.split("-")[1])
