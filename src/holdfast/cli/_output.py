"""What every command has: the choice between text and JSON, and silence of the store's own log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

import structlog
from cyclopts import Parameter
from rich.console import RenderableType

from holdfast.cli._print import put, put_json

OUTPUT_HELP = "text for people, json for programs: one document on standard output"
Output = Annotated[Literal["text", "json"], Parameter(help=OUTPUT_HELP)]


def show(document: dict[str, Any], output: str, tables: Callable[[dict[str, Any]], Iterable[RenderableType]]) -> None:
    """Print a document as it was asked for."""
    if output == "json":
        put_json(document)
    else:
        put(*tables(document))


def quiet() -> None:
    """The store's own log lines would say the same things a second time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
