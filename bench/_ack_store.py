"""What the benchmarks of acknowledgements share: silent logs, subscribers that pin or drain, small bundles."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog

from holdfast.acks import Outcome, OutcomeRecord

# One segment that never fills by itself: what is sealed, and when, is up to the benchmark.
UNSEALED: Final[Mapping[str, Any]] = {"buffer": {"segment": {"target_size": "64GB", "max_open_duration": "24h"}}}
_POLL_SECONDS: Final = 0.0005
_PATIENCE_SECONDS: Final = 60.0
_names = itertools.count()


class NotDone(Exception):
    """What was waited for did not come about."""


def quiet() -> None:
    """Standard output is for the findings alone."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@contextmanager
def subscribed(topic: Any, **settings: Any) -> Iterator[Any]:
    """A subscriber that is new, and gone afterwards."""
    name = f"drain-{next(_names)}"
    try:
        with topic.subscribe(name, **settings) as subscriber:
            yield subscriber
    finally:
        topic.remove(name)


def ack_all(topic: Any, name: str) -> None:
    """Everything that is in the topic's only shard, with one range."""
    (number, (start, end)), *_ = topic.positions().items()
    subscriber = topic.subscribers()[name].registration.number
    topic.acks(number).append([OutcomeRecord.of_ranges(subscriber, Outcome.ACK, [(start, end)])])


def wait_until_deleted(topic: Any, count: int) -> None:
    """Until retention has deleted `count` files since the topic was opened."""
    end = time.perf_counter() + _PATIENCE_SECONDS
    while topic.sweeper.counts.files_deleted < count:
        if time.perf_counter() > end:
            raise NotDone(f"{topic.sweeper.counts.files_deleted} files deleted, expected {count}")
        time.sleep(_POLL_SECONDS)
