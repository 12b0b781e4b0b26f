"""The driver's half of a pipeline: one streaming query for each sink, each by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import structlog

from holdfast import metrics
from holdfast.clock import Clock, Deadline, Ids, SystemClock, SystemIds
from holdfast.errors import InvalidPipeline
from holdfast.files import Files, SystemFiles
from holdfast.metrics import Reporter, Sample
from holdfast.pipeline._check_sql import check
from holdfast.pipeline._known import known_schemas
from holdfast.pipeline._query import SinkHealth, SinkQuery
from holdfast.pipeline.topology import Topology
from holdfast.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger("holdfast.pipeline")


class Runner:
    """Delivers from the topics of a topology to its sinks, from `start` to `stop`."""

    def __init__(
        self,
        topology: Topology,
        spark: SparkSession,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
        accept_state_loss: bool = False,
    ) -> None:
        self._topology, self._spark = topology, spark
        self._files = SystemFiles() if files is None else files
        self._clock = SystemClock() if clock is None else clock
        self._ids = SystemIds() if ids is None else ids
        self._accept_state_loss = accept_state_loss
        self._store: Store | None = None
        self._queries: dict[str, SinkQuery] = {}
        self._reporter: Reporter | None = None

    def start(self) -> None:
        """Check the SQL, register every sink, and begin to deliver; raises `InvalidPipeline`.

        On return everything that a source appends from now on is kept until each of its sinks has it.
        """
        topology = self._topology
        problems = check(topology, self._spark, known_schemas(topology))
        if problems:
            raise InvalidPipeline(topology.file, problems)
        with Store.open(topology.store, settings=topology.store_settings, files=self._files) as store:
            for name in topology.topics():
                store.topic(name)  # made, so that subscribers can be registered; no shard is taken
        # Read-only from here: the shards are for those who append.
        self._store = Store.open(topology.store, settings=topology.store_settings, read_only=True, files=self._files)
        turn = threading.Lock()
        self._queries = {
            name: SinkQuery(
                name, topology, self._store, self._spark,
                files=self._files, clock=self._clock, ids=self._ids, accept_state_loss=self._accept_state_loss,
                turn=turn,
            )
            for name in topology.sinks
        }  # fmt: skip
        for query in self._queries.values():
            query.register()
        self._warn_of_strangers(self._store)
        self._reporter = Reporter(self._report)
        for query in self._queries.values():
            query.start()

    def _warn_of_strangers(self, store: Store) -> None:
        """A sink that was taken out of the file still pins what it has not had."""
        for name in self._topology.topics():
            for subscriber in store.topic(name).subscribers():
                if subscriber not in self._topology.sinks:
                    _log.warning(
                        "a subscriber is not of this pipeline, and its data is kept for it",
                        topic=name, subscriber=subscriber, remove="holdfast subscribers remove",
                    )  # fmt: skip

    def _report(self) -> Iterator[Sample]:
        for name, health in self.health().items():
            yield Sample(metrics.PIPELINE_LAG, health.lag, (name,))
            yield Sample(metrics.PIPELINE_HEALTHY, int(health.healthy), (name,))

    def health(self) -> dict[str, SinkHealth]:
        """How each sink is."""
        return {name: query.health() for name, query in self._queries.items()}

    def drained(self) -> bool:
        """Has every sink had all that is durable now?"""
        return all(query.lag() == 0 for query in self._queries.values())

    def stop(self, deadline: Deadline) -> bool:
        """Stop every query after the batch that it is at; whether all ended by the deadline.

        What is left at the deadline ends with the process; it is delivered again.
        """
        for query in self._queries.values():
            query.ask_to_stop()
        ended = [query.stop(deadline) for query in self._queries.values()]
        if self._reporter is not None:
            self._reporter.close()
        if self._store is not None and all(ended):
            self._store.close()
        return all(ended)
