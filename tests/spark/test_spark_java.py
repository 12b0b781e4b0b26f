"""Without Java there is no Spark: what is said then; and what is left of an error that has been through Java."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.errors import DataLost, HoldfastError, Missing, NotAStore
from holdfast.spark import cause_of, check_java
from holdfast.spark.causes import MAX_LENGTH, plainly
from holdfast.spark.session import session

INSTALL = (
    "Install it (Debian: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) "
    "or set JAVA_HOME to where it is."
)


def java(folder: Path, says: str, code: int = 0) -> Path:
    """A program that answers as Java does."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\nexit {code}\n")
    command.chmod(0o755)
    return command


def test_no_java(tmp_path: Path) -> None:
    """What to install is said before Spark is tried."""
    with pytest.raises(Missing) as caught:
        check_java({"PATH": str(tmp_path)})

    assert str(caught.value) == (
        f"Spark needs Java 17 or newer, and no `java` was found on the PATH, and JAVA_HOME is not set. {INSTALL}"
    )


def test_a_wrong_java_home(tmp_path: Path) -> None:
    """JAVA_HOME goes before the PATH, as it does for Spark; if nothing is there, it is named."""
    home = tmp_path / "nowhere"

    with pytest.raises(Missing) as caught:
        check_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})

    assert f"and {home}/bin/java does not run: " in str(caught.value)
    assert str(caught.value).endswith(INSTALL)


def test_a_java_that_fails(tmp_path: Path) -> None:
    """A Java that does not start is as good as none."""
    java(tmp_path, "Error: could not create the virtual machine", code=1)

    with pytest.raises(Missing, match="java does not run: "):
        check_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "says",
    ['openjdk version "11.0.2" 2019-01-15', 'java version "1.8.0_292"', "openjdk version 17", ""],
)
def test_a_java_that_is_too_old(tmp_path: Path, says: str) -> None:
    """The version that was found is named; what cannot be told is not trusted."""
    command = java(tmp_path, says)

    with pytest.raises(Missing) as caught:
        check_java({"JAVA_HOME": str(tmp_path)})
    assert f"{command} is too old ({says})" in str(caught.value)


@pytest.mark.parametrize(
    "says",
    [
        'openjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime Environment',
        'java version "21" 2023-09-19 LTS',
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1"',
    ],
)
def test_a_java_that_will_do(tmp_path: Path, says: str) -> None:
    """17 or newer, whatever else it says."""
    command = java(tmp_path, says)

    check_java({"JAVA_HOME": str(tmp_path)})
    check_java({"PATH": f"{command.parent}:/usr/bin:/bin"})


def test_a_session_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`session` says so at once."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(Missing, match="Spark needs Java 17 or newer"):
        session("app")


# -- causes ------------------------------------------------------------------------------------------------------------

WALL = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "/x/_readers.py", line 12, in latestOffset
    raise problem
holdfast.errors.SchemaChanged: prod/logs has what the query's schema does not: b string; start the query again

	at org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


def test_our_own_error_behind_java() -> None:
    """Kind and text are found again."""
    text = "prod/logs has what the query's schema does not: b string; start the query again"

    assert cause_of(RuntimeError(WALL)) == (errors.SchemaChanged, text)


def test_our_own_error_itself() -> None:
    """An error that never met Java is what it is."""
    lost = DataLost("prod/logs/0", 1, 5, "gone")

    assert cause_of(lost) == (DataLost, str(lost))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x\nTraceback:\nZeroDivisionError: division by zero\n at org.apache", "ZeroDivisionError: division by zero"),
        ("x\na.b.OddError: first\nValueError: last", "ValueError: last"),
        ("[PATH_NOT_FOUND] no such path\n at org.apache", "RuntimeError: [PATH_NOT_FOUND] no such path"),
        ("", "RuntimeError"),
        ("holdfast.errors.Nonsense: x", "RuntimeError: holdfast.errors.Nonsense: x"),
    ],
)
def test_errors_of_others(text: str, wanted: str) -> None:
    """Of any other error one line is left: Python's last, or Spark's first."""
    assert cause_of(RuntimeError(text)) == (None, wanted)


def test_long_texts_are_cut() -> None:
    """A line is never longer than a screen or two."""
    _, text = cause_of(RuntimeError("y" * 10_000))

    assert len(text) == MAX_LENGTH
    assert text.endswith("…")


def test_plainly() -> None:
    """Our errors lose their frames, and what caused them; others pass as they are."""

    @plainly
    def ours() -> None:
        try:
            raise OSError("inner")
        except OSError as inner:
            raise NotAStore("nothing there") from inner

    @plainly
    def theirs() -> None:
        raise KeyError("x")

    with pytest.raises(HoldfastError) as caught:
        ours()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    with pytest.raises(KeyError):
        theirs()
