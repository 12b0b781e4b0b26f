"""A topic with subscribers and retention, by hypothesis, against plain sets of offsets.

Nothing happens by itself (`crash.still`), so after each step the model knows what every subscriber has finished and
what can be read. What a sweep takes is not foretold; it is held against what the rules allow it to take, and against
what they say must be gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

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

from crash.still import open_still, work
from holdfast.acks import Outcome
from holdfast.errors import Backpressure
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from store.storekit import TOPIC, append, contents

NAMES = ["lake", "audit"]
WHICH = st.integers(0, 100)
HAS_READERS = precondition(lambda self: bool(self.readers))
MAX_AGE = 100.0
SIZE_CAP = 30_000  # a segment of one bundle takes 3.6 kB, a WAL file 4 kB, and two segments are granted at a time
RULES: list[dict[str, Any]] = [
    {},
    {"steady_state_headroom": 5_000},
    {"max_age": MAX_AGE, "steady_state_headroom": "1GB"},
    {"max_age": MAX_AGE, "expire_unfinished": True},
    {"max_segments": 3},
    {"max_segments": 3, "size_cap_policy": "drop_oldest"},
    {"max_segments": 3, "size_cap_policy": "drop_oldest", "trash_age": 50.0},
    {"size_cap": SIZE_CAP, "size_cap_policy": "drop_oldest"},
    {"size_cap": SIZE_CAP},
]
Segment = tuple[int, int]


class Reader:
    """What the model knows of a subscriber."""

    def __init__(self, held: Any, start: int, finished: Iterable[int], on_full: str) -> None:
        self.held, self.start, self.on_full = held, start, on_full
        self.outcomes: dict[int, Outcome] = dict.fromkeys(finished, Outcome.ACK)
        self.hand: dict[int, Any] = {}

        self.late = False

    def has_finished(self, offset: int) -> bool:
        return offset < self.start or offset in self.outcomes

    def wanted(self, there: Iterable[int]) -> list[int]:
        return [offset for offset in there if not self.has_finished(offset) and offset not in self.hand]

    def take(self, count: int) -> dict[int, Any]:
        """What it is given, by offset; without what was given up while the subscriber was reading that very segment."""
        given = {delivery.offset: delivery for delivery in self.held.take(count, timeout=0)}
        late = [offset for offset in given if self.outcomes.get(offset) is Outcome.DROPPED]
        for offset in late:
            given.pop(offset).ack()  # changes nothing: the first final outcome stands
        self.held.flush()
        self.late = bool(late)
        self.hand |= given
        return given


class Retention(RuleBasedStateMachine):
    @initialize(rules=st.sampled_from(RULES))
    def start(self, rules: dict[str, Any]) -> None:
        self.clock, self.ids = FakeClock(), SequenceIds(1)
        self.files = SimulatedFiles(clock=self.clock)
        self.there: dict[int, int] = {}  # what can be read
        self.times: dict[int, int] = {}
        self.next = 0
        self.readers: dict[str, Reader] = {}
        self.dropped: dict[str, int] = {}  # as the sweeper counts
        self._open(rules)

    def _open(self, rules: dict[str, Any]) -> None:
        self.rules = rules
        buffer = {
            "segment": {"target_size": 4_000, "max_open_duration": "1d"},
            "wal": {"file_size": 4096, "max_size": 1_000_000, "flush_interval": "1h"},
            "append_timeout": 0,
            "subscriber": {"deadline": "1d"},
            "retention": {"min_free_disk": 0, **rules},
        }
        self.store = open_still(self.files, {"buffer": buffer}, self.clock, self.ids)
        self.topic = self.store.topic(TOPIC)
        self.topic.seal()  # takes the shard
        self.dropped = {}
        self._sweep()
        for name, reader in self.readers.items():
            reader.held, reader.hand = self.topic.subscribe(name), {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()

    # -- steps ----------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        for _ in range(count):
            if not self._append():
                return

    @rule(count=st.integers(1, 4))
    def append_segments(self, count: int) -> None:
        for _ in range(count):
            if not self._append():
                return
            self.topic.seal()

    def _append(self) -> bool:
        self._watch_over(lambda: work(self.store))  # a grant may be due, and may have to make room first
        try:
            receipt = append(self.topic, self.next)
        except Backpressure as refused:
            self._check_refusal(refused)
            return False
        self.topic.flush()
        receipt.wait(timeout=30)
        while (own := self.topic.own) is not None and own.has_work:
            own.seal_next()
        assert receipt.offset == self.next, "a number is used twice, or one is left out"
        self.there[receipt.offset], self.times[receipt.offset] = self.next, self.clock.now_ns()
        self.next += 1
        return True

    def _check_refusal(self, refused: Backpressure) -> None:
        """Appends wait only under a bound, and only while nothing more may go."""
        assert refused.retry_after > 0
        assert "max_segments" in self.rules or "size_cap" in self.rules
        if "max_segments" in self.rules:
            assert len(self.segments) > self.rules["max_segments"]

    @rule()
    def seal(self) -> None:
        self.topic.seal()

    @precondition(lambda self: len(self.readers) < len(NAMES))
    @rule(start=st.sampled_from(["earliest", "latest", 3]), on_full=st.sampled_from(["block", "block", "drop"]))
    def subscribe(self, start: Any, on_full: str) -> None:
        name = next(name for name in NAMES if name not in self.readers)
        start = min(start, self.next) if isinstance(start, int) else start
        held = self.topic.subscribe(name, start, on_full=on_full)
        begin = self.next if start == "latest" else self.topic.positions()[0][0]
        if isinstance(start, int):
            begin = max(begin, start)
        gone = set(range(begin, self.next)) - self.there.keys()
        self.readers[name] = Reader(held, begin, gone, on_full)
        self.dropped.pop(name, None)
        if self.topic.sweeper is not None:
            self.topic.sweeper.counts.bundles_dropped.pop(name, None)

    def _pick(self, which: int) -> Reader:
        return list(self.readers.values())[which % len(self.readers)]

    @HAS_READERS
    @rule(which=WHICH)
    def remove(self, which: int) -> None:
        name = list(self.readers)[which % len(self.readers)]
        if which % 3:  # seldom: it has to live for something to happen to it
            return
        self.topic.remove(name)
        del self.readers[name]

    @HAS_READERS
    @rule(which=WHICH, count=st.integers(1, 5))
    def take(self, which: int, count: int) -> None:
        reader = self._pick(which)
        wanted = reader.wanted(self.there)
        given = reader.take(count)
        assert given.keys() <= set(wanted)
        assert len(given) == min(count, len(wanted)) or reader.late
        for offset, delivery in given.items():
            assert delivery.bundle.attributes["id"] == self.there[offset]

    @HAS_READERS
    @rule(which=WHICH, answers=st.lists(st.tuples(WHICH, st.booleans()), min_size=1, max_size=4))
    def answer(self, which: int, answers: list[tuple[int, bool]]) -> None:
        reader = self._pick(which)
        if not reader.hand:
            reader.take(4)
        for place, nack in answers[: len(reader.hand)]:
            offset = sorted(reader.hand)[place % len(reader.hand)]
            delivery = reader.hand.pop(offset)
            if nack:
                delivery.nack("not now", retry_in=0, transient=True)
            else:
                delivery.ack()
                reader.outcomes.setdefault(offset, Outcome.ACK)
        reader.held.flush()

    @HAS_READERS
    @rule(which=WHICH)
    def ack_all(self, which: int) -> None:
        self._ack_all(self._pick(which))

    def _ack_all(self, reader: Reader) -> None:
        reader.take(10_000)
        for offset, delivery in reader.hand.items():
            delivery.ack()
            reader.outcomes.setdefault(offset, Outcome.ACK)
        reader.hand = {}
        reader.held.flush()

    @rule()
    def sweep(self) -> None:
        self._sweep()

    @rule(seconds=st.sampled_from([1.0, MAX_AGE / 2, MAX_AGE]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: self.next > 0)
    @rule(share=st.floats(0, 1.2))
    def truncate(self, share: float) -> None:
        before = int(self.next * share)
        self.topic.truncate(before)
        lost = {offset for offset in self.there if offset < before}
        for name, reader in self.readers.items():
            self._give_up(name, reader, lost)
        self._forget(lost)

    @rule(rules=st.sampled_from(RULES))
    def reopen_with_other_rules(self, rules: dict[str, Any]) -> None:
        self.store.close()
        self._open(rules)

    # -- what a sweep may and must do -------------------------------------------------------------------------------

    def _sweep(self) -> None:
        before = len(self.segments)
        given_up = self._watch_over(self.topic._upkeep.check)
        given_up += self._watch_over(lambda: work(self.store))
        self._check_nothing_is_left_that_must_go(given_up, before)

    @property
    def segments(self) -> list[Segment]:
        """The sealed ones that are there, oldest first."""
        assert self.topic.own is not None
        return [(facts.first, facts.end) for facts in self.topic.own.facts()]

    def _watch_over(self, action: Callable[[], None]) -> int:
        """Do something that may delete segments, and hold what it takes against the rules; how many were given up."""
        self.topic._upkeep._later = _raise  # type: ignore[method-assign]
        before, segments = set(self.there), self.segments
        if (sealed := segments[-1][1] if segments else min(before, default=self.next)) < self.next:
            segments.append((sealed, self.next))  # is perhaps sealed, and taken too
        action()
        gone = before - contents(self.topic).keys()
        taken = [each for each in segments if not gone.isdisjoint(range(*each))]
        assert gone == {offset for segment in taken for offset in range(*segment)} & before, "part of a segment is gone"
        unfinished = [each for each in taken if not self._is_finished(each)]
        for segment in unfinished:
            assert self._may_be_given_up(segment, len(segments)), f"{segment} was not finished"
        for name, reader in self.readers.items():
            self._give_up(name, reader, {offset for segment in taken for offset in range(*segment)})
        assert self.topic.sweeper is not None
        assert self.topic.sweeper.counts.bundles_dropped == self.dropped
        self._forget(gone)
        return len(unfinished)

    def _may_be_given_up(self, segment: Segment, count: int) -> bool:
        if self.rules.get("expire_unfinished") and self._age(segment) > MAX_AGE:
            return True
        pressed = "size_cap" in self.rules or ("max_segments" in self.rules and count > self.rules["max_segments"])
        if not pressed:
            return False
        blocked = not self.readers or any(
            reader.on_full == "block" and not self._has_finished(reader, segment) for reader in self.readers.values()
        )
        return self.rules.get("size_cap_policy") == "drop_oldest" or not blocked

    def _check_nothing_is_left_that_must_go(self, given_up: int, before: int) -> None:
        finished = [each for each in self.segments if self._is_finished(each)]
        if not self.rules.get("steady_state_headroom"):
            assert not finished, f"{finished} could have gone"
        if "max_age" in self.rules:
            old = [each for each in self.segments if self._age(each) > MAX_AGE]
            assert not [each for each in old if self.rules.get("expire_unfinished") or each in finished]
        if "max_segments" in self.rules:
            limit = self.rules["max_segments"]
            if self.rules.get("size_cap_policy") == "drop_oldest":
                assert len(self.segments) <= limit
            assert not given_up or len(self.segments) >= min(limit, before), "more was given up than needed"

    def _is_finished(self, segment: Segment) -> bool:
        return bool(self.readers) and all(self._has_finished(reader, segment) for reader in self.readers.values())

    def _has_finished(self, reader: Reader, segment: Segment) -> bool:
        return all(reader.has_finished(offset) for offset in range(*segment))

    def _age(self, segment: Segment) -> float:
        return (self.clock.now_ns() - max(self.times[offset] for offset in range(*segment))) / 1e9

    def _give_up(self, name: str, reader: Reader, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if not reader.has_finished(offset):
                reader.outcomes[offset] = Outcome.DROPPED
                self.dropped[name] = self.dropped.get(name, 0) + 1

    def _forget(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            del self.there[offset]

    @rule()
    def finish_everything(self) -> None:
        """Whoever is left gets exactly what it has not finished; then the disk is empty."""
        for reader in self.readers.values():
            wanted = reader.wanted(self.there)
            assert sorted(reader.take(10_000)) == wanted
            self._ack_all(reader)
        self.topic.seal()
        self._sweep()
        if self.readers and not self.rules.get("steady_state_headroom"):
            assert self.there == {}

    # -- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def what_can_be_read(self) -> None:
        if hasattr(self, "store"):
            assert contents(self.topic) == self.there

    @invariant()
    def what_is_finished(self) -> None:
        if not hasattr(self, "store"):
            return
        log = self.topic.acks(0)
        log.refresh()
        for reader in self.readers.values():
            progress = log.progress(reader.held._registration.number)
            progress.begin(reader.start)
            for offset in range(reader.start, self.next):
                assert progress.worst(offset, offset + 1) == reader.outcomes.get(offset), offset
            unfinished = (o for o in range(reader.start, self.next) if o not in reader.outcomes)
            assert progress.watermark == next(unfinished, max(reader.start, self.next))


def _raise(what: str, task: object, problem: Exception) -> None:
    raise problem


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Retention,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_retention_against_plain_sets() -> None:
    """In any order of steps: nothing goes that the rules keep, nothing stays that they take, and all is counted."""
    run(40, 40)


@pytest.mark.long
def test_retention_against_plain_sets_for_longer() -> None:
    """The same, many times over."""
    run(1500, 60)
