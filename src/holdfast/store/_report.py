"""What a store's components say of themselves when somebody looks at the metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from holdfast import metrics
from holdfast.acks import AckLog, BatchStatus
from holdfast.metrics import Sample
from holdfast.retention import ShardUsage
from holdfast.store._shard import Shard
from holdfast.store._sweeper import Sweeper
from holdfast.store.views import SubscriberView


class Reported(Protocol):
    """What is asked of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def closing(self) -> bool: ...

    @property
    def sweeper(self) -> Sweeper | None: ...

    @property
    def own(self) -> Shard | None: ...

    def answered(self) -> Mapping[BatchStatus, int]: ...

    def ack_logs(self) -> Mapping[int, AckLog]: ...

    def usages(self) -> Mapping[int, ShardUsage]: ...

    def subscribers(self) -> Mapping[str, SubscriberView]: ...


def report_topic(topic: Reported) -> Iterator[Sample]:
    name = topic.name
    for status, count in topic.answered().items():
        yield Sample(metrics.FINALIZED_BATCHES, count, (name, status.value))
    if topic.own is not None:
        yield from _report_own(name, topic.own)
    if not topic.closing:  # what remains is about now, and for that files are read
        yield from _report_shards(topic)
        yield from _report_views(name, topic.subscribers())


def _report_own(topic: str, shard: Shard) -> Iterator[Sample]:
    """Of a shard that this process owns."""
    statistics, number = shard.statistics(), str(shard.number)
    yield Sample(metrics.APPEND_BUNDLES, statistics.commits.bundles, (topic,))
    yield Sample(metrics.APPEND_BYTES, statistics.commits.bytes, (topic,))
    yield Sample(metrics.INGEST_THROTTLE, statistics.commits.throttled, (topic,))
    yield Sample(metrics.WAL_BYTES, statistics.wal_bytes, (topic, number))
    yield Sample(metrics.OPEN_SEGMENT_BYTES, shard.unsealed_bytes(), (topic, number))


def _report_shards(topic: Reported) -> Iterator[Sample]:
    name, usages = topic.name, topic.usages()
    for number, usage in usages.items():
        yield Sample(metrics.SHARD_BYTES, usage.total_bytes, (name, str(number)))
    yield Sample(metrics.TOTAL_DISK_USAGE, sum(usage.total_bytes for usage in usages.values()), (name,))
    sweeper = topic.sweeper
    if sweeper is not None and topic.own is not None and sweeper.capped:
        own = usages[topic.own.number].total_bytes
        share = max(own / standing.share_bytes for standing in sweeper.budget.standings())
        yield Sample(metrics.SHARD_CAP_FRACTION, share, (name, str(topic.own.number)))
    for number, log in topic.ack_logs().items():
        statistics = log.statistics()
        yield Sample(metrics.ACK_LOG_BYTES, statistics.bytes, (name, str(number)))
        yield Sample(metrics.ACK_LOG_RECORDS, statistics.records, (name, str(number)))


def _report_views(topic: str, views: Mapping[str, SubscriberView]) -> Iterator[Sample]:
    for name, view in views.items():
        labels = (topic, name)
        yield Sample(metrics.LAG_BUNDLES, view.lag_bundles, labels)
        yield Sample(metrics.LAG_SECONDS, view.lag_seconds, labels)
        yield Sample(metrics.PINNED_BYTES, view.pinned_bytes, labels)
        yield Sample(metrics.PINNED_SINCE, view.lag_seconds if view.pinned_bytes else 0.0, labels)
        for shard, each in view.shards.items():
            yield Sample(metrics.GAP_SET_SIZE, each.gaps, (topic, str(shard), name))


def report_sweeper(topic: str, sweeper: Sweeper) -> Iterator[Sample]:
    """Of the retention of a shard that this process owns, or adopted for a moment."""
    counts = sweeper.counts
    for reason, count in counts.evictions.items():
        yield Sample(metrics.GC_EVICTIONS, count, (topic, reason))
    for subscriber, count in counts.bundles_dropped.items():
        yield Sample(metrics.SUBSCRIBER_DROPPED_BUNDLES, count, (topic, subscriber))
        yield Sample(metrics.OUTCOMES, count, (topic, subscriber, "dropped"))
    yield Sample(metrics.RETENTION_SIZE_EMERGENCY, counts.emergencies, (topic,))
    yield Sample(metrics.SEGMENT_DROPPED, counts.segments_dropped, (topic,))
    yield Sample(metrics.RETENTION_FILES_DELETED, counts.files_deleted, (topic,))
    yield Sample(metrics.RETENTION_BYTES_RECLAIMED, counts.bytes_reclaimed, (topic,))
    yield Sample(metrics.RETENTION_ERRORS, counts.errors, (topic,))
    yield Sample(metrics.RETENTION_LAST_RUN, counts.last_run_ns / 1e9, (topic,))
