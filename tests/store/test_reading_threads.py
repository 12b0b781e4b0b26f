"""Readers and writers in one process, all at once; bounded by counts, not by time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import holdfast as hf
from crash import writer
from holdfast.testing import SimulatedFiles, dump
from store.storekit import append, contents, open_store, put, until

pytestmark = pytest.mark.timeout(120)

TOPIC = writer.TOPIC
TINY = {"segment": {"target_size": 3000}, "wal": {"file_size": 4096, "max_size": 1_000_000}}
COUNTS = [120, pytest.param(600, marks=pytest.mark.long)]  # of bundles


def write_all(topic: hf.Topic, numbers: range) -> None:
    for number in numbers:
        topic.append({"logs": writer.batch(number)}, attributes={"id": number}).wait()


def together(*jobs: Callable[[], None]) -> None:
    """Run all at once; the first error of any is raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


@pytest.mark.parametrize("bundles", COUNTS)
@pytest.mark.parametrize("where", ["simulated", "real"])
def test_reading_while_others_append_and_seal(where: str, bundles: int, tmp_path: Path) -> None:
    """Every pass over the topic sees the same prefix as before and more: no gap, nothing torn, nothing twice."""
    files = SimulatedFiles() if where == "simulated" else None
    with hf.Store.open(tmp_path / "data", settings={"buffer": TINY}, files=files) as store:
        topic = store.topic(TOPIC)
        write_all(topic, range(1))
        finished = threading.Event()

        def append_all() -> None:
            try:
                together(*(partial(write_all, topic, range(first, bundles, 3)) for first in (1, 2, 3)))
            finally:
                finished.set()

        def seal_often() -> None:
            while not finished.is_set():
                topic.seal()

        def read_whole() -> None:
            least = 0
            while not finished.is_set():
                seen = 0
                for bundle in topic.bundles():
                    assert bundle.offset == seen, "a gap, or a bundle twice"
                    assert bundle["logs"].equals(writer.batch(bundle.attributes["id"]))
                    seen += 1
                assert seen >= least, "bundles went missing"
                least = seen

        def read_columns() -> None:
            position = 0
            while not finished.is_set():
                end = topic.positions()[0][1]
                rows = list(topic.read(position, end, slot="logs", columns=["id"]))
                assert len(rows) == end - position
                assert all(len(set(each["id"].to_pylist())) == 1 for each in rows)
                position = end

        together(append_all, seal_often, read_whole, read_whole, read_columns)
        found = [bundle.attributes["id"] for bundle in topic.bundles()]
        assert sorted(found) == list(range(bundles))


@pytest.mark.parametrize("bundles", COUNTS)
def test_reading_while_the_front_is_deleted(bundles: int) -> None:
    """Truncation under a reader's feet takes from the front only, and never tears what is being read."""
    files = SimulatedFiles()
    with hf.Store.open("/store", settings={"buffer": TINY}, files=files) as store:
        topic = store.topic(TOPIC)
        finished = threading.Event()

        def append_all() -> None:
            try:
                write_all(topic, range(bundles))
            finally:
                finished.set()

        def delete_often() -> None:
            while not finished.is_set():
                start, end = topic.positions().get(0, (0, 0))
                if end - start > 30:
                    assert topic.truncate(end - 10) == {0: end - 10}
                else:
                    topic.seal()

        def read_whole() -> None:
            while not finished.is_set():
                start = topic.positions().get(0, (0, 0))[0]
                last = -1
                for bundle in topic.bundles():
                    assert bundle.offset is not None
                    assert bundle.offset >= start
                    assert bundle.attributes["id"] == bundle.offset
                    assert bundle["logs"].equals(writer.batch(bundle.offset))
                    if last >= 0 and bundle.offset != last + 1:
                        assert bundle.offset <= topic.positions()[0][0], "a gap that no truncation made"
                    last = bundle.offset

        together(append_all, delete_often, read_whole, read_whole)
        start, end = topic.positions()[0]
        assert end == bundles
        assert contents_numbers(topic) == list(range(start, end))


def contents_numbers(topic: hf.Topic) -> list[int]:
    return [bundle.attributes["id"] for bundle in topic.bundles()]


def test_two_stores_follow_each_other() -> None:
    """Two writers in one process, each reading both shards, see everything that either acknowledged."""
    files = SimulatedFiles()
    stores = [hf.Store.open("/store", settings={"buffer": TINY}, files=files) for _ in range(2)]
    topics = [store.topic(TOPIC) for store in stores]
    for topic in topics:
        topic.append({"logs": writer.batch(0)}, attributes={"id": 0}).wait()

    def work(own: hf.Topic, number: int) -> None:
        for each in range(1, 40):
            receipt = own.append({"logs": writer.batch(each)}, attributes={"id": each})
            receipt.wait()
            if each % 10 == number:
                own.seal()
            by_shard: dict[int, list[int]] = {0: [], 1: []}
            for bundle in own.bundles():
                assert bundle.shard is not None
                by_shard[bundle.shard].append(bundle.attributes["id"])
                assert bundle["logs"].equals(writer.batch(bundle.attributes["id"]))
            assert by_shard[receipt.shard] == list(range(each + 1))
            assert by_shard[1 - receipt.shard] == list(range(len(by_shard[1 - receipt.shard])))

    together(lambda: work(topics[0], 3), lambda: work(topics[1], 7))
    for store in stores:
        store.close()


def test_batches_that_are_held_do_not_change(tmp_path: Path) -> None:
    """What a reader holds stays what it was, whatever becomes of the files: sealed, deleted, used again, reopened."""
    path = tmp_path / "data"
    with hf.Store.open(path, settings={"buffer": TINY}) as store:
        topic = store.topic(TOPIC)
        write_all(topic, range(10))
        with hf.Store.open(path, read_only=True) as other:
            held = [*topic.bundles(), *other.topic(TOPIC).bundles()]
            topic.seal()
            held += [*topic.bundles(), *other.topic(TOPIC).bundles()]
            write_all(topic, range(10, 60))
            topic.seal()
            topic.truncate(55)
            write_all(topic, range(60, 90))
    with hf.Store.open(path, settings={"buffer": TINY}) as store:
        write_all(store.topic(TOPIC), range(90, 120))
    assert len(held) == 40
    for bundle in held:
        assert bundle["logs"].equals(writer.batch(bundle.attributes["id"])), f"offset {bundle.offset} changed"


def test_recovered_batches_that_are_held_do_not_change(tmp_path: Path) -> None:
    """The same for bundles that came back from a WAL: its files are not written over while somebody reads them."""
    files = SimulatedFiles()
    topic = open_store(files, buffer=TINY, path=Path("/data")).topic(TOPIC)
    for number in range(6):
        topic.append({"logs": writer.batch(number)}, attributes={"id": number})
        topic.flush()
    dump(files.kill(), tmp_path / "disk")
    with hf.Store.open(tmp_path / "disk" / "data", settings={"buffer": TINY}) as store:
        topic = store.topic(TOPIC)
        held = list(topic.bundles())
        assert len(held) == 6
        write_all(topic, range(6, 80))
        topic.seal()
        for bundle in held:
            assert bundle["logs"].equals(writer.batch(bundle.attributes["id"])), f"offset {bundle.offset} changed"


def test_closing_while_others_append() -> None:
    """Appends that meet a closing store are stored and acknowledged, or refused; never half."""
    files = SimulatedFiles()
    store = hf.Store.open("/store", settings={"buffer": TINY}, files=files)
    topic = store.topic(TOPIC)
    acked: dict[int, int] = {}
    lock = threading.Lock()

    def work(first: int) -> None:
        number = first
        try:
            while True:
                receipt = append(topic, number)
                receipt.wait(timeout=60)
                with lock:
                    acked[receipt.offset] = number
                number += 1
        except hf.errors.Closed:
            return

    def close() -> None:
        until(lambda: len(acked) > 50)
        store.close()

    together(*(partial(work, first) for first in (0, 10_000, 20_000)), close)
    with hf.Store.open("/store", files=files) as store:
        found = contents(store.topic(TOPIC))
        assert {offset: found.get(offset) for offset in acked} == acked
        assert put(store.topic(TOPIC), 1) > max(acked)
