"""A subscriber at work: delivery in order, answers in any order, retries, deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from types import TracebackType
from typing import Final, Protocol

from holdfast.acks import Outcome, OutcomeRecord
from holdfast.bundle import RecordBundle
from holdfast.clock import Clock, Deadline, Ids
from holdfast.config import SubscriberSettings
from holdfast.errors import Closed, Fenced, HoldfastError, InputError, UnknownSubscriber
from holdfast.metrics import Reporter
from holdfast.store._delivery import Answer, Delivery, Rows
from holdfast.store._disk_error import disk_error
from holdfast.store._hand import Hand, tries
from holdfast.store._keeper import Keeper
from holdfast.store._lane import Lane
from holdfast.store._outbox import FLUSH_COUNT, Outbox
from holdfast.store._retries import Retries
from holdfast.store._span import PlacedBundle
from holdfast.store._subscriber_report import SubscriberStatistics
from holdfast.store._waiting import Waiting
from holdfast.store.dead_letters import rows_of_letters
from holdfast.store.lease import Lease
from holdfast.store.registry import Registration

MAX_UNWRITTEN: Final = 100_000  # a disk that takes no answers at all makes `ack` raise beyond this


class Home(Protocol):
    """What a subscriber asks of its topic."""

    @property
    def name(self) -> str: ...

    def lanes(self, registration: Registration, known: dict[int, Lane]) -> dict[int, Lane]: ...

    def is_for(self, registration: Registration, placed: PlacedBundle) -> bool: ...

    def bundle_of(self, placed: PlacedBundle, shard: int) -> RecordBundle: ...

    def dead_letter(
        self,
        registration: Registration,
        delivery: Delivery,
        attempts: int,
        reason: str,
        rows: Rows | None,
    ) -> None: ...

    @property
    def keeps_dead_letters(self) -> bool: ...

    def registration(self, name: str) -> Registration: ...

    def acks_written(self, shard: int) -> None: ...

    def left(self, subscriber: Subscriber) -> None: ...


class Subscriber:
    """Made by `Topic.subscribe`. Threads may share it; each bundle goes to one of them."""

    def __init__(
        self,
        home: Home,
        registration: Registration,
        lease: Lease,
        settings: SubscriberSettings,
        *,
        clock: Clock,
        ids: Ids,
        keeper: Keeper,
    ) -> None:
        self.name = registration.name
        self.settings = settings
        self._home, self._registration, self._lease = home, registration, lease
        self._clock = clock
        self._reading = threading.Lock()  # one thread at a time reads ahead
        self._mutex = threading.Lock()  # guards the rest
        self._waiting = Waiting(self._mutex)
        self._lanes: dict[int, Lane] = {}
        self._lanes_changed = True
        self._turn = 0
        self._outbox = Outbox(
            self.name, registration.number, lease, keeper, self._mutex,
            self._all_lanes, home.acks_written, self._end,
        )  # fmt: skip
        self._retries = Retries(settings, ids)
        self._hand = Hand(
            self, registration.number, settings, clock, self._retries,
            mutex=self._mutex, outbox=self._outbox, waiting=self._waiting, bundle_of=home.bundle_of,
        )  # fmt: skip
        self._ended: HoldfastError | None = None
        self.reporter: Reporter | None = None
        self._acked = self._rejected = self._retried = 0

    # -- take ---------------------------------------------------------------------------------------------------

    def take(self, count: int = 100, timeout: float | None = None) -> list[Delivery]:
        """Up to `count` deliveries, at least one unless `timeout` seconds pass first (`None`: wait for ever).

        Bundles of a shard come in offset order; a retry comes when it is due, whatever came after it meanwhile.
        """
        if count < 1:
            raise InputError(f"count is {count}; ask for one delivery at least")
        deadline: Deadline | None = None
        while True:
            news = self._waiting.news
            found = self._gather(count)
            if found:
                return found
            deadline = deadline or Deadline(timeout, self._clock)
            self.flush()
            self._wait(news, deadline)
            if deadline.passed():
                return self._gather(count)

    def _gather(self, count: int) -> list[Delivery]:
        try:
            with self._reading:
                return self._gather_all(count)
        except OSError as problem:
            raise disk_error(problem, f"subscriber {self.name}") from problem

    def _gather_all(self, count: int) -> list[Delivery]:
        self._expect_open()
        now = self._clock.monotonic()
        if self._hand.in_flight:
            self._hand.lapse(self._lanes.values(), now)
        if self._lanes_changed:
            self._find_lanes()
        if self._registration.paused:
            return []
        found: list[Delivery] = []
        if self._retries.heap:
            self._gather_retries(found, count, now)
        room = min(count - len(found), self.settings.window - self._hand.in_flight)
        if room > 0 and self._retries.count < self.settings.max_retrying:
            self._gather_new(found, room, now)
        return found

    def _gather_new(self, found: list[Delivery], room: int, now: float) -> None:
        """From each shard in turn, as much as it has."""
        lanes = list(self._lanes.values())
        for step in range(len(lanes)):
            lane = lanes[(self._turn + step) % len(lanes)]
            taken = self._read(lane, room, alone=not found)
            try:
                found += self._hand.deliver(lane, taken, now)
            except (HoldfastError, OSError):
                lane.rewind(taken[0].offset)
                if found:
                    break
                raise
            room -= len(taken)
            if room <= 0:
                break
        self._turn += 1

    def _read(self, lane: Lane, room: int, *, alone: bool) -> list[PlacedBundle]:
        """Bundles for this subscriber; one that cannot be read is told of when nothing else is left to hand out."""
        taken: list[PlacedBundle] = []
        is_for, registration, read = self._home.is_for, self._registration, lane.read
        try:
            while len(taken) < room and (placed := read()) is not None:
                if placed.attributes and not is_for(registration, placed):
                    self._pass(lane, placed.offset)
                else:
                    taken.append(placed)
        except (HoldfastError, OSError):
            if alone and not taken:
                raise
        if lane.noted:
            with self._mutex:
                self._outbox.add()
        return taken

    def _gather_retries(self, found: list[Delivery], count: int, now: float) -> None:
        while len(found) < count and self._hand.in_flight < self.settings.window:
            with self._mutex:
                retry = self._retries.take(self._lanes, now)
            if retry is None:
                return
            lane, offset, due = retry
            try:
                placed = lane.read_again(offset)
                again = [] if placed is None else self._hand.deliver(lane, [placed], now)
            except BaseException:
                with self._mutex:
                    self._retries.add(lane, offset, due)
                if found:
                    return
                raise
            self._retried += len(again)
            found += again

    def _pass(self, lane: Lane, offset: int) -> None:
        """Not meant for this subscriber: as good as acked."""
        with self._mutex:
            lane.acked.append(offset)
            self._outbox.add()

    def _find_lanes(self) -> None:
        self._lanes_changed = False
        self._check_lease()
        try:
            self._registration = self._home.registration(self.name)
        except UnknownSubscriber:
            problem = Fenced(f"subscriber {self.name!r} was removed; subscribe again to start anew")
            self._end(problem)
            raise problem from None
        lanes = self._home.lanes(self._registration, self._lanes)
        with self._mutex:
            self._lanes = lanes

    def _all_lanes(self) -> Iterable[Lane]:
        return self._lanes.values()

    def _check_lease(self) -> None:
        try:
            self._lease.check()
        except HoldfastError as problem:
            self._end(problem)
            raise

    def _wait(self, news: int, deadline: Deadline) -> None:
        """Until there may be something new, a retry is due, a deadline passes, or time runs out."""

        def until() -> float | None:
            remaining, due = deadline.remaining(), self._until_due()
            return due if remaining is None else remaining if due is None else min(due, remaining)

        self._waiting.wait(news, until)

    def _until_due(self) -> float | None:
        """Seconds until a retry is due or a deadline passes. Called with the mutex."""
        heap = self._retries.heap
        can_retry = heap and self._hand.in_flight < self.settings.window and not self._registration.paused
        moments = [heap[0][0]] if can_retry else []
        moments += [oldest.expires for lane in self._lanes.values() if (oldest := lane.oldest) is not None]
        return max(0.0, min(moments) - self._clock.monotonic()) if moments else None

    def nudge(self) -> None:
        """There may be something new. Called under the commit lock of a shard, so it does next to nothing."""
        waiting = self._waiting
        waiting.news += 1
        if waiting.threads or waiting.callbacks:
            waiting.wake_all()

    def look_again(self) -> None:
        """Shards or the registration may have changed."""
        self._lanes_changed = True
        self.nudge()

    # -- answers ------------------------------------------------------------------------------------------------

    def ack(self, delivery: Delivery) -> None:
        with self._mutex:
            if (delivery.answer is not Answer.OPEN or self._ended is not None) and self._is_moot(delivery):
                return
            self._hand.settle(delivery)
            delivery._lane.acked.append(delivery.offset)
            self._acked += 1
            unwritten = self._outbox.add()
        if unwritten >= MAX_UNWRITTEN:
            self.flush()
        elif unwritten >= FLUSH_COUNT:
            self._outbox.flush_late()

    def nack(self, delivery: Delivery, reason: str, retry_in: float | None, *, transient: bool) -> None:
        if retry_in is not None and not retry_in >= 0:
            raise InputError(f"retry_in is {retry_in}; it is a number of seconds, 0 or more")
        with self._mutex:
            if self._is_moot(delivery):
                return
            failures = tries(delivery._lane, delivery.offset)[1] + (not transient)
        if not transient and failures >= self.settings.max_attempts and self._home.keeps_dead_letters:
            self.reject(delivery, f"given up after {failures} failures: {reason}")
            return
        with self._mutex:
            if self._is_moot(delivery):
                return
            lapsed, delivery.answer = delivery.answer is Answer.LAPSED, Answer.ANSWERED
            if lapsed:  # silence was taken for a nack already
                return
            self._hand.put_back(delivery, Outcome.NACK if transient else Outcome.FAILED, reason, retry_in)
        self.nudge()

    def reject(self, delivery: Delivery, reason: str) -> None:
        """1. Keep a copy in the dead-letter topic, durable.   A crash now: it is delivered again; the copy is not made
           a second time.
        2. Write the outcome down, synced.                     A crash now: it is final.
        """
        with self._mutex:
            if self._is_moot(delivery):
                return
            attempts = tries(delivery._lane, delivery.offset)[0] + 1
        self._check_lease()
        self._home.dead_letter(self._registration, delivery, attempts, reason, None)
        with self._mutex:
            if self._is_moot(delivery):
                return
            self._hand.settle(delivery)
            number = self._registration.number
            record = OutcomeRecord.of_offsets(number, Outcome.REJECTED, [delivery.offset], reason=reason)
            delivery._lane.noted.append(record)
            self._rejected += 1
            self._outbox.add()
        self.flush(sync=True)

    def reject_rows(self, delivery: Delivery, slot: str, rows: Iterable[int], reason: str) -> None:
        parts = rows_of_letters(delivery.bundle, slot, rows)
        with self._mutex:
            if self._is_moot(delivery):
                return
            attempts = tries(delivery._lane, delivery.offset)[0] + 1
        self._check_lease()
        for part in parts:
            self._home.dead_letter(self._registration, delivery, attempts, reason, part)

    def _is_moot(self, delivery: Delivery) -> bool:
        """Does an answer to it count no more? Raises if it was answered before. Called with the mutex."""
        self._expect_open()
        delivery.expect_open()
        if delivery.answer is not Answer.MOOT:
            return False
        delivery.answer = Answer.ANSWERED
        return True

    # -- the rest -----------------------------------------------------------------------------------------------

    def flush(self, *, sync: bool = False) -> None:
        """Write down every answer given so far; with `sync`, durably. What cannot be written is kept for later."""
        self._expect_open()
        self._outbox.flush(sync=sync)

    def _end(self, problem: HoldfastError) -> None:
        with self._mutex:
            if self._ended is None:
                self._ended = problem
        self._waiting.end()

    def _expect_open(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)

    def delivering(self, shard: int) -> list[int]:
        """The offsets of a shard that are in hand."""
        with self._mutex:
            lane = self._lanes.get(shard)
            return [] if lane is None else list(lane.in_flight)

    def statistics(self) -> SubscriberStatistics:
        hand = self._hand
        if hand.in_flight and self._ended is None:
            # A deadline that passed shows, also if nobody takes any more.
            hand.lapse(self._lanes.values(), self._clock.monotonic())
        with self._mutex:
            return SubscriberStatistics(
                hand.delivered, hand.delivered_bytes, self._acked, hand.nacked, self._rejected, self._retried,
                hand.missed, hand.in_flight, self._retries.count, self._outbox.unwritten,
            )  # fmt: skip

    def close(self) -> None:
        """Write down what was answered and let go of the lease; what is unanswered is delivered to the next holder."""
        if isinstance(self._ended, Closed):
            return
        self._outbox.close()
        try:
            if self._ended is None:
                self.flush()
        finally:
            self._end(Closed(f"subscriber {self.name!r} is closed; subscribe again"))
            self._ended = Closed(f"subscriber {self.name!r} is closed; subscribe again")
            self._lease.release()
            self._home.left(self)

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries as they come, until the subscriber is closed."""
        with contextlib.suppress(Closed):
            while True:
                yield from self.take(1)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """The same, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        while not isinstance(self._ended, Closed):
            news = self._waiting.news
            found = self.take(1, timeout=0)
            for delivery in found:
                yield delivery
            if not found:
                await self._waiting.wait_in(loop, news, self._until_due)

    def __repr__(self) -> str:
        return f"<Subscriber {self.name!r} of {self._home.name}>"
