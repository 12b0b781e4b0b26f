"""How far each subscriber is, what it holds back, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.acks import Progress
from holdfast.clock import Clock
from holdfast.errors import StorageError
from holdfast.store._follower import ShardFollower
from holdfast.store._shard import Shard
from holdfast.store._subscriptions import Shards, Subscriptions, progress_of
from holdfast.store.registry import Registration


@dataclass(frozen=True, slots=True)
class ShardView:
    """A subscriber's progress in one shard."""

    watermark: int
    durable: int
    gaps: int  # runs of finished bundles above the watermark
    finished_above: int  # bundles in them
    rejected: int
    dropped: int
    oldest_ns: int | None  # when the oldest unfinished bundle came in
    pinned_bytes: int  # in segments that it has not finished, and in what is not sealed yet

    @property
    def lag(self) -> int:
        """Bundles without a final outcome."""
        return max(0, self.durable - self.watermark - self.finished_above)


@dataclass(frozen=True, slots=True)
class SubscriberView:
    """A subscriber as `inspect` and the metrics show it."""

    registration: Registration
    holder: str | None
    shards: Mapping[int, ShardView]
    lag_seconds: float

    @property
    def lag_bundles(self) -> int:
        return sum(shard.lag for shard in self.shards.values())

    @property
    def pinned_bytes(self) -> int:
        return sum(shard.pinned_bytes for shard in self.shards.values())

    @property
    def pinned_since_ns(self) -> int | None:
        return min((shard.oldest_ns for shard in self.shards.values() if shard.oldest_ns is not None), default=None)


def views(topic: Shards, subscriptions: Subscriptions, clock: Clock) -> dict[str, SubscriberView]:
    registry = subscriptions.registry()
    shards = [shard for shard in topic.shards() if isinstance(shard, (Shard, ShardFollower))]
    for shard in shards:
        topic.acks(shard.number).refresh()
    found = {}
    for name, registration in sorted(registry.subscribers.items()):
        each = {shard.number: _view(topic, shard, registration) for shard in shards}
        oldest = min((view.oldest_ns for view in each.values() if view.oldest_ns is not None), default=None)
        lag = 0.0 if oldest is None else max(0.0, (clock.now_ns() - oldest) / 1e9)
        found[name] = SubscriberView(registration, subscriptions.holder(name), each, lag)
    return found


def _view(topic: Shards, shard: Shard | ShardFollower, registration: Registration) -> ShardView:
    with topic.acks(shard.number).lock:
        progress = progress_of(topic.acks(shard.number), registration, shard.number)
        watermark, durable = progress.watermark, shard.durable
        pinned = _pinned(shard, progress, durable)
        counts = progress.gap_count, progress.final_above, progress.rejected, progress.dropped
    return ShardView(watermark, durable, *counts, _oldest(shard, watermark), pinned)


def _oldest(shard: Shard | ShardFollower, watermark: int) -> int | None:
    """When the first unfinished bundle came in; if it cannot be read, by what is known of its segment."""
    try:
        span = shard.span(watermark, None)
        return None if span is None else next(iter(span.bundles(()))).ingestion_time_ns
    except StorageError:
        return next((facts.ingested[0] for facts in shard.facts() if facts.first <= watermark < facts.end), None)


def _pinned(shard: Shard | ShardFollower, progress: Progress, durable: int) -> int:
    """Bytes of the segments that have something unfinished in them, and of what is not sealed if that has."""
    total, sealed = 0, shard.start
    for facts in shard.facts():
        sealed = max(sealed, facts.end)
        if progress.next_unfinished(facts.first) < facts.end:
            total += facts.size
    if progress.next_unfinished(sealed) < durable:
        total += shard.unsealed_bytes()
    return total
