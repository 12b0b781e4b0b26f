"""Positions as Spark keeps them: JSON of plain values, compared as text, so the order of keys is fixed.

    {"store": "/data", "id": "5e...", "subscriber": "lake", "prod/logs/0": 120, "prod/logs/1": 40}

A shard's value is the offset after the last bundle that counts. The rest tells whoever finds the text, in a checkpoint
or in a query's progress, whose it is: `id` is the store's own, so that another store at the same path is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

WHOSE: Final = ("store", "id", "subscriber")


def shard_key(topic: str, shard: int) -> str:
    return f"{topic}/{shard}"


def split_key(key: str) -> tuple[str, int]:
    """The topic and the shard's number."""
    topic, _, number = key.rpartition("/")
    return topic, int(number)


def to_offset(
    topic: str, position: Mapping[int, int], *, store: str, store_id: str, subscriber: str | None
) -> dict[str, Any]:
    whose: dict[str, Any] = {"store": store, "id": store_id}
    if subscriber is not None:
        whose["subscriber"] = subscriber
    return whose | {shard_key(topic, shard): position[shard] for shard in sorted(position)}


def from_offset(offset: Mapping[str, Any], topic: str) -> dict[int, int]:
    """The position in one topic."""
    places = {split_key(key): int(end) for key, end in offset.items() if key not in WHOSE}
    return {shard: end for (name, shard), end in places.items() if name == topic}


def positions_in(text: str) -> dict[str, int]:
    """Shard key -> offset, of an offset as Spark writes it down."""
    return {key: int(value) for key, value in json.loads(text).items() if key not in WHOSE}
