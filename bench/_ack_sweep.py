"""Deletion: how long a cycle over many segment files takes, and what appends feel of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import holdfast as hf
from _ack_store import UNSEALED, ack_all, wait_until_deleted
from _data import Pool, make_pool
from _harness import Spread, Target, end_progress, per_round_ratios, progress
from _ours import TOPIC, confirm
from _report import Row, Section

_ROWS: Final = 100  # a bundle of 8 KB
_SWEEPS: Final = 4  # in each round, so that enough appends fall into them
_FEWEST: Final = 20  # appends beside a sweep, however soon it is over
_CYCLE_S: Final = Target(1, at_most=True)
_FELT: Final = Target(2, at_most=True)


class Ground:
    """A topic in which segments can be made, and made to go all at once."""

    def __init__(self, store: hf.Store) -> None:
        self.topic: Any = store.topic(TOPIC)
        self.pool: Pool = make_pool(_ROWS)
        self._deleted = 0
        self.topic.subscribe("done").close()

    def lay(self, files: int) -> None:
        """So many sealed segments, finished but for one subscriber."""
        self.topic.subscribe("pin").close()
        for number in range(files):
            self.append(number)
            self.topic.seal()
        ack_all(self.topic, "done")
        self._deleted += files

    def append(self, number: int) -> float:
        """Seconds until the bundle is safe."""
        start = time.perf_counter()
        confirm(self.topic.append({"logs": self.pool.batch(number)}))
        return time.perf_counter() - start

    def release(self) -> None:
        """The last subscriber that needs them is gone, so they are deleted, at once and in the background."""
        self.topic.remove("pin")

    def wait(self) -> None:
        wait_until_deleted(self.topic, self._deleted)

    @property
    def is_swept(self) -> bool:
        return bool(self.topic.sweeper.counts.files_deleted >= self._deleted)


def sweep_section(files: int, rounds: int, folder: Path) -> Section:
    """Cycles by themselves; and cycles with appends beside them, each in turn with as many appends and no cycle."""
    cycles: list[float] = []
    busy_cycles: list[float] = []
    beside: list[list[float]] = []
    alone: list[list[float]] = []
    with hf.Store.open(folder / "sweep", settings=UNSEALED) as store:
        ground = Ground(store)
        for number in range(rounds):
            progress(f"deletion: round {number + 1} of {rounds}")
            ground.lay(files)
            cycles.append(_swept(ground))
            with_it: list[float] = []
            without: list[float] = []
            for _ in range(_SWEEPS):
                ground.lay(files)
                without += [ground.append(each) for each in range(len(with_it) - len(without))]
                busy_cycles.append(_swept_beside(ground, with_it))
            without += [ground.append(each) for each in range(len(with_it) - len(without))]
            beside.append(with_it)
            alone.append(without)
    end_progress()
    return _section(files, rounds, cycles, busy_cycles, beside, alone)


def _swept(ground: Ground) -> float:
    """Seconds of a cycle, from when the last subscriber lets go."""
    start = time.perf_counter()
    ground.release()
    ground.wait()
    return time.perf_counter() - start


def _swept_beside(ground: Ground, times: list[float]) -> float:
    """Seconds of a cycle with one append after the other meanwhile."""
    start = time.perf_counter()
    ground.release()
    fewest = len(times) + _FEWEST
    end = 0.0
    while not end or len(times) < fewest:
        times.append(ground.append(len(times)))
        if not end and ground.is_swept:
            end = time.perf_counter()
    return end - start


def _section(
    files: int,
    rounds: int,
    cycles: list[float],
    busy_cycles: list[float],
    beside: list[list[float]],
    alone: list[list[float]],
) -> Section:
    ours, base = [percentile(times, 99) for times in beside], [percentile(times, 99) for times in alone]
    felt = Spread.of(per_round_ratios(ours, base))
    return Section(
        f"deletion of {files} finished segment files, medians of {rounds} interleaved rounds",
        [
            Row("a cycle, seconds", {}, Spread.of(cycles), _CYCLE_S),
            Row("a cycle with appends beside it, seconds", {}, Spread.of(busy_cycles), _CYCLE_S),
            Row("p99 of appends beside it / without it", {**_times(beside), "p99 ms": _ms(ours)}, felt, _FELT),
            Row("appends without it", {**_times(alone), "p99 ms": _ms(base)}),
        ],
        "found",
        [f"{sum(map(len, beside))} appends of 8 KB beside cycles, one caller at a time"],
    )


def _times(rounds: list[list[float]]) -> dict[str, float]:
    return {"median ms": _ms([Spread.of(times).median for times in rounds])}


def _ms(seconds: list[float]) -> float:
    return Spread.of(seconds).median * 1e3


def percentile(values: list[float], share: int) -> float:
    """The lowest value that at least `share` percent of them do not exceed."""
    return sorted(values)[max(0, -(-len(values) * share // 100) - 1)]
