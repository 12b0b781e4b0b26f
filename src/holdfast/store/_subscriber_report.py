"""What a holder of a subscriber says of itself, and how the metrics are told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast import metrics
from holdfast.metrics import Sample


@dataclass(frozen=True, slots=True)
class SubscriberStatistics:
    """What this holder did so far, and what it has in hand."""

    delivered: int
    delivered_bytes: int
    acked: int
    nacked: int
    rejected: int
    retries: int
    deadline_misses: int
    in_flight: int
    retrying: int
    unwritten: int  # answers that wait to be written down


def report_subscriber(topic: str, name: str, statistics: SubscriberStatistics) -> Iterator[Sample]:
    """What a holder says of itself to the metrics."""
    labels = (topic, name)
    yield Sample(metrics.DELIVERED_BUNDLES, statistics.delivered, labels)
    yield Sample(metrics.DELIVERED_BYTES, statistics.delivered_bytes, labels)
    yield Sample(metrics.RETRIES, statistics.retries, labels)
    yield Sample(metrics.DEADLINE_MISSES, statistics.deadline_misses, labels)
    for outcome, count in (
        ("ack", statistics.acked),
        ("nack", statistics.nacked),
        ("rejected", statistics.rejected),
    ):
        yield Sample(metrics.OUTCOMES, count, (topic, name, outcome))
