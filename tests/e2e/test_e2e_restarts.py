"""Queries without state that stop, start, and find Spark's checkpoint gone, old or torn."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e import oracle
from e2e.oracle import Ledger, expect
from e2e.pipekit import APP, TOPIC, appending, failures, logged, pipeline, running, settle, wait_for
from holdfast.files import SystemFiles
from holdfast.pipeline._offset_log import last_entry
from store.storekit import until

SINKS = """
lake: {type: delta, inputs: [app], path: '{base}/lake', {quick}}
folder: {type: parquet, inputs: [app], path: '{base}/folder', commit_interval: 500ms}
"""
SEGMENTS = "buffer: {segment: {target_size: 1MB}, retention: {check_interval: 1s}}"


def lost(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def rolled_back(checkpoint: Path) -> None:
    last = last_entry(SystemFiles(), checkpoint, "offsets")
    assert last is not None
    for log in ("offsets", "commits"):
        for name in (str(last), f".{last}.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)


def torn(checkpoint: Path) -> None:
    for log in ("offsets", "commits"):
        last = last_entry(SystemFiles(), checkpoint, log)
        (checkpoint / log / str(last)).write_bytes(b"")
    (checkpoint / "metadata").write_bytes(b"")


FAULTS: list[Callable[[Path], None]] = [lost, rolled_back, torn]


def test_lives_with_faults_between_them(spark: Any, tmp_path: Path) -> None:
    """Whatever becomes of the checkpoints, and though all that was delivered is deleted, each life goes on exactly."""
    topology = pipeline(tmp_path, SINKS, buffer=SEGMENTS)
    ledger = Ledger()
    with appending(topology) as topic:
        for fault in FAULTS:
            with running(topology, spark) as runner:
                for _ in range(2):
                    ledger.append(topic, 20)
                    topic.seal()
                    settle(runner)
                end = topic.positions()[0][1]
                wait_for(runner, lambda end=end: topic.positions()[0][0] == end)
            for checkpoint in (topology.state / "queries").glob("*/checkpoints/*"):
                fault(checkpoint)
            ledger.append(topic, 20)
        with logged() as log, running(topology, spark) as runner:
            settle(runner)
            ledger.append(topic, 1)  # and a fresh one passes
            settle(runner)
        assert failures(log, "lake") == failures(log, "folder") == []
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    expect(oracle.parquet(tmp_path / "folder"), ledger.durable)
    left = list((topology.state / "queries").glob("*/checkpoints/*"))
    assert len(left) <= len(topology.sinks), "each life leaves its checkpoint, and the next one removes it"


def test_a_store_that_is_an_old_copy(spark: Any, tmp_path: Path) -> None:
    """A sink that holds more than the store ever had is not written to: that would skip what is appended next."""
    topology = pipeline(tmp_path, "lake: {type: delta, inputs: [app], path: '{base}/lake', {quick}}")
    ledger = Ledger()
    with appending(topology) as topic:
        ledger.append(topic)
        topic.register("lake")
    shutil.copytree(topology.store, tmp_path / "copy")
    with appending(topology) as topic, running(topology, spark) as runner:
        ledger.append(topic)
        settle(runner)
    shutil.rmtree(topology.store)
    (tmp_path / "copy").rename(topology.store)
    with running(topology, spark) as runner:
        wait_for(runner, lambda: runner.health()["lake"].error is not None)
        error = runner.health()["lake"].error
        assert error is not None
        assert "the sink holds what is below 2, the store ends at 1" in error
        assert runner.health()["lake"].lag == 1
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


def test_a_plain_query_whose_checkpoint_is_behind(spark: Any, tmp_path: Path) -> None:
    """A range that its subscriber finished, and that is deleted, is replayed as empty; what follows arrives."""
    topology = pipeline(tmp_path, "lake: {type: delta, inputs: [app], path: '{base}/lake', {quick}}", buffer=SEGMENTS)
    ledger, found = Ledger(), list[int]()

    def run(topic_path: Path) -> None:
        options = {"path": str(topic_path), "topic": TOPIC, "slot": "logs", "subscriber": "mine"}
        frame = spark.readStream.format("holdfast").options(**options).load()
        query = (
            frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
            .foreachBatch(lambda rows, _: found.extend(row["id"] for row in rows.collect()))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)

    with appending(topology) as topic:
        topic.register("mine")
        first = ledger.append(topic)
        topic.seal()
        run(topology.store)
        assert set(found) == first
        topic.acknowledge("mine", {0: (0, 1)})
        until(lambda: topic.positions()[0] == (1, 1))
        for name in ("0", ".0.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        ledger.append(topic)
        found.clear()
        run(topology.store)
        assert sorted(found) == sorted(ledger.durable - first)


def test_a_shard_that_appears_later(spark: Any, tmp_path: Path) -> None:
    """A shard that is new to a running query is read from its beginning, and by the next life from where it was."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [app, web], path: '{base}/lake', {quick}}",
        sources=f"{APP}\nweb: {{type: topic, topic: prod/web, slot: logs}}",
    )
    ledger = Ledger()
    with appending(topology, shard=0) as one, appending(topology, "prod/web") as web:
        ledger.append(one)
        ledger.append(web)
        with logged() as log, running(topology, spark) as runner:
            settle(runner)
            with appending(topology, shard=1) as two:
                ledger.append(two)
                ledger.append(one)
                ledger.append(two)
                settle(runner)
                ledger.append(two)
                settle(runner)
        assert failures(log, "lake") == []
        with appending(topology, shard=1) as two, running(topology, spark) as runner:
            ledger.append(two)
            settle(runner)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
