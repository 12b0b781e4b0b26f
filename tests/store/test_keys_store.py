"""Idempotent append through the store: over processes, kills, seals and full disks."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import DiskFull, InvalidBundle
from holdfast.testing import CrashMode, FakeClock, SequenceIds, SimulatedFiles, crash

STORE, TOPIC = Path("/store"), "prod/logs"
BATCH = {"logs": pa.record_batch({"id": [1, 2, 3]})}


def opened(files: SimulatedFiles, **settings: object) -> hf.Store:
    return hf.Store.open(
        STORE, settings={"buffer": settings}, files=files, clock=FakeClock(), ids=SequenceIds(len(files.journal))
    )


def count(files: SimulatedFiles) -> int:
    with opened(files) as store:
        return len(list(store.topic(TOPIC).bundles()))


def test_a_repeat_stores_nothing() -> None:
    """In the same process, in another one, and after everything was closed: one bundle, one place."""
    files = SimulatedFiles()
    with opened(files) as one, opened(files) as two:
        first = one.topic(TOPIC).append(BATCH, idempotency_key="order 7")
        first.wait()
        again = one.topic(TOPIC).append(BATCH, idempotency_key="order 7")
        elsewhere = two.topic(TOPIC).append(BATCH, idempotency_key=b"order 7")
        assert [(each.shard, each.offset) for each in (again, elsewhere)] == [(0, first.offset)] * 2
        assert elsewhere.wait(timeout=30) is hf.Durability.FSYNC
    with opened(files) as store:
        store.topic(TOPIC).truncate({0: 1})
        later = store.topic(TOPIC).append(BATCH, idempotency_key="order 7")
        assert (later.shard, later.offset, later.durability) == (0, 0, hf.Durability.FSYNC)
    assert count(files) == 0


def test_the_key_is_in_the_bundle() -> None:
    """Readers find it among the attributes, under a name that users may not give themselves."""
    files = SimulatedFiles()
    with opened(files) as store:
        topic = store.topic(TOPIC)
        topic.append(BATCH, idempotency_key="k", attributes={"source": "here"}).wait()
        (bundle,) = topic.bundles()
        assert dict(bundle.attributes) == {"source": "here", "holdfast.key": b"k"}
        with pytest.raises(InvalidBundle, match="Holdfast's own"):
            topic.append(BATCH, attributes={"holdfast.key": b"k"})


@pytest.mark.parametrize("mode", CrashMode)
@pytest.mark.parametrize("seal", [False, True])
def test_a_crash_forgets_no_durable_key(mode: CrashMode, seal: bool) -> None:
    """Whatever becomes of the key log: while the WAL has the bundle, and after it is sealed, its key is known."""
    files = SimulatedFiles()
    topic = opened(files).topic(TOPIC)
    for number in range(20):
        topic.append(BATCH, idempotency_key=f"key {number}").wait()
    if seal:
        topic.seal()
    topic.append(BATCH, idempotency_key="pending", durability="memory")
    for seed in range(3):
        after = crash(files, mode, seed=seed)
        with opened(after) as store:
            topic = store.topic(TOPIC)
            for number in range(20):
                assert topic.append(BATCH, idempotency_key=f"key {number}").offset == number
            topic.append(BATCH, idempotency_key="pending").wait(timeout=30)
        assert count(after) == 21


def test_a_failed_append_can_be_repeated() -> None:
    """No room for the bundle: its receipt fails, and the same key stores it once there is room."""
    files = SimulatedFiles()
    with opened(files) as store:
        topic = store.topic(TOPIC)
        topic.append(BATCH, idempotency_key="warm").wait()
        files.fail("append", errno.ENOSPC, path="*.wal*", times=None)
        receipt = topic.append(BATCH, idempotency_key="key")
        with pytest.raises(DiskFull):
            receipt.wait()
        files.heal()
        repeated = topic.append(BATCH, idempotency_key="key")
        repeated.wait()
        assert repeated.offset > receipt.offset
        assert topic.append(BATCH, idempotency_key="key").offset == repeated.offset
    assert count(files) == 2


def test_a_repeat_may_ask_for_more() -> None:
    """The first append was content with `memory`; a repeat that asks for `fsync` waits for the sync."""
    files = SimulatedFiles()
    with opened(files, wal={"flush_interval": "1h"}) as store:
        topic = store.topic(TOPIC)
        topic.append(BATCH, idempotency_key="key", durability="memory")
        receipt = topic.append(BATCH, idempotency_key="key", durability="fsync")
        assert receipt.durability is hf.Durability.MEMORY
        topic.flush()
        assert receipt.wait() is hf.Durability.FSYNC
