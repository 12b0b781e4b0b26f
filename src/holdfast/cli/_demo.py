"""demo: a pipeline from source to tables, and the proof at its end."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from holdfast.cli._live import showing
from holdfast.cli._output import Output, quiet, show
from holdfast.cli._tables import table
from holdfast.clock import SystemClock, SystemIds
from holdfast.errors import HoldfastError
from holdfast.operate.demo import DemoPlan, run_demo

BAD_DATA: Final = 65  # sysexits.h


def demo(
    *, seconds: float = 30.0, rows_per_second: int = 2_000, chaos: Annotated[bool, Parameter(negative=())] = False,
    folder: Path | None = None, output: Output = "text",
) -> int:  # fmt: skip
    """Run a pipeline from a source through the store and Spark into Delta and Parquet tables, and count what arrived.

    Each row of the source is known beforehand: at the end every table is compared with it, all columns. Ends with 0
    only if nothing was lost, doubled or changed in any table.

    Parameters
    ----------
    seconds
        For how long the source generates rows; Spark starts before, and finishes after.
    rows_per_second
        How many.
    chaos
        Kill the process that receives, and Spark with its Java, several times on the way (SIGKILL).
    folder
        Where pipeline, store, tables and log are kept; otherwise in a temporary folder, removed if all went well.
    """
    quiet()
    temporary = None if folder is not None else Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    try:
        plan = DemoPlan((folder or temporary or Path()).absolute(), seconds, rows_per_second, chaos)
        with showing() as display:
            result = run_demo(plan, _command, clock=SystemClock(), ids=SystemIds(), display=display)
    except BaseException as problem:
        # What went wrong can be found out there, unless nothing was begun or it was broken off on purpose.
        if temporary is not None and not (isinstance(problem, HoldfastError) and any(temporary.iterdir())):
            shutil.rmtree(temporary)
        raise
    code = result.code if result.verdict.passed else BAD_DATA
    gone = temporary is not None and code == 0
    if temporary is not None and gone:
        shutil.rmtree(temporary)
    show({**result.to_document(), "folder": None if gone else str(plan.folder)}, output, _report)
    return code


def _command(plan: DemoPlan) -> list[str]:
    return [sys.executable, "-m", "holdfast.cli._demo_run", str(plan.file), "--stop-timeout", "60s"]


def _report(document: dict[str, Any]) -> list[RenderableType]:
    headings = ("table", "kind", "expected", "delivered", "lost", "doubled", "foreign")
    rows = [[each[key] for key in ("name", *headings[1:])] for each in document["tables"]]
    restarts = ", ".join(f"{name} {count}" for name, count in document["restarts"].items())
    return [
        *table("tables against what was generated", headings, rows),
        Text(f"{document['seconds']:.0f} s in all; kills {len(document['kills'])}; restarts: {restarts}"),
        *([Text(f"pipeline, store, tables and log are in {document['folder']}")] if document["folder"] else []),
        *([Text(f"`holdfast run` ended with {document['run_exit_code']}")] if document["run_exit_code"] else []),
        Text(
            f"generated {document['generated']}, delivered {document['delivered']}, "
            f"lost {document['lost']}, doubled {document['doubled']}"
        ),
    ]
