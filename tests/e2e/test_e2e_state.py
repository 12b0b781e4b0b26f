"""Queries that keep state: counts are exact over restarts, replays and failures, or the query does not start."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from e2e import oracle
from e2e.oracle import Ledger, rows
from e2e.pipekit import appending, failures, logged, pipeline, running, settle, wait_for, wait_state
from holdfast.pipeline._query import State
from holdfast.pipeline.topology import Topology
from holdfast.sinks import DeltaSink

START = datetime(2024, 5, 1, tzinfo=UTC)
WINDOW = 10  # ids, one a second
QUERY = f"""
select window.start as start, count(*) as n, sum(id) as total from app group by window(ts, '{WINDOW} seconds')
""".strip()


def timed(first: int, end: int) -> pa.RecordBatch:
    """One row a second."""
    times = [START + timedelta(seconds=number) for number in range(first, end)]
    return rows(first, end, ts=pa.array(times, pa.timestamp("us", tz="UTC")))


def counting(folder: Path, query: str = QUERY, batch: str = "1MB") -> Topology:
    return pipeline(
        folder,
        f"counts: {{type: delta, inputs: [windows], path: '{{base}}/counts', max_batch_bytes: {batch}, {{quick}}}}",
        transforms=f'windows: {{type: sql, inputs: [app], query: "{query}", watermark: {{column: ts, delay: 0s}}}}',
    )


def append(ledger: Ledger, topic: hf.Topic, *counts: int) -> None:
    for count in counts:
        ledger.append(topic, count, rows_of=timed)


def expect_windows(folder: Path, upto: int) -> None:
    """Every window below this id is there once, with exactly its rows; there may be later ones, as exact."""
    table = oracle.delta(folder / "counts")
    starts = [int((start - START).total_seconds()) for start in table["start"].to_pylist()]
    assert max(Counter(starts).values()) == 1, "a window came twice"
    assert {first for first in starts if first < upto} == set(range(0, upto, WINDOW))
    found = dict(zip(starts, zip(table["n"].to_pylist(), table["total"].to_pylist(), strict=True), strict=True))
    wrong = {first: each for first, each in found.items() if each != (WINDOW, sum(range(first, first + WINDOW)))}
    assert wrong == {}


def test_counts_over_restarts_and_replays(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each window comes once, with every row: after stops, after a commit that Spark never heard of, after agreeing to
    a loss that did not happen."""
    topology = counting(tmp_path)
    ledger, write, failed = Ledger(), DeltaSink.write, list[Any]()

    def failing(self: DeltaSink, *args: Any) -> Any:
        result = write(self, *args)
        if result.rows and not failed:
            failed.append(result)
            raise OSError("killed between the sink's commit and Spark's")
        return result

    with appending(topology) as topic:
        with running(topology, spark) as runner:
            append(ledger, topic, 7, 7, 9)
            settle(runner)
            append(ledger, topic, 13)
            settle(runner)
        append(ledger, topic, 8)
        with monkeypatch.context() as patch:
            patch.setattr(DeltaSink, "write", failing)
            with logged() as log, running(topology, spark) as runner:
                settle(runner)
                append(ledger, topic, 21)
                settle(runner)
                append(ledger, topic, 5)
                settle(runner)
            assert len(failures(log, "counts")) == len(failed) == 1
        with running(topology, spark, accept_state_loss=True) as runner:
            append(ledger, topic, 10)
            settle(runner)
            append(ledger, topic, 30)
            settle(runner)
            append(ledger, topic, 1)
            settle(runner)
    assert len(ledger.durable) == 111
    expect_windows(tmp_path, 110 - WINDOW)


def test_a_sink_that_looks_at_some_rows_only(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A console prints the first rows of each batch, and the state of all the others is kept all the same."""
    topology = pipeline(
        tmp_path,
        "counts: {type: console, inputs: [windows], limit: 1, {quick}}",
        transforms=f'windows: {{type: sql, inputs: [app], query: "{QUERY}", watermark: {{column: ts, delay: 0s}}}}',
    )
    ledger = Ledger()
    with appending(topology) as topic, logged() as log, running(topology, spark) as runner:
        for count in (55, 55, 5, 15, 1):
            append(ledger, topic, count)
            settle(runner)
    assert failures(log, "counts") == []
    printed = [line.split("  ") for line in capsys.readouterr().out.splitlines() if line.startswith("start=")]
    assert printed
    assert {words[1] for words in printed} == {f"n={WINDOW}"}


def test_state_that_is_missing(spark: Any, tmp_path: Path) -> None:
    """Without its state the query does not start, and says what to do; told to go on, it counts from there."""
    topology = counting(tmp_path)
    state = topology.state / "queries" / "counts" / "state"
    ledger = Ledger()
    with appending(topology) as topic:
        with running(topology, spark) as runner:
            append(ledger, topic, 10, 10)
            settle(runner)
        shutil.rmtree(state)
        append(ledger, topic, 10)
        with running(topology, spark) as runner:
            health = wait_state(runner, "counts", State.FAILING)
            assert health.error == (
                f"sink counts keeps state, and its checkpoint {state} is missing although it has delivered before: "
                "put it back, or start once with --accept-state-loss to begin with an empty state"
            )
            assert health.lag == 1
            assert not state.exists()
        with running(topology, spark, accept_state_loss=True) as runner:
            settle(runner)
            append(ledger, topic, 20)
            settle(runner)
            append(ledger, topic, 1)
            settle(runner)
    table = oracle.delta(tmp_path / "counts")
    starts = [int((start - START).total_seconds()) for start in table["start"].to_pylist()]
    assert max(Counter(starts).values()) == 1
    assert {20, 30} <= set(starts)
    assert set(table["n"].to_pylist()) == {WINDOW}


def test_state_that_is_torn(spark: Any, tmp_path: Path) -> None:
    """A zero-byte file in the checkpoint stops the query, and only a loss that is agreed to sets it aside."""
    topology = counting(tmp_path)
    state = topology.state / "queries" / "counts" / "state"
    ledger = Ledger()
    with appending(topology) as topic:
        with running(topology, spark) as runner:
            append(ledger, topic, 10)
            settle(runner)
        last = max(int(path.name) for path in (state / "offsets").iterdir() if path.name.isdecimal())
        (state / "offsets" / str(last)).write_bytes(b"")
        append(ledger, topic, 10)
        with running(topology, spark) as runner:
            health = wait_state(runner, "counts", State.FAILING)
            assert health.error is not None
            assert str(state / "offsets" / str(last)) in health.error
        with running(topology, spark, accept_state_loss=True) as runner:
            settle(runner)
        assert [path.name[:6] for path in state.parent.iterdir() if path.name.startswith("state-")] == ["state-"]


@pytest.mark.long
def test_deduplication_over_a_restart(spark: Any, tmp_path: Path) -> None:
    """What was seen before a restart is still known after it."""
    topology = counting(tmp_path, query="select distinct id, check, ts from app")
    ledger = Ledger()
    with appending(topology) as topic:
        for _ in range(2):
            with running(topology, spark) as runner:
                append(ledger, topic, 10)
                topic.append({"logs": timed(5, 10)}).wait(timeout=60)
                settle(runner)
                # A row is told from all others once the watermark is above it: with the batch after the next.
                append(ledger, topic, 10)
                settle(runner)
                topic.append({"logs": timed(15, 20)}).wait(timeout=60)
                settle(runner)
    oracle.expect(oracle.delta(tmp_path / "counts"), range(30), possible=ledger.durable)


def test_a_topic_that_a_query_with_state_reads_twice(spark: Any, tmp_path: Path) -> None:
    """Spark would have two positions in one topic: such a query says so, and delivers nothing."""
    join = "select l.id, l.check from app l join app r on l.id = r.id and l.ts = r.ts"
    topology = counting(tmp_path, query=join)
    with appending(topology) as topic, running(topology, spark) as runner:
        append(Ledger(), topic, 10)
        wait_for(runner, lambda: runner.health()["counts"].state is State.FAILING)
        error = runner.health()["counts"].error
        assert error is not None
        assert "must read each of its topics in one place; it reads prod/logs, prod/logs" in error
        assert runner.health()["counts"].lag == 1
