"""What Spark says of a query, in one line: its own words, without plans and Java frames."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
MAX_TEXT: Final = 500
_STATE: Final = re.compile(r"[\s.]*SQLSTATE:.*", re.DOTALL)
_PLACE: Final = re.compile(r"line (\d+),? pos (\d+)")

_LOGGER: Final = "SQLQueryContextLogger"  # PySpark logs each error that it raises, with all of Java's frames


@contextmanager
def unlogged() -> Iterator[None]:
    """Errors are told once, by us: PySpark's own log of them would also show what came from the environment."""
    logger = logging.getLogger(_LOGGER)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def error_class(error: Exception) -> str:
    """The name Spark has for this kind of error: never a part of the query."""
    name = error.getCondition() if isinstance(error, PySparkException) else None
    return name or "ANALYSIS_ERROR"


def error_text(error: Exception) -> str:
    """The first line, with the place in the query if there is one."""
    if isinstance(error, Py4JJavaError):
        java = error.java_exception
        whole = f"{java.getClass().getSimpleName()}: {java.getMessage() or 'no text'}"
    else:
        whole = str(error)
    first = _STATE.sub("", whole.strip().splitlines()[0] if whole.strip() else type(error).__name__).rstrip(";. ")
    place = _PLACE.search(whole.split("== SQL")[0])
    if place is not None:
        first += f" (line {place[1]}, column {int(place[2]) + 1})"
    return first if len(first) <= MAX_TEXT else first[:MAX_TEXT] + "..."
