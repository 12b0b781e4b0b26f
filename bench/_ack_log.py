"""The ack log by itself: how fast outcomes are written, what a range costs, and how long replay takes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from _delivery import ack_rate, filled_topic
from _harness import Spread, Target, end_progress, per_round_ratios, progress, rotated
from _report import Row, Section
from holdfast.acks import AckLog, Outcome, OutcomeRecord
from holdfast.clock import SystemClock
from holdfast.files import SystemFiles

_SUBSCRIBER: Final = 1
_SHARD_ID: Final = bytes(range(16))
_BATCHED: Final = 1_000  # single offsets in a record
_RUN: Final = 100  # offsets in a range, where outcomes come in runs
_RANGE: Final = 10_000  # bundles acked by one range
_BLOCK: Final = 500  # records timed at a stretch
_AT_ONCE: Final = 10_000  # records given to one append while a log is made ready

_RATE: Final = Target(200_000)
_PRICE: Final = Target(1.5, at_most=True)
_REPLAY_S: Final = Target(2, at_most=True)


def open_log(folder: Path) -> AckLog:
    """The ack log of a shard in this folder, made if there is none."""
    folder.mkdir(exist_ok=True)
    AckLog.create(SystemFiles(), folder, _SHARD_ID)
    return AckLog(SystemFiles(), folder, _SHARD_ID, clock=SystemClock())


def scattered(count: int) -> list[int]:
    """Every second offset, so that no two make a run, in an order that is the same every time."""
    offsets = list(range(1, 2 * count, 2))
    random.Random("acks").shuffle(offsets)
    return offsets


def batched(offsets: Sequence[int], size: int) -> Iterator[OutcomeRecord]:
    for start in range(0, len(offsets), size):
        yield OutcomeRecord.of_offsets(_SUBSCRIBER, Outcome.ACK, offsets[start : start + size])


def in_runs(count: int) -> Iterator[OutcomeRecord]:
    """Ranges with a gap between each two, one a record."""
    for start in range(1, count * 2, _RUN * 2):
        yield OutcomeRecord.of_ranges(_SUBSCRIBER, Outcome.ACK, [(start, start + _RUN)])


# -- writing -------------------------------------------------------------------------------------------------------


def writing_section(outcomes: int, bundles: int, rounds: int, folder: Path) -> Section:
    """Plain numbers into records of 1,000, one append for each record; and the deliveries of a subscriber."""
    offsets = scattered(outcomes)
    with filled_topic(bundles, folder / "acking") as topic:
        sides: list[tuple[str, Callable[[], float], list[float]]] = [
            (f"into the ack log, {_BATCHED:,} a record", lambda: write_rate(offsets, folder / "writing"), []),
            ("by Delivery.ack, one call for each", lambda: ack_rate(topic, bundles), []),
        ]
        for number in range(rounds):
            for name, work, rates in rotated(sides, number):
                progress(f"single acks: round {number + 1} of {rounds}: {name}")
                rates.append(work())
    end_progress()
    return Section(
        f"single acks: {outcomes:,} scattered ones into the log, {bundles:,} in order by a subscriber, "
        f"medians of {rounds} interleaved rounds",
        [Row(name, {}, Spread.of(rates), _RATE) for name, _, rates in sides],
        "outcomes/s",
    )


def write_rate(offsets: Sequence[int], folder: Path) -> float:
    """Outcomes a second into a new log."""
    log = open_log(folder)
    start = time.perf_counter()
    for record in batched(offsets, _BATCHED):
        log.append([record])
    seconds = time.perf_counter() - start
    _expect(log, len(offsets))
    log.close()
    shutil.rmtree(folder)
    return len(offsets) / seconds


def price_section(rounds: int, folder: Path) -> Section:
    """One append of a range of 10,000 bundles, beside one append of a single offset."""
    log = open_log(folder / "price")
    single: list[float] = []
    ranges: list[float] = []

    def append_single(number: int) -> None:
        log.append([OutcomeRecord.of_offsets(_SUBSCRIBER, Outcome.ACK, [2 * number])])

    def append_range(number: int) -> None:
        first = 2 * number * _RANGE
        log.append([OutcomeRecord.of_ranges(_SUBSCRIBER, Outcome.ACK, [(first, first + _RANGE)])])

    sides = [(append_single, single), (append_range, ranges)]
    for number in range(rounds):
        progress(f"price of a range: round {number + 1} of {rounds}")
        for append, medians in rotated(sides, number):
            medians.append(_median_us(append))
    log.close()
    end_progress()
    return Section(
        f"price of an ack: medians of {rounds} interleaved rounds of {_BLOCK} appends",
        [
            Row(
                f"a range of {_RANGE:,} bundles",
                {"us": Spread.of(ranges).median},
                Spread.of(per_round_ratios(ranges, single)),
                _PRICE,
            ),
            Row("a single bundle", {"us": Spread.of(single).median}),
        ],
        "it / single",
    )


def _median_us(append: Callable[[int], None]) -> float:
    times = []
    for number in range(_BLOCK):
        start = time.perf_counter()
        append(number)
        times.append(time.perf_counter() - start)
    return Spread.of(times).median * 1e6


# -- replay --------------------------------------------------------------------------------------------------------


def replay_section(count: int, rounds: int, folder: Path) -> Section:
    """A log that was never rotated, read by one that is fresh."""
    offsets = scattered(count)
    makers: list[tuple[str, Callable[[], Iterator[OutcomeRecord]]]] = [
        ("each in a record of its own, scattered", lambda: batched(offsets, 1)),
        (f"in records of {_BATCHED:,}, scattered", lambda: batched(offsets, _BATCHED)),
        (f"in ranges of {_RUN}", lambda: in_runs(count)),
    ]
    shapes = []
    for number, (name, records) in enumerate(makers):
        progress(f"replay: writing {count:,} outcomes {name}")
        own = folder / f"replay-{number}"
        shapes.append((name, own, fill_log(own, records()), list[float]()))
    for number in range(rounds):
        for name, own, _, seconds in rotated(shapes, number):
            progress(f"replay: round {number + 1} of {rounds}: {name}")
            seconds.append(replay(own, count))
    end_progress()
    return Section(
        f"replay of {count:,} outcomes by a fresh log, medians of {rounds} interleaved rounds",
        [
            Row(
                name, {"MB": size / 1e6, "outcomes/s": count / Spread.of(seconds).median}, Spread.of(seconds), _REPLAY_S
            )
            for name, _, size, seconds in shapes
        ],
        "seconds",
    )


def fill_log(folder: Path, records: Iterator[OutcomeRecord]) -> int:
    """Writes the records, many at a time; how many bytes the log takes."""
    log = open_log(folder)
    waiting: list[OutcomeRecord] = []
    for record in records:
        waiting.append(record)
        if len(waiting) == _AT_ONCE:
            log.append(waiting)
            waiting = []
    log.append(waiting)
    log.close()
    return log.statistics().bytes


def replay(folder: Path, count: int) -> float:
    """Seconds until a fresh log knows all that is in the folder."""
    start = time.perf_counter()
    log = AckLog(SystemFiles(), folder, _SHARD_ID, clock=SystemClock())
    log.refresh()
    seconds = time.perf_counter() - start
    _expect(log, count)
    return seconds


class OutcomesMissing(Exception):
    """The log does not say what was written into it."""


def _expect(log: AckLog, count: int) -> None:
    log.refresh()
    found = log.progress(_SUBSCRIBER).final_above
    if found != count:
        raise OutcomesMissing(f"{count} outcomes were written; the log says {found}")
