"""Start, watch, kill, drain, stop, compare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import InputError, Missing, WaitTimeout
from holdfast.operate.demo._chaos import Chaos, Kill
from holdfast.operate.demo._figures import DRIVER, DemoFigures, Meter
from holdfast.operate.demo._oracle import TableCheck, Verdict, check_table, judge
from holdfast.operate.demo._plan import SEED, TABLES, DemoPlan, DemoTable
from holdfast.operate.demo._run import DemoRun
from holdfast.receivers._settings import DEMO_SCHEMA

LOOK_SECONDS: Final = 0.4
STOP_SECONDS: Final = 90.0
PATIENCE: Final = (600.0, 4.0)  # so many seconds, and so many times what the source takes: then something is wrong


class Display(Protocol):
    """Who is told how it goes."""

    def show(self, figures: DemoFigures) -> None:
        """Many times a second; the newest figures are the ones that count."""
        ...

    def tell(self, text: str) -> None:
        """Once, something that happened."""
        ...


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What came of it; `code` is what `holdfast run` ended with."""

    plan: DemoPlan
    seconds: float
    verdict: Verdict
    tables: tuple[TableCheck, ...]
    kills: tuple[Kill, ...]
    restarts: Mapping[str, int]
    code: int

    def to_document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "generated": self.verdict.generated,
            "delivered": self.verdict.delivered,
            "lost": self.verdict.lost,
            "doubled": self.verdict.doubled,
            "foreign": self.verdict.foreign,
            "seconds": round(self.seconds, 1),
            "tables": [
                {
                    "name": check.name, "kind": table.kind, "expected": check.expected, "delivered": check.delivered,
                    "lost": check.lost, "doubled": check.doubled, "foreign": check.foreign,
                }
                for table, check in zip(TABLES, self.tables, strict=True)
            ],
            "kills": [asdict(kill) for kill in self.kills],
            "restarts": dict(self.restarts),
            "run_exit_code": self.code,
        }  # fmt: skip


def run_demo(
    plan: DemoPlan, command: Callable[[DemoPlan], Sequence[str]], *, clock: Clock, ids: Ids, display: Display
) -> DemoResult:
    """Run the pipeline until its source has sent every row and each sink has all it is due; compare the tables.

    `command` is what runs it. Raises `Missing` before anything is started, `WaitTimeout` if it never ends.
    """
    _expect_all()
    _write_pipeline(plan)
    began = clock.monotonic()
    chaos = Chaos(plan.seconds, ids) if plan.chaos else None
    meter = Meter(plan, clock)
    try:
        with DemoRun(command(plan), plan.folder) as run:
            last = _watch(run, plan, meter, chaos, clock, display)
            display.tell("the sinks have acked every row; stopping")
            code = run.stop(STOP_SECONDS)
    finally:
        meter.close()
    display.tell("comparing the tables with what was generated")
    tables = tuple(check_table(each.name, read_table(plan, each), plan.rows, SEED, each.belongs) for each in TABLES)
    return DemoResult(
        plan, clock.monotonic() - began, judge(plan.rows, tables), tables,
        () if chaos is None else tuple(chaos.kills), last.restarts or {}, code,
    )  # fmt: skip


def _expect_all() -> None:
    """Raises `Missing` for what the pipeline could not start without."""
    from holdfast.spark import check_java

    if find_spec("deltalake") is None:
        raise Missing("the demonstration writes Delta tables: pip install 'holdfast[delta]'")
    check_java(os.environ)


def _write_pipeline(plan: DemoPlan) -> None:
    folder = plan.folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty; choose a new folder for the demonstration")
    folder.mkdir(parents=True, exist_ok=True)
    plan.file.write_text(plan.pipeline())


def _watch(
    run: DemoRun, plan: DemoPlan, meter: Meter, chaos: Chaos | None, clock: Clock, display: Display
) -> DemoFigures:
    """Until everything is delivered, and killed; the last figures."""
    deadline = Deadline(PATIENCE[0] + PATIENCE[1] * plan.seconds, clock)
    while True:
        health = run.health()
        kills = 0 if chaos is None else len(chaos.kills)
        figures = meter.look(health, kills)
        display.show(figures)
        if figures.drained and (chaos is None or chaos.done):
            return figures
        if chaos is not None:
            _kill(run, chaos, figures, health, display)
        if deadline.passed():
            raise WaitTimeout(
                f"after {figures.seconds:.0f} s {figures.generated} of {figures.wanted} rows are generated, and the "
                f"slowest sink has {min(sink.acked for sink in figures.sinks)} of them; {run.log} says what went on"
            )
        run.pause(LOOK_SECONDS)


def _kill(
    run: DemoRun, chaos: Chaos, figures: DemoFigures, health: Mapping[str, Mapping[str, Any]], display: Display
) -> None:
    kill = chaos.next(figures, health)
    if kill is not None and run.kill(kill.pid):
        chaos.killed(kill, figures)
        what = "Spark's driver and its Java" if kill.process == DRIVER else "the process that receives"
        display.tell(f"killed {what} (SIGKILL, process {kill.pid}) after {kill.generated} rows")


def read_table(plan: DemoPlan, table: DemoTable) -> pa.Table:
    """All that a reader finds; nothing, if the table was never made."""
    path = plan.path(table)
    if not path.exists():
        return DEMO_SCHEMA.empty_table()
    if table.kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(path).to_pyarrow_table()
    return ds.dataset(path, format="parquet").to_table()
