"""One query for each sink: what arrives, what fails, what hangs, and who holds the subscriber."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from e2e import oracle
from e2e.oracle import Ledger, expect, rows
from e2e.pipekit import (
    APP,
    TOPIC,
    appending,
    failures,
    gate_sink,
    logged,
    pipeline,
    running,
    settle,
    stop,
    wait_for,
    wait_state,
    widened,
)
from holdfast.clock import Deadline, SystemClock
from holdfast.errors import InvalidPipeline
from holdfast.pipeline._query import State
from holdfast.pipeline.runner import Runner
from holdfast.sinks import DeltaSink

LAKE = "lake: {type: delta, inputs: [app], path: '{base}/lake', {quick}}"
OTHER = "other: {type: parquet, inputs: [app], path: '{base}/other', {quick}}"
SLOW = "slow: {type: console, inputs: [app], deadline: 1s, {quick}}"


def level(number: int) -> str | None:
    """Every fifth row has none."""
    return (None, "INFO", "ERROR", "INFO", "WARN")[number % 5]


def levelled(first: int, end: int) -> pa.RecordBatch:
    return rows(first, end, level=level)


def odd(first: int, end: int) -> pa.RecordBatch:
    """Rows with names that SQL has to quote, and a column of nulls only, which no table has a type for."""
    names = {"a.b": pa.array(["x"] * (end - first)), "`t0`": pa.array(range(first, end))}
    return rows(first, end, void=pa.nulls(end - first), **names)


def test_one_topic_in_many_sinks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Filter, route and SQL each take exactly their rows, of all shards, to every kind of sink."""
    topology = pipeline(
        tmp_path,
        """
        errors: {type: parquet, inputs: [bad], path: '{base}/errors', {quick}}
        rest: {type: delta, inputs: [split.other], path: '{base}/rest', {quick}}
        again: {type: holdfast, inputs: [picked], topic: prod/again, slot: logs, {quick}}
        shown: {type: console, inputs: [split.info], limit: 3, {quick}}
        """,
        transforms="""
        bad: {type: filter, inputs: [app], condition: "level = 'ERROR'"}
        split: {type: route, inputs: [app], outputs: {info: "level = 'INFO'"}, other: true}
        picked: {type: sql, inputs: [app], query: "select id, check from app where id % 2 = 0"}
        """,
    )
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology, shard=0) as one, appending(topology, shard=1) as two:
        for topic in (one, two, one, two):
            ledger.append(topic, 50, rows_of=levelled)
        settle(runner)
        for topic in (two, one):
            ledger.append(topic, 50, rows_of=levelled)
        settle(runner)
        assert {name: health.state for name, health in runner.health().items()} == dict.fromkeys(
            topology.sinks, State.RUNNING
        )
    of = {name: {number for number in ledger.durable if level(number) == name} for name in ("ERROR", "INFO")}
    expect(oracle.parquet(tmp_path / "errors"), of["ERROR"])
    expect(oracle.delta(tmp_path / "rest"), ledger.durable - of["INFO"])
    with hf.Store.open(topology.store, read_only=True) as store:
        bundles = list(store.topic("prod/again").bundles())
    again = pa.Table.from_batches([bundle["logs"] for bundle in bundles])
    expect(again, {number for number in ledger.durable if number % 2 == 0})
    assert again.column_names == ["id", "check"]
    assert {bundle.attributes["source"] for bundle in bundles} == {"again"}
    printed = capsys.readouterr().out
    assert "-- shown: prod/logs/0 [0, 2)" in printed or "-- shown: prod/logs/0 [0, 1)" in printed
    assert "level=INFO" in printed
    assert "level=ERROR" not in printed


def test_sources_that_share_a_topic(spark: Any, tmp_path: Path) -> None:
    """A sink has the rows of the sources that it names, and no others, whatever topics they are in."""
    topology = pipeline(
        tmp_path,
        """
        web: {type: delta, inputs: [web_rows], path: '{base}/web', {quick}}
        mixed: {type: parquet, inputs: [web_rows, api_rows, app], path: '{base}/mixed', {quick}}
        """,
        sources=f"""
        {APP}
        web_rows: {{type: topic, topic: prod/shared, slot: logs, source: web}}
        api_rows: {{type: topic, topic: prod/shared, slot: logs, source: api}}
        """,
    )
    ledger, web, api, app = Ledger(), set[int](), set[int](), set[int]()
    with (
        running(topology, spark) as runner,
        appending(topology) as own,
        appending(topology, "prod/shared") as shared,
    ):
        wait_for(runner, lambda: runner.health()["web"].state is State.WAITING)
        for _ in range(3):
            web |= ledger.append(shared, attributes={"source": "web"})
            api |= ledger.append(shared, attributes={"source": "api"})
            ledger.append(shared, attributes={"source": "somebody else"})
            ledger.append(shared)
            app |= ledger.append(own, rows_of=odd)
        settle(runner)
    expect(oracle.delta(tmp_path / "web"), web)
    mixed = oracle.parquet(tmp_path / "mixed")
    expect(mixed, web | api | app)
    assert mixed.column_names == ["id", "check", "a.b", "`t0`"]
    assert {row["id"]: row["`t0`"] for row in mixed.to_pylist()} == {
        number: number if number in app else None for number in web | api | app
    }


def test_one_topic_read_in_two_ways_while_it_grows(spark: Any, tmp_path: Path) -> None:
    """A sink that draws twice from one topic gets both parts of it to the same end, batch by batch."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [split.even, split.other], path: '{base}/lake', {quick}}",
        transforms='split: {type: route, inputs: [app], outputs: {even: "id % 2 = 0"}, other: true}',
    )
    ledger, ended = Ledger(), threading.Event()
    with logged() as log, running(topology, spark) as runner, appending(topology) as topic:

        def grow() -> None:
            while not ended.wait(0.002):
                ledger.append(topic, 2)

        writer = threading.Thread(target=grow)
        writer.start()
        try:
            path = tmp_path / "lake" / "_delta_log"
            wait_for(runner, lambda: path.is_dir() and len(list(path.glob("*.json"))) >= 12)
        finally:
            ended.set()
            writer.join()
        settle(runner)
    assert failures(log, "lake") == []
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


def test_a_query_that_reads_no_column(spark: Any, tmp_path: Path) -> None:
    """Rows are counted right where none of their columns is asked for."""
    topology = pipeline(
        tmp_path,
        """
        one: {type: parquet, inputs: [tagged], path: '{base}/one', {quick}}
        two: {type: parquet, inputs: [both], path: '{base}/two', {quick}}
        """,
        sources=f"{APP}\nweb: {{type: topic, topic: prod/web, slot: logs}}",
        transforms="""
        tagged: {type: sql, inputs: [app], query: "select 'x' as tag from app"}
        both: {type: sql, inputs: [app, web], query: "select 'x' as tag from app union all select 'y' as tag from web"}
        """,
    )
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology) as app, appending(topology, "prod/web") as web:
        for _ in range(3):
            ledger.append(app, 7)
            ledger.append(web, 2)
        settle(runner)
    assert oracle.parquet(tmp_path / "one").to_pydict() == {"tag": ["x"] * 21}
    assert sorted(oracle.parquet(tmp_path / "two").to_pydict()["tag"]) == ["x"] * 21 + ["y"] * 6


def test_a_new_column_in_mid_stream(spark: Any, tmp_path: Path) -> None:
    """The query that takes every column starts again, and the column arrives; the other query goes on undisturbed."""
    topology = pipeline(
        tmp_path,
        f"{LAKE}\npicked: {{type: parquet, inputs: [few], path: '{{base}}/picked', {{quick}}}}",
        transforms='few: {type: sql, inputs: [app], query: "select id, check from app"}',
    )
    ledger = Ledger()
    with logged() as log, running(topology, spark) as runner, appending(topology) as topic:
        before = ledger.append(topic, 30)
        settle(runner)
        wide = ledger.append(topic, 30, rows_of=lambda first, end: rows(first, end, shade=lambda number: number / 2))
        narrow = ledger.append(topic, 30)
        settle(runner)
        health = runner.health()["lake"]
        assert (health.error, health.state) == (None, State.RUNNING)
    assert widened(log) == ["lake"]
    assert failures(log, "lake") == failures(log, "picked") == []
    table = oracle.delta(tmp_path / "lake")
    expect(table, ledger.durable)
    shades = dict(zip(table["id"].to_pylist(), table["shade"].to_pylist(), strict=True))
    assert shades == {number: number / 2 if number in wide else None for number in before | wide | narrow}
    picked = oracle.parquet(tmp_path / "picked")
    expect(picked, ledger.durable)
    assert picked.column_names == ["id", "check"]


def test_a_sink_that_fails_for_a_while(spark: Any, tmp_path: Path) -> None:
    """It is tried again until it works, says why meanwhile, and the other sink has everything long before."""
    topology = pipeline(tmp_path, f"{LAKE}\n{OTHER.replace('other', 'broken')}")
    (tmp_path / "broken").write_text("in the way")
    ledger = Ledger()
    with logged() as log, running(topology, spark) as runner, appending(topology) as topic:
        ledger.append(topic)
        wait_for(runner, lambda: len(failures(log, "broken")) >= 3)
        settle(runner, "lake")
        health = wait_state(runner, "broken", State.FAILING)
        assert health.error == f"{tmp_path}/broken is a file; this sink needs a folder"
        assert (health.lag, health.healthy) == (1, False)
        expect(oracle.delta(tmp_path / "lake"), ledger.durable)
        assert failures(log, "lake") == []
        (tmp_path / "broken").unlink()
        ledger.append(topic)
        settle(runner)
        assert (runner.health()["broken"].error, runner.health()["broken"].healthy) == (None, True)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    expect(oracle.parquet(tmp_path / "broken"), ledger.durable)


def test_a_failure_after_the_commit(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that has committed and then fails is not written to twice."""
    failed = []
    write = DeltaSink.write

    def failing(self: DeltaSink, *args: Any) -> Any:
        result = write(self, *args)
        if len(failed) < 2:
            failed.append(result)
            raise OSError("the disk is gone\n" + "\n".join(f"\tat java.lang.Frame{n}(Frame.java)" for n in range(400)))
        return result

    monkeypatch.setattr(DeltaSink, "write", failing)
    topology = pipeline(tmp_path, LAKE)
    ledger = Ledger()
    with logged() as log, running(topology, spark) as runner, appending(topology) as topic:
        for _ in range(3):
            ledger.append(topic)
            settle(runner)
    assert len(failures(log, "lake")) == 2
    assert all("the disk is gone" in error for error in failures(log, "lake"))
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


SEGMENTS = "buffer: {segment: {target_size: 1MB}, retention: {check_interval: 1s}}"


def test_a_sink_that_hangs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast sink goes on; the store keeps what the slow one needs, to within a segment; later it has it all."""
    slow = gate_sink(monkeypatch)
    topology = pipeline(tmp_path, f"{LAKE}\n{SLOW}", buffer=SEGMENTS)
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology) as topic:
        try:
            slow.gate.set()
            for _ in range(2):
                ledger.append(topic)
                topic.seal()
            settle(runner)
            wait_for(runner, lambda: topic.positions()[0][0] == 2)  # both had it: it is gone
            slow.gate.clear()
            slow.reached.clear()
            for _ in range(4):
                ledger.append(topic)
                topic.seal()
                settle(runner, "lake")
            assert slow.reached.wait(120)
            health = wait_state(runner, "slow", State.HANGING)
            assert not health.healthy
            assert runner.health()["lake"].healthy
            expect(oracle.delta(tmp_path / "lake"), ledger.durable)
            assert topic.positions()[0][0] <= topic.progress("slow", 0).watermark == 2
            assert {number for batch in topic.read(slot="logs") for number in batch["id"].to_pylist()} >= (
                ledger.durable - set(slow.ids)
            )
        finally:
            slow.gate.set()
        settle(runner)
        assert runner.health()["slow"].state is State.RUNNING
        wait_for(runner, lambda: topic.positions()[0][0] == 6)
    assert sorted(slow.ids) == sorted(ledger.durable)


def test_stopping_while_a_sink_hangs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop says by its deadline that something is left; the next runner delivers it."""
    slow = gate_sink(monkeypatch)
    topology = pipeline(tmp_path, f"{LAKE}\n{SLOW}")
    ledger = Ledger()
    runner = Runner(topology, spark)
    runner.start()
    with appending(topology) as topic:
        try:
            ledger.append(topic)
            settle(runner, "lake")
            assert slow.reached.wait(120)
            assert not runner.stop(Deadline(0.5, SystemClock()))
        finally:
            slow.gate.set()
        stop(runner)
        assert runner.health()["slow"].state is State.STOPPED
        ledger.append(topic)
        with running(topology, spark) as later:
            settle(later)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    assert sorted(slow.ids) == sorted(ledger.durable)


def test_two_drivers_for_one_subscriber(spark: Any, tmp_path: Path) -> None:
    """The second one stands by, holding nothing, and goes on where the first stopped."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [app, web], path: '{base}/lake', {quick}}",
        sources=f"{APP}\nweb: {{type: topic, topic: prod/web, slot: logs}}",
    )
    ledger = Ledger()
    with appending(topology) as app, appending(topology, "prod/web") as web:
        ledger.append(app)
        ledger.append(web)
        first = Runner(topology, spark)
        first.start()
        settle(first)
        with running(topology, spark.newSession()) as second:
            health = wait_state(second, "lake", State.STANDING_BY)
            assert health.error is not None
            assert "subscriber 'lake' is held by" in health.error
            assert health.healthy
            ledger.append(app)
            settle(first)
            stop(first)
            ledger.append(web)
            wait_state(second, "lake", State.RUNNING)
            settle(second)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


def test_a_lease_of_which_one_half_is_taken(spark: Any, tmp_path: Path) -> None:
    """A sink that gets one of its topics and not the other keeps neither, and begins when both are free."""
    topology = pipeline(
        tmp_path,
        "lake: {type: delta, inputs: [app, web], path: '{base}/lake', {quick}}",
        sources=f"{APP}\nweb: {{type: topic, topic: prod/web, slot: logs}}",
    )
    ledger = Ledger()
    with appending(topology) as app, appending(topology, "prod/web") as web:
        ledger.append(app)
        ledger.append(web)
        holder = web.drain("lake")
        with running(topology, spark) as runner:
            wait_state(runner, "lake", State.STANDING_BY)
            health = runner.health()["lake"]
            assert health.error is not None
            wait_for(runner, lambda: _free(app, "lake"))
            holder.close()
            settle(runner)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


def _free(topic: hf.Topic, name: str) -> bool:
    return topic.subscribers()[name].holder is None


def test_a_paused_sink(spark: Any, tmp_path: Path) -> None:
    """Nothing is delivered to it until it is resumed; what came meanwhile was kept."""
    topology = pipeline(tmp_path, f"{LAKE}\n{OTHER}")
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology) as topic:
        before = ledger.append(topic)
        settle(runner)
        topic.pause("lake")
        ledger.append(topic)
        settle(runner, "other")
        ledger.append(topic)
        settle(runner, "other")
        assert runner.health()["lake"].lag == 2
        expect(oracle.delta(tmp_path / "lake"), before)
        topic.resume("lake")
        settle(runner)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    expect(oracle.parquet(tmp_path / "other"), ledger.durable)


def test_a_sink_whose_subscriber_is_removed(spark: Any, tmp_path: Path) -> None:
    """It is not brought back behind the user's back, says so, and the others neither stop nor hide behind it."""
    topology = pipeline(tmp_path, f"{LAKE}\n{OTHER}")
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology) as topic:
        before = ledger.append(topic)
        settle(runner)
        topic.remove("lake")
        health = wait_state(runner, "lake", State.FAILING)
        assert health.error is not None
        assert "removed" in health.error or "lake" in health.error
        ledger.append(topic)
        settle(runner, "other")
        assert set(topic.subscribers()) == {"other"}
        expect(oracle.delta(tmp_path / "lake"), before)
    expect(oracle.parquet(tmp_path / "other"), ledger.durable)


@pytest.mark.parametrize("authoritative", [False, True])
def test_a_source_that_waits_for_its_sinks(
    authoritative: bool, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is delivered when every sink has it; where one is authoritative, when that one has it."""
    slow = gate_sink(monkeypatch)
    fast = LAKE.replace("{quick}", "{quick}, authoritative: true") if authoritative else LAKE
    topology = pipeline(tmp_path, f"{fast}\n{SLOW}")
    ledger = Ledger()
    with running(topology, spark) as runner, appending(topology) as topic:
        try:
            with topic.batch("receiver", "run-1", "batch-1") as batch:
                ledger.append(topic, batches=[batch])
                ledger.append(topic, batches=[batch])
            settle(runner, "lake")
            assert slow.reached.wait(120)
            if authoritative:
                assert batch.wait(timeout=120) == "delivered"
                assert slow.ids == []
            else:
                assert batch.status is None
        finally:
            slow.gate.set()
        assert batch.wait(timeout=120) == "delivered"
        settle(runner)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)


def test_mistakes_in_the_sql_are_told_before_anything_is_made(spark: Any, tmp_path: Path) -> None:
    """A query that names a column which the topic lacks stops the start; no subscriber is registered."""
    topology = pipeline(tmp_path, LAKE)
    with appending(topology) as topic:
        Ledger().append(topic)
        wrong = pipeline(
            tmp_path,
            "lake: {type: delta, inputs: [few], path: '{base}/lake', {quick}}",
            transforms='few: {type: filter, inputs: [app], condition: "idd > 3"}',
        )
        runner = Runner(wrong, spark)
        with pytest.raises(InvalidPipeline, match=r"transforms\.few\.condition: .*idd"):
            runner.start()
        assert runner.stop(Deadline(10, SystemClock()))
        assert topic.subscribers() == {}


def test_a_start_that_fails_half_way(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that could not register its sinks stops like any other; the next one starts, and tells of strangers."""
    topology = pipeline(tmp_path, LAKE)
    ledger = Ledger()
    with appending(topology) as topic:
        ledger.append(topic)
        topic.register("old")
        runner = Runner(topology, spark)
        with monkeypatch.context() as patch:
            patch.setattr(hf.Topic, "register", _no_disk)
            with pytest.raises(OSError, match="no disk"):
                runner.start()
        stop(runner)
        with logged() as log, running(topology, spark) as later:
            settle(later)
    expect(oracle.delta(tmp_path / "lake"), ledger.durable)
    (told,) = [entry for entry in log if entry["log_level"] == "warning" and "subscriber" in entry]
    assert (told["subscriber"], told["topic"]) == ("old", TOPIC)


def _no_disk(*_: Any, **__: Any) -> None:
    raise OSError("no disk")
