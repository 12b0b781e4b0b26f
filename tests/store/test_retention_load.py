"""Retention of very many segments, and beside threads that register, remove and close."""

from __future__ import annotations

import contextlib
import threading
import tracemalloc
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.clock import SystemClock
from holdfast.errors import Fenced
from holdfast.retention import SegmentFacts, SegmentTable
from holdfast.testing import SimulatedFiles
from store.shelfkit import Shelf, ack
from store.storekit import SHARD, STORE, TOPIC, append, contents, put, running_store, until


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
