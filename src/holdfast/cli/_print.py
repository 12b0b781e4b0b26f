"""Where output goes: documents and tables to stdout, one line for each error to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNBOUNDED: Final = 10_000  # columns of a pipe or file: as wide as the widest table


def say(message: str) -> None:
    """One line on stderr, whatever the message holds."""
    print(f"holdfast: {' '.join(message.split())}", file=sys.stderr)


def console(*, stderr: bool = False) -> Console:
    """For people. In a pipe nothing is wrapped, unless COLUMNS says how wide it is."""
    stream = sys.stderr if stderr else sys.stdout
    bounded = stream.isatty() or "COLUMNS" in os.environ
    return Console(file=stream, width=None if bounded else _UNBOUNDED, highlight=False, emoji=False, markup=False)


def put_json(document: Any) -> None:
    """One JSON document, and nothing else."""
    _put(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def put(*parts: RenderableType) -> None:
    """Text and tables. One that is too wide for the terminal is shown row by row, so that no number is cut."""
    target = console()
    with target.capture() as captured:
        for part in parts:
            for piece in _fitting(part, target):
                target.print(piece, soft_wrap=isinstance(piece, Text | str))
    _put("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _fitting(part: RenderableType, target: Console) -> Iterable[RenderableType]:
    if not isinstance(part, Table):
        return [part]
    if Measurement.get(target, target.options.update(width=_UNBOUNDED), part).maximum <= target.width:
        return [part]
    return _rows(part)


def _rows(table: Table) -> Iterable[RenderableType]:
    """A table as blocks of `heading: value` lines."""
    if table.title:
        yield Text(str(table.title))
    columns = [(str(column.header), list(column.cells)) for column in table.columns]
    for row in range(table.row_count):
        for heading, cells in columns:
            yield Text(f"  {heading}: {cells[row]}")
        yield Text("")


def _put(text: str) -> None:
    """Whoever reads may stop before the end, as `head` does: that is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again at exit; this way it goes nowhere, quietly.
        nowhere = os.open(os.devnull, os.O_WRONLY)  # noqa: TID251 - no file of a store
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
