"""run, ingest and pipeline as programs: what they refuse, and one real pipeline under kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from cli.conftest import ENVIRONMENT, Run
from holdfast import Store
from holdfast.pipeline._watch import ask
from sparkkit import environment
from store.storekit import until

PIPELINE = """
store: {{path: ./data}}
spark:
  master: local[2]
  conf: {{spark.driver.memory: 1g, spark.sql.shuffle.partitions: 2}}
sources:
  demo: {{type: demo, topic: demo/events, rows_per_second: 2000, limit: {limit}}}
sinks:
  files: {{type: parquet, inputs: [demo], path: ./files, commit_interval: 500ms}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(limit=4000))
    return path


def test_a_file_with_mistakes_ends_each_command_with_78(run: Run, tmp_path: Path) -> None:
    """Nothing is started; every mistake is told, each in a line."""
    path = tmp_path / "bad.yaml"
    path.write_text("store: {path: ./data}\nsources: {demo: {type: dmo, topic: demo/events}}\nsinks: {}\n")
    for command in ("run", "ingest", "pipeline"):
        done = run(command, path)
        assert (done.returncode, done.stdout) == (78, "")
        assert "sources.demo" in done.stderr
        assert "demo" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["ingest", "--worker", "two"], "--worker two: write which one of how many, counted from 0, like 0/2"),
        (["ingest", "--worker", "2/2"], "worker 2 of 2: workers are counted from 0 to 1"),
        (["pipeline", "--conf", "spark"], "--conf spark: write it as key=value, like spark.executor.memory=2g"),
        (["run", "--conf", "=1"], "--conf =1: write it as key=value, like spark.executor.memory=2g"),
    ],
)
def test_wrong_options_end_with_64(call: Run, file: Path, arguments: list[str], text: str) -> None:
    """An option that makes no sense is told before anything starts."""
    done = call(arguments[0], file, *arguments[1:])
    assert (done.returncode, done.stderr) == (64, f"holdfast: {text}\n")


def test_without_java_run_ends_with_69(run: Run, file: Path) -> None:
    """What to install is told, and nothing is started."""
    done = run("run", file, PATH="/nowhere", JAVA_HOME="")
    assert done.returncode == 69
    assert done.stderr.startswith("holdfast: Spark needs Java 17 or newer, and no `java` was found on the PATH")


def test_ingest_alone_receives_until_it_is_stopped(file: Path, tmp_path: Path) -> None:
    """The half that receives needs no Spark; SIGTERM ends it with everything in the store."""
    command = [sys.executable, "-m", "holdfast", "ingest", str(file), "--worker", "0/1"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL) as process:
        checkpoint = tmp_path / "data.pipeline" / "sources" / "demo.checkpoint"
        until(lambda: checkpoint.exists() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with Store.open(tmp_path / "data", read_only=True) as store:
        assert sum(batch.num_rows for batch in store.topic("demo/events").read(slot="events")) > 0


class Real:
    """`holdfast run`, with its log."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "holdfast", "run", str(file), "--stop-timeout", "200s"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def health(self) -> dict[str, Any]:
        assert self.process.poll() is None, "".join(self.log)
        found = [
            line.rsplit("address=", 1)[1].strip() for line in list(self.log) if "serving metrics and health" in line
        ]
        return (ask(found[0]) or {}) if found else {}

    def part(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.health().get("parts", {}).get(name, {})
        return found

    def until_ok(self, name: str, *, restarts: int = 0) -> int:
        """Wait until a process runs and is well, after so many restarts; its pid."""
        until(lambda: (part := self.part(name)).get("status") == "ok" and part["restarts"] == restarts, 180)
        return int(self.part(name)["pid"])

    def end(self) -> None:
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextmanager
def real(file: Path) -> Iterator[Real]:
    started = Real(file)
    try:
        yield started
    finally:
        started.process.kill()
        started.end()


def group(leader: int) -> set[int]:
    """The processes of a group that run: a driver and its Java."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, number = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(number) == leader and state not in ("Z", "X"):
                found.add(int(entry.name))
    return found


def delivered(folder: Path) -> list[int]:
    found: list[int] = sorted(
        ds.dataset(folder / "files", format="parquet").to_table(columns=["seq"])["seq"].to_pylist()
    )
    return found


def finish(run: Real) -> None:
    """Until the source has sent all, then stop it: what is there is drained."""
    until(lambda: run.part("ingest-0").get("parts", {}).get("demo", {}).get("finished"), 180)
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(240) == 0, "".join(run.log)


@pytest.mark.long
def test_a_pipeline_whose_driver_is_killed_delivers_each_row_once(file: Path, tmp_path: Path) -> None:
    """SIGKILL of the driver: its Java goes too, ingest goes on, a new driver takes over, a stop drains the rest."""
    with real(file) as run:
        driver, ingest = run.until_ok("pipeline"), run.until_ok("ingest-0")
        assert len(group(driver)) > 1
        os.kill(driver, signal.SIGKILL)
        until(lambda: not group(driver))
        assert run.until_ok("pipeline", restarts=1) != driver
        assert run.until_ok("ingest-0") == ingest
        finish(run)
        assert not group(ingest)
    assert delivered(tmp_path) == list(range(4000)), "".join(run.log)


@pytest.mark.long
def test_killing_the_supervisor_takes_everything_with_it_and_the_next_run_goes_on(file: Path, tmp_path: Path) -> None:
    """After SIGKILL of `holdfast run` neither a process nor Java is left; another run delivers each row once."""
    with real(file) as run:
        driver, ingest = run.until_ok("pipeline"), run.until_ok("ingest-0")
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        until(lambda: not group(driver) and not group(ingest))
    with real(file) as run:
        run.until_ok("ingest-0")
        finish(run)
    assert delivered(tmp_path) == list(range(4000)), "".join(run.log)
    assert json.dumps(run.log).count("process ended") == 0


@pytest.mark.long
def test_ingest_and_driver_killed_again_and_again(tmp_path: Path) -> None:
    """Kills of both on the way lose nothing and double nothing."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(limit=60_000))
    with real(file) as run:
        run.until_ok("pipeline")
        for restarts in range(3):
            os.kill(run.until_ok("ingest-0", restarts=restarts), signal.SIGKILL)
            os.kill(run.until_ok("pipeline", restarts=restarts), signal.SIGKILL)
        run.until_ok("pipeline", restarts=3)
        finish(run)
    assert delivered(tmp_path) == list(range(60_000))
