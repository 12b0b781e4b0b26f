"""How soon a waiting subscriber has a bundle that was appended in its own process, or in another one."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import holdfast as hf
from _ack_store import NotDone, quiet
from _ack_sweep import percentile
from _data import make_pool
from _harness import Spread, Target, end_progress, progress, rotated
from _ours import TOPIC, confirm
from _report import Row, Section

_ROWS: Final = 10
_SETTLE_SECONDS: Final = 0.004  # between asking for a bundle and appending it: the subscriber waits by then
_PATIENCE_SECONDS: Final = 30.0
_SOON_MS: Final = Target(10, at_most=True)


def notice_section(count: int, rounds: int, folder: Path) -> Section:
    """From the receipt at the appender to `take` returning; below zero where the delivery was there first.

    Both ends read a clock that is one and the same for all processes.
    """
    with _own_process(folder / "own") as own, _another_process(folder / "other") as other:
        sides: list[tuple[str, _Pair, list[list[float]]]] = [
            ("appended in the same process", own, []),
            ("appended by another process", other, []),
        ]
        for number in range(rounds):
            for name, pair, found in rotated(sides, number):
                progress(f"notification: round {number + 1} of {rounds}: {name}")
                found.append([pair.delay_ms() for _ in range(count)])
    end_progress()
    rows = []
    for name, _, found in sides:
        medians = Spread.of([Spread.of(delays).median for delays in found])
        highest = Spread.of([percentile(delays, 99) for delays in found])
        rows += [Row(f"{name}, median", {}, medians, _SOON_MS), Row(f"{name}, p99", {}, highest, _SOON_MS)]
    return Section(
        f"from receipt to delivery: {count} bundles a round, one at a time, medians of {rounds} interleaved rounds",
        rows,
        "ms",
    )


class _Pair:
    """A subscriber that waits, and an appender behind a pipe."""

    def __init__(self, subscriber: Any, appender: Connection) -> None:
        self._subscriber, self._appender = subscriber, appender

    def delay_ms(self) -> float:
        self._appender.send(True)
        found = self._subscriber.take(1, timeout=_PATIENCE_SECONDS)
        returned = time.perf_counter()
        if not found:
            raise NotDone(f"no delivery within {_PATIENCE_SECONDS} s")
        found[0].ack()
        return float(returned - self._appender.recv()) * 1e3


@contextmanager
def _own_process(folder: Path) -> Iterator[_Pair]:
    ours, theirs = multiprocessing.Pipe()
    with hf.Store.open(folder) as store:
        topic = store.topic(TOPIC)
        thread = threading.Thread(target=append_when_asked, args=(topic, theirs), daemon=True)
        thread.start()
        with topic.subscribe("waiting") as subscriber:
            yield _Pair(subscriber, ours)
        ours.send(False)
        thread.join()


@contextmanager
def _another_process(folder: Path) -> Iterator[_Pair]:
    """The other one opens the store first, so that the shard is its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(folder, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_PATIENCE_SECONDS):
            raise NotDone("the appending process did not start")
        ours.recv()
        with hf.Store.open(folder) as store, store.topic(TOPIC).subscribe("waiting", start="latest") as subscriber:
            yield _Pair(subscriber, ours)
        ours.send(False)
        process.join(_PATIENCE_SECONDS)
    finally:
        process.terminate()
        process.join()
        ours.close()


def serve(folder: Path, asked: Connection) -> None:
    """The other process."""
    quiet()
    with hf.Store.open(folder) as store:
        topic = store.topic(TOPIC)
        confirm(topic.append({"logs": make_pool(_ROWS, distinct=1).batch(0)}))
        asked.send(True)
        append_when_asked(topic, asked)


def append_when_asked(topic: Any, asked: Connection) -> None:
    """A bundle for each `True` that comes, answered with the moment of its receipt; until `False`."""
    pool = make_pool(_ROWS)
    number = 0
    while asked.recv():
        time.sleep(_SETTLE_SECONDS)
        receipt = topic.append({"logs": pool.batch(number)})
        confirm(receipt)
        asked.send(time.perf_counter())
        number += 1
