"""Worker processes that each own a shard of one store: one cap for all, and shards left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from store.worker import TOPIC, settings

WORKER = Path(__file__).with_name("worker.py")
CAP = 1_000_000
SEGMENT = 65_000  # of 50 KB target size, with its meta block and one bundle more
# What a worker may be over by: a grant (two segments), and the segment that it seals while its WAL is still there.
SLACK = 3 * SEGMENT


class Worker:
    """A process that appends `count` bundles, and then holds its shard until it is let go or killed."""

    def __init__(self, store: Path, count: int, seed: int, *, cap: int = CAP, policy: str = "backpressure") -> None:
        arguments = [sys.executable, str(WORKER), str(store), str(count), str(cap), policy, str(seed)]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._count = count
        self.placed: list[tuple[int, int]] = []

    def read(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the worker is gone: {self._process.wait(30)}"
        if line != "blocked":
            shard, offset = line.split()
            self.placed.append((int(shard), int(offset)))
        return line

    def read_until(self, done: Callable[[str], bool]) -> None:
        while not done(self.read()):
            pass

    def finish(self) -> None:
        """Read until all is appended."""
        while len(self.placed) < self._count:
            self.read()

    def let_go(self) -> None:
        self._process.communicate("\n", timeout=60)
        assert self._process.returncode == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=60)


def used(store: Path) -> int:
    total = 0
    for path in store.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def ids(deliveries: list[hf.Delivery]) -> list[int]:
    return [delivery.bundle["logs"]["id"][0].as_py() for delivery in deliveries]


def test_a_busy_worker_uses_what_an_idle_one_leaves(tmp_path: Path) -> None:
    """With a quiet neighbour a worker goes beyond half of the cap; then it is held back, and nothing is given up."""
    with hf.Store.open(tmp_path, settings=settings(CAP, "backpressure")) as store:
        store.topic(TOPIC).subscribe("slow").close()  # nobody finishes anything
    idle = Worker(tmp_path, 1, 1)
    idle.finish()
    busy = Worker(tmp_path, 1_000, 2)
    busy.read_until(lambda line: line == "blocked")
    assert CAP * 0.6 < used(tmp_path) < CAP + 2 * SLACK
    busy.kill()
    idle.let_go()
    with hf.Store.open(tmp_path, read_only=True) as store, store.topic(TOPIC).subscribe("slow") as sub:
        wanted = {*busy.placed, *idle.placed}
        found: set[tuple[int, int]] = set()
        while not wanted <= found:
            for delivery in sub.take(1_000, timeout=20):
                found.add((delivery.shard, delivery.offset))
                delivery.ack()


def test_two_busy_workers_keep_to_one_cap(tmp_path: Path) -> None:
    """Under drop_oldest both go on for ever, what they hold together stays about the cap, and both get their share."""
    with hf.Store.open(tmp_path, settings=settings(CAP, "drop_oldest")) as store:
        store.topic(TOPIC).subscribe("stuck").close()
    workers = [Worker(tmp_path, 200, seed, policy="drop_oldest") for seed in (1, 2)]
    most = 0
    while any(len(worker.placed) < 200 for worker in workers):
        for worker in workers:
            if len(worker.placed) < 200:
                worker.read()
        most = max(most, used(tmp_path))
    for worker in workers:
        worker.let_go()
    assert most < CAP + 2 * SLACK
    with hf.Store.open(tmp_path, read_only=True) as store:
        view = store.topic(TOPIC).subscribers()["stuck"]
    assert sum(shard.dropped for shard in view.shards.values()) > 100
    assert all(shard.watermark > 0 for shard in view.shards.values())


def test_fewer_workers_look_after_the_shards_left_behind(tmp_path: Path) -> None:
    """A shard whose worker was killed is read to its end, its finished segments are deleted, and no shard is added."""
    workers = [Worker(tmp_path, 60, seed, cap=10 * CAP) for seed in (1, 2, 3)]
    for worker in workers:
        worker.finish()
    for worker in workers:  # not before all have a shard: a late one would take over what a killed one left
        worker.kill()
    placed = {place for worker in workers for place in worker.placed}
    assert {shard for shard, _ in placed} == {0, 1, 2}
    with hf.Store.open(tmp_path, settings=settings(10 * CAP, "backpressure")) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            found: set[tuple[int, int]] = set()
            while found != placed:
                for delivery in sub.take(1_000, timeout=20):
                    assert (delivery.shard, delivery.offset) in placed
                    found.add((delivery.shard, delivery.offset))
                    delivery.ack()
            sub.flush()
        topic.seal()
        topic._upkeep.check()
        assert not list(tmp_path.rglob("*.seg"))
        assert sorted(topic.positions()) == [0, 1, 2]
