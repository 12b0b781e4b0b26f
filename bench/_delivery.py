"""What a subscriber costs over plain reading, and how fast its deliveries can be acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import holdfast as hf
from _ack_store import UNSEALED, NotDone, subscribed
from _data import make_pool
from _filling import append_bundles
from _harness import Spread, Target, end_progress, progress, rotated
from _ours import TOPIC
from _report import Row, Section

_ROWS: Final = 10
_COST_US: Final = Target(10, at_most=True)


@dataclass(frozen=True)
class Spent:
    """Microseconds a bundle: by the wall, and of all the process's threads together."""

    wall: float
    processor: float


def cost_sections(count: int, rounds: int, folder: Path) -> list[Section]:
    """`count` bundles taken and acked, less what it takes to iterate over the same ones; unsealed, then sealed."""
    with filled_topic(count, folder / "delivery") as topic:
        unsealed = _cost_section("not sealed", topic, count, rounds)
        topic.seal()
        return [unsealed, _cost_section("sealed", topic, count, rounds)]


def _cost_section(state: str, topic: Any, count: int, rounds: int) -> Section:
    plain: list[Spent] = []
    ways: list[tuple[str, Callable[[Any, int], Spent], list[Spent]]] = [
        ("take(100), ack each", partial(take_and_ack, at_once=100), []),
        ("take(1), ack it", partial(take_and_ack, at_once=1), []),
    ]
    sides = [("topic.bundles", iterate, plain), *ways]
    for number in range(rounds):
        for name, work, spent in rotated(sides, number):
            progress(f"delivery, {state}: round {number + 1} of {rounds}: {name}")
            spent.append(work(topic, count))
    end_progress()
    return Section(
        f"subscriber's own cost: {count:,} bundles of {_ROWS} rows, {state}, "
        f"medians of {rounds} interleaved rounds, microseconds a bundle",
        [
            *(_cost_row(name, spent, plain) for name, _, spent in ways),
            Row("plain topic.bundles, taken off", _figures(plain)),
        ],
        "own us",
        ["all threads us: processor time of the whole process, for the part in the background and on a busy machine"],
    )


def _cost_row(name: str, spent: list[Spent], plain: list[Spent]) -> Row:
    own = [
        Spent(mine.wall - base.wall, mine.processor - base.processor) for mine, base in zip(spent, plain, strict=True)
    ]
    figures = {**_figures(spent), "own all threads us": Spread.of([each.processor for each in own]).median}
    return Row(name, figures, Spread.of([each.wall for each in own]), _COST_US)


def _figures(spent: list[Spent]) -> dict[str, float]:
    return {
        "us": Spread.of([each.wall for each in spent]).median,
        "all threads us": Spread.of([each.processor for each in spent]).median,
    }


def iterate(topic: Any, count: int) -> Spent:
    """All of a topic, looked at and let go."""
    start, processor = time.perf_counter(), time.process_time()
    found = 0
    for _ in topic.bundles():
        found += 1
    spent = _spent(start, processor, count)
    if found != count:
        raise NotDone(f"{found} bundles read, expected {count}")
    return spent


def take_and_ack(topic: Any, count: int, at_once: int) -> Spent:
    """All of a topic by a new subscriber, until every ack is written down."""
    with subscribed(topic) as subscriber:
        left = count
        start, processor = time.perf_counter(), time.process_time()
        while left:
            for delivery in subscriber.take(at_once):
                delivery.ack()
                left -= 1
        subscriber.flush()
        return _spent(start, processor, count)


def _spent(start: float, processor: float, count: int) -> Spent:
    each = 1e6 / count
    return Spent((time.perf_counter() - start) * each, (time.process_time() - processor) * each)


@contextmanager
def filled_topic(count: int, folder: Path) -> Iterator[Any]:
    """A topic of `count` small bundles, none of them sealed, that stay whoever acks them."""
    progress(f"delivery: writing {count:,} bundles")
    with hf.Store.open(folder, settings=UNSEALED) as store, store.topic(TOPIC).subscribe("pin"):
        append_bundles(store, make_pool(_ROWS), count)
        yield store.topic(TOPIC)


def ack_rate(topic: Any, count: int) -> float:
    """Acks a second, one call for each delivery in hand, until every ack is written down."""
    with subscribed(topic, window=count) as subscriber:
        return count / ack_in_hand(subscriber, count)


def ack_in_hand(subscriber: Any, count: int) -> float:
    """Seconds to ack `count` deliveries that were taken before."""
    deliveries: list[Any] = []
    while len(deliveries) < count:
        deliveries += subscriber.take(count)
    start = time.perf_counter()
    for delivery in deliveries:
        delivery.ack()
    subscriber.flush()
    return time.perf_counter() - start
