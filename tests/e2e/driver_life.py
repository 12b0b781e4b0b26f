"""A driver as a process of its own, which may kill itself between two steps of a batch.

    python driver_life.py <pipeline.yaml> <master> [<gap> <sink> <batch>]

It delivers until every sink has all that is durable, prints `drained`, and ends. The gaps are those after each step in
the docstring of `holdfast.pipeline._run`; 2.5 is inside a sink's own commit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from holdfast.clock import Deadline, SystemClock
from holdfast.pipeline import _run
from holdfast.pipeline._offset_log import last_entry
from holdfast.pipeline._run import Run
from holdfast.pipeline.runner import Runner
from holdfast.pipeline.topology import load
from holdfast.sinks import _delta_log, delta, parquet
from holdfast.spark import session

CONF = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m"}
SECONDS = 400.0


def die() -> NoReturn:
    print("killed", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("unreachable")


class Gap:
    """Counts the batches of one sink, and ends the process in one of them."""

    def __init__(self, gap: str, sink: str, batch: int) -> None:
        self.gap, self.sink, self._left = gap, sink, batch
        self._current = threading.local()
        self._begun = 0
        begin = Run._deliver

        def deliver(run: Run, frame: Any, number: int, ranges: Any) -> None:
            self._current.ours = run._place.name == sink
            if self._current.ours:
                self._begun += 1
                self.reached("1")
            begin(run, frame, number, ranges)

        Run._deliver = deliver  # type: ignore[method-assign]
        self.after(delta, "write_files", "2")
        self.after(parquet, "write_files", "2")
        self.before(_delta_log.DeltaLog, "sync", "2.5")
        self.before(parquet.ParquetSink, "_settle", "2.5")
        self.before(Run, "_ack", "3")
        self.after(Run, "_ack", "4")
        look = Run.look

        def looked(run: Run) -> None:
            ours = run._place.name == sink and self._begun >= self._left and gap == "5"
            if ours and (last_entry(run._place.files, run.checkpoint, "commits") or 0) >= self._left - 1:
                die()
            look(run)

        Run.look = looked  # type: ignore[method-assign]
        deliver_state = _run.Run._ack_committed

        def ack_committed(run: Run) -> None:
            self._current.ours = run._place.name == sink
            deliver_state(run)

        _run.Run._ack_committed = ack_committed  # type: ignore[method-assign]

    def reached(self, gap: str) -> None:
        if gap == self.gap and self._begun >= self._left and getattr(self._current, "ours", False):
            die()

    def after(self, place: Any, name: str, gap: str) -> None:
        call: Callable[..., Any] = getattr(place, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            self.reached(gap)
            return result

        setattr(place, name, called)

    def before(self, place: Any, name: str, gap: str) -> None:
        call: Callable[..., Any] = getattr(place, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            self.reached(gap)
            return call(*args, **kwargs)

        setattr(place, name, called)


def main(file: str, master: str, *gap: str) -> int:
    if gap:
        Gap(gap[0], gap[1], int(gap[2]))
    topology = load(Path(file))
    spark = session("driver life", master, CONF)
    runner = Runner(topology, spark)
    runner.start()
    print("started", flush=True)
    pause, end = threading.Event(), Deadline(SECONDS, SystemClock())
    while not runner.drained():
        if end.passed():
            print("late", runner.health(), flush=True)
            return 1
        pause.wait(0.1)
    print("drained", flush=True)
    runner.stop(Deadline(60, SystemClock()))
    spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
