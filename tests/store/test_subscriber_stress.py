"""Everything at once: writers, subscribers with different manners, sealing, deletion, rotation of the ack log."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import Closed, Fenced, SubscriberTaken
from holdfast.files import Files, SystemFiles
from holdfast.testing import SequenceIds, SimulatedFiles
from store.storekit import TOPIC, batch, until
from store.subkit import WAIT, Background, numbers, watermark

SMALL = {
    "segment": {"target_size": 3_000},
    "wal": {"file_size": 8_192, "max_size": 1_000_000},
    "retention": {"min_free_disk": 0},
}


class Manners:
    """Several subscribers of one topic, each with manners of its own, until all of them have finished everything."""

    def __init__(self, topic: hf.Topic, count: int) -> None:
        self.topic, self.count = topic, count
        self.done = threading.Event()
        self.acked: dict[str, Counter[int]] = {name: Counter() for name in ("steady", "moody", "restless", "rivals")}
        self.dice = SequenceIds(7)
        for name in self.acked:
            topic.subscribe(name).close()

    def chance(self, one_in: int) -> bool:
        return self.dice.random_bytes(1)[0] % one_in == 0

    def finished(self, name: str) -> bool:
        return self.done.is_set() or len(self.acked[name]) == self.count

    def steady(self) -> None:
        """Acks all it gets."""
        with self.topic.subscribe("steady", window=50) as sub:
            while not self.finished("steady"):
                for held in sub.take(20, timeout=0.05):
                    self.acked["steady"].update(numbers([held]))
                    held.ack()

    def moody(self) -> None:
        """Nacks a third, for a moment."""
        with self.topic.subscribe("moody", window=30, max_retrying=20) as sub:
            while not self.finished("moody"):
                for held in sub.take(20, timeout=0.05):
                    if self.chance(3):
                        held.nack("moody", retry_in=0.001, transient=True)
                    else:
                        self.acked["moody"].update(numbers([held]))
                        held.ack()

    def restless(self) -> None:
        """Leaves and comes back all the time, with bundles in hand."""
        while not self.finished("restless"):
            with self.topic.subscribe("restless") as sub:
                for held in sub.take(60, timeout=0.05)[:40]:
                    self.acked["restless"].update(numbers([held]))
                    held.ack()

    def rivals(self) -> None:
        """Takes the subscriber over from whoever has it; what it acked without writing it down may come again."""
        while not self.finished("rivals"):
            with contextlib.suppress(Fenced, SubscriberTaken):
                sub = self.topic.subscribe("rivals", takeover=True)
                try:
                    taken = sub.take(40, timeout=0.05)
                    for held in taken:
                        held.ack()
                    sub.flush()
                    self.acked["rivals"].update(numbers(taken))
                finally:
                    with contextlib.suppress(Fenced, Closed):
                        sub.close()


def rage(files: Files, path: Path, count: int) -> None:
    """All of it; every bundle must end up acked by every subscriber, and the disk empty."""
    with hf.Store.open(path, settings={"buffer": SMALL}, files=files) as store:
        topic = store.topic(TOPIC)
        topic.append({"logs": batch(0, width=100)}, attributes={"id": 0}).wait(timeout=WAIT)
        manners = Manners(topic, count)

        def write() -> None:
            receipts = []
            for number in range(1, count):
                receipts.append(topic.append({"logs": batch(number, width=100)}, attributes={"id": number}))
                if number % 50 == 0:
                    receipts[-1].wait(timeout=WAIT)
            for receipt in receipts:
                receipt.wait(timeout=WAIT)

        def disturb() -> None:
            """Rotates the ack log and seals, again and again."""
            log = topic.acks(0)
            while not manners.done.wait(0.01):
                with log.exclusive():
                    log.rotate(topic._subscriptions.registry().numbers)
                topic.seal()

        calls = (write, manners.steady, manners.moody, manners.restless, manners.rivals, manners.rivals)
        working = [Background(call) for call in calls]
        disturbing = Background(disturb)
        try:
            for each in working:
                each.result(120)
        finally:
            manners.done.set()
        disturbing.result()
        everything = set(range(count))
        for name, acked in manners.acked.items():
            assert set(acked) == everything, name
            assert watermark(topic, name) == count
        assert set(manners.acked["steady"].values()) == {1}, "delivered again after its ack"
        assert set(manners.acked["moody"].values()) == {1}, "delivered again after its ack"
        assert set(manners.acked["restless"].values()) == {1}, "delivered again after its ack was written"
        topic.seal()
        folder = path / "prod" / "logs" / "shard-0000" / "segments"
        until(lambda: files.list(folder) == [])


def test_many_manners_at_once() -> None:
    """Four kinds of subscribers, a writer and a disturber share a topic in memory for six hundred bundles."""
    rage(SimulatedFiles(), Path("/store"), 600)


@pytest.mark.long
def test_many_manners_at_once_on_a_real_disk(tmp_path: Path) -> None:
    """The same with real files, for longer."""
    rage(SystemFiles(), tmp_path, 10_000)
