"""A topic with retention on which nothing happens by itself, for tests that sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crash.still import open_still
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from store.storekit import TOPIC, contents, put


class Shelf:
    """A topic on which nothing happens by itself; each bundle that is put on it is a segment of its own."""

    def __init__(self, files: SimulatedFiles | None = None, **retention: Any) -> None:
        self.clock = FakeClock()
        self.files = SimulatedFiles(clock=self.clock) if files is None else files
        self.open(**retention)

    def open(self, **retention: Any) -> None:
        buffer = {
            "segment": {"target_size": 1_000_000, "max_open_duration": "1d"},
            "wal": {"file_size": 4096, "max_size": 1_000_000, "flush_interval": "1h"},
            "append_timeout": 0,
            "subscriber": {"deadline": "1d"},
            "retention": {"min_free_disk": 0, **retention},
        }
        self.store = open_still(self.files, {"buffer": buffer}, self.clock, SequenceIds(1))
        self.topic = self.store.topic(TOPIC)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            put(self.topic, number)
            self.topic.seal()

    def sweep(self) -> list[int]:
        """One sweep, and what is left."""
        self.topic.positions()  # takes the shard, if it was not used yet
        self.topic.positions()  # takes the shard, if it was let go
        self.store._keeper.close()  # forgets whatever else is due
        self.topic._upkeep.check()
        return sorted(contents(self.topic))

    @property
    def counts(self) -> Any:
        assert self.topic.sweeper is not None
        return self.topic.sweeper.counts


def ack(subscriber: Any, offsets: Iterable[int] | None = None) -> list[int]:
    """Take all there is; ack it, or some of it."""
    given = {delivery.offset: delivery for delivery in subscriber.take(10_000, timeout=0)}
    for offset in given if offsets is None else offsets:
        given[offset].ack()
    subscriber.flush()
    return sorted(given)
