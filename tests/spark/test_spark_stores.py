"""The stores that a process keeps open for its queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import NotAStore, UnknownSlot, UnknownTopic
from holdfast.spark import _stores
from holdfast.spark._stores import open_store, open_topic, slot_of
from spark.topickit import TOPIC, fill, ids, put


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Nothing is open before or after."""
    _stores._open.clear()
    yield
    while _stores._open:
        _stores._open.popitem()[1].close()


def test_a_store_stays_open(tmp_path: Path) -> None:
    """The next task of a query finds the store as the last one left it."""
    fill(tmp_path, [ids(1)])

    first = open_store(str(tmp_path))
    assert open_store(str(tmp_path)) is first
    assert open_store(str(tmp_path), first.id) is first


def test_what_is_kept_sees_what_is_new(tmp_path: Path) -> None:
    """A store that was opened before sees bundles, slots and shards that came later."""
    fill(tmp_path, [ids(1)])
    topic = open_topic(str(tmp_path), TOPIC)
    assert topic.positions() == {0: (0, 1)}
    with hf.Store.open(tmp_path) as store:
        put(store.topic(TOPIC), ids(2))
        put(store.topic(TOPIC), ids(3), slot="traces")
    fill(tmp_path, [ids(4)], shard=1)

    again = open_topic(str(tmp_path), TOPIC)
    assert again.positions() == {0: (0, 3), 1: (0, 1)}
    assert set(again.slots()) == {"logs", "traces"}


def test_another_store_at_the_path(tmp_path: Path) -> None:
    """Another store is opened in place of the first, and refused to a query that began with the first."""
    place = tmp_path / "store"
    fill(place, [ids(1)])
    first = open_store(str(place))
    place.rename(tmp_path / "away")
    fill(place, [ids(2), ids(3)])

    with pytest.raises(NotAStore) as caught:
        open_store(str(place), first.id)
    second = open_store(str(place))

    assert second.id != first.id
    assert str(caught.value) == (
        f"at {place} there is store {second.id}, but the query began with {first.id}: "
        "every process of a query must see the same folder at this path"
    )
    assert second.topic(TOPIC).positions() == {0: (0, 2)}


def test_a_store_that_is_gone(tmp_path: Path) -> None:
    """A folder that went away is noticed, although the store was open."""
    place = tmp_path / "store"
    fill(place, [ids(1)])
    open_store(str(place))
    place.rename(tmp_path / "away")

    with pytest.raises(NotAStore, match=str(place)):
        open_store(str(place))
    assert not place.exists(), "looking makes nothing"


def test_few_stay_open(tmp_path: Path) -> None:
    """The store that was used longest ago is closed when there are too many."""
    paths = [tmp_path / str(number) for number in range(_stores.MAX_OPEN + 2)]
    for path in paths:
        with hf.Store.open(path):
            pass
    opened = [open_store(str(path)) for path in paths]

    assert list(_stores._open.values()) == opened[2:]
    assert open_store(str(paths[0])) is not opened[0]


def test_topics_and_slots(tmp_path: Path) -> None:
    """What is not there is named, with what is."""
    fill(tmp_path, [ids(1)])
    with pytest.raises(UnknownTopic, match="prod/nope"):
        open_topic(str(tmp_path), "prod/nope")
    topic = open_topic(str(tmp_path), TOPIC)

    assert slot_of(topic, None) == "logs"
    assert slot_of(topic, "logs") == "logs"
    with pytest.raises(UnknownSlot, match="nope"):
        slot_of(topic, "nope")


def test_several_slots(tmp_path: Path) -> None:
    """Where there are several slots one must be chosen."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        with pytest.raises(UnknownSlot) as empty:
            slot_of(topic, None)
        put(topic, ids(1))
        put(topic, ids(2), slot="traces")
        with pytest.raises(UnknownSlot) as several:
            slot_of(topic, None)

    assert str(empty.value) == "nothing was appended to prod/logs yet, so it has no slot; append to it first"
    assert str(several.value) == 'prod/logs has the slots logs, traces: choose one with .option("slot", ...)'
