"""Tables and lists of facts, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

Document = Mapping[str, Any]


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{key}: {_cell(each)}" for key, each in value.items()) or "-"
        case list() | tuple():
            return ", ".join(map(_cell, value)) or "-"
    return str(value)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[RenderableType]:
    """Numbers stand to the right; no cell is shortened."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        numeric = bool(rows) and all(type(row[index]) in (int, type(None)) for row in rows)
        made.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(_cell(each) for each in row))
    yield Text(title, style="bold")
    yield made


def facts(title: str, document: Document, keys: Sequence[str]) -> Iterator[RenderableType]:
    """One line for each fact."""
    yield Text(title, style="bold")
    width = max(map(len, keys))
    for key in keys:
        yield Text(f"{key.replace('_', ' '):{width}}  {_cell(document.get(key))}")
