"""Rows on standard output, for a look: the first ones of each batch, at least once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import Clock, Deadline, Ids
from holdfast.files import Files
from holdfast.sinks._job import run_job
from holdfast.sinks._settings import ConsoleSettings
from holdfast.sinks._sink import Ranges, SinkIdentity, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CELL_LENGTH: Final = 200  # characters of one value; a console is no place for more


def to_stdout(text: str) -> None:
    """The default writer; a terminal that cannot show a character gets it escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


class ConsoleSink:
    """Made by the runner, for one sink of a pipeline. It keeps no position: after a crash rows are printed again."""

    exactly_once = False

    def __init__(
        self,
        settings: ConsoleSettings,
        files: Files,
        clock: Clock,
        ids: Ids,
        *,
        write: Callable[[str], None] = to_stdout,
    ) -> None:
        del files, clock  # it keeps nothing
        self._settings, self._ids, self._write = settings, ids, write

    def open(self, spark: SparkSession, identity: SinkIdentity) -> None:
        """Nothing to make ready."""

    def position(self) -> dict[str, int]:
        return {}

    def write(self, frame: DataFrame, ranges: Ranges, deadline: Deadline) -> WriteResult:
        """Print a line that says what the batch covers, then its first rows, one a line, and whether there are more."""
        limit = self._settings.limit
        name = f"console-{ranges.subscriber}-{self._ids.random_bytes(8).hex()}"
        rows = run_job(frame.sparkSession, deadline, name, lambda: frame.take(limit + 1))
        shown = rows[:limit]
        lines = [f"-- {ranges.subscriber}: {ranges}"]
        lines += [
            "  ".join(f"{column}={_cell(value)}" for column, value in zip(frame.columns, row, strict=True))
            for row in shown
        ]
        if len(rows) > limit:
            lines.append(f"... and more: only the first {limit} rows of a batch are shown")
        self._write("".join(f"{line}\n" for line in lines))
        return WriteResult(len(shown), 0)

    def close(self) -> None:
        """Nothing to let go of."""


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value) if value is not None else "null"
    text = text.translate(_CONTROL)
    return text if len(text) <= _CELL_LENGTH else text[: _CELL_LENGTH - 3] + "..."


# What would move a terminal's cursor, or change its colours, is shown as what it is.
_CONTROL: Final = {code: f"\\x{code:02x}" for code in [*range(32), *range(127, 160)]} | {9: "\\t", 10: "\\n", 13: "\\r"}
