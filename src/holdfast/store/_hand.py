"""What a subscriber has in hand: deliveries without an answer, and what waits to be delivered again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from holdfast.acks import Outcome, OutcomeRecord
from holdfast.bundle import RecordBundle
from holdfast.clock import Clock
from holdfast.config import SubscriberSettings
from holdfast.store._delivery import Answer, Delivery, Settler
from holdfast.store._lane import Lane
from holdfast.store._outbox import Outbox
from holdfast.store._retries import Retries
from holdfast.store._span import PlacedBundle
from holdfast.store._waiting import Waiting


class Hand:
    """`mutex` is the subscriber's, and guards it; the deliveries themselves stand in the lanes."""

    def __init__(
        self,
        settler: Settler,
        number: int,
        settings: SubscriberSettings,
        clock: Clock,
        retries: Retries,
        *,
        mutex: threading.Lock,
        outbox: Outbox,
        waiting: Waiting,
        bundle_of: Callable[[PlacedBundle, int], RecordBundle],
    ) -> None:
        self._settler, self._number, self._settings, self._clock = settler, number, settings, clock
        self._mutex, self._outbox, self._waiting, self._bundle_of = mutex, outbox, waiting, bundle_of
        self.retries = retries
        self.in_flight = 0
        self.delivered = self.delivered_bytes = self.nacked = self.missed = 0

    def deliver(self, lane: Lane, taken: Sequence[PlacedBundle], now: float) -> list[Delivery]:
        """Take these bundles of a lane in hand."""
        shard, expires = lane.shard.number, now + self._settings.deadline
        bundle_of, settler = self._bundle_of, self._settler
        tried = lane.has_attempts
        found = [
            Delivery(
                bundle_of(placed, shard),
                shard,
                placed.offset,
                1 + (tries(lane, placed.offset)[0] if tried else 0),
                expires,
                lane,
                settler,
            )
            for placed in taken
        ]
        with self._mutex:
            in_flight = lane.in_flight
            for delivery in found:
                in_flight[delivery.offset] = delivery
            self.in_flight += len(found)
            self.delivered += len(found)
            self.delivered_bytes += len(found) * lane.mean_size
        return found

    def settle(self, delivery: Delivery) -> None:
        """A final answer, perhaps a late one. Called with the mutex."""
        delivery.answer = Answer.ANSWERED
        lane, offset = delivery._lane, delivery.offset
        in_hand = lane.in_flight.pop(offset, None)
        if in_hand is not None:
            if in_hand is not delivery:  # it was handed out again meanwhile
                in_hand.answer = Answer.MOOT
            self.in_flight -= 1
            if self.in_flight == self._settings.window - 1 and self._waiting.threads:
                self._waiting.wake_threads()
        elif lane.retrying.pop(offset, None) is not None:
            self.retries.count -= 1
        if lane.attempts:
            lane.attempts.pop(offset, None)

    def put_back(self, delivery: Delivery, outcome: Outcome, reason: str, retry_in: float | None) -> None:
        """An answer that is not final: to be delivered again. Called with the mutex."""
        lane, offset = delivery._lane, delivery.offset
        if lane.in_flight.get(offset) is not delivery:  # delivered again since
            return
        tried, failed = tries(lane, offset)
        lane.attempts[offset] = tried + 1, failed + (outcome is Outcome.FAILED)
        del lane.in_flight[offset]
        self.in_flight -= 1
        pause = self.retries.pause(tried) if retry_in is None else retry_in
        self.retries.add(lane, offset, self._clock.monotonic() + pause)
        self.nacked += 1
        lane.noted.append(OutcomeRecord.of_offsets(self._number, outcome, [offset], reason=reason))
        self._outbox.add()

    def lapse(self, lanes: Iterable[Lane], now: float) -> None:
        """Silence until the deadline counts as a transient nack."""
        with self._mutex:
            for lane in lanes:
                while (oldest := lane.oldest) is not None and oldest.expires <= now:
                    oldest.answer = Answer.LAPSED
                    self.missed += 1
                    self.put_back(oldest, Outcome.NACK, "no answer before the deadline", None)


def tries(lane: Lane, offset: int) -> tuple[int, int]:
    """How often a bundle was nacked, and how often of these for good."""
    return lane.attempts.get(offset) or lane.progress.attempts(offset)
