"""The budget between real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.config import Cap
from holdfast.files import SystemFiles
from holdfast.retention import Budget
from retention.budget_worker import Shards

WORKER = Path(__file__).with_name("budget_worker.py")


def worker(store: Path, *numbers: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(store), *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def results_of(store: Path, processes: int, count: int, cap: int, size: int) -> list[dict[str, int]]:
    running = [worker(store, number, cap, size, count) for number in range(processes)]
    said = [process.communicate(timeout=900)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [json.loads(each) for each in said]


def check(store: Path, processes: int, count: int) -> None:
    cap, size = 100_000, 8_000
    for result in results_of(store, processes, count, cap, size):
        assert result["written"] == count
        assert result["most"] <= cap + processes * size
    assert Shards(store).total() > cap // 2


def test_two_processes_keep_one_cap(tmp_path: Path) -> None:
    """Each gets all its segments written, making room in its own shard and in the other's; the cap holds throughout."""
    check(tmp_path, 2, 60)


@pytest.mark.long
def test_four_processes_keep_one_cap(tmp_path: Path) -> None:
    """The same with four, for longer."""
    check(tmp_path, 4, 1000)


def test_a_killed_worker_gives_its_grant_back(tmp_path: Path) -> None:
    """What a process was promised counts while it lives, and not a moment longer."""
    process = worker(tmp_path, 0, 1000, 5000, 0)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ok"]
        files, shard = SystemFiles(), tmp_path / "a/x/shard-0001"
        files.make_folder(shard)
        caps = [Cap("store", Path(), 1000)]
        budget = Budget(files, SystemClock(), tmp_path, shard, caps, neighbours=Shards(tmp_path))
        assert not budget.admit(1).ok
        process.kill()
        process.wait(timeout=60)
        assert budget.admit(1).ok
        budget.close()
    finally:
        process.kill()
        process.communicate(timeout=60)
