"""A seal that fails or is cut off publishes nothing that is not whole."""

from __future__ import annotations

import errno
import threading

import pyarrow as pa
import pytest
from sealing import FOLDER, PATH, encode, seal, sealed, simulated

from arrow_strategies import assert_same
from holdfast.encoded import EncodedSlot
from holdfast.errors import Corruption
from holdfast.segment import SegmentReader, parse_segment_name
from holdfast.testing import CrashMode, SimulatedFiles, crash_states

CONTENTS = [
    {0: pa.record_batch({"n": [i]}), 1: pa.record_batch({"d": pa.array([str(i)]).dictionary_encode()})}
    for i in range(3)
]
BEFORE_RENAME = ("create", "preallocate", "append", "truncate", "sync", "map", "rename")


def assert_whole(files: SimulatedFiles) -> None:
    reader = SegmentReader(files, PATH)
    assert reader.verify() == []
    for index, slots in enumerate(CONTENTS):
        for number, batch in reader.bundle(index).batches.items():
            assert_same(slots[number], batch)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", BEFORE_RENAME)
def test_failure_of_any_call_leaves_nothing(operation: str, error: int) -> None:
    """Whichever call fails, the error comes through, the folder stays empty, and the next try succeeds."""
    probe = simulated()
    seal(probe, CONTENTS)
    count = probe.calls[operation]
    assert count > 0
    for nth in range(1, count + 1):
        files = simulated()
        files.fail(operation, error, nth=nth)
        with pytest.raises(OSError) as caught:
            seal(files, CONTENTS)
        assert caught.value.errno == error
        assert files.list(FOLDER) == []
        seal(files, CONTENTS)
        assert_whole(files)


def test_short_writes_leave_nothing() -> None:
    """A disk that takes part of a write and then fails leaves no file."""
    files = simulated()
    files.fail("append", errno.ENOSPC, nth=2, short=100)
    with pytest.raises(OSError):
        seal(files, CONTENTS)
    assert files.list(FOLDER) == []


def test_failed_folder_sync_is_reported() -> None:
    """The file is whole but its name is not durable: the caller hears of it and seals again."""
    files = simulated()
    files.fail("sync_folder")
    with pytest.raises(OSError):
        seal(files, CONTENTS)
    assert_whole(files)
    seal(files, CONTENTS)
    assert_whole(files)


def test_unlink_that_fails_too_does_not_hide_the_error() -> None:
    """The first error is the one that is reported; a leftover is replaced by the next try."""
    files = simulated()
    files.fail("sync", errno.ENOSPC)
    files.fail("unlink", errno.EIO, nth=2)
    with pytest.raises(OSError) as caught:
        seal(files, CONTENTS)
    assert caught.value.errno == errno.ENOSPC
    assert files.list(FOLDER) == [PATH.name + ".tmp"]
    seal(files, CONTENTS)
    assert files.list(FOLDER) == [PATH.name]


def test_crash_at_any_moment() -> None:
    """After a crash there is no segment or a whole one; once sealing returned, a whole one."""
    files = simulated()
    files.clear_journal()
    seal(files, CONTENTS)
    files.note("sealed")
    seen = set()
    for state in crash_states(files, modes=CrashMode):
        names = [name for name in state.files.list(FOLDER) if parse_segment_name(name)]
        seen.add((bool(names), state.note_count))
        if names or state.note_count:
            assert_whole(state.files)
    assert {(False, 0), (True, 1)} <= seen


def test_payload_that_cannot_be_decoded() -> None:
    """Bytes that are no payload are never published; the error tells it apart from a failing disk."""
    bundles = encode(CONTENTS)
    good = bundles[1].slots[0]
    torn = pa.py_buffer(good.data.to_pybytes()[:8] + bytes(good.data.size - 8))
    bad = EncodedSlot(good.slot, good.fingerprint, good.kind, good.rows, good.checksum, torn, good.schema)
    bundles[1].slots = (bad, *bundles[1].slots[1:])
    files = simulated()
    for options in ({}, {"compression": "zstd"}):
        with pytest.raises(Corruption, match="slot 0 cannot be"):
            seal(files, bundles, **options)
        assert files.list(FOLDER) == []


def test_threads_share_a_reader() -> None:
    """Many threads reading one segment at once all see what was sealed."""
    batches = [pa.record_batch({"d": pa.array([f"w{i}"]).dictionary_encode(), "n": [i]}) for i in range(50)]
    reader = sealed([{0: batch} for batch in batches])
    barrier = threading.Barrier(4)
    wrong: list[object] = []

    def read() -> None:
        barrier.wait()
        values = [batch.to_pylist() for batch in reader.batches(0)]
        if values != [batch.to_pylist() for batch in batches]:
            wrong.append(values)
        if [reader.bundle(index).batches[0].to_pylist() for index in range(50)] != values:
            wrong.append("bundles")

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
