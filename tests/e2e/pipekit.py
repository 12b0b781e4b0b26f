"""A pipeline in this process, on the session that all tests share, and what tests ask of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import holdfast as hf
from e2e import oracle
from holdfast.clock import Deadline, SystemClock
from holdfast.pipeline._query import SinkHealth, State
from holdfast.pipeline.runner import Runner
from holdfast.pipeline.topology import Topology, load
from holdfast.sinks import SINKS, ConsoleSettings, Ranges, SinkKind, WriteResult
from store.storekit import until

TOPIC = "prod/logs"
PATIENCE = 240.0  # seconds; a busy machine takes its time to start a query
QUICK = "low_latency: true, retry: {initial: 50ms, max: 200ms}"
FILE = "pipeline.yaml"
APP = f"app: {{type: topic, topic: {TOPIC}, slot: {oracle.SLOT}}}"


def pipeline(folder: Path, sinks: str, *, sources: str = APP, transforms: str = "", buffer: str = "") -> Topology:
    """A topology, from `pipeline.yaml` in the folder; `{quick}` and `{base}` in its parts are filled in."""
    parts = [f"store: {{path: {folder}/data}}", "sources:", _indented(sources)]
    parts += ["transforms:", _indented(transforms)] if transforms else []
    parts += ["sinks:", _indented(sinks)] + ([buffer] if buffer else [])
    text = "\n".join(parts).replace("{quick}", QUICK).replace("{base}", str(folder))
    (folder / FILE).write_text(text)
    return load(folder / FILE, {})


def _indented(text: str) -> str:
    return "\n".join(f"  {line.strip()}" for line in text.strip().splitlines())


@contextmanager
def running(topology: Topology, spark: Any, **options: Any) -> Iterator[Runner]:
    """A runner from start to stop; it must stop."""
    runner = Runner(topology, spark, **options)
    runner.start()
    try:
        yield runner
    finally:
        stop(runner)


def stop(runner: Runner) -> None:
    assert runner.stop(Deadline(PATIENCE, SystemClock())), f"did not stop: {runner.health()}"


@contextmanager
def appending(topology: Topology, topic: str = TOPIC, shard: int | None = None) -> Iterator[hf.Topic]:
    """The topic, for somebody who appends to it."""
    with hf.Store.open(topology.store, settings=topology.store_settings) as store:
        yield store.topic(topic, shard=shard)


def settle(runner: Runner, *sinks: str) -> None:
    """Until these sinks (or all) have everything that is durable."""
    wait_for(
        runner, lambda: all(health.lag == 0 for name, health in runner.health().items() if name in (sinks or {name}))
    )


def wait_state(runner: Runner, sink: str, state: State) -> SinkHealth:
    wait_for(runner, lambda: runner.health()[sink].state is state)
    return runner.health()[sink]


def wait_for(runner: Runner, condition: Callable[[], object]) -> None:
    try:
        until(condition, PATIENCE)
    except AssertionError as late:
        raise AssertionError(f"{late}: {runner.health()}") from None


@contextmanager
def logged() -> Iterator[list[Any]]:
    """What is logged meanwhile."""
    with structlog.testing.capture_logs() as log:
        yield log


def failures(log: list[Any], sink: str) -> list[str]:
    """Why a sink was tried again. A busy machine starts Spark's Python processes too late: that is none of ours."""
    failed = [entry for entry in log if entry["event"].startswith("a sink failed") and entry["sink"] == sink]
    return [entry["error"] for entry in failed if "Python worker failed to connect back" not in entry["error"]]


def widened(log: list[Any]) -> list[str]:
    """The sinks that started again because of new columns."""
    return [entry["sink"] for entry in log if entry["event"] == "a query starts again with more columns"]


class GateSink:
    """Takes the place of the console: each write waits until the gate is open, then the rows are in `ids`."""

    exactly_once = True

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Event()
        self.ids: list[int] = []
        self.ranges: list[Ranges] = []

    def made(self, *_: Any) -> GateSink:
        return self

    def open(self, spark: Any, identity: Any) -> None:
        pass

    def position(self) -> dict[str, int]:
        return {key: end for each in self.ranges for key, end in each.ends.items()}

    def write(self, frame: Any, ranges: Ranges, deadline: Deadline) -> WriteResult:
        self.reached.set()
        assert self.gate.wait(PATIENCE)
        found = [row["id"] for row in frame.select("id").collect()]
        self.ids += found
        self.ranges.append(ranges)
        return WriteResult(len(found), 0)

    def close(self) -> None:
        pass


def gate_sink(monkeypatch: pytest.MonkeyPatch) -> GateSink:
    """From now on sinks of the type `console` are this one."""
    sink = GateSink()
    monkeypatch.setitem(SINKS, "console", SinkKind(ConsoleSettings, sink.made))
    return sink
