"""Positions as Spark keeps them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark._offsets import from_offset, positions_in, shard_key, split_key, to_offset

positions = st.dictionaries(st.integers(0, 12), st.integers(0, 2**62), max_size=5)


@given(positions, st.none() | st.just("lake"))
def test_round_trip(position: dict[int, int], subscriber: str | None) -> None:
    """A position comes back from Spark's text as it was, and its text does not depend on the order of shards."""
    turned = dict(reversed(position.items()))
    offset = to_offset("prod/logs", position, store="/data", store_id="5e", subscriber=subscriber)
    text = json.dumps(offset)

    assert text == json.dumps(to_offset("prod/logs", turned, store="/data", store_id="5e", subscriber=subscriber))
    assert from_offset(json.loads(text), "prod/logs") == position
    assert positions_in(text) == {f"prod/logs/{shard}": end for shard, end in position.items()}


def test_golden() -> None:
    """The text in checkpoints stays as it is: queries of earlier days go on with it."""
    offset = to_offset("prod/logs", {1: 40, 0: 120}, store="/data", store_id="5e", subscriber="lake")

    assert json.dumps(offset) == (
        '{"store": "/data", "id": "5e", "subscriber": "lake", "prod/logs/0": 120, "prod/logs/1": 40}'
    )


def test_other_topics_are_left_out() -> None:
    """A position is of one topic, even if names begin alike."""
    offset = {"store": "/data", "id": "5e", "prod/logs/0": 3, "prod/logs.old/0": 9, "dev/logs/0": 4}

    assert from_offset(offset, "prod/logs") == {0: 3}


def test_shard_keys() -> None:
    """A shard's key is its topic and its number."""
    assert shard_key("prod/logs", 3) == "prod/logs/3"
    assert split_key("prod/logs/3") == ("prod/logs", 3)
