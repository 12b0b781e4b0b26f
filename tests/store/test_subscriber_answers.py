"""What may not be answered twice or too late, and what counts as an answer."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import AlreadySettled, Closed
from holdfast.testing import SimulatedFiles
from store.storekit import TOPIC
from store.subkit import (
    DEAD,
    now,
    put,
    simulated,
    watermark,
)

ONE_SECOND: dict[str, Any] = {"retry_initial": 1, "retry_max": 1}


@pytest.mark.parametrize("first", ["ack", "nack", "reject"])
@pytest.mark.parametrize("second", ["ack", "nack", "reject", "reject_rows"])
def test_second_answer_is_refused(first: str, second: str) -> None:
    """Whatever a delivery was answered with, a second answer of any kind raises and changes nothing."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            getattr(held, first)(*(() if first == "ack" else ("why",)))
            before = sub.statistics()
            args: dict[str, tuple[Any, ...]] = {"ack": (), "reject_rows": ("logs", [0], "why")}
            with pytest.raises(AlreadySettled, match="offset 0 of shard 0 was answered before"):
                getattr(held, second)(*args.get(second, ("why",)))
            assert sub.statistics() == before


@pytest.mark.parametrize("answer", ["ack", "nack", "reject", "reject_rows"])
def test_answer_after_close_is_refused_and_not_written(answer: str) -> None:
    """A closed subscriber takes no answers of any kind: what was in hand is the next holder's, as its first attempt."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        sub = topic.subscribe("lake")
        (held,) = now(sub)
        sub.close()
        args: dict[str, tuple[Any, ...]] = {"ack": (), "reject_rows": ("logs", [0], "why")}
        with pytest.raises(Closed, match="subscriber 'lake' is closed; subscribe again"):
            getattr(held, answer)(*args.get(answer, ("why",)))
        with topic.subscribe("lake") as again:
            assert [each.attempt for each in now(again)] == [1]
        assert store.topics() == [TOPIC]


def test_delivery_as_a_context_manager_acks() -> None:
    """A block that ends well acks; one that answered for itself is left alone."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            one, two = now(sub)
            with one as same:
                assert same is one
            with two:
                two.nack("away", retry_in=100)
            counts = sub.statistics()
            assert (counts.acked, counts.nacked) == (1, 1)
            with pytest.raises(AlreadySettled):
                one.ack()


def test_delivery_as_a_context_manager_nacks_with_the_error() -> None:
    """A block that fails is a failed attempt with the error as its reason, and the error goes on."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=1) as sub:
            (held,) = now(sub)
            with pytest.raises(ZeroDivisionError), held:
                1 / 0
        (letter,) = store.topic(DEAD).bundles()
        assert "ZeroDivisionError: division by zero" in letter.attributes["holdfast.dead"]["reason"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_being_told_to_stop_is_not_the_bundles_fault(kind: type[BaseException]) -> None:
    """An interrupt in the middle of a block costs the bundle no attempt, so that it never ends in the dead letters."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", max_attempts=1, **ONE_SECOND) as sub:
            (held,) = now(sub)
            with pytest.raises(kind), held:
                raise kind
            counts = sub.statistics()
            assert (counts.rejected, counts.nacked) == (0, 1)


def test_reason_may_be_any_text() -> None:
    """A reason that is long, or that holds what UTF-8 cannot, stands in nobody's way."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            one, two, three = now(sub)
            one.nack("file \udcff is no text", retry_in=0)
            two.nack("ä" * 5_000, retry_in=0)
            three.ack()
            sub.flush()
            for each in now(sub):
                each.reject("\udcff" + "ä" * 5_000)
            assert watermark(topic, "lake") == 3
        assert len(list(store.topic(DEAD).bundles())) == 2
