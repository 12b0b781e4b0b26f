"""Truncation: what is deleted stays deleted, the rest stays, and numbers go on."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.testing import SimulatedFiles
from store.storekit import (
    SEGMENTS,
    TOPIC,
    WAL,
    append,
    contents,
    offsets,
    open_store,
    put,
    reopened,
    running_store,
    seen_by_others,
    until,
)


def filled(files: SimulatedFiles) -> hf.Store:
    """Three segments of three bundles each, then two bundles in the WAL: offsets 0 to 10."""
    store = open_store(files)
    topic = store.topic(TOPIC)
    for number in range(11):
        put(topic, number)
        if number in (2, 5, 8):
            topic.seal()
    return store


@pytest.mark.parametrize("before", range(13))
def test_every_place(before: int) -> None:
    """Wherever it is cut, exactly what lies below is gone, here, for other processes and after reopening."""
    files = SimulatedFiles()
    store = filled(files)
    topic = store.topic(TOPIC)
    reached = min(before, 11)
    assert topic.truncate(before) == {0: reached}
    rest = {number: number for number in range(reached, 11)}
    assert contents(topic) == rest
    assert topic.positions() == {0: (reached, 11)}
    assert seen_by_others(files) == rest
    assert len(files.list(SEGMENTS)) == 3 - min(reached // 3, 3)
    assert put(topic, 11) == 11
    store.close()
    assert reopened(files) == {**rest, 11: 11}


@pytest.mark.parametrize("before", [3, 4, 11])
def test_after_a_kill(before: int) -> None:
    """A truncation that returned is not undone by a kill, and files that were left over are deleted."""
    files = SimulatedFiles()
    filled(files).topic(TOPIC).truncate(before)
    after = files.kill()
    rest = {number: number for number in range(before, 11)}
    assert reopened(after) == rest
    assert seen_by_others(after) == rest


def test_everything_then_numbering_goes_on() -> None:
    """An emptied shard keeps no file of data, and its numbers are not used again, however often it is emptied."""
    files = SimulatedFiles()
    filled(files).close()
    expected = 11
    for seed in range(3):
        with open_store(files, seed=seed) as store:
            topic = store.topic(TOPIC)
            topic.truncate(10**9)
            assert contents(topic) == {}
            assert files.list(SEGMENTS) == []
            assert [name for name in files.list(WAL) if name.endswith(".wal")] == []
            if seed != 1:
                assert put(topic, expected) == expected
                expected += 1
        assert files.exists(SEGMENTS)


def test_lower_again_does_nothing() -> None:
    """What was deleted does not come back by asking for less."""
    files = SimulatedFiles()
    with filled(files) as store:
        topic = store.topic(TOPIC)
        topic.truncate(5)
        assert topic.truncate(2) == {0: 5}
        assert topic.truncate(None) == {}
        assert contents(topic) == {number: number for number in range(5, 11)}


def test_reader_in_the_middle() -> None:
    """Who reads while the rest is deleted finishes the segment at hand and goes on above."""
    files = SimulatedFiles()
    with filled(files) as store:
        topic = store.topic(TOPIC)
        reading = topic.bundles()
        first = next(reading)
        topic.truncate(7)
        rest = offsets(reading)
        assert first.offset == 0
        assert rest == sorted(rest)
        assert rest[-4:] == [7, 8, 9, 10]
        assert set(rest) <= {1, 2, *range(7, 11)}


def test_positions_below_the_start() -> None:
    """A position below what is left reads from where data begins."""
    files = SimulatedFiles()
    with filled(files) as store:
        topic = store.topic(TOPIC)
        topic.truncate(6)
        assert offsets(topic.bundles(0, 8)) == [6, 7]
        assert offsets(topic.bundles(0, 3)) == []


def test_unsealed_backlog_is_dropped() -> None:
    """Segments that wait to be sealed need not be, once they are deleted; appends go on."""
    files = SimulatedFiles()
    with running_store(files, segment={"target_size": 1}) as store:
        topic = store.topic(TOPIC)
        files.fail("create", path="*.seg*", times=None)
        for number in range(3):
            append(topic, number).wait(timeout=30)
        assert topic.truncate(3) == {0: 3}
        append(topic, 3, timeout=30).wait(timeout=30)
        assert contents(topic) == {3: 3}
        files.heal()
        until(lambda: topic.statistics().unsealed_segments == 0)  # type: ignore[union-attr]
    assert reopened(files) == {3: 3}
