"""Another process reads while one writes, seals, deletes, dies and comes back: each offset once, in order."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast as hf
from crash import writer

pytestmark = pytest.mark.timeout(280)

# So small that files come and go all the time.
TINY = {"segment": {"target_size": 3000}, "wal": {"file_size": 4096, "max_size": 1_000_000}}


class Writer:
    """A writing process, and what it has said so far."""

    def __init__(self, path: Path, first: int, threads: int = 2, **options: object) -> None:
        arguments = [str(path), str(first), str(threads), json.dumps({"buffer": TINY, **options})]
        self.process = subprocess.Popen(
            [sys.executable, writer.__file__, *arguments], stdout=subprocess.PIPE, text=True
        )
        self.acked: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                _, _, offset, number = line.split()
                self.acked[int(offset)] = int(number)

    def finished(self) -> bool:
        return self.process.poll() is not None

    def join(self) -> None:
        self.process.wait(120)
        self._reader.join(120)
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait_for_topic(store: hf.Store, process: Writer) -> hf.Topic:
    pause = threading.Event()
    while writer.TOPIC not in store.topics():
        assert not process.finished(), "the writer ended before it made the topic"
        pause.wait(0.01)
    return store.topic(writer.TOPIC)


def wait_for_store(path: Path, process: Writer) -> hf.Store:
    pause = threading.Event()
    while not (path / "store.checkpoint").exists():
        assert not process.finished(), "the writer ended before it made the store"
        pause.wait(0.01)
    return hf.Store.open(path, read_only=True)


class Follower:
    """Reads on from where it was, and keeps every bundle it saw: held batches must not change either."""

    def __init__(self, topic: hf.Topic) -> None:
        self.topic = topic
        self.position = 0
        self.seen: dict[int, hf.RecordBundle] = {}

    def look(self) -> None:
        for bundle in self.topic.bundles(self.position):
            assert bundle.offset is not None
            assert bundle.offset >= self.position, "an offset came twice"
            self.check(bundle)
            self.seen[bundle.offset] = bundle
            self.position = bundle.offset + 1

    @staticmethod
    def check(bundle: hf.RecordBundle) -> None:
        assert bundle["logs"].equals(writer.batch(bundle.attributes["id"])), f"offset {bundle.offset} differs"

    def check_all_again(self) -> None:
        for bundle in self.seen.values():
            self.check(bundle)


def test_tailing_a_busy_writer(tmp_path: Path) -> None:
    """Appends, seals and file changes in quick turns: nothing is missed, doubled or torn, and held batches stay."""
    process = Writer(tmp_path / "data", 0, count=400, seal_every=9)
    with wait_for_store(tmp_path / "data", process) as store:
        follower = Follower(wait_for_topic(store, process))
        while not process.finished():
            follower.look()
        process.join()
        follower.look()
        assert sorted(follower.seen) == list(range(400))
        assert {offset: each.attributes["id"] for offset, each in follower.seen.items()} == process.acked
        follower.check_all_again()


def test_tailing_a_writer_that_deletes(tmp_path: Path) -> None:
    """What is deleted before it was read may be missing from the front, never from the middle of what is kept."""
    process = Writer(tmp_path / "data", 0, count=400, seal_every=5, truncate_every=10, keep=40)
    with wait_for_store(tmp_path / "data", process) as store:
        topic = wait_for_topic(store, process)
        follower = Follower(topic)
        while not process.finished():
            before = set(follower.seen)
            follower.look()
            new = sorted(set(follower.seen) - before)
            if new:
                start = topic.positions()[0][0]
                gaps = [offset for offset in range(new[0], new[-1]) if offset not in follower.seen]
                assert all(offset < start for offset in gaps), (
                    f"{gaps} are missing and were not deleted (from {start} on)"
                )
        process.join()
        follower.look()
        start, durable = topic.positions()[0]
        assert durable == 400
        assert set(range(start, durable)) <= set(follower.seen)
        follower.check_all_again()


def test_tailing_over_kills_and_restarts(tmp_path: Path) -> None:
    """A reader that stays while writers die and come back sees each offset once, and all that was acknowledged."""
    acked: dict[int, int] = {}
    process = Writer(tmp_path / "data", 0, seal_every=11)
    with wait_for_store(tmp_path / "data", process) as store:
        follower = Follower(wait_for_topic(store, process))
        for run in range(1, 5):
            while len(process.acked) < 60:
                assert not process.finished()
                follower.look()
            process.process.kill()
            process.join()
            follower.look()
            acked |= process.acked
            count = 50 if run == 4 else 10**9
            process = Writer(tmp_path / "data", 10_000 * run, seal_every=11, count=count)
        process.join()
        assert process.process.returncode == 0
        acked |= process.acked
        follower.look()
        seen = {offset: bundle.attributes["id"] for offset, bundle in follower.seen.items()}
        assert {offset: seen.get(offset) for offset in acked} == acked
        follower.check_all_again()
        assert seen == {bundle.offset: bundle.attributes["id"] for bundle in store.topic(writer.TOPIC).bundles()}
