"""How much there is in a range, before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.store import Topic


class Measure(NamedTuple):
    """Rows and bytes of one slot."""

    rows: int
    bytes: int


def measure(topic: Topic, slot: str, ranges: Mapping[int, tuple[int, int]]) -> Measure:
    """Of the bundles in `ranges`, shard -> (first, end), as they are stored."""
    number = topic.slot_number(slot)
    rows = size = 0
    for shard, (first, end) in ranges.items():
        for span in topic.spans(shard, first, end):
            rows += int(span.rows(number).sum())
            size += int(span.sizes(number).sum())
    return Measure(rows, size)
