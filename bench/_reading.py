"""Reading sealed data, beside plain memory-mapped Arrow IPC files of the same batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import holdfast as hf
from _child import anonymous_bytes, in_child, peak_of_anonymous_bytes
from _data import make_pool
from _filling import SLOT, bundles_in, fill_plain_files, fill_store, plain_batches
from _harness import Contender, Run, Spread, Target, end_progress, interleaved, per_round_ratios, progress
from _ours import TOPIC
from _report import Row, Section

Batches = Iterable[pa.RecordBatch]
_AS_FAST = Target(0.9)
_NO_GROWTH = Target(1.1, at_most=True)


class ReadingFailed(Exception):
    """The two sides did not read the same data."""


def every_value(batches: Batches) -> int:
    """Touches every value: sums of the numbers, lengths of the strings."""
    total = 0
    for batch in batches:
        for column in batch.columns:
            lengths = pc.binary_length(column) if pa.types.is_string(column.type) else column
            total += int(pc.sum(lengths).as_py())
    return total


def nothing(batches: Batches) -> int:
    """Takes each batch and looks at nothing but its number of rows."""
    return sum(batch.num_rows for batch in batches)


class _Reader:
    """A contender that reads: `source` gives the batches, `work` consumes them."""

    def __init__(
        self,
        name: str,
        rows: int,
        source: Callable[[], Iterator[pa.RecordBatch]],
        work: Callable[[Batches], int],
    ) -> None:
        self.name, self.footprint, self.total = name, 0.0, 0
        self._rows, self._source, self._work = rows, source, work

    def open(self, folder: Path) -> None: ...

    def run(self, count: int) -> Run:
        start = time.perf_counter()
        for _ in range(count):
            self.total = self._work(self._source())
        return Run(count * self._rows / (time.perf_counter() - start))

    def close(self) -> None: ...


def reading_section(rows: int, size: int, rounds: int, folder: Path) -> Section:
    """Rows per second of both sides, for the same work on the same batches, all in the page cache."""
    pool = make_pool(rows)
    count = bundles_in(size, pool)
    progress(f"reading: writing {size / 1e6:.0f} MB twice")
    store_folder, plain_folder = folder / f"store-{rows}", folder / f"plain-{rows}"
    fill_store(store_folder, pool, count)
    fill_plain_files(plain_folder, pool, count)
    lines: list[Row] = []
    with hf.Store.open(store_folder, read_only=True) as store:
        topic = store.topic(TOPIC)
        for title, columns, work, target in (
            ("every value", None, every_value, _AS_FAST),
            ("one column of five", ["ts"], every_value, None),
            ("iterating only", None, nothing, None),
        ):
            ours = _Reader(
                f"holdfast: {title}",
                count * rows,
                lambda columns=columns: topic.read(start=0, end=None, slot=SLOT, columns=columns),
                work,
            )
            plain = _Reader(
                f"plain files: {title}",
                count * rows,
                lambda columns=columns: plain_batches(plain_folder, columns),
                work,
            )
            lines += _compared(ours, plain, rounds, pool.payload_bytes / rows, target)
    end_progress()
    return Section(
        f"read: {count * pool.payload_bytes / 1e6:.0f} MB sealed as {rows:,}-row bundles, "
        f"medians of {rounds} interleaved rounds",
        lines,
        "holdfast / plain",
    )


def _compared(ours: _Reader, plain: _Reader, rounds: int, row_bytes: float, target: Target | None) -> list[Row]:
    def measure(contender: Contender) -> Run:
        return contender.run(1)

    for contender in (ours, plain):  # both warm
        measure(contender)
    runs = interleaved([ours, plain], rounds, measure)
    if ours.total != plain.total:
        raise ReadingFailed(f"{ours.name} came to {ours.total}, {plain.name} to {plain.total}")
    rates = {name: [run.per_s for run in each] for name, each in runs.items()}
    ratio = Spread.of(per_round_ratios(rates[ours.name], rates[plain.name]))

    def figures(name: str) -> dict[str, float]:
        rate = Spread.of(rates[name]).median
        return {"rows/s": rate, "MB/s": rate * row_bytes / 1e6}

    return [Row(ours.name, figures(ours.name), ratio, target), Row(plain.name, figures(plain.name))]


def memory_section(small: int, large: int, folder: Path) -> Section:
    """Anonymous memory of a process that reads a small store, and of one that reads a large one."""
    pool = make_pool(1_000)
    peaks, rows = [], []
    for size in (small, large):
        progress(f"memory while reading {size / 1e6:.0f} MB")
        store_folder = folder / f"memory-{size}"
        fill_store(store_folder, pool, bundles_in(size, pool))
        before, peak = in_child(read_and_watch, store_folder)
        peaks.append(peak)
        rows.append((f"reading {size / 1e6:,.0f} MB", {"before MB": before / 1e6, "peak MB": peak / 1e6}))
    end_progress()
    growth = peaks[1] / peaks[0]
    return Section(
        "anonymous resident memory while every value is read",
        [Row(*rows[0]), Row(*rows[1], Spread.of([growth]), _NO_GROWTH)],
        "large / small",
    )


def read_and_watch(folder: Path) -> tuple[int, int]:
    """Anonymous bytes before reading the whole store, and their peak while reading."""
    before = anonymous_bytes()
    with hf.Store.open(folder, read_only=True) as store, peak_of_anonymous_bytes() as peak:
        every_value(store.topic(TOPIC).read(start=0, end=None, slot=SLOT))
        return before, peak()
