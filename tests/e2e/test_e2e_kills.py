"""Processes that are killed, and what the tables hold afterwards."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from e2e import oracle
from e2e.oracle import Ledger, expect, rows
from e2e.pipekit import FILE, TOPIC, appending, pipeline, running, settle
from e2e.processes import drive, driving, write_until_killed
from e2e.test_e2e_state import append, counting, expect_windows
from store.storekit import until

SINKS = """
lake: {type: delta, inputs: [app], path: '{base}/lake', max_batch_bytes: 1500B, {quick}}
folder: {type: parquet, inputs: [app], path: '{base}/folder', max_batch_bytes: 1500B, {quick}}
"""
USUAL = [("3", "lake", 2)]
GAPS = ("1", "2", "2.5", "3", "4", "5")
ALL = [(gap, sink, batch) for gap in GAPS for sink in ("lake", "folder") for batch in (1, 3)]


def live(folder: Path, gaps: list[tuple[str, str, int]]) -> None:
    """A life for each gap, then one that ends well."""
    topology = pipeline(folder, SINKS)
    ledger = Ledger()
    for gap in gaps:
        with appending(topology) as topic:
            for _ in range(10):
                ledger.append(topic, 10)
        assert drive(folder / FILE, *gap) == "killed"
        for table in (oracle.delta(folder / "lake"), oracle.parquet(folder / "folder")):
            expect(table, set(), possible=ledger.durable)
    with appending(topology) as topic:
        ledger.append(topic, 1)
    assert drive(folder / FILE) == "drained"
    expect(oracle.delta(folder / "lake"), ledger.durable)
    expect(oracle.parquet(folder / "folder"), ledger.durable)


def test_a_driver_that_is_killed_between_two_steps(tmp_path: Path) -> None:
    """Killed between a commit and its ack it loses and doubles nothing."""
    live(tmp_path, USUAL)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_driver_that_is_killed_in_every_gap(part: int, tmp_path: Path) -> None:
    """The same, in each gap of each sink, in the first batch and in a later one."""
    live(tmp_path, ALL[part::4])


@pytest.mark.long
def test_a_driver_with_state_that_is_killed_in_every_gap(tmp_path: Path) -> None:
    """Windows come once and whole, wherever the driver was killed."""
    topology = counting(tmp_path, batch="1B")  # so each bundle is a batch
    ledger = Ledger()
    for gap in GAPS:
        with appending(topology) as topic:
            append(ledger, topic, 13, 12)
        # The first batch of a life may be the one that the life before was killed in.
        assert drive(tmp_path / FILE, gap, "counts", 2) == "killed"
    with appending(topology) as topic:
        append(ledger, topic, 10, 1)
    assert drive(tmp_path / FILE) == "drained"
    expect_windows(tmp_path, 150)


@pytest.mark.long
def test_a_writer_that_is_killed_in_mid_append(spark: Any, tmp_path: Path) -> None:
    """What was answered arrives; of what was not, whole bundles or nothing; and the next writer's rows follow."""
    topology = pipeline(tmp_path, SINKS)
    promised, possible = set[int](), set[int]()
    with running(topology, spark) as runner:
        for life in range(2):
            durable, begun = write_until_killed(topology.store, TOPIC, life * 1_000_000, 30, 5)
            promised |= durable
            possible |= begun
        with appending(topology) as topic:
            topic.append({"logs": rows(5_000_000, 5_000_001)}).wait(timeout=60)
            settle(runner)
    promised.add(5_000_000)
    for table in (oracle.delta(tmp_path / "lake"), oracle.parquet(tmp_path / "folder")):
        expect(table, promised, possible)
        ids = set(table["id"].to_pylist())
        assert all((number in ids) == (number - number % 5 in ids) for number in possible), "half a bundle"


@pytest.mark.long
def test_an_executor_that_is_killed(tmp_path: Path) -> None:
    """On executors that are processes of their own, one of which is killed, every row arrives once."""
    topology = pipeline(tmp_path, SINKS)
    ledger = Ledger()
    with appending(topology) as topic:
        for _ in range(60):
            ledger.append(topic, 10)
    with driving(tmp_path / FILE, master="local-cluster[2,1,1024]") as process:
        log = tmp_path / "lake" / "_delta_log"
        until(lambda: log.is_dir() and len(list(log.glob("*.json"))) >= 3, 400)
        victim = executors(process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        assert process.stdout is not None
        assert "drained" in process.stdout.read()
        assert process.wait(200) == 0
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    expect(oracle.parquet(tmp_path / "folder"), ledger.durable)


def executors(driver: int) -> list[int]:
    """The executors below a driver."""
    found, waiting = [], [driver]
    while waiting:
        parent = waiting.pop()
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            waiting += [int(child) for child in path.read_text().split()]
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{parent}/cmdline").read_bytes():
            found.append(parent)
    return sorted(found)
