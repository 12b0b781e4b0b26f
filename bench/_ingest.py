"""Memory of a process that takes in far more than it may hold."""

from __future__ import annotations

import time
from pathlib import Path

import holdfast as hf
from _child import in_child, peak_of_anonymous_bytes
from _data import make_pool
from _filling import append_bundles, bundles_in
from _harness import Spread, Target, end_progress, progress
from _report import Row, Section

_MOST_MB = Target(400, at_most=True)


def ingest_section(size: int, folder: Path) -> Section:
    progress(f"ingest: {size / 1e6:,.0f} MB")
    peak, seconds = in_child(ingest_and_watch, folder / "ingest", size)
    end_progress()
    return Section(
        f"anonymous resident memory while {size / 1e6:,.0f} MB are taken in, default settings",
        [Row("holdfast, until closed", {"MB/s": size / seconds / 1e6}, Spread.of([peak / 1e6]), _MOST_MB)],
        "peak MB",
    )


def ingest_and_watch(folder: Path, size: int) -> tuple[int, float]:
    """The peak of anonymous bytes, and seconds until everything is sealed."""
    pool = make_pool(1_000)
    start = time.perf_counter()
    with peak_of_anonymous_bytes() as peak:
        with hf.Store.open(folder) as store:
            append_bundles(store, pool, bundles_in(size, pool))
        return peak(), time.perf_counter() - start
