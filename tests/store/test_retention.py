"""What goes and what stays: each rule of retention on a topic with subscribers, one process."""

from __future__ import annotations

import contextlib
import errno
import threading
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from crash.still import open_still
from holdfast import metrics
from holdfast.acks import BatchStatus
from holdfast.clock import SystemClock
from holdfast.errors import Backpressure, Fenced
from holdfast.retention import SegmentFacts, SegmentTable
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from store.storekit import SEGMENTS, SHARD, STORE, TOPIC, append, contents, put, put_failing, running_store, until

WIDE = 1_000  # bytes of text in a row


class Shelf:
    """A topic on which nothing happens by itself; each bundle that is put on it is a segment of its own."""

    def __init__(self, files: SimulatedFiles | None = None, **retention: Any) -> None:
        self.clock = FakeClock()
        self.files = SimulatedFiles(clock=self.clock) if files is None else files
        self.open(**retention)

    def open(self, **retention: Any) -> None:
        buffer = {
            "segment": {"target_size": 1_000_000, "max_open_duration": "1d"},
            "wal": {"file_size": 4096, "max_size": 1_000_000, "flush_interval": "1h"},
            "append_timeout": 0,
            "subscriber": {"deadline": "1d"},
            "retention": {"min_free_disk": 0, **retention},
        }
        self.store = open_still(self.files, {"buffer": buffer}, self.clock, SequenceIds(1))
        self.topic = self.store.topic(TOPIC)

    def put(self, *numbers: int) -> None:
        for number in numbers:
            put(self.topic, number)
            self.topic.seal()

    def sweep(self) -> list[int]:
        """One sweep, and what is left."""
        self.topic.positions()  # takes the shard, if it was not used yet
        self.topic.positions()  # takes the shard, if it was let go
        self.store._keeper.close()  # forgets whatever else is due
        self.topic._upkeep.check()
        return sorted(contents(self.topic))

    @property
    def counts(self) -> Any:
        assert self.topic.sweeper is not None
        return self.topic.sweeper.counts


def ack(subscriber: Any, offsets: Iterable[int] | None = None) -> list[int]:
    """Take all there is; ack it, or some of it."""
    given = {delivery.offset: delivery for delivery in subscriber.take(10_000, timeout=0)}
    for offset in given if offsets is None else offsets:
        given[offset].ack()
    subscriber.flush()
    return sorted(given)


def dropped_in_metrics(subscriber: str) -> float:
    """Since the process began: metrics are the process's, whatever store it opens."""
    labels = {"topic": TOPIC, "subscriber": subscriber}
    return metrics.REGISTRY.get_sample_value("holdfast_subscriber_dropped_bundles_total", labels) or 0


def watermark(topic: hf.Topic, name: str) -> int:
    return topic.subscribers()[name].shards[0].watermark


def test_finished_segments_go_at_once_also_out_of_order() -> None:
    """A segment that everyone finished goes, though an older one stays; and one stays for whoever has not."""
    shelf = Shelf()
    lake, audit = shelf.topic.subscribe("lake"), shelf.topic.subscribe("audit")
    shelf.put(0, 1, 2, 3)
    ack(lake)
    assert shelf.sweep() == [0, 1, 2, 3]
    ack(audit, [1, 2])
    assert shelf.sweep() == [0, 3]
    assert shelf.counts.evictions == {"finished": 2}
    shelf.store.close()


def test_topic_without_subscribers_keeps_its_data() -> None:
    """Nobody has finished what nobody reads; also after the last subscriber was removed."""
    shelf = Shelf()
    shelf.put(0, 1)
    assert shelf.sweep() == [0, 1]
    shelf.topic.subscribe("lake").close()
    shelf.topic.remove("lake")
    assert shelf.sweep() == [0, 1]
    shelf.store.close()


def test_what_came_before_its_start_is_not_kept_for_it() -> None:
    """A subscriber from `latest` on, which nobody holds, keeps what comes later and nothing that was there before."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1)
    shelf.topic.subscribe("late", start="latest").close()
    shelf.put(2)
    ack(lake)
    shelf.store.close()
    shelf.open()
    assert shelf.sweep() == [2]
    assert shelf.topic.subscribers()["late"].shards[0].dropped == 0
    shelf.store.close()


def test_offsets_that_never_held_anything_do_not_count_as_dropped() -> None:
    """The record of a failed append goes with the segments around it; whoever had not come that far loses nothing."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0)
    shelf.files.fail("append", path="*.wal*", error=errno.ENOSPC, times=None)
    assert put_failing(shelf.topic, 1)[0] == 1
    shelf.files.heal()
    shelf.put(2)
    first = lake.take(1, timeout=0)
    first[0].ack()
    lake.flush()
    assert shelf.sweep() == [2]
    assert shelf.topic.positions()[0][0] == 2
    assert ack(lake) == [2]
    assert shelf.sweep() == []
    view = shelf.topic.subscribers()["lake"].shards[0]
    assert (view.watermark, view.dropped) == (3, 0)
    shelf.store.close()


def test_headroom_keeps_the_newest_finished_segments() -> None:
    """With `steady_state_headroom` as much finished data stays as fits into it, the newest."""
    shelf = Shelf(steady_state_headroom=8_000)  # two segments of one small bundle
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1, 2, 3)
    ack(lake)
    assert shelf.sweep() == [2, 3]
    shelf.store.close()


@pytest.mark.parametrize("expire", [False, True])
def test_max_age_takes_finished_data_only_unless_told_otherwise(expire: bool) -> None:
    """Old data goes once everyone finished it; with `expire_unfinished` at once, and is dropped for who needed it."""
    shelf = Shelf(max_age=10.0, expire_unfinished=expire, steady_state_headroom="1GB")
    shelf.topic.subscribe("stuck")
    lake = shelf.topic.subscribe("lake", start="latest")
    shelf.put(0, 1)
    shelf.clock.advance(11)
    shelf.put(2)
    ack(lake)
    assert shelf.sweep() == ([2] if expire else [0, 1, 2])
    assert watermark(shelf.topic, "stuck") == (2 if expire else 0)
    assert shelf.counts.bundles_dropped == ({"stuck": 2} if expire else {})
    shelf.topic.remove("stuck")
    assert shelf.sweep() == [2]  # young enough
    assert shelf.counts.evictions == {"age": 2}
    shelf.store.close()


def test_drop_oldest_under_a_stuck_subscriber() -> None:
    """Its watermark moves on and the drop is counted; a healthy subscriber lost nothing that it could still read."""
    before = dropped_in_metrics("stuck")
    shelf = Shelf(max_segments=3, size_cap_policy="drop_oldest")
    shelf.topic.subscribe("stuck")
    healthy = shelf.topic.subscribe("healthy")
    seen: list[int] = []
    for number in range(20):
        shelf.put(number)
        seen += ack(healthy)
        assert len(shelf.sweep()) <= 3
    assert seen == list(range(20))
    view = shelf.topic.subscribers()
    assert view["healthy"].shards[0].dropped == 0
    assert view["stuck"].shards[0].watermark == view["stuck"].shards[0].dropped == 17
    assert shelf.counts.bundles_dropped == {"stuck": 17}
    assert dropped_in_metrics("stuck") - before == 17
    assert shelf.counts.segments_dropped == 17
    assert shelf.counts.emergencies == 17
    shelf.store.close()


def test_what_is_being_delivered_goes_last() -> None:
    """Under `drop_oldest` a newer segment goes before one that is in somebody's hands right now."""
    shelf = Shelf(max_segments=2, size_cap_policy="drop_oldest")
    lake = shelf.topic.subscribe("lake")
    shelf.put(0)
    in_hand = lake.take(1, timeout=0)
    shelf.put(1, 2)
    assert shelf.sweep() == [0, 2]
    in_hand[0].ack()
    assert ack(lake) == [2]
    assert shelf.sweep() == []
    shelf.store.close()


def test_a_waiting_source_is_told_that_its_data_was_dropped() -> None:
    """What was given up by policy is `dropped` for whoever waits, not delivered."""
    shelf = Shelf(max_segments=1, size_cap_policy="drop_oldest")
    shelf.topic.subscribe("stuck")
    with shelf.topic.batch("source", "run", "1") as batch:
        append(shelf.topic, 0, batches=[batch])
        shelf.topic.flush()
    shelf.topic.seal()
    shelf.put(1)
    shelf.sweep()
    shelf.sweep()
    assert batch.status is BatchStatus.DROPPED
    shelf.store.close()


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


def test_trash_keeps_deleted_segments_for_its_age() -> None:
    """With `trash_age` a deleted segment waits in the trash, unread, and is gone for good afterwards."""
    shelf = Shelf(trash_age=10.0)
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1)
    ack(lake)
    assert shelf.sweep() == []
    assert len(shelf.files.list(SHARD / "trash")) == 2
    assert shelf.counts.bytes_reclaimed == 0
    shelf.clock.advance(11)
    shelf.sweep()
    assert shelf.files.list(SHARD / "trash") == []
    shelf.store.close()


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


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES])
def test_delete_that_fails_is_retried_and_stops_nothing_else(error: int) -> None:
    """A file that will not go is shown as an error and tried again with each sweep; the others go at once."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1, 2)
    stubborn = shelf.files.list(SEGMENTS)[1]
    shelf.files.fail("unlink", path=f"*{stubborn}", error=error, times=2)
    ack(lake)
    assert shelf.sweep() == []  # recorded as deleted all the same
    assert shelf.files.list(SEGMENTS) == [stubborn]
    assert shelf.counts.errors == 1
    assert shelf.counts.files_deleted == 2
    shelf.sweep()
    assert shelf.counts.errors == 2
    shelf.put(3)
    ack(lake)
    assert shelf.sweep() == []
    assert shelf.files.list(SEGMENTS) == []
    assert shelf.counts.files_deleted == 4
    shelf.store.close()


def test_file_that_would_not_go_is_deleted_by_the_next_writer() -> None:
    """What was recorded as deleted and is still there goes when the shard is opened; nobody reads it meanwhile."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1)
    shelf.files.fail("unlink", path="*.seg", error=errno.EIO, times=None)
    ack(lake)
    assert shelf.sweep() == []
    shelf.store.close()
    assert len(shelf.files.list(SEGMENTS)) == 2
    with hf.Store.open(STORE, read_only=True, files=shelf.files) as store:
        assert contents(store.topic(TOPIC)) == {}
    shelf.files.heal()
    shelf.open()
    assert contents(shelf.topic) == {}
    assert shelf.files.list(SEGMENTS) == []
    shelf.store.close()


def test_failed_record_of_a_deletion_deletes_nothing() -> None:
    """When the record that it is not needed cannot be written, the data stays, and the next sweep does it all."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1)
    ack(lake)
    shelf.files.fail("rename", path="*shard.checkpoint*", error=errno.EIO)
    assert shelf.sweep() == [0, 1]
    assert len(shelf.files.list(SEGMENTS)) == 2
    assert shelf.sweep() == []
    shelf.store.close()


def test_reopening_does_not_count_deleted_ranges_as_missing() -> None:
    """A hole in the middle of a shard, where newer segments went before an older one, survives restarts."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1, 2, 3, 4)
    ack(lake, [1, 3])
    assert shelf.sweep() == [0, 2, 4]
    for _ in range(2):
        shelf.store.close()
        shelf.open()
        assert sorted(contents(shelf.topic)) == [0, 2, 4]
    lake = shelf.topic.subscribe("lake")
    assert ack(lake) == [0, 2, 4]
    assert shelf.sweep() == []
    assert put(shelf.topic, 5) == 5
    shelf.store.close()


def test_one_cycle_over_a_hundred_files() -> None:
    """A hundred finished segments go in one sweep, with one record of it and no read of their rows."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(*range(100))
    ack(lake)
    before = shelf.files.calls
    clock = SystemClock()
    begun = clock.monotonic()
    assert shelf.sweep() == []
    print(f"a cycle over 100 files took {1000 * (clock.monotonic() - begun):.0f} ms")
    calls = shelf.files.calls - before
    assert calls["unlink"] - calls["create"] <= 101
    assert calls["sync"] <= 10
    assert shelf.counts.files_deleted == 100
    shelf.store.close()


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_memory_of_very_many_segments(count: int) -> None:
    """What retention keeps and uses for the 100,000 segments that a shard may have stays under ten megabytes."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0, 1)
    ack(lake, [1])
    shard = shelf.topic.own
    assert shard is not None
    tracemalloc.start()
    try:
        table = SegmentTable()
        for number in range(count):
            now_ns = shelf.clock.now_ns() + number
            table.append(SegmentFacts(number * 300, number * 300 + 300, 32_000_000, (now_ns, now_ns + 1), None))
        shard._contents.segments._table = table
        assert shelf.sweep() == [0, 1]
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{count} segments: {kept / 1e6:.2f} MB kept, {most / 1e6:.2f} MB at most")
    assert most < 100 * count
    shelf.store.close()


def test_registering_and_removing_while_sweeps_run() -> None:
    """A sweep holds the ack log and looks up who is registered; who registers holds that and waits for the ack log."""
    files = SimulatedFiles()
    with running_store(files, retention={"min_free_disk": 0}) as store:
        topic = store.topic(TOPIC)
        lake = topic.subscribe("lake")
        for number in range(60):
            append(topic, number).wait(timeout=30)
            topic.seal()
            for delivery in lake.take(10, timeout=0):
                delivery.ack()
            lake.flush()
            topic.subscribe(f"passer-{number}", start="latest").close()
            topic.remove(f"passer-{number}")
        until(lambda: contents(topic).keys() <= {59})


def test_registering_waits_for_a_sweep_that_waits_for_nobody() -> None:
    """Who registers has the topic's lock and waits for the ack log; the sweep that has that looks up who there is."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.put(0)
    ack(lake)
    acks_lock, folder = SHARD / "acks" / "LOCK", STORE / "prod" / "logs"
    other = hf.Store.open(STORE, read_only=True, files=shelf.files, clock=shelf.clock)  # as another process
    sweeping = threading.Thread(target=shelf.sweep, daemon=True)
    elsewhere = threading.Thread(target=lambda: other.topic(TOPIC).subscribe("elsewhere"), daemon=True)
    registering = threading.Thread(target=lambda: shelf.topic.subscribe("audit"), daemon=True)
    elsewhere_waits, registering_waits = threading.Event(), threading.Event()
    step = ["no lock yet"]

    def before(operation: str, path: Path) -> None:
        thread, call = threading.current_thread(), (operation, path)
        if thread is sweeping and call == ("lock", acks_lock) and step[0] == "no lock yet":
            step[0] = ""
            other.topic(TOPIC).subscribe("other", start="latest")  # so that what this process knows is out of date
            step[0] = "has the ack log's lock"
        elif thread is sweeping and call == ("read", folder / "topic.checkpoint") and step[0].startswith("has"):
            step[0] = ""
            elsewhere.start()
            assert elsewhere_waits.wait(60)
            registering.start()
            assert registering_waits.wait(60)
        elif thread is elsewhere and call == ("lock", acks_lock):
            elsewhere_waits.set()
        elif thread is registering and call == ("lock", folder / "topic.lock"):
            registering_waits.set()

    shelf.files.before = before
    sweeping.start()
    sweeping.join(20)
    assert registering_waits.is_set()
    for thread in (sweeping, elsewhere, registering):
        thread.join(20)
        assert not thread.is_alive(), "they wait for each other"
    shelf.files.before = None
    assert set(shelf.topic.subscribers()) == {"lake", "audit", "other", "elsewhere"}
    other.close()
    shelf.store.close()


def test_closing_beside_a_removed_subscriber_lets_go_of_the_shard() -> None:
    """An answer that can no longer be written down, for its subscriber is gone, does not keep the rest from closing."""
    shelf = Shelf()
    lake = shelf.topic.subscribe("lake")
    shelf.topic.subscribe("audit")
    shelf.put(0)
    lake.take(1, timeout=0)[0].ack()
    shelf.topic.remove("lake")
    with contextlib.suppress(Fenced):
        shelf.store.close()
    shelf.open()
    assert put(shelf.topic, 1) == 1
    assert list(shelf.topic.positions()) == [0]
    assert ack(shelf.topic.subscribe("audit")) == [0, 1]
    shelf.store.close()
