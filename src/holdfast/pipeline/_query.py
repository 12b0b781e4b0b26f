"""One sink: its subscriber, its streaming query, its failures. Other sinks are none of its business."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import structlog

from holdfast import metrics
from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import (
    DataLost,
    InputError,
    SchemaChanged,
    SinkRefused,
    SubscriberTaken,
    UnknownSlot,
    UnknownSubscriber,
)
from holdfast.files import Files
from holdfast.pipeline._backoff import Backoff
from holdfast.pipeline._frames import inputs_of, pruned, raw, streaming, transformed
from holdfast.pipeline._plan import is_stateful, topics_read
from holdfast.pipeline._run import Place, Run
from holdfast.pipeline.topology import Topology
from holdfast.sinks import SINKS, Sink, SinkIdentity
from holdfast.spark.causes import cause_of
from holdfast.store import Drain, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLLING_DELAY: Final = "100ms"  # between two questions whether there is more; by default Spark asks every 10 ms
TURN_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.2  # how often the thread beside a query looks after it
_log = structlog.get_logger("holdfast.pipeline")


class State(StrEnum):
    """What a sink is doing."""

    STARTING = "starting"
    WAITING = "waiting"  # for the first data of a source, whose columns are not known before
    RUNNING = "running"
    STANDING_BY = "standing by"  # another process has the subscriber
    HANGING = "hanging"  # a batch has outlasted its deadline; its call has not come back
    FAILING = "failing"  # it is started again after a while
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SinkHealth:
    """How a sink is. `lag` counts bundles that are durable and not acked."""

    state: State
    lag: int
    restarts: int
    error: str | None = None

    @property
    def healthy(self) -> bool:
        return self.state not in (State.HANGING, State.FAILING)

    def to_document(self) -> dict[str, Any]:
        """For `/healthz`."""
        return {"state": str(self.state), "lag": self.lag, "restarts": self.restarts, "error": self.error}


class SinkQuery:
    """Runs in a thread of its own from `start` to `stop`. `turn` is of all sinks of a driver: one starts at a time."""

    def __init__(
        self,
        name: str,
        topology: Topology,
        store: Store,
        spark: SparkSession,
        *,
        files: Files,
        clock: Clock,
        ids: Ids,
        accept_state_loss: bool,
        turn: threading.Lock,
    ) -> None:
        self.name = name
        self._turn = turn
        self._topology, self._spark = topology, spark
        self._settings = topology.sinks[name].settings
        self._accept_state_loss = accept_state_loss
        inputs = inputs_of(topology, name)
        self._place = Place(
            name,
            self._settings,
            store,
            {each.topic: store.topic(each.topic) for each in inputs},
            {each.topic: each.slot for each in inputs},
            topology.state / "queries" / name,
            files,
            clock,
            ids,
        )
        self._backoff = Backoff(self._settings.retry.initial, self._settings.retry.max, ids)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"sink {name}", daemon=True)
        self._state, self._restarts = State.STARTING, 0
        self._error: str | None = None
        self._started: Run | None = None

    def register(self) -> None:
        """Have the data kept that this sink is to get: before any source opens."""
        for topic in self._place.topics.values():
            topic.register(
                self.name,
                authoritative=self._settings.authoritative,
                on_full=self._settings.on_full,
                expire_after=self._settings.expire_after,
            )

    def start(self) -> None:
        self._thread.start()

    def health(self) -> SinkHealth:
        state, run = self._state, self._started
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stop.is_set():
            return SinkHealth(State.FAILING, self.lag(), self._restarts, "its thread has ended, which it never should")
        if state is State.RUNNING and run is not None and run.is_late:
            state = State.HANGING
        return SinkHealth(state, self.lag(), self._restarts, self._error)

    def lag(self) -> int:
        """Bundles that are durable and not acked."""
        total = 0
        for topic in self._place.topics.values():
            with suppress(UnknownSubscriber):  # it was removed: nothing is kept for it
                for shard in topic.shards():
                    total += max(0, shard.durable - topic.progress(self.name, shard.number).watermark)
        return total

    def ask_to_stop(self) -> None:
        """Stop after the batch that is under way."""
        self._stop.set()

    def stop(self, deadline: Deadline) -> bool:
        """Stop, and wait for it; did it end by the deadline?"""
        self._stop.set()
        if self._thread.ident is None:  # it was never started
            return True
        self._thread.join(deadline.remaining())
        return not self._thread.is_alive()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = 0.0
            try:
                self._attempt()
            except SubscriberTaken as taken:
                pause = self._settings.retry.initial
                self._note(State.STANDING_BY, str(taken))
            except Exception as problem:  # whatever it is, it stays here, and is tried again
                pause = self._failed(problem)
            self._stop.wait(pause)
        self._state = State.STOPPED

    def _failed(self, problem: Exception) -> float:
        """Say so; how long to wait before the next attempt."""
        kind, text = cause_of(problem)
        if self._stop.is_set():
            return 0.0
        self._restarts += 1
        if kind is SchemaChanged:
            _log.info("a query starts again with more columns", sink=self.name, why=text)
            metrics.PIPELINE_RESTARTS.inc(self.name, "schema")
            self._note(State.STARTING, None)
            return 0.0
        metrics.PIPELINE_RESTARTS.inc(self.name, "failure")
        lasting = kind is not None and issubclass(kind, InputError | DataLost)
        pause = self._settings.retry.max if lasting else self._backoff.after_failure()
        _log.warning("a sink failed, and is tried again", sink=self.name, error=text, seconds=round(pause, 1))
        self._note(State.FAILING, text)
        return pause

    def _note(self, state: State, error: str | None) -> None:
        self._state, self._error = state, error

    def _attempt(self) -> None:
        """From taking the lease to losing the query."""
        schemas = self._await_schemas()
        if schemas is None:
            return
        place, topology = self._place, self._topology
        with ExitStack() as held:
            drains: dict[str, Drain] = {}
            for name, topic in place.topics.items():
                topic.registration(self.name)  # one that was removed is not registered again behind anybody's back
                drains[name] = held.enter_context(topic.drain(self.name))
            sink: Sink = SINKS[self._settings.type].make(self._settings, place.files, place.clock, place.ids)
            held.callback(sink.close)
            identity = SinkIdentity(
                place.store.id, self.name, place.folder / "sink", store=topology.store, settings=topology.store_settings
            )
            sink.open(self._spark, identity)
            self._run_query(sink, drains, schemas)

    def _await_schemas(self) -> Mapping[str, Any] | None:
        """The columns of each topic; waits until something has been appended to it."""
        while not self._stop.is_set():
            try:
                return {name: topic.schema(self._place.slots[name]) for name, topic in self._place.topics.items()}
            except UnknownSlot:
                self._note(State.WAITING, None)
                self._stop.wait(LOOK_SECONDS)
        return None

    def _run_query(self, sink: Sink, drains: Mapping[str, Drain], schemas: Mapping[str, Any]) -> None:
        session = self._spark.newSession()
        inputs, empty = pruned(self._topology, self.name, session, schemas)
        run = Run(self._place, sink, drains, stateful=is_stateful(empty), succeeded=self._succeeded)
        self._started = run
        run.prepare(accept_state_loss=self._accept_state_loss)
        self._accept_state_loss = False  # once: what is lost from now on was not agreed to
        session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")  # each batch has a range of its own
        if not self._settings.low_latency:
            session.conf.set("spark.sql.streaming.pollingDelay", POLLING_DELAY)
        if run.stateful:
            frame = streaming(self._topology, self.name, session, inputs, run.options)
            self._expect_one_reader(frame)
        else:
            frame = raw(session, inputs, run.options)
        self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        writer = frame.writeStream.queryName(self.name).option("checkpointLocation", str(run.checkpoint))

        def batch(rows: DataFrame, number: int) -> None:
            run.batch(lambda: rows if run.stateful else transformed(self._topology, self.name, inputs, rows), number)

        with self._turn:
            query = writer.outputMode("append").foreachBatch(batch).start()
            self._await_planner(query)
        self._note(State.RUNNING, None)
        try:
            while query.isActive and not self._stop.wait(LOOK_SECONDS):
                run.look()
            if not query.isActive:
                query.awaitTermination(1)  # raises what ended it
                if run.failure is not None:
                    raise run.failure
        except Exception as problem:
            raise run.failure or problem from None
        finally:
            query.stop()

    def _await_planner(self, query: StreamingQuery) -> None:
        """Until it has asked for offsets once. Spark gives a planner 10 s to start: many at once would all be late."""
        end = Deadline(TURN_SECONDS, self._place.clock)
        while query.isActive and not end.passed() and not self._stop.is_set():
            if query.lastProgress is not None or query.status["message"].startswith(("Waiting", "Processing")):
                return
            self._stop.wait(LOOK_SECONDS)

    def _expect_one_reader(self, frame: DataFrame) -> None:
        """Spark keeps a position for each reader of a topic; the batch of a query can have but one."""
        read = sorted(topics_read(frame))
        if read != sorted(self._place.topics):
            raise SinkRefused(
                f"sink {self.name} keeps state, so its query must read each of its topics in one place; it reads "
                f"{', '.join(read) or 'none'}: write it as one query that names each of its inputs once"
            )

    def _succeeded(self) -> None:
        """A batch went through."""
        self._backoff.reset()
        self._error = None
        if self._state is not State.STOPPED:
            self._state = State.RUNNING
