"""When the open segment is sealed: size, time, streams, a short disk, on request, at close."""

from __future__ import annotations

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.store import _sealer
from holdfast.testing import SimulatedFiles
from store.storekit import SEGMENTS, TOPIC, WAL, append, contents, open_store, put, reopened, running_store, until


def segments(files: SimulatedFiles) -> list[str]:
    return [name for name in files.list(SEGMENTS) if name.endswith(".seg")]


def spread(files: SimulatedFiles, count: int) -> None:
    until(lambda: len(segments(files)) == count)


def test_on_request() -> None:
    """`seal` returns when the segment is there; the WAL before it is gone; nothing to seal is fine."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        topic.seal()
        assert segments(files) == []
        put(topic, 0)
        topic.seal()
        topic.seal()
        assert segments(files) == ["0000000000000000-00000000000000000000.seg"]
        put(topic, 1)
        topic.seal()
        assert segments(files)[1] == "0000000000000001-00000000000000000001.seg"
        assert contents(topic) == {0: 0, 1: 1}


def test_on_request_with_what_is_pending() -> None:
    """What was appended before the call is in the segment, whatever its level."""
    files = SimulatedFiles()
    with open_store(files) as store:
        topic = store.topic(TOPIC)
        receipts = [append(topic, number, level) for number, level in enumerate(["memory", "os", "fsync"])]
        topic.seal()
        assert [receipt.durability for receipt in receipts] == [hf.Durability.FSYNC] * 3
        statistics = topic.statistics()
        assert statistics is not None
        assert (statistics.sealed, statistics.segments, statistics.open_bytes) == (3, 1, 0)


def test_at_size() -> None:
    """A segment that reached its target is sealed without being asked, bundles whole."""
    files = SimulatedFiles()
    with running_store(files, segment={"target_size": 3000}) as store:
        topic = store.topic(TOPIC)
        for number in range(12):
            append(topic, number, width=900).wait(timeout=30)
        until(lambda: len(segments(files)) >= 2)
        assert contents(topic) == {number: number for number in range(12)}


def test_a_group_larger_than_a_segment_is_split() -> None:
    """Bundles that were committed together go to as many segments as their size asks for."""
    files = SimulatedFiles()
    with open_store(files, buffer={"segment": {"target_size": 2500}}) as store:
        topic = store.topic(TOPIC)
        for number in range(9):
            append(topic, number, width=900)
        topic.flush()
        topic.seal()
        assert [int(name[17:37]) for name in segments(files)] == [0, 3, 6]
        assert contents(topic) == {number: number for number in range(9)}


def test_after_max_open_duration() -> None:
    """A segment that was open for long enough is sealed, however small, without another append."""
    files = SimulatedFiles()
    with running_store(files, segment={"max_open_duration": "50ms"}) as store:
        append(store.topic(TOPIC), 0).wait(timeout=30)
        spread(files, 1)
        append(store.topic(TOPIC), 1).wait(timeout=30)
        spread(files, 2)


def test_recovered_segment_has_its_own_time() -> None:
    """What comes back from the WAL is sealed in its turn, without another append."""
    files = SimulatedFiles()
    put(open_store(files).topic(TOPIC), 0)
    killed = files.kill()
    with running_store(killed, segment={"max_open_duration": "50ms"}) as store:
        assert contents(store.topic(TOPIC)) == {0: 0}
        spread(killed, 1)


def test_at_max_streams() -> None:
    """A segment takes only so many pairs of slot and schema."""
    files = SimulatedFiles()
    with open_store(files, buffer={"segment": {"max_streams": 3}}) as store:
        topic = store.topic(TOPIC)
        for number in range(7):
            topic.append({"logs": pa.record_batch({f"c{number}": [1]})})
        topic.flush()
        topic.seal()
        assert [int(name[17:37]) for name in segments(files)] == [0, 3, 6]
        assert len(list(topic.read(slot="logs"))) == 7


def test_when_the_disk_runs_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below retention.min_free_disk open segments are sealed early, so that their WAL can go."""
    monkeypatch.setattr(_sealer, "PRESSURE_CHECK_SECONDS", 0.02)
    files = SimulatedFiles(capacity=1_000_000)
    with running_store(files, retention={"min_free_disk": "90%"}) as store:
        topic = store.topic(TOPIC)
        append(topic, 0, width=1000).wait(timeout=30)
        checks = files.calls["free_bytes"]
        until(lambda: files.calls["free_bytes"] > checks + 2)
        assert segments(files) == []
        free, total = files.free_bytes(SEGMENTS)
        files.capacity = 8 * (total - free)  # seven eighths are free, and that is not enough
        spread(files, 1)
        assert contents(topic) == {0: 0}


def test_at_close() -> None:
    """A closed store has everything in segments and no WAL file left."""
    files = SimulatedFiles()
    with open_store(files) as store:
        for number in range(5):
            put(store.topic(TOPIC), number, width=1500)
        assert len(files.list(WAL)) > 1
    assert len(segments(files)) == 1
    assert files.list(WAL) == []
    assert reopened(files) == {number: number for number in range(5)}


def test_same_open_segment_comes_back_after_a_kill() -> None:
    """The segment that was open goes on under its number, as if nothing had happened."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    for number in range(3):
        put(topic, number)
    killed = files.kill()
    with open_store(killed, seed=2) as store:
        topic = store.topic(TOPIC)
        put(topic, 3)
        topic.seal()
        assert segments(killed) == ["0000000000000000-00000000000000000000.seg"]
        assert contents(topic) == {number: number for number in range(4)}


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_compression(compression: str) -> None:
    """What is compressed comes back the same."""
    files = SimulatedFiles()
    with open_store(files, buffer={"segment": {"compression": compression}}) as store:
        topic = store.topic(TOPIC)
        for number in range(5):
            put(topic, number, width=2000)
        topic.seal()
        assert contents(topic) == {number: number for number in range(5)}
        assert [each["text"][0].as_py() for each in topic.read(slot="logs")] == ["x" * 2000] * 5


def test_one_failing_topic_does_not_stop_the_others() -> None:
    """A topic whose segments cannot be written does not keep another one from being sealed."""
    files = SimulatedFiles()
    with running_store(files, segment={"target_size": 1}) as store:
        files.fail("create", path="*/bad/*.seg*", times=None)
        bad, good = store.topic("prod/bad"), store.topic("prod/good")
        for number in range(2):
            append(bad, number).wait(timeout=30)
        for number in range(6):
            append(good, number, timeout=60).wait(timeout=30)
        until(lambda: good.statistics().unsealed_segments == 0)  # type: ignore[union-attr]
        assert bad.statistics().unsealed_segments == 2  # type: ignore[union-attr]
        files.heal()
