"""What a subscriber nacked, until it is due to be delivered again."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.clock import Ids
from holdfast.config import SubscriberSettings
from holdfast.store._lane import Lane


class Retry(NamedTuple):
    """A bundle that is due."""

    lane: Lane
    offset: int
    due: float


class Retries:
    """Of all lanes of one subscriber, whose mutex guards it."""

    def __init__(self, settings: SubscriberSettings, ids: Ids) -> None:
        self._settings, self._ids = settings, ids
        self.heap: list[tuple[float, int, int]] = []  # due, shard, offset; those no longer in `Lane.retrying` are void
        self.count = 0  # of bundles that wait

    def add(self, lane: Lane, offset: int, due: float) -> None:
        """Called with the mutex."""
        lane.retrying[offset] = due
        heapq.heappush(self.heap, (due, lane.shard.number, offset))
        self.count += 1

    def take(self, lanes: Mapping[int, Lane], now: float) -> Retry | None:
        """The first that is due, which waits no more; `None` if none is. Called with the mutex."""
        while self.heap and self.heap[0][0] <= now:
            due, shard, offset = heapq.heappop(self.heap)
            lane = lanes.get(shard)
            if lane is None or lane.retrying.get(offset) != due:  # answered late, or superseded
                continue
            del lane.retrying[offset]
            self.count -= 1
            return Retry(lane, offset, due)
        return None

    def pause(self, tries: int) -> float:
        """Twice as long each time, and somewhere in the upper half of that, so that retries do not come in crowds."""
        longest = min(self._settings.retry_max, self._settings.retry_initial * 2.0 ** min(tries, 60))
        return longest * (0.5 + int.from_bytes(self._ids.random_bytes(2), "little") / 131_072)
