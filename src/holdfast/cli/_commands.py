"""The commands: each one calls `holdfast.operate` and prints what it returns."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from holdfast import operate
from holdfast.cli._inspect_tables import inspect_tables
from holdfast.cli._live import showing
from holdfast.cli._output import Output, quiet, show
from holdfast.cli._progress import progress
from holdfast.cli._report_tables import demo_table, fsck_tables, topics_tables
from holdfast.clock import SystemClock, SystemIds
from holdfast.errors import InputError


def topics(path: Path, /, *, output: Output = "text") -> int:
    """List the topics of a store: shards, slots, subscribers, offsets, sizes, and who writes them.

    Parameters
    ----------
    path
        The store's folder.
    """
    document = operate.topics(path)
    show(document, output, topics_tables)
    return 0


def inspect(path: Path, /, *, bundles: bool = False, output: Output = "text") -> int:
    """Show what is in a store, topic or shard folder, or in any file of theirs.

    Parameters
    ----------
    path
        A file or folder; what it is, is told by its content.
    bundles
        List every bundle of a segment.
    """
    with progress("inspecting") as report:
        document = operate.inspect(path, bundles=bundles, progress=report)
    show(document, output, inspect_tables)
    return 0


def fsck(path: Path, /, *, repair: bool = False, output: Output = "text") -> int:
    """Verify every checksum and cross-reference; ends with 65 if there is damage.

    Parameters
    ----------
    path
        A store, topic or shard folder, or a single file.
    repair
        Set damage aside, save what can be read, record the rest as lost. Needs the shards to have no writer.
    """
    quiet()
    with progress("checking") as report:
        result = operate.fsck(path, repair=repair, progress=report)
    show(result.to_document(), output, fsck_tables)
    return 65 if result.damaged else 0


def demo(*, folder: Path | None = None, rounds: int = 5, seconds: float = 15.0, output: Output = "text") -> int:
    """Append, deliver, kill -9, recover, compare: all that was acknowledged is delivered, and nothing else.

    Parameters
    ----------
    folder
        Where the store is made; a temporary folder by default, removed afterwards.
    rounds
        How often the writer is killed.
    seconds
        About how long it all takes.
    """
    if rounds < 1 or seconds <= 0:
        raise InputError(f"--rounds {rounds} --seconds {seconds}: both must be above zero")
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty; choose a new folder for the demonstration")
    quiet()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as temporary, showing(demo_table) as report:
        store = Path(temporary) / "store" if folder is None else folder
        figures = operate.run_demo(
            store, rounds=rounds, seconds=seconds, clock=SystemClock(), ids=SystemIds(), show=report
        )
    document = {
        "acknowledged": figures.acknowledged,
        "delivered": figures.delivered,
        "delivered_again": figures.again,
        "lost": figures.lost,
        "invented": figures.invented,
        "kills": figures.kills,
    }
    show(document, output, _demo_line)
    return 0 if figures.passed else 65


def _demo_line(document: dict[str, Any]) -> list[RenderableType]:
    return [
        f"acknowledged {document['acknowledged']}, delivered {document['delivered']} of them "
        f"({document['delivered_again']} came again after a kill), lost {document['lost']}, "
        f"invented {document['invented']}, kills {document['kills']}"
    ]
