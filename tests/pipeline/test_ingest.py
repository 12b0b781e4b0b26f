"""The half that receives, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from holdfast import Store
from holdfast.clock import Deadline, SystemClock, SystemIds
from holdfast.errors import InputError, InvalidSettings, ShardFailed
from holdfast.files import SystemFiles
from holdfast.health import Status
from holdfast.pipeline import Topology, load
from holdfast.pipeline._watch import ask
from holdfast.pipeline.ingest import Ingest, receives
from holdfast.receivers.demo import rows
from store.storekit import until

DEMO = {"type": "demo", "topic": "demo/events", "rows_per_second": 100_000, "limit": 1000}


def topology(folder: Path, sources: dict[str, Any], **other: Any) -> Topology:
    sinks = {"out": {"type": "console", "inputs": list(sources)}}
    return load(yaml.safe_dump({"store": {"path": str(folder / "data")}, "sources": sources, "sinks": sinks, **other}))


def ingest_of(described: Topology, worker: int = 0, workers: int = 1) -> Ingest:
    return Ingest(described, worker, workers, files=SystemFiles(), clock=SystemClock(), ids=SystemIds())


@contextmanager
def started(described: Topology, worker: int = 0, workers: int = 1) -> Iterator[tuple[Ingest, str]]:
    ingest = ingest_of(described, worker, workers)
    try:
        yield ingest, ingest.start()
    finally:
        ingest.stop(Deadline(60, SystemClock()))


def finished(ingest: Ingest) -> bool:
    ingest.check()
    return all(part["finished"] for part in ingest.health().parts.values())


def seqs(store: Store, topic: str) -> list[int]:
    table = pa.Table.from_batches(store.topic(topic).read(slot="events"))
    found: list[int] = sorted(table["seq"].to_pylist())
    return found


def test_all_sources_are_received_into_their_topics(tmp_path: Path) -> None:
    """Each source has a receiver; after the stop everything is in the store, and its shards are free."""
    described = topology(tmp_path, {"one": DEMO, "two": {**DEMO, "topic": "demo/other", "limit": 500}})
    with started(described) as (ingest, _):
        until(lambda: finished(ingest))
    with Store.open(tmp_path / "data") as store:
        assert seqs(store, "demo/events") == list(range(1000))
        assert seqs(store, "demo/other") == list(range(500))
        store.topic("demo/events").append({"events": rows(0, 1, 0)}).wait()


def test_what_was_accepted_is_durable_after_a_stop_in_the_middle(tmp_path: Path) -> None:
    """A stop keeps every bundle that was accepted, and the next run goes on behind them."""
    described = topology(tmp_path, {"one": {**DEMO, "limit": 3000, "rows_per_second": 2000}})
    with started(described) as (ingest, _):
        until(lambda: ingest.health().parts["one"]["bundles"] > 2)
    accepted = ingest.health().parts["one"]["rows"]
    with Store.open(tmp_path / "data", read_only=True) as store:
        assert seqs(store, "demo/events") == list(range(accepted))
    with started(described) as (again, _):
        until(lambda: finished(again))
    assert accepted + again.health().parts["one"]["rows"] == 3000


def test_workers_have_a_shard_each_and_share_the_rows(tmp_path: Path) -> None:
    """Two workers at once: together they store each row once."""
    described = topology(tmp_path, {"one": DEMO})
    with started(described, 0, 2) as (first, _), started(described, 1, 2) as (second, _):
        until(lambda: finished(first) and finished(second))
    with Store.open(tmp_path / "data", read_only=True) as store:
        assert list(store.topic("demo/events").positions()) == [0, 1]
        assert seqs(store, "demo/events") == list(range(1000))


@pytest.mark.parametrize(
    ("settings", "status"),
    [({}, "durable"), ({"buffer": {"acknowledgements": False}}, "delivered"), ({"acknowledgements": False}, "durable")],
)
def test_who_answers_is_what_the_file_says(tmp_path: Path, settings: dict[str, Any], status: str) -> None:
    """The buffer, by default; the sinks where it does not; and who wants no answer needs not wait for sinks."""
    described = topology(tmp_path, {"one": {**DEMO, "limit": 100}}, **settings)
    with started(described) as (ingest, _):
        until(lambda: finished(ingest))
    assert ingest.health().parts["one"]["answered"] == {status: 1}


def test_health_is_served(tmp_path: Path) -> None:
    """The address that `start` gives has the receivers' figures."""
    with started(topology(tmp_path, {"one": DEMO})) as (ingest, address):
        until(lambda: finished(ingest))
        document = ask(address)
        assert document is not None
        assert document["status"] == "ok"
        assert document["parts"]["one"] == {
            "status": "ok", "rows": 1000, "bundles": 10, "answered": {"durable": 10},
            "unanswered": 0, "waits": 0, "finished": True,
        }  # fmt: skip


def test_a_receiver_that_failed_is_told(tmp_path: Path) -> None:
    """`check` raises what it failed with, and the health says so."""
    with started(topology(tmp_path, {"one": DEMO})) as (ingest, _):
        ingest._receivers["one"].failure = ShardFailed("broken")  # type: ignore[misc]
        with pytest.raises(ShardFailed, match=r"^broken$"):
            ingest.check()
        health = ingest.health()
        assert (health.status, health.parts["one"]["error"]) == (Status.FAILING, "broken")


def test_a_source_that_cannot_start_lets_go_of_the_store(tmp_path: Path) -> None:
    """After a start that failed `stop` closes what was opened."""
    with started(topology(tmp_path, {"one": DEMO})) as (ingest, _):
        until(lambda: finished(ingest))
    with (
        pytest.raises(InvalidSettings, match="seed 0, and is now set to 7"),
        started(topology(tmp_path, {"one": {**DEMO, "seed": 7}})),
    ):
        pytest.fail("it started")
    with Store.open(tmp_path / "data") as store:
        store.topic("demo/events", shard=0).append({"events": rows(0, 1, 0)}).wait()


def test_topics_have_no_receiver(tmp_path: Path) -> None:
    """A pipeline whose data others append has nothing to ingest; beside others such a source is left alone."""
    outside = {"type": "topic", "topic": "demo/outside", "slot": "events"}
    alone = topology(tmp_path, {"given": outside})
    assert not receives(alone)
    with pytest.raises(InputError, match="has no source that receives anything"):
        ingest_of(alone)
    with started(topology(tmp_path, {"given": outside, "one": DEMO})) as (ingest, _):
        assert list(ingest.health().parts) == ["one"]


def test_workers_are_counted_from_zero(tmp_path: Path) -> None:
    """A worker beyond the last is an error that says so."""
    with pytest.raises(InputError, match=r"^worker 2 of 2: workers are counted from 0 to 1$"):
        ingest_of(topology(tmp_path, {"one": DEMO}), 2, 2)
