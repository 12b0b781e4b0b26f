"""Figures that change while one looks: redrawn on a terminal, a line now and then elsewhere; always on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.cli._print import console, say
from holdfast.cli._tables import table
from holdfast.clock import Clock, SystemClock
from holdfast.operate.demo import DemoFigures, Display
from holdfast.units import format_bytes

LINE_SECONDS: Final = 5.0


@contextmanager
def showing() -> Iterator[Display]:
    """Whom the demonstration tells how it goes."""
    if not sys.stderr.isatty():
        yield Lines(SystemClock())
        return
    with Live(console=console(stderr=True), transient=True, refresh_per_second=8) as live:
        yield _Redrawn(live)


class _Redrawn:
    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, figures: DemoFigures) -> None:
        self._live.update(drawn(figures))

    def tell(self, text: str) -> None:
        self._live.console.print(text)


class Lines:
    """A line when something new begins, and every few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doing, self._due = "", clock.monotonic()

    def show(self, figures: DemoFigures) -> None:
        if figures.doing != self._doing or self._clock.monotonic() >= self._due:
            self._doing, self._due = figures.doing, self._clock.monotonic() + LINE_SECONDS
            say(_line(figures))

    def tell(self, text: str) -> None:
        say(text)


def _line(figures: DemoFigures) -> str:
    start = f"{figures.seconds:.0f} s: {figures.doing}"
    if not figures.generated:
        return start
    sinks = "; ".join(
        f"{sink.name} {sink.rows_per_second:,.0f} rows/s, lag {sink.lag:,}, acked {sink.acked:,}"
        for sink in figures.sinks
    )
    restarts = sum((figures.restarts or {}).values())
    return (
        f"{start}; generated {figures.generated:,} of {figures.wanted:,}, {figures.rows_per_second:,.0f} rows/s; "
        f"{sinks}; disk {format_bytes(figures.disk_bytes)}; restarts {restarts}"
    )


def drawn(figures: DemoFigures) -> RenderableType:
    """All figures, for a terminal."""
    rows = [(sink.name, sink.state, round(sink.rows_per_second), sink.acked, sink.lag) for sink in figures.sinks]
    restarts = ", ".join(f"{name} {count}" for name, count in (figures.restarts or {}).items()) or "-"
    return Group(
        Text(f"{figures.seconds:.0f} s  {figures.doing}", style="bold"),
        Text(
            f"generated {figures.generated:,} of {figures.wanted:,} rows, {figures.rows_per_second:,.0f} rows/s; "
            f"store {format_bytes(figures.disk_bytes)} on disk"
        ),
        *table("", ("sink", "state", "rows/s", "source rows acked", "lag"), rows),
        Text(f"kills {figures.kills}; restarts: {restarts}"),
    )
