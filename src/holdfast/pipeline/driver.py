"""The half of a pipeline that runs on Spark: a session, the runner of its queries, and how they are."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog

from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import ReopenRequired, WaitTimeout
from holdfast.files import Files
from holdfast.health import Health, HealthServer, Status
from holdfast.pipeline.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.pipeline.runner import Runner

DRAIN_SHARE: Final = 0.6  # of the time to stop in; the rest is for the queries and for Spark to end
QUERY_LOGGER: Final = (
    "SQLQueryContextLogger"  # PySpark's: it prints queries, and what came from the environment in them
)
LOOK_SECONDS: Final = 0.1  # between two looks whether everything is drained
_log = structlog.get_logger("holdfast.pipeline")


class Driver:
    """One Spark driver. With `drain` it ends when the sinks have all that is durable, within `drain_seconds`."""

    def __init__(
        self, topology: Topology, *, master: str | None = None, conf: Mapping[str, str] | None = None,
        accept_state_loss: bool = False, drain: bool = False, drain_seconds: float | None = None,
        files: Files, clock: Clock, ids: Ids, port: int = 0,
    ) -> None:  # fmt: skip
        self._topology = topology
        self._master = master or topology.spark.master
        self._conf = {**topology.spark.conf, **(conf or {})}
        self._accept_state_loss, self._drain, self._drain_seconds = accept_state_loss, drain, drain_seconds
        self._files, self._clock, self._ids, self._port = files, clock, ids, port
        self._session: SparkSession | None = None
        self._runner: Runner | None = None
        self._server: HealthServer | None = None
        self._status = Status.STARTING

    def start(self) -> str:
        """Start Spark and every query; on return each sink is registered. The address of `/metrics` and `/healthz`."""
        from holdfast.pipeline.runner import Runner
        from holdfast.spark import session

        self._server = HealthServer(self.health, port=self._port, clock=self._clock)
        logging.getLogger(QUERY_LOGGER).disabled = True
        self._session = session(f"holdfast {self._topology.file}", self._master, self._conf)
        runner = Runner(
            self._topology, self._session, files=self._files, clock=self._clock, ids=self._ids,
            accept_state_loss=self._accept_state_loss,
        )  # fmt: skip
        self._runner = runner
        runner.start()
        self._status = Status.OK
        return self._server.address

    def check(self) -> None:
        """Raises if Spark is gone: queries mend themselves, but not without it."""
        gateway = None if self._session is None else getattr(self._session.sparkContext, "_gateway", None)
        java = getattr(gateway, "proc", None)
        if java is not None and java.poll() is not None:
            raise ReopenRequired(
                f"Spark's Java process {java.pid} ended with {java.returncode}; the driver starts anew"
            )

    def health(self) -> Health:
        """How every sink is."""
        runner = self._runner
        if runner is None or self._status is not Status.OK:
            return Health(self._status)
        sinks = runner.health()
        parts = {
            name: {"status": str(Status.OK if sink.healthy else Status.FAILING), **sink.to_document()}
            for name, sink in sinks.items()
        }
        return Health(Status.OK if all(sink.healthy for sink in sinks.values()) else Status.FAILING, parts)

    def stop(self, deadline: Deadline) -> None:
        """Drain if that is wanted, then end the queries, then Spark. Raises the first thing that went wrong."""
        self._status = Status.STOPPING
        problems: list[Exception] = []
        for step in self._steps(deadline):
            try:
                step()
            except Exception as problem:  # the others are gone through all the same; raised below
                problems.append(problem)
        if problems:
            raise problems[0]

    def _steps(self, deadline: Deadline) -> list[Callable[[], Any]]:
        runner, steps = self._runner, list[Callable[[], Any]]()
        if runner is not None:
            steps.append(lambda: self._drained(runner, deadline))
        steps.append(lambda: self._end_spark(deadline))
        if self._server is not None:
            steps.append(self._server.close)
        return steps

    def _end_spark(self, deadline: Deadline) -> None:
        """The queries, then Spark. With a query that hangs it would hang too: then it ends with this process."""
        if self._runner is not None and not self._runner.stop(deadline):
            raise WaitTimeout("not every query ended in time; what it was at is delivered again by the next run")
        if self._session is not None:
            self._session.stop()

    def _drained(self, runner: Runner, deadline: Deadline) -> None:
        if not self._drain:
            return
        left = deadline.remaining()
        seconds = None if left is None else left * DRAIN_SHARE
        if self._drain_seconds is not None:
            seconds = self._drain_seconds if seconds is None else min(seconds, self._drain_seconds)
        end, pause = Deadline(seconds, self._clock), threading.Event()
        while not runner.drained():
            if end.passed():
                _log.warning("not everything was drained; the store keeps it", seconds=seconds)
                return
            pause.wait(LOOK_SECONDS)
