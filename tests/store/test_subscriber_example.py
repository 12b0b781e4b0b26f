"""Two exporters drain one segment of three bundles, one of them with a nack, and the process dies in between.

    parquet_exporter    ack 0, ack 1, ack 2
    otlp_exporter       ack 0, nack 1, ack 2, (crash), ack 1

The segment stays as long as one of them is not done with it, and goes when both are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.acks import BatchStatus
from holdfast.clock import SystemClock
from holdfast.testing import POWER_CUT_MODES, CrashMode, FakeClock, SimulatedFiles, crash, crash_states
from store.storekit import SEGMENTS, SHARD, TOPIC, until
from store.subkit import WAIT, Child, ack_all, now, numbers, put, simulated, unfinished, watermark

Crash = Callable[[SimulatedFiles], SimulatedFiles]
CRASHES: dict[str, Crash] = {
    "killed": SimulatedFiles.kill,
    **{mode.value: partial(crash, mode=mode) for mode in POWER_CUT_MODES},
}


def progress(topic: hf.Topic) -> dict[str, tuple[int, int]]:
    """Watermark, and bundles finished above it, of each exporter."""
    views = {name: view.shards[0] for name, view in topic.subscribers().items()}
    return {name: (view.watermark, view.finished_above) for name, view in views.items()}


@pytest.mark.parametrize("how", sorted(CRASHES))
def test_two_exporters_three_bundles_one_nack_one_crash(how: str) -> None:
    """Each exporter finishes each bundle; nothing is skipped, nothing finished comes again, the segment goes last."""
    files = SimulatedFiles()
    with simulated(files, SystemClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("parquet_exporter") as parquet, topic.subscribe("otlp_exporter") as otlp:
            source = topic.batch("receiver", "run 1", "120")
            put(topic, 0, 1, 2, batches=[source])
            source.close()
            topic._upkeep.run()  # its offsets are written down from now on
            topic.seal()
            (segment,) = files.list(SEGMENTS)
            assert ack_all(now(parquet)) == [0, 1, 2]
            parquet.flush(sync=True)
            first, second, third = now(otlp)
            first.ack()
            second.nack("503 from the endpoint", retry_in=3600, transient=True)
            third.ack()
            otlp.flush(sync=True)
            assert progress(topic) == {"parquet_exporter": (3, 0), "otlp_exporter": (1, 1)}
            assert source.status is None
            assert files.list(SEGMENTS) == [segment], "a nacked bundle pins its segment"
            files = CRASHES[how](files)
    with simulated(files, SystemClock(), seed=2) as store:
        topic = store.topic(TOPIC)
        assert progress(topic) == {"parquet_exporter": (3, 0), "otlp_exporter": (1, 1)}
        assert files.list(SEGMENTS) == [segment]
        with topic.subscribe("parquet_exporter") as parquet, topic.subscribe("otlp_exporter") as otlp:
            assert now(parquet) == []
            (again,) = now(otlp)
            assert (again.offset, again.attempt, numbers([again])) == (1, 2, [1])
            asked = topic.find_batch("receiver", "run 1", "120")
            assert asked is not None
            again.ack()
            assert asked.wait(WAIT) is BatchStatus.DELIVERED
            until(lambda: files.list(SEGMENTS) == [])
        assert progress(topic) == {"parquet_exporter": (3, 0), "otlp_exporter": (3, 0)}
        assert put(topic, 3) == [3], "numbers go on above what was deleted"


def life(files: SimulatedFiles) -> None:
    """The example with what each exporter was promised noted in the journal."""
    with simulated(files, FakeClock()) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe("parquet_exporter") as parquet, topic.subscribe("otlp_exporter") as otlp:
            files.note("registered")
            put(topic, 0, 1, 2)
            files.note("stored")
            topic.seal()
            for sub in (parquet, otlp):
                for held in now(sub):
                    if sub is otlp and held.offset == 1:
                        held.nack("503", retry_in=0)
                    else:
                        held.ack()
                sub.flush(sync=True)
                files.note(sub.name)
            (again,) = now(otlp)
            again.ack()
            otlp.flush(sync=True)
            files.note("done")


def test_crash_anywhere_in_the_example() -> None:
    """After a crash at any point each exporter is given what it had not finished, and nothing that it had."""
    files = SimulatedFiles()
    life(files)
    states = 0
    for state in crash_states(files, modes=[CrashMode.LOST, CrashMode.KEPT, CrashMode.TORN], per_prefix=1, stride=3):
        if "registered" not in state.notes:
            continue
        states += 1
        with simulated(state.files, seed=2) as store:
            topic = store.topic(TOPIC)
            left = {name: set(unfinished(topic, name)) for name in ("parquet_exporter", "otlp_exporter")}
            if "stored" in state.notes:
                assert put(topic, 9)[0] >= 3, state.description
                if "parquet_exporter" not in state.notes:
                    # what was acked but not promised may have been kept, or not
                    assert left["otlp_exporter"] == {0, 1, 2}, state.description
                else:
                    assert left["parquet_exporter"] == set(), state.description
                if "otlp_exporter" in state.notes and "done" not in state.notes:
                    assert left["otlp_exporter"] in ({1}, set()), state.description
                if "done" in state.notes:
                    assert left["otlp_exporter"] == set(), state.description
                gone = {0, 1, 2} - {each.attributes["id"] for each in topic.bundles()}
                assert not gone & (left["parquet_exporter"] | left["otlp_exporter"]), state.description
    assert states > 30, "there were hardly any crashes"


def test_the_example_with_real_processes(tmp_path: Path) -> None:
    """The same on a real disk, with the second exporter in a process of its own that is killed."""
    with hf.Store.open(tmp_path) as store:
        topic = store.topic(TOPIC)
        topic.subscribe("otlp_exporter").close()
        with topic.subscribe("parquet_exporter") as parquet:
            put(topic, 0, 1, 2)
            topic.seal()
            assert ack_all(now(parquet)) == [0, 1, 2]
        segments = tmp_path / SEGMENTS.relative_to(SHARD.parents[2])
        with Child.on(tmp_path, read_only=True) as child:
            child.call("subscribe", "otlp_exporter")
            assert child.call("take", "otlp_exporter") == [0, 1, 2]
            child.call("ack", 0, 2)
            child.call("nack", 1, "503 from the endpoint", retry_in=3600)
            child.call("flush", "otlp_exporter")
            child.kill()
        assert watermark(topic, "otlp_exporter") == 1
        assert len(list(segments.glob("*.seg"))) == 1
        with topic.subscribe("otlp_exporter") as otlp:
            (again,) = now(otlp)
            assert (again.offset, again.attempt) == (1, 2)
            again.ack()
            until(lambda: not list(segments.glob("*.seg")))
