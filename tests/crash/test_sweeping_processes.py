"""Subscribers that come while others delete, and shards that are left behind: several processes on a real disk."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

import holdfast as hf
from crash import busy_writer
from crash.writer import TOPIC, batch
from store.storekit import until

pytestmark = pytest.mark.timeout(280)

Place = tuple[int, int]  # shard and offset


class BusyWriter:
    """The process, and what it has said: the number of each durable bundle."""

    def __init__(self, store: Path, first: int, count: int, fast: str = "") -> None:
        command = [sys.executable, busy_writer.__file__, str(store), str(first), str(count), fast]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.acked: dict[Place, int] = {}
        self.done = threading.Event()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "done\n":
                self.done.set()
            elif line.endswith("\n"):
                shard, offset, number = map(int, line.split())
                self.acked[shard, offset] = number
        self.ended.set()

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.acked) >= count or self.ended.is_set())
        assert len(self.acked) >= count, "it ended too early"

    def wait_until_done(self) -> None:
        until(lambda: self.done.is_set() or self.ended.is_set(), 120)
        assert self.done.is_set(), "it ended too early"

    def kill(self) -> None:
        self._process.kill()
        self._join()

    def let_go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._join()
        assert self._process.returncode == 0

    def _join(self) -> None:
        self._process.wait(timeout=60)
        self._thread.join(60)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def take_all(subscriber: hf.Subscriber, wanted: Iterable[Place], found: dict[Place, int]) -> None:
    """Take and finish until everything wanted was delivered; what was, is checked."""
    missing = set(wanted) - found.keys()
    while missing:
        given = subscriber.take(200, timeout=30)
        assert given, f"{len(missing)} bundles were never delivered, the first is {min(missing)}"
        for delivery in given:
            number = delivery.bundle.attributes["id"]
            assert delivery.bundle["logs"].equals(batch(number))
            found[delivery.shard, delivery.offset] = number
            missing.discard((delivery.shard, delivery.offset))
            delivery.ack()
    subscriber.flush()


def check_kept_its_promise(store: hf.Store, name: str, acked: dict[Place, int], found: dict[Place, int]) -> None:
    """Everything from its start on in every shard was delivered, as it was, and nothing was given up."""
    view = store.topic(TOPIC).subscribers()[name]
    promised = {place: number for place, number in acked.items() if place[1] >= view.registration.start(place[0])}
    assert promised
    assert {place: found.get(place) for place in promised} == promised
    assert all(shard.dropped == 0 for shard in view.shards.values())


def register_while_they_work(store: Path, rounds: int, count: int) -> None:
    """In each round: a subscriber registers while one process sweeps and another one makes a shard and sweeps too."""
    with hf.Store.open(store, settings=busy_writer.SETTINGS) as opened:
        opened.topic(TOPIC).subscribe("fast").close()
    with hf.Store.open(store, read_only=True) as opened:
        topic = opened.topic(TOPIC)
        acked: dict[Place, int] = {}
        for each in range(rounds):
            one = BusyWriter(store, 100_000 * each, count, "fast")
            one.wait_for(5 + 7 * each)
            two = BusyWriter(store, 100_000 * each + 50_000, count // 2)
            name = f"late-{each}"
            subscriber = topic.subscribe(name)
            found: dict[Place, int] = {}
            for writer in (one, two):
                writer.wait_until_done()
                acked |= writer.acked
            take_all(subscriber, places_from(topic, name, {**one.acked, **two.acked}), found)
            check_kept_its_promise(opened, name, {**one.acked, **two.acked}, found)
            for writer in (two, one):
                writer.let_go()
            subscriber.close()
            topic.remove(name)
        assert len(acked) == rounds * (count + count // 2), "an offset was given twice"


def places_from(topic: hf.Topic, name: str, acked: Iterable[Place]) -> list[Place]:
    registration = topic.subscribers()[name].registration
    return [place for place in acked if place[1] >= registration.start(place[0])]


def test_registering_while_a_sweeper_runs_and_a_shard_appears(tmp_path: Path) -> None:
    """Whoever registers is given everything from its start on, of every shard, whatever is being deleted meanwhile."""
    register_while_they_work(tmp_path / "data", 2, 80)


@pytest.mark.long
def test_registering_while_a_sweeper_runs_and_a_shard_appears_for_long(tmp_path: Path) -> None:
    """The same, over many rounds."""
    register_while_they_work(tmp_path / "data", 40, 300)


def test_many_registrations_beside_one_sweeper(tmp_path: Path) -> None:
    """Each of many subscribers that come and go misses nothing from its start on."""
    store = tmp_path / "data"
    with hf.Store.open(store, settings=busy_writer.SETTINGS) as opened:
        opened.topic(TOPIC).subscribe("fast").close()
    writer = BusyWriter(store, 0, 400, "fast")
    writer.wait_for(1)
    registered = 0
    with hf.Store.open(store, read_only=True) as opened:
        topic = opened.topic(TOPIC)
        while not writer.done.is_set() and registered < 20:
            name = f"passer-{registered}"
            with topic.subscribe(name) as subscriber:
                start = topic.subscribers()[name].registration.start(0)
                given = [delivery.offset for delivery in subscriber.take(20, timeout=30)]
                assert given == list(range(start, start + len(given)))
                assert topic.subscribers()[name].shards[0].dropped == 0
            topic.remove(name)
            registered += 1
        writer.wait_until_done()
        writer.let_go()
    assert registered > 3


def test_writer_killed_and_its_shard_left_behind(tmp_path: Path) -> None:
    """All that two writers acknowledged is delivered, and the one that lives deletes in the other's shard, too."""
    store = tmp_path / "data"
    with hf.Store.open(store, settings=busy_writer.SETTINGS) as opened:
        opened.topic(TOPIC).subscribe("lake").close()
    one = BusyWriter(store, 0, 10**6)
    one.wait_for(30)
    two = BusyWriter(store, 10**6, 150)
    two.wait_for(30)
    orphan = min(shard for shard, _ in one.acked)
    with hf.Store.open(store, read_only=True) as opened, opened.topic(TOPIC).subscribe("lake") as lake:
        one.wait_for(150)
        one.kill()
        two.wait_until_done()
        found: dict[Place, int] = {}
        take_all(lake, {**one.acked, **two.acked}, found)
        assert {place: found[place] for place in one.acked} == one.acked
        assert {place: found[place] for place in two.acked} == two.acked
        assert opened.topic(TOPIC).subscribers()["lake"].shards[orphan].dropped == 0
        rest = lake.take(200, timeout=0)  # durable, though its writer died before it could say so
        for delivery in rest:
            delivery.ack()
        lake.flush()
        left = store / "prod" / "logs" / f"shard-{orphan:04d}"
        until(lambda: not list((left / "segments").iterdir()), 120)
    two.let_go()
    with hf.Store.open(store, settings=busy_writer.SETTINGS) as opened:
        topic = opened.topic(TOPIC, shard=orphan)
        receipt = topic.append({"logs": batch(1)}, attributes={"id": 1})
        receipt.wait()
        assert receipt.offset > max(offset for shard, offset in found if shard == orphan)


def test_stuck_subscriber_beside_a_healthy_one_in_another_process(tmp_path: Path) -> None:
    """Under `drop_oldest` the stuck one's watermark moves on and is counted; the healthy one gets every bundle."""
    settings = {
        "buffer": {
            "segment": {"target_size": 4_000},
            "wal": {"file_size": 16_384, "max_size": 1_000_000},
            "retention": {"min_free_disk": 0, "max_segments": 20, "size_cap_policy": "drop_oldest"},
        }
    }
    store = tmp_path / "data"
    with hf.Store.open(store, settings=settings) as opened:
        topic = opened.topic(TOPIC)
        topic.subscribe("stuck").close()
        topic.subscribe("healthy").close()
        with hf.Store.open(store, read_only=True) as reading, reading.topic(TOPIC).subscribe("healthy") as healthy:
            found: dict[Place, int] = {}
            for first in range(0, 300, 10):
                receipts = [
                    topic.append({"logs": batch(number)}, attributes={"id": number})
                    for number in range(first, first + 10)
                ]
                topic.flush()
                take_all(healthy, [(receipt.shard, receipt.offset) for receipt in receipts], found)
            topic.seal()
            topic._upkeep.check()
        assert sorted(found.values()) == list(range(300))
        view = topic.subscribers()
        assert view["healthy"].shards[0].dropped == 0
        stuck = view["stuck"].shards[0]
        assert stuck.watermark == stuck.dropped > 0
        assert topic.sweeper is not None
        assert topic.sweeper.counts.bundles_dropped == {"stuck": stuck.dropped}
        assert sorted(bundle.offset or 0 for bundle in topic.bundles()) == list(range(stuck.watermark, 300))
