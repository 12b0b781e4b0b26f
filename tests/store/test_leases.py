"""One holder for each subscriber: who is refused, who is fenced, and what a fenced one can still do: nothing."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Closed, Fenced, SubscriberTaken, UnknownSubscriber
from holdfast.files import SystemFiles
from holdfast.testing import SimulatedFiles
from store.storekit import SHARD, TOPIC, Gate, until
from store.subkit import (
    DEAD,
    WAIT,
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


def test_second_holder_is_refused_by_name() -> None:
    """Who subscribes under a name that is held is told who holds it and what can be done."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake"):
            with pytest.raises(SubscriberTaken) as refused:
                topic.subscribe("lake")
            assert str(refused.value) == (
                f"subscriber 'lake' is held by process {os.getpid()} on {socket.gethostname()}; "
                "close it there, or subscribe with takeover=True to fence that holder"
            )
            topic.subscribe("another").close()


def test_refused_holder_changes_nothing() -> None:
    """The one who holds it goes on as if nobody had asked."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        with topic.subscribe("lake") as sub:
            (held,) = sub.take(1, timeout=0)
            with pytest.raises(SubscriberTaken):
                topic.subscribe("lake")
            held.ack()
            sub.flush(sync=True)
            assert ack_all(now(sub)) == [1]


def test_close_lets_go() -> None:
    """After `close`, and after the end of a with block, anybody may hold it; closing twice is no error."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        sub = topic.subscribe("lake")
        sub.close()
        sub.close()
        with pytest.raises(Closed, match="subscriber 'lake' is closed"):
            now(sub)
        with topic.subscribe("lake") as again:
            assert ack_all(now(again)) == [0]
        topic.subscribe("lake").close()


def test_closing_the_store_lets_go() -> None:
    """A store that closes closes its subscribers: their answers are written, and others may hold them."""
    files = SimulatedFiles()
    with simulated(files, seed=2) as other:
        with simulated(files) as store:
            topic = store.topic(TOPIC)
            put(topic, 0, 1)
            sub = topic.subscribe("lake")
            sub.take(1, timeout=0)[0].ack()
        with pytest.raises(Closed):
            now(sub)
        assert unfinished(other.topic(TOPIC), "lake") == [1]


@pytest.mark.parametrize("name", ["take", "ack", "nack", "reject", "reject_rows", "flush"])
def test_takeover_fences_the_first_holder(name: str) -> None:
    """From the takeover on every call of the first holder raises `Fenced`, which names the one who took over."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), 0, 1, 2)
        first = one.topic(TOPIC).subscribe("lake")
        held, answered, _ = first.take(3, timeout=0)
        answered.ack()
        with two.topic(TOPIC).subscribe("lake", takeover=True) as second:

            def call(name: str) -> None:
                if name == "take":
                    now(first)
                elif name == "reject_rows":
                    held.reject_rows("logs", [0], "why")
                elif name == "reject":
                    held.reject("why")
                elif name == "ack":
                    held.ack()
                elif name == "nack":
                    held.nack("why")
                first.flush()

            with pytest.raises(Fenced, match=rf"subscriber 'lake' was taken over by process {os.getpid()} on "):
                call(name)
            for again in ("take", "ack", "nack", "flush"):
                with pytest.raises((Fenced, hf.errors.AlreadySettled)):
                    call(again)
            assert numbers(now(second)) == [0, 1, 2], "something of the first holder was written after the takeover"
            assert DEAD not in two.topics(), "a fenced holder put something into the dead letters"
            first.close()
            assert watermark(two.topic(TOPIC), "lake") == 0


def test_what_was_written_before_the_takeover_counts() -> None:
    """The second holder goes on where the first one's written answers end, attempts included."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), *range(4))
        first = one.topic(TOPIC).subscribe("lake")
        taken = now(first)
        taken[0].ack()
        taken[2].ack()
        taken[3].nack("away", retry_in=100)
        first.flush()
        with two.topic(TOPIC).subscribe("lake", takeover=True) as second:
            assert [(each.offset, each.attempt) for each in now(second)] == [(1, 1), (3, 2)]


def test_waiting_take_of_the_first_holder_ends() -> None:
    """Who waits in take for ever is woken by a takeover, and told."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as one, simulated(files, SystemClock(), seed=2) as two:
        put(one.topic(TOPIC), 0)
        first = one.topic(TOPIC).subscribe("lake")
        ack_all(now(first))
        waiting = Background(lambda: first.take(1))
        until(lambda: first._waiting)
        with two.topic(TOPIC).subscribe("lake", takeover=True), pytest.raises(Fenced, match="taken over"):
            waiting.result()


def test_takeover_waits_for_a_write_that_passed_its_check() -> None:
    """An ack that passed its check before the takeover, and is just being written, counts for the second holder."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), 0, 1)
        first = one.topic(TOPIC).subscribe("lake")
        first.take(1, timeout=0)[0].ack()
        with Gate(files, "append", ".acks") as gate:
            writing = Background(first.flush)
            assert gate.reached.wait(WAIT)
            taking = Background(lambda: two.topic(TOPIC).subscribe("lake", takeover=True))
            until(lambda: files.calls["lock"])
            assert not taking.done
            gate.open()
            writing.result()
            with taking.result() as second:
                assert numbers(now(second)) == [1]


def test_takeover_of_a_free_subscriber() -> None:
    """`takeover` asks for no holder: it is the same as subscribing when there is none."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake", takeover=True) as sub:
            assert ack_all(now(sub)) == [0]


def test_chain_of_takeovers() -> None:
    """Only the last of many holders can write."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(5))
        holders = [topic.subscribe("lake", takeover=number > 0) for number in range(5)]
        for number, holder in enumerate(holders[:-1]):
            with pytest.raises(Fenced):
                holder.take(1, timeout=0)[number].ack()
        assert ack_all(now(holders[-1])) == [0, 1, 2, 3, 4]
        holders[-1].flush()
        for holder in reversed(holders):
            holder.close()
        assert watermark(topic, "lake") == 5


def test_removal_fences_the_holder() -> None:
    """The holder of a removed subscriber is told so; a new one of the same name begins anew, and is not fenced."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        sub = topic.subscribe("lake")
        held, other = now(sub)
        other.ack()
        topic.remove("lake")
        with pytest.raises(Fenced, match="subscriber 'lake' was removed; subscribe again to start anew"):
            sub.flush()
        for call in (held.ack, sub.flush, lambda: now(sub)):
            with pytest.raises(Fenced):
                call()
        with topic.subscribe("lake") as anew:
            assert ack_all(now(anew)) == [0, 1]
            with pytest.raises(Fenced):
                now(sub)
            sub.close()
            anew.flush()
        assert watermark(topic, "lake") == 2


def test_asking_who_holds_it_gets_in_nobodys_way() -> None:
    """Looking at subscribers from other threads never makes a free one look held, nor a holder look gone."""
    with simulated(clock=SystemClock()) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        topic.subscribe("lake").close()
        done = False

        def look() -> None:
            while not done:
                topic.subscribers()

        lookers = [Background(look) for _ in range(2)]
        try:
            for _ in range(150):
                with topic.subscribe("lake"):
                    assert topic.subscribers()["lake"].holder is not None
        finally:
            done = True
        for looker in lookers:
            looker.result()
        assert topic.subscribers()["lake"].holder is None


def test_holders_are_shown() -> None:
    """`subscribers()` says who holds each of them, in this process or another."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        with one.topic(TOPIC).subscribe("lake"):
            who = f"process {os.getpid()} on {socket.gethostname()}"
            assert two.topic(TOPIC).subscribers()["lake"].holder == who
        assert two.topic(TOPIC).subscribers()["lake"].holder is None


def test_names_that_look_alike_are_different_subscribers() -> None:
    """Names that contain each other, with numbers at their ends, do not share a lease."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        names = ["a", "a-1", "a-1-1", "a-1.held", "a.lease", "A"]
        subs = [topic.subscribe(name) for name in names]
        for sub in subs:
            assert ack_all(now(sub)) == [0]
            sub.flush()
        topic.remove("a")
        for sub in subs[1:]:
            sub.flush(sync=True)
            assert now(sub) == []
        with pytest.raises(UnknownSubscriber):
            topic.pause("a")


def test_killed_holders_lease_is_free_at_once(tmp_path: Path) -> None:
    """After `kill -9` of the holder anybody can subscribe, without a takeover, and gets what it had not finished."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with Child.on(tmp_path, read_only=True) as child:
            child.call("subscribe", "lake")
            assert child.call("take", "lake") == [0, 1, 2]
            child.call("ack", 1)
            child.call("flush", "lake")
            with pytest.raises(SubscriberTaken, match=rf"held by process {child.pid} on {socket.gethostname()}"):
                topic.subscribe("lake")
            child.kill()
        with topic.subscribe("lake") as sub:
            assert [(each.offset, each.attempt) for each in now(sub)] == [(0, 1), (2, 1)]


def test_takeover_from_another_process(tmp_path: Path) -> None:
    """A holder that waits in take in one process is fenced by a takeover in another one, and writes nothing more."""
    with hf.Store.open(tmp_path) as store, Child.on(tmp_path, read_only=True) as child:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        child.call("subscribe", "lake")
        assert child.call("take", "lake") == [0, 1]
        child.send("take", "lake", timeout=None)
        with topic.subscribe("lake", takeover=True) as sub:
            with pytest.raises(
                ChildError, match=rf"^Fenced: subscriber 'lake' was taken over by process {os.getpid()} "
            ):
                child.answer()
            with pytest.raises(ChildError, match=r"^Fenced: "):
                child.call("ack", 0)
            with pytest.raises(ChildError, match=r"^Fenced: "):
                child.call("reject", 1, "why")
            assert ack_all(now(sub)) == [0, 1]
        assert store.topics() == [TOPIC]


def test_leftovers_of_holders_do_not_pile_up(tmp_path: Path) -> None:
    """However often a subscriber changes hands, a bounded number of files tells about it."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        for _ in range(10):
            topic.subscribe("lake", takeover=True)
        names = SystemFiles().list(tmp_path / "prod" / "logs" / "subscribers")
        assert len(names) <= 4, names
        topic.remove("lake")
        left = SystemFiles().list(tmp_path / "prod" / "logs" / "subscribers")
        assert not [name for name in left if name.endswith(".lease")], left


def test_failed_takeover_leaves_the_holder_alone() -> None:
    """A takeover that the disk refuses leaves the first holder able to write."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            files.fail("rename", path=f"{SHARD.parent}/subscribers/*", times=None)
            files.fail("create", path=f"{SHARD.parent}/subscribers/*", times=None)
            with pytest.raises((OSError, hf.errors.TryAgain)):
                topic.subscribe("lake", takeover=True)
            files.heal()
            held.ack()
            sub.flush(sync=True)
        assert unfinished(topic, "lake") == []
