"""demo: what it refuses, what it says on the way, and real runs of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.conftest import Run
from holdfast.cli._live import LINE_SECONDS, Lines, drawn
from holdfast.operate.demo import DemoFigures, SinkFigures
from holdfast.testing import FakeClock
from sparkkit import environment
from store.storekit import until

FIGURES = DemoFigures(
    "rows flow", 12.4, 60_000, 24_000, 1999.6,
    sinks=(
        SinkFigures("lake", "running", 20_000, 1500.2, 20_000, 4_000), SinkFigures("rest", "down", 9, 0.0, 10, 23_990),
    ),
    disk_bytes=3_400_000, restarts={"pipeline": 1, "ingest-0": 2}, kills=3,
)  # fmt: skip


def test_without_java_nothing_is_begun(run: Run, tmp_path: Path) -> None:
    """What to install is told, and neither the folder nor a temporary one is left."""
    for arguments in (["--folder", tmp_path / "demo"], []):
        done = run("demo", *arguments, PATH="/nowhere", JAVA_HOME="", TMPDIR=str(tmp_path))
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr.startswith("holdfast: Spark needs Java 17 or newer, and no `java` was found on the PATH")
        assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it(call: Run, tmp_path: Path) -> None:
    """Refused: nothing of anybody's is written over."""
    (tmp_path / "mine").write_text("keep this")
    for path in (tmp_path, tmp_path / "mine"):
        done = call("demo", "--folder", path)
        assert (done.returncode, done.stdout) == (64, "")
        assert done.stderr == f"holdfast: {path} is not empty; choose a new folder for the demonstration\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A line when something new begins and every few seconds; what happened is told at once."""
    clock = FakeClock()
    lines = Lines(clock)
    for _ in range(3):
        lines.show(DemoFigures("Spark starts", 1.0, 60_000))
    lines.show(FIGURES)
    clock.advance(LINE_SECONDS / 2)
    lines.show(FIGURES)
    lines.tell("killed it")
    clock.advance(LINE_SECONDS / 2)
    lines.show(FIGURES)
    figures = (
        "holdfast: 12 s: rows flow; generated 24,000 of 60,000, 2,000 rows/s; "
        "lake 1,500 rows/s, lag 4,000, acked 20,000; rest 0 rows/s, lag 23,990, acked 10; disk 3.4 MB; restarts 3\n"
    )
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"holdfast: 1 s: Spark starts\n{figures}holdfast: killed it\n{figures}")


def test_figures_on_a_terminal() -> None:
    """All of them, one line for each sink."""
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(drawn(FIGURES))
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert lines[:2] == ["12 s rows flow", "generated 24,000 of 60,000 rows, 2,000 rows/s; store 3.4 MB on disk"]
    assert "lake running 1,500 20,000 4,000" in lines
    assert "rest down 0 10 23,990" in lines
    assert lines[-1] == "kills 3; restarts: pipeline 1, ingest-0 2"


def demo(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", "demo", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=560)


@pytest.mark.timeout(600)
def test_a_real_run(tmp_path: Path) -> None:
    """Rows go from the source into all three tables; the last line says so, and no process is left."""
    done = demo("--seconds", 2, "--rows-per-second", 1500, "--folder", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "generated 3000, delivered 3000, lost 0, doubled 0"
    tables = {words[0]: words[1:] for line in lines if len(words := line.split()) == 7}
    assert tables["lake"] == ["delta", "3,000", "3,000", "0", "0", "0"]
    assert [tables[name][0] for name in ("errors", "rest")] == ["parquet", "delta"]
    assert f"pipeline, store, tables and log are in {tmp_path}/demo" in lines
    assert "holdfast: the sinks have acked every row; stopping\n" in done.stderr
    assert demo("--folder", tmp_path / "demo").returncode == 64


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_real_run_with_kills(tmp_path: Path) -> None:
    """Both processes are killed twice, and each row is in each table once; the temporary folder is gone."""
    command = [sys.executable, "-m", "holdfast", "demo", "--seconds", "20", "--chaos", "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env={**environment(), "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert [document[key] for key in ("generated", "delivered", "lost", "doubled")] == [40_000, 40_000, 0, 0]
    killed = [kill["process"] for kill in document["kills"]]
    assert killed.count("pipeline") >= 2
    assert killed.count("ingest-0") >= 2
    assert done.stderr.count("(SIGKILL, process ") == len(killed)
    assert document["folder"] is None
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("holdfast-demo-")]


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_demo_that_is_broken_off_leaves_nothing_running(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Not even Java, also when nobody is left to end it; after Ctrl-C the temporary folder is gone too."""
    # A shell may have had Ctrl-C ignored in what it started in the background: these tests, perhaps.
    program = "import signal as s, holdfast.cli; s.signal(s.SIGINT, s.default_int_handler); holdfast.cli.main()"
    command = [sys.executable, "-c", program, "demo"]
    temporary = {**environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=temporary, stderr=subprocess.DEVNULL) as process:
        until(lambda: any(b"is ready" in path.read_bytes() for path in tmp_path.glob("holdfast-demo-*/run.log")), 300)
        (run,) = children(process.pid)
        assert len(session(run)) > 2
        process.send_signal(number)
        assert process.wait(60) == code
    until(lambda: not session(run), 60)
    assert bool(list(tmp_path.glob("holdfast-demo-*"))) == (number == signal.SIGKILL)


def session(leader: int) -> set[int]:
    """The processes of a session that run."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, number = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(number) == leader and state not in ("Z", "X"):
                found.add(int(entry.name))
    return found


def children(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
