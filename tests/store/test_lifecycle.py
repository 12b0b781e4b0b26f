"""The life of a subscriber: where it starts, how it is found again, paused, resumed, removed, and expired."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Closed, Fenced, InvalidName, InvalidPosition, InvalidSettings, UnknownSubscriber
from holdfast.testing import FakeClock, SimulatedFiles, crash
from store.storekit import SEGMENTS, TOPIC, until
from store.subkit import (
    Background,
    Child,
    ChildError,
    ack_all,
    now,
    numbers,
    put,
    simulated,
    unfinished,
    watermark,
)


def two_shards(files: SimulatedFiles) -> tuple[hf.Store, hf.Store]:
    one, two = simulated(files), simulated(files, seed=2)
    put(one.topic(TOPIC), 0, 1, 2)
    put(two.topic(TOPIC), 10, 11, 12)
    return one, two


# -- start -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", [0, 1, 2, 3]), ("latest", [3]), (0, [0, 1, 2, 3]), (2, [2, 3]), ({0: 1}, [1, 2, 3]), (3, [3])],
)
def test_where_a_new_subscriber_starts(start: Any, expected: list[int]) -> None:
    """The start says which bundle is the first; everything after it is delivered."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake", start) as sub:
            put(topic, 3)
            assert ack_all(now(sub)) == expected
            sub.flush()
            assert topic.subscribers()["lake"].lag_bundles == 0


def test_start_over_several_shards() -> None:
    """A mapping names shards; one that is not named is delivered from its beginning. A number is refused."""
    one, two = two_shards(SimulatedFiles())
    with one, two:
        topic = one.topic(TOPIC)
        with topic.subscribe("some", {1: 2}) as sub:
            assert sorted(numbers(now(sub))) == [0, 1, 2, 12]
        with topic.subscribe("latest", "latest") as sub:
            assert now(sub) == []
            put(two.topic(TOPIC), 13)
            assert numbers(now(sub)) == [13]
        with pytest.raises(InvalidPosition, match=r"has shards \[0, 1\]: give a position for each"):
            topic.subscribe("number", 2)
        assert set(topic.subscribers()) == {"some", "latest"}


@pytest.mark.parametrize("start", ["earliest", "latest", {0: 2}])
def test_later_shards_come_from_their_beginning(start: Any) -> None:
    """A shard that is made after the registration is delivered whole, whatever the start was."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), 0, 1)
        with one.topic(TOPIC).subscribe("lake", start) as sub:
            ack_all(now(sub))
            put(two.topic(TOPIC), 10, 11)
            put(one.topic(TOPIC), 2)
            sub.look_again()
            assert sorted(numbers(now(sub))) == [2, 10, 11]
        assert sorted(unfinished(two.topic(TOPIC), "lake")) == [2, 10, 11]


def test_subscriber_of_a_topic_without_data() -> None:
    """A subscriber may come before the first bundle, and gets that, too."""
    for start in ("earliest", "latest", 0):
        with simulated() as store:
            topic = store.topic(TOPIC)
            with topic.subscribe("lake", start) as sub:
                assert now(sub) == []
                put(topic, 0, 1)
                assert numbers(now(sub)) == [0, 1]


def test_start_counts_only_the_first_time() -> None:
    """Who subscribes again goes on with what is unfinished, whatever start is given."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            sub.take(1, timeout=0)[0].ack()
        for start in ("latest", 3, "earliest", {0: 0}):
            with topic.subscribe("lake", start) as sub:
                assert numbers(now(sub)) == [1, 2]
    with simulated(files, seed=2) as store, store.topic(TOPIC).subscribe("lake", "latest") as sub:
        assert numbers(now(sub)) == [1, 2]


def test_start_above_what_was_deleted() -> None:
    """`earliest` begins with what is still there, and nothing counts as lost for it."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        topic.seal()
        topic.truncate(2)
        with topic.subscribe("lake", "earliest") as sub:
            assert ack_all(now(sub)) == [2]
            sub.flush()
        view = topic.subscribers()["lake"].shards[0]
        assert (view.watermark, view.dropped, view.rejected) == (3, 0, 0)


def test_registration_survives_a_power_cut_at_once() -> None:
    """On return of `subscribe` the registration is durable: from then on nothing of its share is deleted."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        topic.subscribe("lake", 1)
        files = crash(files)
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        assert set(topic.subscribers()) == {"lake"}
        assert unfinished(topic, "lake") == [1]


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a\\b", "a b", "x" * 129, "end.", "x.lock", "nul", 7])
def test_bad_names(name: Any) -> None:
    """A name that could not be a file's is refused, with the name and what is allowed."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        with pytest.raises(InvalidName, match="subscriber"):
            topic.subscribe(name)
        assert topic.subscribers() == {}


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("start", ["newest", "0", "", -1, 1.5, True, {0: -1}, {0: "1"}, {7: 0}, {"0": 0}])
def test_bad_positions(start: Any, empty: bool) -> None:
    """A start that is no position is refused whether or not there is a shard yet, and nobody is registered by it."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        if not empty:
            put(topic, 0)
        with pytest.raises(InvalidPosition):
            topic.subscribe("lake", start)
        assert topic.subscribers() == {}
        topic.subscribe("lake").close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"window": 0}, "window"),
        ({"windw": 1}, "windw"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"on_full": "explode"}, "on_full"),
        ({"retry_initial": 9, "retry_max": 3}, "retry_initial"),
        ({"expire_after": -1}, "expire_after"),
        ({"window": 0, "max_retrying": 0}, "max_retrying"),
    ],
)
def test_bad_settings(settings: dict[str, Any], told: str) -> None:
    """A setting that makes no sense is named, and nobody is registered by the call."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        with pytest.raises(InvalidSettings, match=told):
            topic.subscribe("lake", **settings)
        assert topic.subscribers() == {}


@pytest.mark.parametrize("verb", ["pause", "resume", "remove"])
def test_unknown_subscriber_is_named_with_those_there_are(verb: str) -> None:
    """Who misspells a name is told which ones exist."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        topic.subscribe("lake").close()
        topic.subscribe("alerts").close()
        with pytest.raises(UnknownSubscriber, match=r"no subscriber 'lak'; there are: alerts, lake"):
            getattr(topic, verb)("lak")


def test_settings_of_the_topic_are_the_defaults() -> None:
    """A subscriber has the topic's settings, except for those that it is given."""
    with simulated(subscriber={"window": 3, "deadline": "5s"}) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake", deadline="7s") as sub:
            assert (sub.settings.window, sub.settings.deadline) == (3, 7.0)


def test_kept_options_stay_until_given_anew() -> None:
    """`on_full`, `expire_after` and `authoritative` are the registration's: a later call without them leaves them."""
    files = SimulatedFiles()

    def kept(store: hf.Store) -> tuple[Any, ...]:
        found = store.topic(TOPIC).subscribers()["lake"].registration
        return found.on_full, found.expire_after, found.authoritative

    with simulated(files) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("lake", on_full="drop", expire_after="1h", authoritative=True).close()
        assert kept(store) == ("drop", 3600.0, True)
        topic.subscribe("lake").close()
        assert kept(store) == ("drop", 3600.0, True)
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("lake", on_full="block").close()
        assert kept(store) == ("block", 3600.0, True)
        topic.subscribe("lake", authoritative=False, expire_after=None).close()
        assert kept(store) == ("block", None, False)


# -- pause, resume, remove ---------------------------------------------------------------------------------------------


def test_pause_and_resume() -> None:
    """A paused subscriber is given nothing, not even a retry, and can still answer; then it goes on where it was."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            held, again = sub.take(2, timeout=0)
            again.nack("away", retry_in=0)
            topic.pause("lake")
            assert now(sub) == []
            held.ack()
            sub.flush()
            assert watermark(topic, "lake") == 1
            topic.resume("lake")
            assert numbers(now(sub)) == [1, 2]


def test_pause_survives_a_restart() -> None:
    """It stays paused until somebody resumes it, whoever holds it; what it needs is kept meanwhile."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        topic.subscribe("lake").close()
        topic.pause("lake")
        topic.pause("lake")
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        assert topic.subscribers()["lake"].registration.paused
        with topic.subscribe("lake") as sub:
            topic.seal()
            assert now(sub) == []
            topic.resume("lake")
            assert numbers(now(sub)) == [0]


def test_resume_wakes_a_waiting_take() -> None:
    """A take that waits because the subscriber is paused goes on when it is resumed."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            topic.pause("lake")
            waiting = Background(lambda: sub.take(1))
            until(lambda: sub._waiting)
            topic.resume("lake")
            assert numbers(waiting.result()) == [0]


def test_removal_lets_data_go_and_is_on_record() -> None:
    """What only the removed subscriber held is deleted; who was removed when and why is kept."""
    files, clock = SimulatedFiles(), SystemClock()
    with simulated(files, clock) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as lake:
            topic.subscribe("stuck").close()
            put(topic, 0)
            topic.seal()
            ack_all(now(lake))
            lake.flush(sync=True)
            assert files.list(SEGMENTS)
            topic.remove("stuck", "its sink is no more")
            until(lambda: not files.list(SEGMENTS))
        (removal,) = topic._subscriptions.registry().removals
        assert (removal.name, removal.why) == ("stuck", "its sink is no more")
        assert set(topic.subscribers()) == {"lake"}


def test_name_of_a_removed_subscriber_can_be_used_again() -> None:
    """The new one begins at its own start and inherits nothing, also after another restart."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake", max_attempts=5) as sub:
            ack_all(sub.take(2, timeout=0))
            now(sub)[0].nack("bad", retry_in=0)
        topic.remove("lake")
        with topic.subscribe("lake", start=1) as sub:
            assert [(each.offset, each.attempt) for each in now(sub)] == [(1, 1), (2, 1)]
    with simulated(files, seed=2) as store:
        assert unfinished(store.topic(TOPIC), "lake") == [1, 2]


def test_removal_ends_a_waiting_take() -> None:
    """Who waits in take for a subscriber that is removed is told."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake")
        waiting = Background(lambda: sub.take(1))
        until(lambda: sub._waiting)
        topic.remove("lake")
        with pytest.raises(Fenced, match="was removed"):
            waiting.result()


# -- expiry ------------------------------------------------------------------------------------------------------------


def poke(topic: hf.Topic) -> bool:
    """The background thread waits in real time: have it look at a clock that was moved by hand."""
    return topic.find_batch("nobody", "asks", "this") is None


def eventually(topic: hf.Topic, condition: Callable[[], object]) -> None:
    until(lambda: poke(topic) and condition())


def test_subscriber_that_nobody_holds_expires() -> None:
    """After `expire_after` without a holder it is removed; one that is held, and one that may stay, are not."""
    clock = FakeClock()
    with simulated(clock=clock, retention={"check_interval": 10}) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        held = topic.subscribe("held", expire_after=60)
        topic.subscribe("left", expire_after=60).close()
        topic.subscribe("forever").close()
        clock.advance(11)
        eventually(topic, lambda: topic.subscribers()["left"].registration.absent_since_ns is not None)
        clock.advance(50)
        poke(topic)
        assert set(topic.subscribers()) == {"held", "left", "forever"}
        clock.advance(20)
        eventually(topic, lambda: "left" not in topic.subscribers())
        assert set(topic.subscribers()) == {"held", "forever"}
        assert numbers(now(held)) == [0]


def test_coming_back_begins_the_expiry_anew() -> None:
    """A subscriber that is held again in time is not removed for the time before."""
    clock = FakeClock()
    with simulated(clock=clock, retention={"check_interval": 10}) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        topic.subscribe("lake", expire_after=60).close()
        for _ in range(4):
            clock.advance(11)
            eventually(topic, lambda: topic.subscribers()["lake"].registration.absent_since_ns is not None)
            before = topic.subscribers()["lake"].registration.absent_since_ns
            clock.advance(40)
            topic.subscribe("lake").close()
            assert topic.subscribers()["lake"].registration.absent_since_ns != before
        assert set(topic.subscribers()) == {"lake"}


# -- from other processes ----------------------------------------------------------------------------------------------


def test_lifecycle_from_another_process(tmp_path: Path) -> None:
    """Pause, resume and remove by another process reach a holder that waits in take, without any polling."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        sub = topic.subscribe("lake")
        waiting = Background(lambda: sub.take(1))
        until(lambda: sub._waiting)
        child.call("lifecycle", "pause", "lake")
        until(lambda: sub._registration.paused)
        put(topic, 0)
        assert not waiting.done
        child.call("lifecycle", "resume", "lake")
        assert ack_all(waiting.result()) == [0]
        waiting = Background(lambda: sub.take(1))
        child.call("lifecycle", "remove", "lake")
        with pytest.raises(Fenced, match="was removed"):
            waiting.result()


def test_a_child_holds_what_this_process_governs(tmp_path: Path) -> None:
    """The other way round: the holder is another process, which reads beside the writer that pauses it."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        put(topic, 0)
        child.call("subscribe", "lake")
        assert child.call("take", "lake") == [0]
        topic.pause("lake")
        child.send("take", "lake", timeout=None)
        put(topic, 1)
        topic.resume("lake")
        assert child.answer() == [1]
        child.send("take", "lake", timeout=None)
        topic.remove("lake")
        with pytest.raises(ChildError, match=r"^Fenced: subscriber 'lake' was removed"):
            child.answer()


def test_closed_store_takes_no_subscribers() -> None:
    """After close, subscribing raises `Closed`."""
    store = simulated()
    topic = store.topic(TOPIC)
    store.close()
    with pytest.raises(Closed):
        topic.subscribe("lake")
