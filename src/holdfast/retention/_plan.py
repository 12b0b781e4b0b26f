"""What a sweep of one shard deletes: a pure function of settings, segments and situation.

       rule          takes                                                            reason
    1  steady state  finished, but for the newest up to `steady_state_headroom`       finished
    2  age           finished and older than `max_age`; with `expire_unfinished`,     age
                     unfinished too
       -- the rest only under pressure: a cap is over, the disk too full, or there are too many segments --
    3a trash         what earlier deletions left there                                -
    3b finished      headroom protects no longer                                      size, free_disk, count
    3c expendable    unfinished, but only for subscribers with `on_full: drop`        size, free_disk, count
    4  unfinished    only with `size_cap_policy: drop_oldest`                         size, free_disk, count
    5  open segment  is sealed, so that the next sweep can take it by 3b, 3c or 4
       what is over then is backpressure

What a rule takes counts for all later ones, so that none takes too much. Inside a rule the oldest goes first. Of what
is unfinished, segments that are being delivered right now go last: rules 3c and 4 are gone through first without them
and then for them. An open segment that everyone has finished is sealed before anything unfinished goes.

A file in the trash still takes room. So what rules 1 and 2 take goes for good, oldest first, as far as bytes are wanted
and the trash had too few of them; and what is taken for bytes never goes to the trash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, TypeAlias

from holdfast.clock import breathe
from holdfast.config import RetentionSettings
from holdfast.retention._facts import SegmentFacts

Reason: TypeAlias = Literal["finished", "age", "size", "free_disk", "count"]

# A sweep that has more to do is told so and comes again: this bounds its memory and how late it notices new facts.
MAX_DELETIONS: Final = 1_000


class Deletion(NamedTuple):
    """One segment that is to go, and why."""

    first: int
    end: int
    size: int
    reason: Reason
    unfinished: bool  # each subscriber that needs it gets a synced `dropped` outcome first
    final: bool  # not into the trash
    age_seconds: float


class Shortfall(NamedTuple):
    """What no rule could bring under its bound: bytes, or segments for `count`."""

    reason: Reason
    amount: int


@dataclass(frozen=True, slots=True)
class Situation:
    """How things stand around a shard at one moment."""

    now_ns: int
    free_bytes: int  # on the volume
    disk_bytes: int  # that the volume has
    over_bytes: int = 0  # by which the caps are over, this shard's part: see `Relief.own_bytes`
    asked_bytes: int = 0  # of trash and finished segments that another shard asks for: see `Request`
    trash_bytes: int = 0  # in this shard's trash
    open: SegmentFacts | None = None  # the open segment, if there is anything in it


@dataclass(frozen=True, slots=True)
class Plan:
    """To be carried out in this order: empty trash, delete, seal."""

    empty_trash_bytes: int
    deletions: tuple[Deletion, ...]
    seal_open: bool
    still_over: tuple[Shortfall, ...]
    more: bool  # the plan was cut at its limit: carry it out and plan again at once


def plan(
    settings: RetentionSettings,
    segments: Sequence[SegmentFacts],
    situation: Situation,
    *,
    limit: int = MAX_DELETIONS,
) -> Plan:
    """What is to be deleted of `segments` (oldest first), by the order of precedence at the top of this module."""
    draft = _Draft(settings, situation, len(segments), limit)
    for place, facts in _beyond_headroom(segments, settings.steady_state_headroom):
        if not draft.take(place, facts, "finished"):
            return draft.cut()
    for place, facts in _expired(segments, settings, situation.now_ns):
        if place not in draft and not draft.take(place, facts, "age"):
            return draft.cut()
    if not draft.press(segments, lambda facts: facts.finished, asked=True):
        return draft.cut()
    # The open segment, once sealed, is finished data too: it goes before anything unfinished does.
    seal_finished = situation.open is not None and situation.open.finished and draft.bytes_wanted() > 0
    coming = situation.open.size if situation.open is not None and seal_finished else 0
    for group in _unfinished_groups(drop_oldest=settings.size_cap_policy == "drop_oldest"):
        if not draft.press(segments, group, coming=coming):
            return draft.cut()
    return draft.done(seal=seal_finished or draft.would_take_open())


def _beyond_headroom(segments: Sequence[SegmentFacts], headroom: int) -> Iterator[tuple[int, SegmentFacts]]:
    """Finished segments, oldest first, without the newest ones that fit into `headroom`."""
    place = len(segments)
    if headroom:
        for facts in breathe(reversed(segments), every=25):
            headroom -= facts.size if facts.finished else 0
            if headroom < 0:
                break
            place -= 1
    return ((at, facts) for at, facts in breathe(enumerate(segments), every=25) if at < place and facts.finished)


def _expired(
    segments: Sequence[SegmentFacts], settings: RetentionSettings, now_ns: int
) -> Iterator[tuple[int, SegmentFacts]]:
    if settings.max_age is None:
        return
    for place, facts in breathe(enumerate(segments), every=25):
        may_go = facts.finished or settings.expire_unfinished
        if may_go and age_seconds(facts, settings.age_by, now_ns) > settings.max_age:
            yield place, facts


def age_seconds(facts: SegmentFacts, age_by: str, now_ns: int) -> float:
    """How old the youngest bundle of a segment is; one without event times is as old as its ingestion says."""
    times = facts.event_time if age_by == "event" and facts.event_time is not None else facts.ingested
    return (now_ns - times[1]) / 1e9


def _unfinished_groups(*, drop_oldest: bool) -> Iterator[Callable[[SegmentFacts], bool]]:
    """Rules 3c and 4 for what is not being delivered, then the same for what is."""
    for delivering in (False, True):
        for held_by_block in (False, True) if drop_oldest else (False,):
            yield partial(_is_unfinished, held_by_block=held_by_block, delivering=delivering)


def _is_unfinished(facts: SegmentFacts, *, held_by_block: bool, delivering: bool) -> bool:
    return not facts.finished and facts.held_by_block == held_by_block and facts.delivering == delivering


class _Draft:
    """A plan in the making: what was taken so far, and what is wanted still."""

    def __init__(self, settings: RetentionSettings, situation: Situation, count: int, limit: int) -> None:
        self._settings, self._situation, self._limit = settings, situation, limit
        self._count = count
        self._taken: dict[int, Deletion] = {}
        self._disk_short = max(0, math.ceil(situation.disk_bytes * settings.min_free_disk) - situation.free_bytes)
        self._trash = min(situation.trash_bytes, max(situation.asked_bytes, situation.over_bytes, self._disk_short))
        self._freed = self._trash

    def __contains__(self, place: int) -> bool:
        return place in self._taken

    def bytes_wanted(self, *, asked: bool = False) -> int:
        """How many bytes are to be freed still; with `asked`, those for other shards count too."""
        goal = max(self._situation.over_bytes, self._disk_short, self._situation.asked_bytes if asked else 0)
        return max(0, goal - self._freed)

    def count_wanted(self) -> int:
        return max(0, self._count - len(self._taken) - self._settings.max_segments)

    def take(self, place: int, facts: SegmentFacts, reason: Reason) -> bool:
        """Put a segment on the list; `False` if the list is full."""
        if len(self._taken) == self._limit:
            return False
        final = self._settings.trash_age is None or self.bytes_wanted(asked=True) > 0
        self._freed += facts.size if final else 0
        age = age_seconds(facts, self._settings.age_by, self._situation.now_ns)
        self._taken[place] = Deletion(facts.first, facts.end, facts.size, reason, not facts.finished, final, age)
        return True

    def press(
        self,
        segments: Sequence[SegmentFacts],
        group: Callable[[SegmentFacts], bool],
        *,
        asked: bool = False,
        coming: int = 0,
    ) -> bool:
        """Take from `group`, oldest first, while bytes (but for those `coming`) or places are wanted."""
        for place, facts in breathe(enumerate(segments), every=25):
            reason = self._pressing(asked, coming)
            if reason is None:
                break
            if place not in self._taken and group(facts) and not self.take(place, facts, reason):
                return False
        return True

    def _pressing(self, asked: bool, coming: int) -> Reason | None:
        freed = self._freed + coming
        if max(self._situation.over_bytes, self._situation.asked_bytes if asked else 0) > freed:
            return "size"
        if self._disk_short > freed:
            return "free_disk"
        return "count" if self.count_wanted() else None

    def would_take_open(self) -> bool:
        """Whether bytes are wanted still and rules 3c or 4 would take the open segment."""
        facts = self._situation.open
        if facts is None or not self.bytes_wanted():
            return False
        return self._settings.size_cap_policy == "drop_oldest" or not facts.held_by_block

    def cut(self) -> Plan:
        return self._plan(seal=False, more=True)

    def done(self, *, seal: bool) -> Plan:
        return self._plan(seal=seal, more=False)

    def _plan(self, *, seal: bool, more: bool) -> Plan:
        left: tuple[Shortfall, ...] = (
            Shortfall("size", self._situation.over_bytes - self._freed),
            Shortfall("free_disk", self._disk_short - self._freed),
            Shortfall("count", self.count_wanted()),
        )
        still_over = tuple(each for each in left if each.amount > 0)
        return Plan(self._trash, tuple(self._taken.values()), seal, still_over, more)
