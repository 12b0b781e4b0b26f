"""One call of the disk fails, any call: nothing hangs, nobody is told a lie, and the store goes on when it is well.

A short life is run once to count its calls; then once for each call of each operation, with that call failing, once
or for ever. What the receipts said is held against what a healed disk, and what a power cut, leaves.
"""

from __future__ import annotations

import errno
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TypeVar

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError
from holdfast.testing import CrashMode, SimulatedFiles, crash
from store.storekit import TOPIC, batch, open_store, put

pytestmark = pytest.mark.timeout(120)

BUFFER = {
    "segment": {"target_size": 2500},
    "wal": {"file_size": 4096, "max_size": 50_000, "flush_interval": "1h"},
    "append_timeout": 0,
}
T = TypeVar("T")
WRITES = ("append", "write_at")
CHANGES = (*WRITES, "create", "sync", "sync_folder", "rename", "unlink", "truncate", "make_folder", "lock", "open")
READS = ("read", "map", "list", "size", "exists", "is_folder", "free_bytes")


class Told:
    """What callers were told so far."""

    def __init__(self) -> None:
        self.acked: dict[int, int] = {}
        self.failed: dict[int, int] = {}
        self.trimmed = 0
        self.trimming = 0
        self.errors: list[Exception] = []
        self.number = 0


def attempt(told: Told, action: Callable[[], T], *, system: bool = False) -> T | None:
    """A call that may fail with an error of ours; or with one of the system's, where that is allowed."""
    try:
        return action()
    except HoldfastError as error:
        told.errors.append(error)
    except OSError as error:
        if not system:
            raise
        told.errors.append(error)
    return None


def group(told: Told, topic: hf.Topic, count: int, *, slot: str = "logs", width: int = 0) -> None:
    receipts: list[tuple[int, hf.Receipt]] = []
    for _ in range(count):
        number = told.number
        told.number += 1
        try:
            rows = {slot: batch(number, width=width)}
            receipts.append((number, topic.append(rows, attributes={"id": number})))
        except HoldfastError as error:
            told.errors.append(error)
    topic.flush()
    for number, receipt in receipts:
        try:
            level = receipt.wait(timeout=30)
        except hf.errors.WaitTimeout:
            raise AssertionError(f"offset {receipt.offset} neither resolved nor failed") from None
        except HoldfastError as error:
            told.errors.append(error)
            told.failed[receipt.offset] = number
        else:
            assert level >= hf.Durability.FSYNC
            told.acked[receipt.offset] = number


def truncate(told: Told, topic: hf.Topic, before: int) -> None:
    told.trimming = before
    if attempt(told, lambda: topic.truncate(before)) is not None:
        told.trimmed = before


def life(files: SimulatedFiles, told: Told) -> None:
    """Two processes, one after the other; whatever fails, go on with the next."""
    for seed in (1, 2):
        store = attempt(told, partial(open_store, files, buffer=BUFFER, seed=seed), system=True)
        if store is not None:
            topic = attempt(told, partial(store.topic, TOPIC), system=True)
            if topic is not None:
                work(told, topic, before=4 * (seed - 1))
            attempt(told, store.close, system=True)


def work(told: Told, topic: hf.Topic, before: int) -> None:
    """Append, rotate, use a second slot, seal, truncate, read."""
    group(told, topic, 2)
    group(told, topic, 3, width=900)
    group(told, topic, 1, slot="attrs")
    attempt(told, topic.seal)
    group(told, topic, 3, width=900)
    truncate(told, topic, before)
    group(told, topic, 1)
    attempt(told, lambda: list(topic.bundles()), system=True)


def calls_of_a_healthy_life() -> Counter[str]:
    files, told = SimulatedFiles(), Told()
    life(files, told)
    assert not told.errors
    assert not told.failed
    return files.calls


def check(files: SimulatedFiles, told: Told, *, goes_on: bool) -> None:
    """All that was acknowledged is there, nothing that was deleted or never appended, and an append works."""
    with open_store(files, buffer=BUFFER, seed=7) as store:
        topic = store.topic(TOPIC)
        found = {bundle.offset or 0: bundle.attributes["id"] for bundle in topic.bundles()}
        for offset, number in told.acked.items():
            if offset not in found:
                assert offset < told.trimming, f"offset {offset} was acknowledged and is gone"
            else:
                assert found[offset] == number
        for offset, number in found.items():
            assert offset >= told.trimmed or offset not in told.acked
            assert number < told.number
            assert told.acked.get(offset, told.failed.get(offset, number)) == number
        if goes_on:
            above = max([-1, *told.acked, *found])
            topic.seal()  # a backlog would hold the append back
            assert put(topic, 10_000) > above


def run(operation: str, nth: int, error: int, times: int | None, short: int | None = None) -> None:
    files, told = SimulatedFiles(), Told()
    fault = files.fail(operation, error, nth=nth, times=times, short=short)
    life(files, told)
    if fault.fired == 0:
        return  # sealing is a thread of its own: the order of calls is not quite the same each time
    cut = [crash(files, mode, seed=nth) for mode in (CrashMode.LOST, CrashMode.REORDERED)]
    files.heal()
    for error_told in told.errors:
        assert len(str(error_told)) > 20
        assert "Error(" not in str(error_told).replace("OSError(", ""), f"nested: {error_told}"
    check(files, told, goes_on=True)
    for after in cut:
        check(after, told, goes_on=False)


def sweep(operation: str, variants: Sequence[tuple[int, int | None, int | None]], *, stride: int = 1) -> None:
    """Fail each call of the operation (or one in `stride`) in each way; all that goes wrong is told at the end."""
    count = calls_of_a_healthy_life()[operation]
    problems = []
    for nth, (error, times, short) in product(range(1, count + 1, stride), variants):
        try:
            run(operation, nth, error, times, short)
        except Exception as problem:  # the others are looked at all the same
            where = traceback.extract_tb(problem.__traceback__)[-1]
            what = f"{operation} {nth} of {count}, {errno.errorcode[error]}, times={times}, short={short}"
            problems.append(f"{what}: {problem!r} ({where.name}, {where.filename}:{where.lineno})")
    assert not problems, "\n".join(problems)


ONCE = [(errno.EIO, 1, None)]
FOR_EVER = [(errno.ENOSPC, None, None), (errno.EIO, None, None)]
SHORT = [(errno.ENOSPC, 1, 5), (errno.ENOSPC, 3, 100)]


@pytest.mark.parametrize("operation", CHANGES)
def test_a_change_that_fails_once(operation: str) -> None:
    """An I/O error at a call that changes the disk loses nothing that was acknowledged."""
    sweep(operation, ONCE, stride={"append": 7, "truncate": 1, "make_folder": 1, "open": 1}.get(operation, 3))


@pytest.mark.parametrize("operation", ["append", "sync", "sync_folder", "create"])
def test_calls_that_fail_from_then_on(operation: str) -> None:
    """A disk that is full or dead from some call on makes appends fail, and nothing else is lost."""
    sweep(operation, FOR_EVER, stride=9)


def test_writes_cut_short() -> None:
    """A write of which only a part got through is never taken for the whole."""
    sweep("append", SHORT, stride=11)


@pytest.mark.parametrize("operation", READS)
def test_a_look_that_fails_once(operation: str) -> None:
    """An I/O error at any call that only looks is reported, or the call is made again; nothing is lost."""
    sweep(operation, ONCE, stride=5)


@pytest.mark.long
@pytest.mark.parametrize("operation", [*CHANGES, *READS])
def test_every_call_failing_in_every_way(operation: str) -> None:
    """Each call: once, for ever, and several times, so that the way on after a failure fails too."""
    several = [(error, times, None) for error in (errno.EIO, errno.ENOSPC) for times in (2, 3, 5)]
    sweep(operation, [*ONCE, *FOR_EVER, *several, *(SHORT if operation in WRITES else [])])


@pytest.mark.parametrize("steps", [10, pytest.param(99, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_full_disk_at_every_capacity(steps: int) -> None:
    """Whatever room there is, what does not fit is refused as DiskFull or blocks, and the rest is safe."""
    files, told = SimulatedFiles(), Told()
    life(files, told)
    most = sum(len(getattr(each, "data", b"")) for each in files.journal)
    for capacity in range(0, most, max(1, most // steps)):
        files, told = SimulatedFiles(capacity=capacity), Told()
        life(files, told)
        cut = crash(files, CrashMode.LOST)
        files.capacity = cut.capacity = None
        check(files, told, goes_on=True)
        check(cut, told, goes_on=False)
