"""Drains: a holder that reads by offset and acks whole ranges; and acks for a subscriber that nobody holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import (
    Closed,
    Fenced,
    InvalidName,
    InvalidPosition,
    InvalidSettings,
    SubscriberTaken,
    UnknownSubscriber,
)
from holdfast.store import Drain
from holdfast.testing import SimulatedFiles
from store.shelfkit import Shelf
from store.storekit import TOPIC
from store.subkit import now, numbers, put, simulated, unfinished, watermark


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


@pytest.fixture
def topic(files: SimulatedFiles) -> Iterator[hf.Topic]:
    """Five bundles, numbered as their offsets."""
    with simulated(files) as store:
        opened = store.topic(TOPIC)
        assert put(opened, 0, 1, 2, 3, 4) == [0, 1, 2, 3, 4]
        yield opened


def test_positions(topic: hf.Topic) -> None:
    """A drain stands where its subscriber has everything below finished."""
    with topic.drain("lake") as drain:
        assert isinstance(drain, Drain)
        assert drain.positions() == {0: 0}
        drain.ack({0: (0, 2)})
        assert drain.positions() == {0: 2}
        drain.ack({0: (3, 4)})
        assert drain.positions() == {0: 2}
        assert drain.progress(0).unfinished(0, 5) == [(2, 3), (4, 5)]


@pytest.mark.parametrize(("start", "position"), [("earliest", 0), ("latest", 5), (3, 3), ({0: 4}, 4)])
def test_where_it_begins(topic: hf.Topic, start: Any, position: int) -> None:
    """Where it was told to when it was registered; afterwards that counts no more."""
    with topic.drain("lake", start) as drain:
        assert drain.positions() == {0: position}
    with topic.drain("lake", "earliest") as drain:
        assert drain.positions() == {0: position}


def test_acks_are_the_subscribers(topic: hf.Topic) -> None:
    """What a drain acked is delivered to nobody, and what it did not is."""
    with topic.drain("lake") as drain:
        drain.ack({0: (1, 4)}, sync=True)

    assert unfinished(topic, "lake") == [0, 4]


def test_an_ack_again_changes_nothing(topic: hf.Topic) -> None:
    """Acks overlap and repeat: replay is the normal way."""
    with topic.drain("lake") as drain:
        for ranges in ((0, 3), (0, 3), (1, 2), (2, 4), (3, 3)):
            drain.ack({0: ranges})
        assert drain.positions() == {0: 4}


def test_an_ack_does_not_undo_a_rejection(topic: hf.Topic) -> None:
    """What was final before stays as it is."""
    with topic.subscribe("lake") as subscriber:
        (delivery,) = now(subscriber, 1)
        delivery.reject("no good")
        with topic.drain("lake", takeover=True) as drain:
            drain.ack({0: (0, 5)})
            assert drain.progress(0).rejected == 1
            assert drain.positions() == {0: 5}


@pytest.mark.parametrize("ranges", [(0, 6), (5, 6), (3, 2), (-1, 2)])
def test_acks_of_what_is_not_there(topic: hf.Topic, ranges: tuple[int, int]) -> None:
    """Beyond what is durable nothing can have been delivered; an ack there would skip what comes later."""
    first, end = ranges
    with topic.drain("lake") as drain:
        with pytest.raises(InvalidPosition) as caught:
            drain.ack({0: ranges})
        assert drain.positions() == {0: 0}

    assert str(caught.value) == (
        f"offsets {first} to {end} of shard 0 of prod/logs: it is durable up to 5; ack only what was read"
    )


def test_acks_of_bundles_that_are_not_durable(files: SimulatedFiles) -> None:
    """A bundle that others cannot read yet cannot be acked."""
    with simulated(files, wal={"flush_interval": "1h"}) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        topic.append({"logs": next(topic.read(slot="logs"))}, durability="fsync")
        durable = topic.positions()[0][1]
        with topic.drain("lake") as drain, pytest.raises(InvalidPosition):
            drain.ack({0: (0, durable + 1)})


def test_a_shard_that_is_not_there(topic: hf.Topic) -> None:
    """Shards are named, those that there are too; nothing is written for the others."""
    with topic.drain("lake") as drain:
        with pytest.raises(InvalidPosition) as caught:
            drain.ack({0: (0, 2), 3: (0, 1)})
        assert drain.positions() == {0: 0}

    assert str(caught.value) == "prod/logs has no shard 3; it has [0]"


def test_one_holder_at_a_time(topic: hf.Topic) -> None:
    """A drain and a subscriber exclude each other."""
    with topic.drain("lake"):
        with pytest.raises(SubscriberTaken, match="'lake' is held by"):
            topic.drain("lake")
        with pytest.raises(SubscriberTaken):
            topic.subscribe("lake")
    with topic.subscribe("lake"), pytest.raises(SubscriberTaken):
        topic.drain("lake")


def test_takeover(topic: hf.Topic) -> None:
    """Whoever takes over goes on with what is unfinished; the earlier holder can write nothing more."""
    first = topic.drain("lake")
    first.ack({0: (0, 1)})
    second = topic.drain("lake", takeover=True)
    assert second.epoch > first.epoch
    with pytest.raises(Fenced, match="'lake' was taken over"):
        first.check()
    with pytest.raises(Fenced):
        first.ack({0: (1, 5)})
    second.check()
    assert second.positions() == {0: 1}
    second.ack({0: (1, 5)})
    assert second.positions() == {0: 5}
    first.close()
    with pytest.raises(SubscriberTaken):
        topic.drain("lake")
    second.close()


def test_takeover_of_a_subscriber_by_a_drain(topic: hf.Topic) -> None:
    """A subscriber that delivered is fenced; its answers count no more."""
    with topic.subscribe("lake") as subscriber:
        (delivery,) = now(subscriber, 1)
        with topic.drain("lake", takeover=True) as drain:
            delivery.ack()
            with pytest.raises(Fenced):
                subscriber.flush()
            assert drain.positions() == {0: 0}


def test_a_subscriber_that_was_removed(topic: hf.Topic) -> None:
    """The holder of a subscriber that is no more is fenced."""
    with topic.drain("lake") as drain:
        topic.remove("lake")
        with pytest.raises(Fenced, match="'lake' was removed"):
            drain.check()
        with pytest.raises(Fenced):
            drain.ack({0: (0, 1)})


def test_epochs_rise(topic: hf.Topic) -> None:
    """Each holder has an epoch of its own."""
    epochs = []
    for _ in range(3):
        with topic.drain("lake") as drain:
            epochs.append(drain.epoch)

    assert epochs == [1, 2, 3]


def test_settings(topic: hf.Topic) -> None:
    """What belongs to the registration is kept there; nonsense is refused."""
    topic.drain("lake", authoritative=True, on_full="drop").close()
    registration = topic.registration("lake")

    assert registration.authoritative
    assert registration.on_full == "drop"
    with pytest.raises(InvalidSettings):
        topic.drain("lake", on_full="explode")
    with pytest.raises(InvalidName):
        topic.drain("no/name")


def test_what_every_drain_acked_may_go() -> None:
    """Segments that all have finished are deleted; what one of them has not finished is kept for it."""
    shelf = Shelf()
    shelf.put(0, 1, 2)
    with shelf.topic.drain("lake") as lake, shelf.topic.drain("slow") as slow:
        lake.ack({0: (0, 3)})
        assert shelf.sweep() == [0, 1, 2]
        slow.ack({0: (0, 2)})
        assert shelf.sweep() == [2]
    shelf.store.close()


def test_several_shards(files: SimulatedFiles) -> None:
    """A drain stands in every shard, also in those that were made after it."""
    with simulated(files) as one, simulated(files, seed=2) as two:
        topic = one.topic(TOPIC)
        put(topic, 0, 1)
        with topic.drain("lake", "latest") as drain:
            assert drain.positions() == {0: 2}
            put(two.topic(TOPIC), 2, 3)
            assert drain.positions() == {0: 2, 1: 0}
            drain.ack({1: (0, 1), 0: (0, 2)})
            assert drain.positions() == {0: 2, 1: 1}
        assert two.topic(TOPIC).progress("lake", 1).watermark == 1


# -- without a holder --------------------------------------------------------------------------------------------------


def test_registering_without_holding(topic: hf.Topic) -> None:
    """From its registration on its data is kept; nobody holds it; registering again changes nothing."""
    topic.register("lake", 2)
    topic.register("lake", "latest")

    assert watermark(topic, "lake") == 2
    assert topic.subscribers()["lake"].holder is None
    with topic.subscribe("lake") as subscriber:
        assert numbers(now(subscriber)) == [2, 3, 4]


def test_registering_mistakes(topic: hf.Topic) -> None:
    """Names and positions are checked as ever."""
    with pytest.raises(InvalidName):
        topic.register("no/name")
    with pytest.raises(InvalidPosition):
        topic.register("lake", 6)
    assert topic.subscribers() == {}


def test_acks_without_holding(topic: hf.Topic) -> None:
    """Ranges are acked for a subscriber that nobody holds; again makes no difference."""
    topic.register("lake")
    for _ in range(2):
        topic.acknowledge("lake", {0: (0, 3)}, sync=True)

    assert topic.progress("lake", 0).watermark == 3
    assert unfinished(topic, "lake") == [3, 4]


def test_acks_while_somebody_holds_it(topic: hf.Topic) -> None:
    """Nobody acks behind a holder's back."""
    topic.register("lake")
    with topic.subscribe("lake"), pytest.raises(Fenced, match=r"subscriber 'lake' is held by .*: what is unfinished"):
        topic.acknowledge("lake", {0: (0, 3)})
    with topic.drain("lake"), pytest.raises(Fenced):
        topic.acknowledge("lake", {0: (0, 3)})

    assert topic.progress("lake", 0).watermark == 0


def test_acks_that_are_refused(topic: hf.Topic) -> None:
    """An unknown subscriber, an unknown shard, offsets beyond the end: nothing at all is acked."""
    topic.register("lake")

    with pytest.raises(UnknownSubscriber):
        topic.acknowledge("other", {0: (0, 1)})
    with pytest.raises(InvalidPosition):
        topic.acknowledge("lake", {0: (0, 6)})
    with pytest.raises(InvalidPosition):
        topic.acknowledge("lake", {0: (0, 2), 1: (0, 1)})
    assert topic.progress("lake", 0).watermark == 0


def test_acks_through_a_store_that_only_reads(files: SimulatedFiles, topic: hf.Topic) -> None:
    """What reads beside a writer may register and ack; the writer hears of it."""
    with simulated(files, seed=3, read_only=True) as reader:
        beside = reader.topic(TOPIC)
        beside.register("lake", 1)
        beside.acknowledge("lake", {0: (1, 3)})
        assert beside.progress("lake", 0).watermark == 3

    assert topic.progress("lake", 0).watermark == 3


def test_after_close(files: SimulatedFiles) -> None:
    """A closed topic says so."""
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
    for call in (lambda: topic.drain("lake"), lambda: topic.register("lake"), lambda: topic.acknowledge("lake", {})):
        with pytest.raises(Closed):
            call()


def test_acks_outlive_the_process(files: SimulatedFiles) -> None:
    """A synced ack is there for whoever opens the store next."""
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.drain("lake") as drain:
            drain.ack({0: (0, 2)}, sync=True)
    with simulated(files, seed=4) as store, store.topic(TOPIC).drain("lake") as drain:
        assert drain.positions() == {0: 2}
        assert drain.epoch == 2
