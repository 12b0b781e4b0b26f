"""The program as a process, and a small store on a real disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import structlog

from holdfast import Store
from holdfast.cli._app import run as program

Run = Callable[..., subprocess.CompletedProcess[str]]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"}}


@pytest.fixture
def run() -> Run:
    """Run `holdfast` with these arguments; environment variables as keywords."""

    def ran(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "holdfast", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env={**ENVIRONMENT, **environment}, timeout=120)

    return ran


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The same in this process, which is quicker: one test of each command is enough to try it as a process."""
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def called(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        words = list(map(str, arguments))
        with pytest.MonkeyPatch.context() as around:
            for name, value in environment.items():
                around.setenv(name, value)
            code = program(words)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    yield called
    structlog.reset_defaults()  # the commands silence the store's log


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with two topics, of which each test gets a copy."""
    path = tmp_path_factory.mktemp("original") / "data"
    with Store.open(path) as opened:
        for name in ("prod/logs", "prod/metrics"):
            topic = opened.topic(name)
            for number in range(1234):
                receipt = topic.append({"rows": pa.record_batch({"id": [number], "text": [f"line {number}"]})})
            receipt.wait()
    return path


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    """A closed store with two topics."""
    return shutil.copytree(original, tmp_path / "data")


@pytest.fixture
def segment(store: Path) -> Path:
    """One of its segment files."""
    (found,) = (store / "prod/logs/shard-0000/segments").iterdir()
    return found
