"""A subscriber against a plain model: appends, answers, pauses, deadlines, sealing, deaths, takeovers in any order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import holdfast as hf
from holdfast.errors import AlreadySettled, Fenced
from holdfast.store._delivery import Delivery
from holdfast.store._subscriber import Subscriber
from holdfast.testing import CrashMode, FakeClock, SimulatedFiles, crash
from store.storekit import TOPIC
from store.subkit import DEAD, numbers, put, simulated

WINDOW, MAX_RETRYING, MAX_ATTEMPTS, DEADLINE = 4, 3, 3, 100.0
PLACES = st.integers(0, 10**6)  # which of what there is
Place = tuple[int, int]  # shard, offset


class SubscriberMachine(RuleBasedStateMachine):
    """Two writers with a shard each; one subscriber, held by the first of them; everything said twice is checked."""

    def __init__(self) -> None:
        super().__init__()
        self.files, self.clock = SimulatedFiles(), FakeClock()
        self.lives = 0
        self.next = 0
        self.stored: dict[Place, int] = {}  # the number of each bundle
        self.final: set[Place] = set()
        self.rejected: set[Place] = set()
        self.tries: dict[Place, tuple[int, int]] = {}  # nacks, and failures among them
        self.begin()

    def begin(self) -> None:
        """Another life of both writers, and of the subscriber."""
        self.lives += 1
        self.stores = [simulated(self.files, self.clock, seed=10 * self.lives + each) for each in range(2)]
        self.topics = [store.topic(TOPIC, shard=number) for number, store in enumerate(self.stores)]
        for topic in self.topics:
            topic.positions()  # each writer makes its shard whole before it is asked for what is in it
        self.subscribe()

    def subscribe(self, **options: Any) -> None:
        self.sub: Subscriber = self.topics[0].subscribe(
            "lake", window=WINDOW, max_retrying=MAX_RETRYING, max_attempts=MAX_ATTEMPTS, deadline=DEADLINE,
            retry_initial=1, retry_max=4, **options,
        )  # fmt: skip
        self.paused = False
        self.topics[0].resume("lake")
        self.hand: dict[Place, Delivery] = {}
        self.lapsed: dict[Place, Delivery] = {}  # may still be answered
        self.expires: dict[Place, float] = {}
        self.due: dict[Place, tuple[float, float]] = {}  # when a retry may come at the earliest, and must at the latest
        self.seen: set[Place] = set()  # delivered to this holder

    # -- writers --------------------------------------------------------------------------------------------------

    @rule(shard=st.integers(0, 1), count=st.integers(1, 3))
    def append(self, shard: int, count: int) -> None:
        for offset in put(self.topics[shard], *range(self.next, self.next + count)):
            assert (shard, offset) not in self.stored, "a number was used twice"
            self.stored[shard, offset] = self.next
            self.next += 1
        self.sub.look_again()

    @rule(shard=st.integers(0, 1))
    def seal(self, shard: int) -> None:
        self.topics[shard].seal()

    @rule(seconds=st.sampled_from([0.4, 1.0, 5.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.sub.statistics()  # whoever asks, deadlines that have passed are seen to
        self.lapse()

    # -- taking ---------------------------------------------------------------------------------------------------

    def lapse(self) -> None:
        now = self.clock.monotonic()
        for place in [place for place, moment in self.expires.items() if moment <= now]:
            del self.expires[place]
            self.lapsed[place] = self.hand.pop(place)
            self.nacked(place, None, failed=False)

    def nacked(self, place: Place, retry_in: float | None, *, failed: bool) -> None:
        now, (tries, failures) = self.clock.monotonic(), self.tries.get(place, (0, 0))
        longest = min(4.0, 2.0**tries)
        self.due[place] = (now + longest / 2, now + longest) if retry_in is None else (now + retry_in, now + retry_in)
        self.tries[place] = tries + 1, failures + failed

    @rule(count=st.integers(1, 6))
    def take(self, count: int) -> None:
        taken = self.sub.take(count, timeout=0)
        now = self.clock.monotonic()
        assert len(taken) <= count
        assert not (taken and self.paused), "delivered although it is paused"
        fresh: dict[int, list[int]] = {0: [], 1: []}
        waiting = len(self.due)
        for each in taken:
            place = each.shard, each.offset
            assert numbers([each]) == [self.stored[place]]
            assert place not in self.final, f"{place} is final and was delivered again"
            assert place not in self.hand, f"{place} was delivered twice at once"
            assert each.attempt == self.tries.get(place, (0, 0))[0] + 1
            if place in self.seen:
                assert self.due.pop(place)[0] <= now + 1e-9, f"{place} came before its retry was due"
                self.lapsed.pop(place, None)
                waiting -= 1
            else:
                assert waiting < MAX_RETRYING, "new data although too much is to be retried"
                fresh[each.shard].append(each.offset)
            self.seen.add(place)
            self.hand[place] = each
            self.expires[place] = now + DEADLINE
        for shard, offsets in fresh.items():
            left = sorted(at for s, at in self.stored.keys() - self.final if s == shard and (s, at) not in self.seen)
            assert offsets == sorted(offsets), "out of order"
            assert not offsets or not left or offsets[-1] < left[0], "skipped"
        if len(taken) < count and not self.paused and len(self.hand) < WINDOW:
            assert all(latest > now - 1e-9 for _, latest in self.due.values()), "a retry that is due did not come"
            if len(self.due) < MAX_RETRYING:
                assert self.stored.keys() - self.final <= self.seen, "something new did not come"

    # -- answering ------------------------------------------------------------------------------------------------

    def pick(self, given: dict[Place, Delivery], which: int) -> tuple[Place, Delivery]:
        place = sorted(given)[which % len(given)]
        return place, given[place]

    def settled(self, place: Place) -> None:
        self.final.add(place)
        for known in (self.hand, self.lapsed, self.due, self.tries, self.expires):
            known.pop(place, None)

    @precondition(lambda self: self.hand)
    @rule(which=PLACES)
    def ack(self, which: int) -> None:
        place, held = self.pick(self.hand, which)
        held.ack()
        self.settled(place)
        with pytest.raises(AlreadySettled):
            held.nack("twice")

    @precondition(lambda self: self.lapsed)
    @rule(which=PLACES)
    def ack_late(self, which: int) -> None:
        place, held = self.pick(self.lapsed, which)
        held.ack()
        self.settled(place)

    @precondition(lambda self: self.lapsed)
    @rule(which=PLACES)
    def nack_late(self, which: int) -> None:
        place, held = self.pick(self.lapsed, which)
        held.nack("late", transient=True)
        del self.lapsed[place]

    @precondition(lambda self: self.hand)
    @rule(which=PLACES, retry_in=st.sampled_from([None, 0.0, 2.0]), transient=st.booleans())
    def nack(self, which: int, retry_in: float | None, transient: bool) -> None:
        place, held = self.pick(self.hand, which)
        held.nack("away", retry_in, transient=transient)
        if not transient and self.tries.get(place, (0, 0))[1] + 1 == MAX_ATTEMPTS:
            self.rejected.add(place)
            self.settled(place)
        else:
            del self.hand[place], self.expires[place]
            self.nacked(place, retry_in, failed=not transient)

    @precondition(lambda self: self.hand)
    @rule(which=PLACES)
    def reject(self, which: int) -> None:
        place, held = self.pick(self.hand, which)
        held.reject("bad row")
        self.rejected.add(place)
        self.settled(place)

    # -- lives ----------------------------------------------------------------------------------------------------

    @rule(pause=st.booleans())
    def pause_or_resume(self, pause: bool) -> None:
        self.paused = pause
        (self.topics[1].pause if pause else self.topics[1].resume)("lake")
        self.sub.look_again()

    @rule()
    def next_holder(self) -> None:
        self.sub.flush(sync=True)  # closing writes answers, and a power cut may still take those
        self.sub.close()
        self.subscribe()

    @rule()
    def takeover(self) -> None:
        first = self.sub
        first.flush(sync=True)
        self.subscribe(takeover=True)
        with pytest.raises(Fenced):
            first.take(1, timeout=0)
        first.close()

    @rule(mode=st.sampled_from([None, CrashMode.KILLED, CrashMode.LOST, CrashMode.KEPT]))
    def next_life(self, mode: CrashMode | None) -> None:
        self.sub.flush(sync=True)
        after = (
            self.files if mode is None else self.files.kill() if mode is CrashMode.KILLED else crash(self.files, mode)
        )
        for store in self.stores:
            store.close()
        self.files = after
        self.begin()

    # -- always ---------------------------------------------------------------------------------------------------

    @invariant()
    def bounded(self) -> None:
        counts = self.sub.statistics()
        assert counts.in_flight <= WINDOW
        assert counts.retrying <= MAX_RETRYING + WINDOW

    @invariant()
    def watermark_is_the_lowest_unfinished(self) -> None:
        self.sub.flush()
        view = self.topics[0].subscribers()["lake"]
        for shard, each in view.shards.items():
            offsets = [offset for number, offset in self.stored if number == shard]
            unfinished = [offset for offset in offsets if (shard, offset) not in self.final]
            assert each.watermark == min(unfinished, default=max(offsets, default=-1) + 1)
            assert each.lag == len(unfinished)
            assert each.rejected == sum(number == shard for number, _ in self.rejected)

    def teardown(self) -> None:
        """Whatever happened: the rest can be drained, and every rejected bundle is kept once."""
        self.sub.close()
        self.subscribe()
        left = self.stored.keys() - self.final
        while left:
            taken = self.sub.take(100, timeout=0)
            assert {(each.shard, each.offset) for each in taken} <= left
            assert taken, f"{left} never came"
            for each in taken:
                each.ack()
                left = left - {(each.shard, each.offset)}
        store: hf.Store = self.stores[0]
        if self.rejected:
            kept = [each.attributes["holdfast.dead"] for each in store.topic(DEAD).bundles()]
            assert sorted((each["shard"], each["offset"]) for each in kept) == sorted(self.rejected)
        for each_store in self.stores:
            each_store.close()


def check(examples: int, steps: int, **options: Any) -> None:
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    run_state_machine_as_test(
        SubscriberMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=phases,
            **options,
        ),
    )


def test_subscriber_does_what_the_model_says() -> None:
    """Whatever is done in whatever order, deliveries, attempts, watermarks and dead letters are those of the model."""
    check(25, 30, derandomize=True)


@pytest.mark.long
def test_subscriber_does_what_the_model_says_for_long() -> None:
    """The same with other choices each time."""
    check(400, 60)
