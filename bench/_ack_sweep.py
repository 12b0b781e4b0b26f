"""Deletion: how long a cycle over many segment files takes, and what appends feel of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import holdfast as hf
from _ack_store import UNSEALED, ack_all, wait_until_deleted
from _data import Pool, make_pool
from _harness import Spread, Target, end_progress, per_round_ratios, progress, rotated
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
    """Cycles by themselves, cycles with appends beside them, and as many appends without a cycle."""
    cycles: list[float] = []
    busy_cycles: list[float] = []
    beside: list[list[float]] = []
    alone: list[list[float]] = []
    with hf.Store.open(folder / "sweep", settings=UNSEALED) as store:
        ground = Ground(store)

        def during() -> None:
            times: list[float] = []
            for _ in range(_SWEEPS):
                ground.lay(files)
                busy_cycles.append(_swept_beside(ground, times))
            beside.append(times)

        def without() -> None:
            count = len(beside[-1]) if beside else _SWEEPS * _FEWEST
            alone.append([ground.append(number) for number in range(count)])

        def cycle() -> None:
            ground.lay(files)
            start = time.perf_counter()
            ground.release()
            ground.wait()
            cycles.append(time.perf_counter() - start)

        sides: list[Callable[[], None]] = [cycle, during, without]
        for number in range(rounds):
            progress(f"deletion: round {number + 1} of {rounds}")
            for side in rotated(sides, number):
                side()
    end_progress()
    return _section(files, rounds, cycles, busy_cycles, beside, alone)


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
