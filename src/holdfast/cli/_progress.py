"""How far long work has got: a bar on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.cli._print import console, say
from holdfast.clock import Clock, SystemClock
from holdfast.operate import Progress as Report
from holdfast.units import format_bytes

LINE_SECONDS: Final = 2.0  # work that takes longer says how far it is


@contextmanager
def progress(doing: str) -> Iterator[Report]:
    """A function to call with (what, bytes done, bytes in all) while the work goes on."""
    if not sys.stderr.isatty():
        yield lines(doing, SystemClock())
        return
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda what, done, total: bar.update(task, completed=done, total=total, description=f"{doing} {what}")


def lines(doing: str, clock: Clock) -> Report:
    """Says a line every few seconds; nothing for work that is done before the first is due."""
    due = clock.monotonic() + LINE_SECONDS

    def report(what: str, done: int, total: int) -> None:
        nonlocal due
        if clock.monotonic() >= due:
            due = clock.monotonic() + LINE_SECONDS
            say(f"{doing}: {format_bytes(done)} of {format_bytes(total)}, {what}")

    return report
