"""Segments that go: by way of the trash, against a disk that refuses, and never twice."""

from __future__ import annotations

import errno

import pytest

import holdfast as hf
from store.shelfkit import Shelf, ack
from store.storekit import SEGMENTS, SHARD, STORE, TOPIC, contents, put


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
