"""Interleaved rounds, ratios and level ground: what every benchmark here is measured with.

A round runs every contender once, one after the other, and the order rotates from round to round, so that
what the machine does meanwhile hits each of them alike. A ratio compares two contenders within one round;
reported are the median of these ratios and their range, never a ratio of medians from different moments.
"""

from __future__ import annotations

import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

_T = TypeVar("_T")
_DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / "build" / "bench"
_CHUNK = bytes(1 << 20)


@dataclass(frozen=True)
class Spread:
    """The middle of some measurements, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Target:
    """What a figure should reach: at least `value`, or at most, where less is better."""

    value: float
    at_most: bool = False

    def met(self, figure: float) -> bool:
        return figure <= self.value if self.at_most else figure >= self.value


@dataclass(frozen=True)
class Run:
    """What one contender did in one round; `extra` holds further rates of the same run, by name."""

    per_s: float
    extra: Mapping[str, float] = field(default_factory=dict)


class Contender(Protocol):
    """Something to measure. `open` and `close` are outside the clock, which `run` reads itself.

    `footprint` is how much memory, page cache included, a run takes for each byte of its bundles.
    """

    name: str
    footprint: float

    def open(self, folder: Path) -> None: ...

    def run(self, count: int) -> Run: ...

    def close(self) -> None: ...


def rotated(items: Sequence[_T], by: int) -> list[_T]:
    """The same items, beginning `by` places later."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def per_round_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours to theirs, round by round."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def fitting_count(per_s: float, seconds: float, *, multiple_of: int, most: int) -> int:
    """How many items last about `seconds` at this rate: whole multiples, at least 1, little above `most`."""
    wanted = min(per_s * seconds, most)
    return max(1, round(wanted / multiple_of)) * multiple_of


def measure_once(contender: Contender, count: int, folder: Path, warm_bytes: int) -> Run:
    """One run on an empty folder and warm memory, with nothing left behind."""
    own = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    try:
        contender.open(own)
        try:
            warm_memory(own, warm_bytes)
            return contender.run(count)
        finally:
            contender.close()
    finally:
        shutil.rmtree(own)


def interleaved(
    contenders: Sequence[Contender], rounds: int, measure: Callable[[Contender], Run]
) -> dict[str, list[Run]]:
    """Every contender once per round, in rotating order; the runs of each, round by round."""
    runs: dict[str, list[Run]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in rotated(contenders, number):
            progress(f"round {number + 1} of {rounds}: {contender.name}")
            runs[contender.name].append(measure(contender))
    return runs


def warm_memory(folder: Path, size: int) -> None:
    """Takes `size` bytes of page cache and gives them back, so that a run does not pay for cold memory.

    A virtual machine's host takes free memory back, and the first touch of such a page costs several times
    the write into it: without this, whoever runs after a pause loses. Touching anonymous memory does not do:
    the page cache draws on other free lists.
    """
    path = folder / "warm"
    with path.open("wb", buffering=0) as file:
        for _ in range(size // len(_CHUNK)):
            file.write(_CHUNK)
    path.unlink()


@contextmanager
def scratch_folder(chosen: Path | None) -> Iterator[Path]:
    """A temporary folder, by default on the repository's filesystem; gone at the end, also after SIGTERM."""
    parent = chosen or _DEFAULT_FOLDER
    parent.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-", dir=parent) as name:
            yield Path(name)
    finally:
        signal.signal(signal.SIGTERM, before)


def progress(text: str) -> None:
    """Says on a terminal what is being measured; silent elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    progress("")
