"""What goes and what stays: each rule of retention on a topic with subscribers, one process."""

from __future__ import annotations

import errno

import pytest

import holdfast as hf
from holdfast import metrics
from holdfast.acks import BatchStatus
from store.shelfkit import Shelf, ack
from store.storekit import TOPIC, append, put_failing


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
