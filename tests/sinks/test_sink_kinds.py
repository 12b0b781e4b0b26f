"""The registry of sinks, what importing it costs, and what is said when a package is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sinkkit import STORE_ID, delta, identity

from holdfast import sinks
from holdfast.errors import InvalidPosition, Missing
from holdfast.sinks import SINK_SETTINGS, SINKS, Ranges
from holdfast.spark.causes import cause_of
from sparkkit import environment


def test_every_type_of_settings_has_its_sink() -> None:
    """What a pipeline's file may name can be made, and all that is public is in `__all__`."""
    assert {name: kind.settings for name, kind in SINKS.items()} == SINK_SETTINGS
    assert sorted(sinks.__all__) == sorted(name for name in vars(sinks) if name[0].isupper())


def test_importing_sinks_needs_neither_spark_nor_delta() -> None:
    """A pipeline's file can be checked where neither is installed."""
    code = "import sys, holdfast.sinks; sys.exit(any(n in sys.modules for n in ('pyspark', 'deltalake', 'pandas')))"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without deltalake the error says what to install."""
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(Missing, match=r"pip install 'holdfast\[delta\]'"):
        delta(tmp_path).open(None, identity())  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [(3, 3), (4, 3), (-1, 3)])
def test_a_batch_covers_something(bad: tuple[int, int]) -> None:
    """Empty and backward ranges are refused where they are made."""
    with pytest.raises(InvalidPosition, match="a/b/0"):
        Ranges(STORE_ID, "lake", {"a/b/0": bad})


def test_errors_in_one_line() -> None:
    """Of a worker's traceback the line that names the error is told, of others the first."""
    trace = 'It was thrown:\nTraceback (most recent call last):\n  File "x"\n    raise\nOSError: no room\n\tat java.x'
    problems: list[Any] = [Exception(trace), Exception("one\ntwo"), Exception("")]
    assert [cause_of(problem)[1] for problem in problems] == ["OSError: no room", "Exception: one", "Exception"]
