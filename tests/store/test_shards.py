"""Shards: who owns which, and positions over several of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import InvalidPosition, ShardTaken
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC, append, batch, open_store, put

CHILD = """
import sys, holdfast as hf, pyarrow as pa
with hf.Store.open(sys.argv[1]) as store:
    shard = None if sys.argv[2] == "any" else int(sys.argv[2])
    try:
        topic = store.topic("prod/logs", shard=shard)
        receipt = topic.append({"logs": pa.record_batch({"id": [7]})}, attributes={"id": 7})
        receipt.wait()
        print(receipt.shard, receipt.offset, flush=True)
    except hf.errors.ShardTaken as error:
        print(error, flush=True)
"""


def child(path: Path, shard: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(path), shard], capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


def test_second_process_gets_a_shard_of_its_own(tmp_path: Path) -> None:
    """Two processes append to one topic at once, each to its own shard; both can be read."""
    with hf.Store.open(tmp_path / "data") as store:
        topic = store.topic(TOPIC)
        append(topic, 1).wait()
        assert child(tmp_path / "data", "any") == "1 0"
        assert {(bundle.shard, bundle.attributes["id"]) for bundle in topic.bundles()} == {(0, 1), (1, 7)}
        assert topic.positions() == {0: (0, 1), 1: (0, 1)}
    assert child(tmp_path / "data", "any") == "0 1"  # free again: no third shard is made


def test_taken_shard_is_refused_with_the_holders_name(tmp_path: Path) -> None:
    """Who insists on a shard is told which process on which machine has it."""
    with hf.Store.open(tmp_path / "data") as store:
        append(store.topic(TOPIC), 1).wait()
        told = child(tmp_path / "data", "0")
    assert f"is being written by process {os.getpid()} on {socket.gethostname()};" in told
    assert "a shard has one writer: use another shard, or open the store with read_only=True" in told
    assert str(tmp_path / "data/prod/logs/shard-0000") in told


def test_two_stores_in_one_process() -> None:
    """A second store object in the same process is a second writer, with a shard of its own."""
    files = SimulatedFiles()
    with open_store(files, seed=1) as first, open_store(files, seed=2) as second:
        one, two = first.topic(TOPIC), second.topic(TOPIC)
        put(one, 1)
        put(two, 2)
        for topic in (one, two):
            assert [(bundle.shard, bundle.offset, bundle.attributes["id"]) for bundle in topic.bundles()] == [
                (0, 0, 1),
                (1, 0, 2),
            ]
        with pytest.raises(ShardTaken):
            put(first.topic(TOPIC, shard=1), 3)
    with open_store(files, seed=3) as third:
        topic = third.topic(TOPIC)
        assert topic.positions() == {0: (0, 1), 1: (0, 1)}
        assert append(topic, 4).shard == 0


def test_explicit_shard_is_made() -> None:
    """A shard that is asked for by number is made if it is missing."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC, shard=3)
        assert (append(topic, 1).shard, topic.positions()) == (3, {3: (0, 0)})
        topic.flush()
        assert topic.positions() == {3: (0, 1)}
    with open_store(files, seed=2) as store:
        assert append(store.topic(TOPIC), 2).shard == 3


@pytest.mark.parametrize("shard", [-1, True, 1.5, "0", 10**9])
def test_impossible_shard(shard: object) -> None:
    """A shard is a small whole number; anything else is refused before a folder is made."""
    files = SimulatedFiles()
    with open_store(files) as store:
        with pytest.raises(InvalidPosition):
            store.topic(TOPIC, shard=shard)  # type: ignore[arg-type]
        assert store.topics() == []


def two_shards() -> tuple[SimulatedFiles, hf.Store, hf.Store]:
    files = SimulatedFiles()
    first, second = open_store(files, seed=1), open_store(files, seed=2)
    for number in range(3):
        put(first.topic(TOPIC), number)
        put(second.topic(TOPIC), 10 + number)
    return files, first, second


def numbers(topic: hf.Topic, *position: object) -> list[int]:
    return [bundle.attributes["id"] for bundle in topic.bundles(*position)]  # type: ignore[arg-type]


def test_positions_are_mappings_over_several_shards() -> None:
    """Start and end are given by shard; a shard that is not named is read whole."""
    _, first, second = two_shards()
    topic = first.topic(TOPIC)
    assert numbers(topic) == [0, 1, 2, 10, 11, 12]
    assert numbers(topic, {0: 2, 1: 1}) == [2, 11, 12]
    assert numbers(topic, {0: 2}, {1: 1}) == [2, 10]
    assert numbers(topic, None, {0: 0, 1: 3}) == [10, 11, 12]
    assert numbers(topic, 0) == [0, 1, 2, 10, 11, 12]
    assert [each["id"].to_pylist() for each in topic.read({0: 2, 1: 2}, slot="logs")] == [[2], [12]]
    first.close()
    second.close()


def test_plain_number_is_refused_with_several_shards() -> None:
    """A number alone would mean something else for each shard."""
    _, first, second = two_shards()
    topic = first.topic(TOPIC)
    for use in (lambda: numbers(topic, 1), lambda: numbers(topic, None, 1), lambda: topic.truncate(1)):
        with pytest.raises(InvalidPosition) as caught:
            use()
        assert str(caught.value) == ("prod/logs has shards [0, 1]: give a position for each, as {shard: offset}, not 1")
    first.close()
    second.close()


@pytest.mark.parametrize("position", [{7: 0}, {0: -1}, {0: "1"}, {0: True}, {0: 1.0}, {"0": 1}])
def test_positions_that_do_not_fit(position: dict[object, object]) -> None:
    """Unknown shards and what is no offset are refused, not read as something else."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with pytest.raises(InvalidPosition):
            numbers(topic, position)


@pytest.mark.parametrize("position", [-1, "1", True, 1.5])
def test_numbers_that_are_no_offsets(position: object) -> None:
    """A plain position is a whole number, 0 or more."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with pytest.raises(InvalidPosition):
            numbers(topic, position)


def test_only_the_writer_truncates() -> None:
    """A shard of another writer cannot be deleted from."""
    _, first, second = two_shards()
    with pytest.raises(ShardTaken, match=r"^shard 1 of prod/logs is not this process's \(that is 0\): ask its writer$"):
        first.topic(TOPIC).truncate({1: 1})
    assert first.topic(TOPIC).truncate({0: 1}) == {0: 1}
    assert numbers(first.topic(TOPIC)) == [1, 2, 10, 11, 12]
    assert numbers(second.topic(TOPIC)) == [1, 2, 10, 11, 12]
    first.close()
    second.close()


def test_reader_recovers_what_a_dead_writer_left() -> None:
    """A store opened for writing makes all free shards whole before the first read, and keeps the lowest."""
    files, first, second = two_shards()
    append(second.topic(TOPIC), 13, "os").wait(timeout=30)
    killed = files.kill()
    first.close()
    second.close()
    with open_store(killed, seed=5) as store:
        topic = store.topic(TOPIC)
        assert numbers(topic) == [0, 1, 2, 10, 11, 12, 13]
        assert append(topic, 3).shard == 0
        with open_store(killed, seed=6) as other:
            assert append(other.topic(TOPIC), 14).shard == 1


def test_slots_are_the_topics_over_all_shards() -> None:
    """Two writers that meet new slots at once give each name one number."""
    files = SimulatedFiles()
    with open_store(files, seed=1) as first, open_store(files, seed=2) as second:
        one, two = first.topic(TOPIC), second.topic(TOPIC)
        for topic, slots in ((one, ["a", "b"]), (two, ["b", "c"]), (one, ["c", "d"]), (two, ["a", "d"])):
            topic.append({slot: batch(1) for slot in slots}, attributes={"id": 1})
            topic.flush()
        assert one.slots() == two.slots()
        assert sorted(one.slots()) == ["a", "b", "c", "d"]
        assert len(set(one.slots().values())) == 4
        assert [set(bundle) for bundle in one.bundles()] == [{"a", "b"}, {"c", "d"}, {"b", "c"}, {"a", "d"}]
