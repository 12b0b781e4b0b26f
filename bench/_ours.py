"""Holdfast as a contender: one producer thread that keeps 64 receipts in flight."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path

import holdfast as hf
from _data import Pool
from _groups import GroupLog, ObservedFiles
from _harness import Run
from _peers import IN_FLIGHT, PeerFailed

TOPIC = "bench/append"
UNTIL_SEALED = "until sealed"
SEGMENTS = "segments sealed before the last receipt"
_WAIT_S = 60.0


class Holdfast:
    """Appends to a topic with default settings: every receipt says fsync, and segments are sealed meanwhile.

    The rate counts until the last receipt, with whatever was sealed by then; `extra` has the rate until
    everything is sealed and the store is closed, and how many segments the rate includes.
    """

    footprint = 2.2  # WAL and segment
    name = f"holdfast, {IN_FLIGHT} receipts in flight"

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.groups = GroupLog(pool.payload_bytes)

    def open(self, folder: Path) -> None:
        self.groups.restart()
        self._store = hf.Store.open(folder / "store", files=ObservedFiles(self.groups))
        self._topic = self._store.topic(TOPIC)

    def run(self, count: int) -> Run:
        append, batch = self._topic.append, self._pool.batch
        waiting: deque[hf.Receipt] = deque()
        start = time.perf_counter()
        for number in range(count):
            if len(waiting) == IN_FLIGHT:
                confirm(waiting.popleft())
            waiting.append(append({"logs": batch(number)}))
        last = waiting[-1]
        for receipt in waiting:
            confirm(receipt)
        acknowledged = time.perf_counter()
        statistics = self._topic.statistics()
        self._store.close()
        sealed = time.perf_counter()
        if last.offset != count - 1:
            raise PeerFailed(f"the last of {count} bundles has offset {last.offset}")
        segments = 0 if statistics is None else statistics.segments
        return Run(count / (acknowledged - start), {UNTIL_SEALED: count / (sealed - start), SEGMENTS: segments})

    def close(self) -> None:
        self._store.close()

    def last_groups(self) -> Iterable[int]:
        """How many bundles shared each sync of the latest run, over and over."""
        return cycle(self.groups.bundles() or [IN_FLIGHT])


def confirm(receipt: hf.Receipt) -> None:
    level = receipt.wait(timeout=_WAIT_S)
    if level < hf.Durability.FSYNC:
        raise PeerFailed(f"offset {receipt.offset} came back at level {level}")
