"""What a subscriber sees of a disk that fails, of damage, and of what was given up."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.errors import Corruption, ShardFailed
from holdfast.testing import SimulatedFiles, crash
from store.storekit import FOLDER, SEGMENTS, TOPIC, WAL, append
from store.subkit import ack_all, now, numbers, put, simulated, unfinished


def wipe(files: SimulatedFiles, path: Path) -> None:
    """Zeros all over."""
    handle = files.open(path)
    handle.write_at(0, bytes(files.size(path)))
    handle.close()


def test_bundle_that_was_never_stored_is_no_gap() -> None:
    """An append that failed leaves a number without a bundle: the watermark goes over it, and it counts as no loss."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            put(topic, 0)
            for operation in ("append", "create"):
                files.fail(operation, errno.EIO, times=None, path=f"{WAL}/*")
            with pytest.raises(ShardFailed):
                append(topic, 1).wait(timeout=60)
            files.heal()
            assert ack_all(now(sub)) == [0]
    with simulated(files, seed=2) as store:
        topic = store.topic(TOPIC)
        offsets = put(topic, 2, 3)
        assert offsets[0] > 1, "a number was used again"
        with topic.subscribe("lake") as sub:
            assert ack_all(now(sub)) == [2, 3]
            sub.flush()
        view = topic.subscribers()["lake"].shards[0]
        assert (view.watermark, view.lag, view.dropped, view.rejected) == (offsets[-1] + 1, 0, 0, 0)


def test_frames_that_were_written_again_are_delivered_once() -> None:
    """After a failed sync the same bundles stand in two files of the log; each comes once."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            put(topic, 0)
            files.fail("sync", errno.EIO, path=f"{WAL}/*")
            put(topic, 1)
            put(topic, 2)
            assert ack_all(now(sub)) == [0, 1, 2]
            assert now(sub) == []


def test_given_up_data_is_dropped_for_who_had_not_finished_it() -> None:
    """What is deleted under a subscriber counts as dropped, the rest is delivered, and the watermark does not stop."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, *range(4))
        topic.seal()
        with topic.subscribe("lake") as sub:
            ack_all(sub.take(1, timeout=0))
            sub.flush()
            topic.truncate(3)
            put(topic, 4)
        with topic.subscribe("lake") as sub:
            assert ack_all(now(sub)) == [3, 4]
            sub.flush()
        view = topic.subscribers()["lake"].shards[0]
        assert (view.watermark, view.dropped) == (5, 2)


def test_ack_of_a_bundle_that_was_given_up_comes_too_late() -> None:
    """The first final outcome stands: what was dropped while in hand stays dropped."""
    with simulated() as store:
        topic = store.topic(TOPIC)
        put(topic, 0)
        topic.seal()
        with topic.subscribe("lake") as sub:
            (held,) = now(sub)
            topic.truncate(1)
            held.ack()
            sub.flush()
            assert numbers([held]) == [0], "it can be read for as long as it is in hand"
        view = topic.subscribers()["lake"].shards[0]
        assert (view.watermark, view.dropped) == (1, 1)


def test_damaged_segment_is_reported_and_never_skipped() -> None:
    """A bundle that cannot be read is an error each time it is asked for; the watermark does not pass it."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1)
        topic.seal()
        put(topic, 2)
        topic.subscribe("lake").close()
    first = min(files.list(SEGMENTS))
    wipe(files, SEGMENTS / first)
    with simulated(files, seed=2, read_only=True) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("lake") as sub:
            for _ in range(3):
                with pytest.raises(Corruption, match=first):
                    now(sub)
            assert sub.statistics().in_flight == 0
        assert topic.subscribers()["lake"].shards[0].watermark == 0


def test_damage_in_one_shard_does_not_stop_another() -> None:
    """What can be read is delivered, whatever is wrong elsewhere."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC), 0, 1)
        one.topic(TOPIC).seal()
        put(two.topic(TOPIC), 10, 11)
        two.topic(TOPIC).seal()
    segments = FOLDER / "shard-0001" / "segments"
    (name,) = files.list(segments)
    wipe(files, segments / name)
    with simulated(files, seed=3, read_only=True) as store, store.topic(TOPIC).subscribe("lake") as sub:
        assert numbers(now(sub)) == [0, 1]
        with pytest.raises(Corruption, match=f"{segments / name}"):
            now(sub)


def test_shards_left_behind_by_a_power_cut_are_delivered_whole() -> None:
    """A process that insists on a shard of its own also makes the others whole, if nobody holds them."""
    files = SimulatedFiles()
    with simulated(files) as one, simulated(files, seed=2) as two:
        put(one.topic(TOPIC, shard=0), 0)
        put(two.topic(TOPIC, shard=1), 10, 11)
        two.topic(TOPIC, shard=1).seal()
        after = crash(files)
    with simulated(after, seed=3) as store:
        assert sorted(unfinished(store.topic(TOPIC, shard=0), "lake")) == [0, 10, 11]


def test_full_disk_keeps_acks_until_there_is_room() -> None:
    """With no room for acks nothing is forgotten and nothing finished too early; with room all of it is written."""
    files = SimulatedFiles()
    with simulated(files) as store:
        topic = store.topic(TOPIC)
        put(topic, 0, 1, 2)
        with topic.subscribe("lake") as sub:
            taken = now(sub)
            capacity, total = files.free_bytes(FOLDER)
            files.capacity = total - capacity
            taken[0].ack()
            with pytest.raises(hf.errors.DiskFull):
                sub.flush()
            assert topic.subscribers()["lake"].shards[0].watermark == 0
            files.capacity = None
            taken[1].ack()
            sub.flush()
            assert topic.subscribers()["lake"].shards[0].watermark == 2
