"""The console sink."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from sinkkit import KEY, identity, numbers, ranges, soon

from holdfast.files import SystemFiles
from holdfast.sinks import ConsoleSettings, ConsoleSink, WriteResult
from holdfast.testing import FakeClock, SequenceIds


def test_the_first_rows_of_a_batch_are_printed(spark: Any) -> None:
    """A line says what the batch covers, then come its first rows, and no control character reaches the terminal."""
    printed: list[str] = []
    settings = ConsoleSettings(type="console", inputs=("x",), limit=2)
    sink = ConsoleSink(settings, SystemFiles(), FakeClock(), SequenceIds(), write=printed.append)
    sink.open(spark, identity())
    data = numbers(0, 3, text=["a\x1b[31m\nb", None, "c"], blob=pa.array([b"\xff", None, None]))
    assert sink.write(spark.createDataFrame(data), ranges(4, 9), soon()) == WriteResult(2, 0)
    assert sink.write(spark.createDataFrame(numbers(0, 0)), ranges(9, 10), soon()) == WriteResult(0, 0)
    sink.close()
    assert "".join(printed).splitlines() == [
        f"-- lake: {KEY} [4, 9)",
        r"id=0  text=a\x1b[31m\nb  blob=b'\xff'",
        "id=1  text=null  blob=null",
        "... and more: only the first 2 rows of a batch are shown",
        f"-- lake: {KEY} [9, 10)",
    ]
    assert sink.position() == {}
    assert not sink.exactly_once


def test_long_values_are_cut(spark: Any) -> None:
    """One value takes at most 200 characters of the console."""
    printed: list[str] = []
    settings = ConsoleSettings(type="console", inputs=("x",))
    sink = ConsoleSink(settings, SystemFiles(), FakeClock(), SequenceIds(), write=printed.append)
    sink.write(spark.createDataFrame(pa.table({"text": ["y" * 500]})), ranges(0, 1), soon())
    assert printed[0].splitlines()[1] == "text=" + "y" * 197 + "..."
