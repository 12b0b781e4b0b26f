"""The stores that the documents show: fixed ids, a clock that stands still, a disk in memory."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from holdfast import RecordBundle, Store
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles, flip_bit
from holdfast.wal import scan_file

STORE = Path("/data")
TOPIC = "prod/logs"
SHARD = STORE / TOPIC / "shard-0000"
WAL = SHARD / "wal/00000000000000000000-0000000000.wal"
SEGMENT = SHARD / "segments/0000000000000000-00000000000000000000.seg"
ACKS = SHARD / "acks/0000000000000000.acks"
KEYS = STORE / TOPIC / "keys/0000000000000001.keys"


def opened(files: SimulatedFiles, seed: int = 0) -> Store:
    return Store.open(STORE, files=files, clock=FakeClock(), ids=SequenceIds(seed))


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def formats_store() -> tuple[SimulatedFiles, bytes]:
    """Two bundles, synced one by one, then sealed; the files before that, and the tail before the second bundle."""
    files = SimulatedFiles()
    topic = opened(files).topic(TOPIC)
    topic.append(RecordBundle({"logs": rows(7)}, {"source": "web-7"}, event_time=(5, 6))).wait()
    tail = files.read(SHARD / "tail")
    topic.append({"logs": rows(8, 9)}).wait()
    unsealed = files.kill()
    topic.seal()
    copy(files, SEGMENT, unsealed, STORE / "sealed.seg")
    return unsealed, tail


def acks_store() -> tuple[SimulatedFiles, SimulatedFiles]:
    """A source's batch of two bundles, acked and answered; a third bundle nacked, then truncated.

    The files before the ack log is rotated, and after.
    """
    files = SimulatedFiles()
    with opened(files) as store:
        topic = store.topic(TOPIC)
        lake = topic.subscribe("lake", authoritative=True)
        with topic.batch("web-7", "run-1", "b1") as batch:
            batch.append({"logs": rows(7)})
            batch.append({"logs": rows(8, 9)})
        topic.append({"logs": rows(10)}).wait()
        first, second, third = lake.take(3)
        while not topic.acks(0).state.batches:  # the batch is written down by another thread
            topic.acks(0).refresh()
        first.ack()
        second.ack()
        lake.flush()
        found = topic.find_batch("web-7", "run-1", "b1")
        assert found is not None
        assert found.wait(timeout=60) == "delivered"
        third.nack("sink is away", transient=True)
        lake.flush()
        topic.truncate(3)
        before = files.kill()
        with topic.acks(0).exclusive():
            topic.acks(0).rotate([1])
        after = files.kill()
    return before, after


def keys_store() -> SimulatedFiles:
    """One bundle that was appended with a key."""
    files = SimulatedFiles()
    with opened(files) as store:
        store.topic(TOPIC).append({"logs": rows(7)}, idempotency_key="order-17").wait()
    return files


def damaged_store() -> SimulatedFiles:
    """Two segments, the second with a flipped bit, and a WAL whose last record is torn."""
    files = SimulatedFiles()
    number = 0
    for sealed in (3, 2):
        with opened(files, number) as store:
            for number in range(number, number + sealed):  # noqa: B020 - goes on counting
                store.topic(TOPIC).append({"logs": rows(*[number] * 100)}).wait()
            number += 1
    topic = opened(files, number).topic(TOPIC)
    for value in (number, number + 1):
        topic.append({"logs": rows(*[value] * 100)}).wait()
    tail = files.read(SHARD / "tail")
    topic.append({"logs": rows(*[number + 2] * 100)}).wait()
    files = files.kill()
    overwrite(files, SHARD / "tail", tail)
    (log,) = (SHARD / "wal" / name for name in files.list(SHARD / "wal"))
    overwrite(files, log, records(files, log)[:-500])
    flip_bit(files, SHARD / "segments" / files.list(SHARD / "segments")[1], 8 * 500)
    return files


def records(files: SimulatedFiles, path: Path) -> bytes:
    """A WAL file up to the end of its last record; room may be prepared behind it."""
    data = files.read(path)
    scan, _ = scan_file(pa.py_buffer(data), path)
    return data[: scan.position]


def overwrite(files: SimulatedFiles, path: Path, data: bytes) -> None:
    file = files.open(path)
    file.truncate(0)
    file.append([data])
    file.close()


def copy(source: SimulatedFiles, path: Path, target: SimulatedFiles, place: Path) -> None:
    file = target.create(place)
    file.append([source.read(path)])
    file.close()
