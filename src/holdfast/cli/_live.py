"""Figures that change while one looks: redrawn on a terminal, a line for each new step elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import RenderableType
from rich.live import Live

from holdfast.cli._print import console, say
from holdfast.operate import DemoFigures


@contextmanager
def showing(table: Callable[[DemoFigures], RenderableType]) -> Iterator[Callable[[DemoFigures], None]]:
    """A function to call with the figures whenever they change; on stderr, for the result goes to stdout."""
    if sys.stderr.isatty():
        with Live(console=console(stderr=True), transient=True, refresh_per_second=8) as live:
            yield lambda figures: live.update(table(figures))
        return
    last = ""

    def line(figures: DemoFigures) -> None:
        nonlocal last
        if figures.doing != last:
            last = figures.doing
            say(
                f"{figures.doing}; acknowledged {figures.acknowledged}, delivered {figures.delivered}, "
                f"lost {figures.lost}"
            )

    yield line
