"""Subscribers in several processes, killed while they write outcomes, and an owner that rotates and deletes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

import holdfast as hf
from crash import acker
from crash.writer import batch
from store.storekit import until

pytestmark = pytest.mark.timeout(280)

SETTINGS = {
    "buffer": {
        "segment": {"target_size": 20_000},
        "wal": {"file_size": 65_536, "max_size": 1_000_000},
        "retention": {"min_free_disk": 0, "check_interval": 0.5},
    }
}


class Acker:
    """The process, and what it said that it has finished."""

    def __init__(self, store: Path, name: str, seed: int) -> None:
        command = [sys.executable, acker.__file__, str(store), name, str(seed)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.finished: list[int] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.finished += map(int, line.split())

    def join(self) -> None:
        self.process.wait(timeout=120)
        self._thread.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def run(store: Path, count: int, kills: int) -> None:
    """Two subscribers, each in a process of its own; one of them is killed over and over."""
    dice = Random(7)
    with hf.Store.open(store, settings=SETTINGS) as opened:
        topic = opened.topic(acker.TOPIC)
        for name in ("steady", "mortal"):
            topic.subscribe(name).close()
        topic.seal()  # takes the shard
        log = topic.acks(0)
        log._rotate_bytes = 2_000
        steady = Acker(store, "steady", 1)
        lives = [Acker(store, "mortal", 2)]
        for first in range(0, count, 20):
            for number in range(first, first + 20):
                last = {"last": True} if number == count - 1 else {}
                topic.append({"logs": batch(number)}, attributes={"id": number, **last})
            topic.flush()
            if len(lives) <= kills and first > len(lives) * count // (kills + 1):
                until(lambda: len(lives[-1].finished) > dice.randrange(20) or lives[-1].process.poll() is not None)
                lives[-1].process.kill()
                lives[-1].join()
                lives.append(Acker(store, "mortal", 2 + len(lives)))
        for process in (steady, lives[-1]):
            process.join()
            assert process.process.returncode == 0
        assert sorted(steady.finished) == list(range(count))
        told = [offset for life in lives for offset in life.finished]
        assert len(told) == len(set(told)), "what was finished before a kill was delivered again"
        assert len(lives) == kills + 1
        topic.seal()
        until(lambda: not list(topic.bundles()))
        until(lambda: not list((store / "prod" / "logs" / "shard-0000" / "segments").iterdir()))
        for view in topic.subscribers().values():
            assert view.shards[0].watermark == count
            assert view.shards[0].gaps == view.shards[0].dropped == view.shards[0].rejected == 0
        assert log.statistics().damage_count <= kills  # a kill may cut its own record short, and nobody else's
        assert log._follower.number > 3, "it was never rotated"


def test_acks_from_processes_that_are_killed(tmp_path: Path) -> None:
    """What was written down stays finished over kills and rotations; at the end all is finished, and deleted."""
    run(tmp_path / "data", 600, 2)


@pytest.mark.long
def test_acks_from_processes_that_are_killed_many_times(tmp_path: Path) -> None:
    """The same for longer."""
    run(tmp_path / "data", 30_000, 25)
