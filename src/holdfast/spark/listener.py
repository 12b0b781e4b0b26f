"""Acks for queries that nobody runs for us."""

from __future__ import annotations

import json
import threading
from typing import Any

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast.errors import HoldfastError
from holdfast.spark._offsets import WHOSE, split_key
from holdfast.spark._stores import open_topic

_log = structlog.get_logger("holdfast.spark")


def acknowledge(spark: SparkSession) -> StreamingQueryListener:
    """From now on every query of this session that reads a topic for a subscriber acks each batch once it is done.

    Without it such a query acks a batch when it begins the next one, so its last batch only when it runs again.
    `spark.streams.removeListener` takes it back.
    """
    listener = Acknowledger()
    spark.streams.addListener(listener)
    return listener


class Acknowledger(StreamingQueryListener):
    """Spark calls it after the batch is in Spark's own log of commits."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        del event

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802  Spark's name
        del event

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        del event

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        for source in event.progress.sources:
            try:
                offset = json.loads(source.endOffset) if source.endOffset else {}
            except ValueError:
                continue  # another kind of source
            if isinstance(offset, dict) and "subscriber" in offset and "store" in offset:
                self._ack(offset)

    def _ack(self, offset: dict[str, Any]) -> None:
        subscriber = offset["subscriber"]
        try:
            with self._lock:
                for key, end in offset.items():
                    if key not in WHOSE:
                        name, shard = split_key(key)
                        topic = open_topic(offset["store"], name, offset.get("id"))
                        first = topic.progress(subscriber, shard).watermark
                        if first < end:
                            topic.acknowledge(subscriber, {shard: (first, end)})
        except HoldfastError as problem:  # the query itself meets it when it goes on
            _log.warning("a query's batch could not be acked", subscriber=subscriber, error=str(problem))
