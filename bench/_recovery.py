"""Opening after a crash with much in the WAL, beside reading and checksumming the same bytes."""

from __future__ import annotations

import mmap
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import crc32c

import holdfast as hf
from _child import in_child
from _data import make_pool
from _filling import SLOT, append_bundles, bundles_in
from _harness import Spread, Target, end_progress, per_round_ratios, progress, rotated
from _ours import TOPIC
from _report import Row, Section

# One segment that never fills: everything stays in the WAL.
_UNSEALED: Final[dict[str, Any]] = {
    "buffer": {"segment": {"target_size": "64GB", "max_open_duration": "24h"}, "wal": {"max_size": "64GB"}}
}
_HALF = Target(0.5)


class RecoveryFailed(Exception):
    """What came back is not what was acknowledged."""


def recovery_section(size: int, rounds: int, folder: Path) -> Section:
    """Replay of `size` bytes, each time in a new process that ends as by a crash."""
    store_folder = folder / "recovery"
    progress(f"recovery: writing {size / 1e6:.0f} MB of WAL")
    count = in_child(leave_in_wal, store_folder, size)
    wal_bytes = sum(path.stat().st_size for path in store_folder.rglob("*.wal"))
    ours: list[float] = []
    baseline: list[float] = []
    sides = [
        (partial(in_child, reopen, store_folder, count), ours),
        (partial(in_child, checksum, store_folder), baseline),
    ]
    for number in range(rounds):
        progress(f"recovery: round {number + 1} of {rounds}")
        for work, rates in rotated(sides, number):
            rates.append(wal_bytes / work())
    end_progress()
    return Section(
        f"recovery: {wal_bytes / 1e6:,.0f} MB of WAL in 74 KB frames, medians of {rounds} interleaved rounds",
        [
            Row(
                "holdfast: open, recover, read the first batch",
                {"MB/s": Spread.of(ours).median / 1e6},
                Spread.of(per_round_ratios(ours, baseline)),
                _HALF,
            ),
            Row("reading and checksumming the same files", {"MB/s": Spread.of(baseline).median / 1e6}),
        ],
        "holdfast / it",
    )


def leave_in_wal(folder: Path, size: int) -> int:
    """Appends about `size` bytes, all synced, none sealed; how many bundles that makes."""
    pool = make_pool(1_000)
    count = bundles_in(size, pool)
    append_bundles(hf.Store.open(folder, settings=_UNSEALED), pool, count)
    return count


def reopen(folder: Path, count: int) -> float:
    """Seconds until a writer has everything back and the first batch is read."""
    start = time.perf_counter()
    topic = hf.Store.open(folder, settings=_UNSEALED).topic(TOPIC)
    next(iter(topic.read(start=0, end=None, slot=SLOT)))
    seconds = time.perf_counter() - start
    if (found := topic.positions()) != {0: (0, count)}:
        raise RecoveryFailed(f"{count} bundles were synced; after reopening the positions are {found}")
    return seconds


def checksum(folder: Path) -> float:
    """Seconds to map every WAL file and run CRC32C over it."""
    start = time.perf_counter()
    for path in sorted(folder.rglob("*.wal")):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            crc32c.crc32c(content)
    return time.perf_counter() - start
