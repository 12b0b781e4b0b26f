"""The parts of the demonstration: its pipeline, its figures, what it kills, and the process that it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import Store
from holdfast.errors import HoldfastError, InputError
from holdfast.operate.demo import DemoFigures, DemoPlan, Kill, SinkFigures
from holdfast.operate.demo._chaos import Chaos
from holdfast.operate.demo._figures import DRIVER, INGEST, Meter
from holdfast.operate.demo._plan import SOURCE, TABLES, TOPIC
from holdfast.operate.demo._run import DemoRun
from holdfast.pipeline import load
from holdfast.receivers import DemoSettings
from holdfast.testing import FakeClock, SequenceIds
from store.storekit import until

# -- the pipeline -------------------------------------------------------------------------------------------------


def test_the_pipeline_is_what_the_comparison_expects(tmp_path: Path) -> None:
    """Its file has no mistakes, ends by itself after so many rows, and has a sink for each table where it is read."""
    plan = DemoPlan(tmp_path, 3.5, 1000)
    topology = load(plan.pipeline(), {}, folder=tmp_path)
    (source,) = topology.sources.values()
    assert isinstance(source.settings, DemoSettings)
    assert (source.name, source.settings.limit, source.settings.rows_per_bundle) == (SOURCE, 3500, 50)
    assert topology.store == plan.store
    sinks = {name: (sink.settings.type, sink.settings.path) for name, sink in topology.sinks.items()}  # type: ignore[attr-defined]
    assert sinks == {table.name: (table.kind, plan.path(table)) for table in TABLES}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"seconds": 0}, "--seconds 0 --rows-per-second 2000: both must be above zero"),
        ({"seconds": float("nan")}, "--seconds nan --rows-per-second 2000: both must be above zero"),
        ({"rows_per_second": 0}, "--seconds 30 --rows-per-second 0: both must be above zero"),
        ({"seconds": float("inf")}, "more than 50,000,000 rows in all cannot be compared"),
    ],
)
def test_plans_that_make_no_sense(tmp_path: Path, values: dict[str, Any], text: str) -> None:
    """Refused before anything is made."""
    with pytest.raises(InputError, match=text):
        DemoPlan(tmp_path, **values)


# -- chaos --------------------------------------------------------------------------------------------------------


def figures(generated: int, acked: int = 0) -> DemoFigures:
    sink = SinkFigures("lake", acked=acked, lag=generated - acked)
    return DemoFigures("rows flow", 1.0, 1000, generated, sinks=(sink,), finished=generated == 1000)


def health(driver: int | None, ingest: int | None, restarts: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    parts = zip((DRIVER, INGEST), (driver, ingest), restarts, strict=True)
    return {
        name: {"pid": pid, "address": None if pid is None else "127.0.0.1:1", "restarts": count, "parts": {}}
        for name, pid, count in parts
    }


def test_nothing_is_killed_too_early() -> None:
    """Not before some rows have gone by, not the driver before something was acked, nor one that is down."""
    chaos = Chaos(30, SequenceIds())
    assert chaos.next(figures(0), health(11, 12)) is None
    assert chaos.next(figures(250), health(11, None)) is None
    assert chaos.next(figures(250, acked=1), health(None, None)) is None
    kill = chaos.next(figures(299, acked=1), health(11, None))
    assert kill == Kill(DRIVER, 11, 1.0, 299)


def test_each_is_killed_twice_and_only_after_it_came_back() -> None:
    """A process that has not been started again since it was killed is left alone."""
    chaos, now = Chaos(10, SequenceIds()), figures(1000, acked=5)
    for turn in range(2):
        back = health(11 + turn, 21 + turn, (turn, turn))
        for name, pid in ((DRIVER, 11 + turn), (INGEST, 21 + turn)):
            kill = chaos.next(now, back)
            assert kill is not None
            assert (kill.process, kill.pid) == (name, pid)
            chaos.killed(kill, now)
        if turn == 0:
            assert chaos.next(now, back) is None
            assert chaos.next(now, health(12, None, (1, 1))) is None  # it is back, and nothing was acked since
            now = figures(1000, acked=6)
    assert chaos.done
    assert chaos.next(now, health(13, 23, (2, 2))) is None
    assert [kill.process for kill in chaos.kills] == [DRIVER, INGEST, DRIVER, INGEST]


def test_the_driver_is_killed_also_when_there_is_nothing_left_to_ack() -> None:
    """Otherwise a source that was quick would leave kills undone for ever."""
    chaos, now = Chaos(10, SequenceIds()), figures(1000, acked=1000)
    for turn in range(2):
        kill = chaos.next(now, health(11, None, (turn, 0)))
        assert kill is not None
        chaos.killed(kill, now)


def test_a_long_run_has_more_kills() -> None:
    """About one of each in a quarter of a minute."""
    chaos, count = Chaos(120, SequenceIds()), 0
    while not chaos.done:
        now = figures(1000, acked=count + 1)
        kill = chaos.next(now, health(11, 12, (count, count)))
        assert kill is not None
        chaos.killed(kill, now)
        count += 1
    assert count == 16


# -- figures ------------------------------------------------------------------------------------------------------


def test_figures_over_a_store_and_two_drivers(tmp_path: Path) -> None:
    """What is durable and acked comes from the store; what drivers counted adds up, also over a restart."""
    plan, clock = DemoPlan(tmp_path, 1, 100), FakeClock()
    taken: dict[tuple[str, str], float] = {}
    meter = Meter(plan, clock, lambda _address: taken)
    assert meter.look({}) == DemoFigures(
        "Spark starts", 0.0, 100, sinks=tuple(SinkFigures(table.name, "down") for table in TABLES), restarts={}
    )
    with Store.open(plan.store) as store:
        topic = store.topic(TOPIC)
        for table in TABLES:
            topic.register(table.name)
        assert meter.look(health(1, None)).doing == "the source starts"
        for number in range(20):
            receipt = topic.append({"events": pa.record_batch({"seq": [number]})})
        receipt.wait()
        topic.acknowledge("lake", {0: (0, 8)}, sync=True)
        taken["holdfast_pipeline_rows_total", "lake"] = 40
        clock.advance(2)
        now = meter.look(health(1, 2), kills=3)
        lake, errors, _ = now.sinks
        assert (now.doing, now.generated, now.rows_per_second, now.kills) == ("rows flow", 100, 50.0, 3)
        assert now.disk_bytes > 0
        assert lake == SinkFigures("lake", "down", 40, 20.0, 40, 60)
        assert errors == SinkFigures("errors", "down", 0, 0.0, 0, 100)
        taken["holdfast_pipeline_rows_total", "lake"] = 60  # a new driver, which counts from nothing
        finished = health(3, 2, (1, 0))
        finished[INGEST]["parts"] = {SOURCE: {"finished": True}}
        now = meter.look(finished)
        assert (now.sinks[0].rows, now.finished, now.drained, now.restarts) == (
            100,
            True,
            False,
            {DRIVER: 1, INGEST: 0},
        )
        for table in TABLES:
            topic.acknowledge(table.name, {0: (0, 20)}, sync=True)
        assert meter.look({}).drained  # also while a process is down: that it had finished is known
    meter.close()


# -- the process --------------------------------------------------------------------------------------------------

GROUP = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, process_group=0)
print(child.pid, flush=True)
child.wait()
sys.stdin.read()
"""


def test_only_processes_of_the_run_are_killed(tmp_path: Path) -> None:
    """A process of another session, one that leads no group, and one that is gone are left alone."""
    with DemoRun([sys.executable, "-c", GROUP], tmp_path) as run:
        until(lambda: run.log.read_bytes().endswith(b"\n"))
        child = int(run.log.read_bytes())
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, process_group=0) as stranger:
            assert not run.kill(stranger.pid)
            assert stranger.poll() is None
            stranger.kill()
        assert not run.kill(os.getpid())
        assert run.kill(child)
        until(lambda: not run.kill(child))


def test_a_run_that_ends_by_itself(tmp_path: Path) -> None:
    """The error carries its exit code and the last line of its log."""
    with (
        DemoRun([sys.executable, "-c", "print('no disk'); raise SystemExit(69)"], tmp_path) as run,
        pytest.raises(HoldfastError, match=r"ended by itself with 69; .*/run\.log says why: no disk"),
    ):
        run.pause(60)


OBEDIENT = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("up", flush=True)
sys.stdin.read()
"""


def test_a_run_that_is_asked_to_stop(tmp_path: Path) -> None:
    """It says what it ended with. Before it has said where it can be asked, nothing is known of its processes."""
    with DemoRun([sys.executable, "-c", OBEDIENT], tmp_path) as run:
        until(run.log.read_bytes)
        assert run.health() == {}
        assert run.stop(60) == 7


def test_a_run_is_not_left_behind(tmp_path: Path) -> None:
    """Whatever ends the block ends the process."""
    with DemoRun([sys.executable, "-c", OBEDIENT], tmp_path) as run:
        until(run.log.read_bytes)
    with pytest.raises(HoldfastError, match="ended by itself"):
        run.pause(0)


def test_a_run_ends_with_whoever_started_it() -> None:
    """The process that runs the pipeline is told to stop when its standard input ends."""
    code = (
        "import holdfast.cli._demo_run as module, time\n"
        "module.run = lambda words: print('up', flush=True) or time.sleep(600)\n"
        "module.main()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"up\n"
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == -signal.SIGTERM
