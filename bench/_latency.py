"""One caller, one bundle at a time: how long until it is safe, beside a bare write and fdatasync."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from _data import make_pool
from _harness import Spread, Target, end_progress, per_round_ratios, progress, warm_memory
from _ours import TOPIC, confirm
from _report import Row, Section

_BLOCK = 200  # operations measured at a stretch
_WARM_BYTES = 64_000_000
_TARGET = Target(1.5, at_most=True)


def latency_section(rows: int, blocks: int, folder: Path) -> Section:
    """Medians of alternating blocks; both sides append to files that grow as the blocks go on."""
    pool = make_pool(rows)
    ours: list[float] = []
    bare: list[float] = []
    descriptor = os.open(folder / f"bare-{rows}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    try:
        with hf.Store.open(folder / f"store-{rows}") as store:
            topic = store.topic(TOPIC)

            def append(number: int) -> None:
                confirm(topic.append({"logs": pool.batch(number)}))

            def write(number: int) -> None:
                os.write(descriptor, pool.payload(number))
                os.fdatasync(descriptor)

            for number in range(blocks):
                progress(f"one at a time: block {number + 1} of {blocks}")
                sides = [(append, ours), (write, bare)]
                for operation, medians in sides if number % 2 else reversed(sides):
                    warm_memory(folder, _WARM_BYTES)
                    medians.append(_block_median_us(operation))
    finally:
        os.close(descriptor)
    end_progress()
    return Section(
        f"one caller, one at a time: {rows:,}-row bundles of {pool.payload_bytes / 1e3:.1f} KB, "
        f"{blocks} alternating blocks of {_BLOCK}",
        [
            Row(
                "holdfast, append and wait",
                {"median us": Spread.of(ours).median},
                Spread.of(per_round_ratios(ours, bare)),
                _TARGET,
            ),
            Row("bare write and fdatasync", {"median us": Spread.of(bare).median}),
        ],
        "holdfast / bare",
    )


def _block_median_us(operation: Callable[[int], None]) -> float:
    times = []
    for number in range(_BLOCK):
        start = time.perf_counter()
        operation(number)
        times.append(time.perf_counter() - start)
    return Spread.of(times).median * 1e6
