"""Bounds that are reached: who gives way, when appends wait, and what lets them go on."""

from __future__ import annotations

import threading

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Backpressure
from holdfast.testing import SimulatedFiles
from store.shelfkit import Shelf, ack
from store.storekit import SEGMENTS, SHARD, TOPIC, append, contents, running_store, until

WIDE = 1_000  # bytes of text in a row


def test_on_full_drop_gives_way_and_on_full_block_does_not() -> None:
    """Under pressure what only an `on_full: drop` subscriber needs goes, even with backpressure; the rest blocks."""
    shelf = Shelf(max_segments=2)
    lake = shelf.topic.subscribe("lake")
    shelf.topic.subscribe("alerts", on_full="drop")
    shelf.put(0, 1, 2, 3)
    assert shelf.sweep() == [0, 1, 2, 3]
    with pytest.raises(Backpressure, match="2 segments more than max_segments") as refused:
        append(shelf.topic, 4)
    assert refused.value.retry_after > 0
    ack(lake)
    assert shelf.sweep() == [2, 3]
    assert shelf.counts.bundles_dropped == {"alerts": 2}
    shelf.put(4)  # goes on
    shelf.store.close()


def test_truncating_lets_appends_go_on() -> None:
    """Appends that a bound holds back go on as soon as somebody makes room by hand."""
    shelf = Shelf(max_segments=2)
    shelf.topic.subscribe("lake")
    shelf.put(0, 1, 2)
    shelf.sweep()
    with pytest.raises(Backpressure, match="1 segments more than max_segments"):
        append(shelf.topic, 3)
    shelf.topic.truncate(3)
    shelf.put(3)
    assert sorted(contents(shelf.topic)) == [3]
    shelf.store.close()


def test_min_free_disk_holds_appends_back_until_something_is_finished() -> None:
    """A disk that is too full counts as pressure: appends are refused with a hint, and go on when data has gone."""
    shelf = Shelf(min_free_disk=0.5)
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1, 2)
    used = shelf.files.capacity = 2**20
    free, _ = shelf.files.free_bytes(SHARD)
    shelf.files.capacity = round((used - free) * 1.5)
    shelf.sweep()
    with pytest.raises(Backpressure, match="min_free_disk") as refused:
        append(shelf.topic, 3)
    assert refused.value.retry_after > 0
    ack(lake)
    shelf.files.capacity = 2**20
    assert shelf.sweep() == []
    shelf.put(3)
    shelf.store.close()


def append_until_refused(topic: hf.Topic) -> tuple[int, Backpressure]:
    """How many bundles went in, and how the next one was refused."""
    for number in range(1_000):
        try:
            append(topic, number, width=WIDE, timeout=0.5).wait(timeout=30)
        except Backpressure as refused:
            return number, refused
    raise AssertionError("the cap never held")


def test_size_cap_blocks_appends_until_the_subscriber_acks() -> None:
    """At the cap an append waits, then raises with a hint when to try again; once data is finished it goes on."""
    files = SimulatedFiles(clock=SystemClock())
    retention = {"size_cap": 100_000, "min_free_disk": 0}
    small = {"segment": {"target_size": 5_000}, "wal": {"file_size": 8_000, "max_size": 20_000}, "retention": retention}
    with running_store(files, **small) as store:
        topic = store.topic(TOPIC)
        lake = topic.subscribe("lake")
        appended, refused = append_until_refused(topic)
        assert refused.retry_after > 0
        assert "size_cap is 100" in str(refused)
        assert appended > 20
        sealed = sum(files.size(SEGMENTS / name) for name in files.list(SEGMENTS))
        assert sealed <= 100_000 + 8_000  # over by a segment at most
        waiting: list[hf.Receipt] = []
        thread = threading.Thread(target=lambda: waiting.append(append(topic, appended, width=WIDE, timeout=60)))
        thread.start()
        seen: list[int] = []
        while len(seen) < appended:
            for delivery in lake.take(10, timeout=30):
                seen.append(delivery.bundle.attributes["id"])
                delivery.ack()
        assert seen == list(range(appended))  # nothing was given up
        thread.join(60)
        assert waiting[0].wait(timeout=30) >= hf.Durability.FSYNC
        assert topic.sweeper is not None
        assert topic.sweeper.counts.bundles_dropped == {}


def test_size_cap_with_drop_oldest_never_blocks() -> None:
    """With `drop_oldest` appends go on for ever under a stuck subscriber; the newest stays, and all is counted."""
    files = SimulatedFiles(clock=SystemClock())
    retention = {"size_cap": 100_000, "min_free_disk": 0, "size_cap_policy": "drop_oldest"}
    small = {"segment": {"target_size": 5_000}, "wal": {"file_size": 8_000, "max_size": 20_000}, "retention": retention}
    with running_store(files, **small) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("stuck")
        for number in range(300):
            append(topic, number, width=WIDE, timeout=60).wait(timeout=30)
        topic.seal()

        def all_counted() -> bool:  # the last sweep may be on its way
            view = topic.subscribers()["stuck"].shards[0]
            assert view.dropped == view.watermark > 100
            return sorted(contents(topic)) == list(range(view.watermark, 300))

        until(all_counted)


def test_trash_gives_way_under_pressure() -> None:
    """What waits in the trash is the first to go when a cap is over: it is not dropped data, and nobody is blocked."""
    retention = {"size_cap": 60_000, "min_free_disk": 0, "trash_age": "1h"}
    small = {"segment": {"target_size": 4_000}, "wal": {"file_size": 8_000, "max_size": 20_000}, "retention": retention}
    with running_store(SimulatedFiles(clock=SystemClock()), **small) as store:
        topic = store.topic(TOPIC)
        lake = topic.subscribe("lake")
        for number in range(200):
            append(topic, number, width=WIDE, timeout=60).wait(timeout=30)
            for delivery in lake.take(10, timeout=30):
                delivery.ack()
        assert topic.sweeper is not None
        assert topic.sweeper.counts.bundles_dropped == {}
