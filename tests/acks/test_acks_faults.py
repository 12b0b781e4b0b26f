"""One call of the disk fails, any call: it is told, nothing that returned is lost, and the log goes on."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from acks.ackkit import ACK, offsets, open_log, rotate
from acks.acklife import Asked, Final, Life, Promised, check
from holdfast.testing import CrashMode, Note, crash

OPERATIONS = (
    "append", "sync", "create", "open_shared", "rename", "unlink", "sync_folder", "lock",
    "read", "size", "list", "exists",
)  # fmt: skip


def calls_of_a_healthy_life() -> Counter[str]:
    life = Life()
    before = life.files.calls
    life.run()
    assert not life.errors
    return life.files.calls - before


def run(operation: str, nth: int, error: int, times: int | None, short: int | None = None) -> bool:
    """Whether the fault was felt. Afterwards, on a healed disk: all that returned is there, and after a crash too."""
    life = Life()
    fault = life.files.fail(operation, error, nth=nth, times=times, short=short)
    life.run()
    life.files.heal()
    assert fault.fired
    notes = [record.value for record in life.files.journal if isinstance(record, Note)]
    check(life.files.kill(), notes, returned=True)
    for seed, mode in enumerate((CrashMode.LOST, CrashMode.REORDERED, CrashMode.TORN)):
        check(crash(life.files, mode, seed=seed), notes)
    for log in (life.one, life.two, open_log(life.files)):
        log.refresh()
        log.append([offsets(9, 5)], sync=True)
        rotate(log)
        assert log.state.of(9).is_final(5)
        assert log.statistics().files == 1
    last = frozenset({Final(9, 5, ACK)})
    check(crash(life.files), [*notes, Asked(last), Promised(last)])
    return bool(life.errors)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_any_call_fails_once(operation: str) -> None:
    """An error of the disk is raised or made good; nothing is lost by it."""
    calls = calls_of_a_healthy_life()[operation]
    assert calls
    felt = [run(operation, nth, errno.EIO, 1) for nth in range(1, calls + 1)]
    assert any(felt), "no caller was ever told"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_calls_fail_from_some_point_on(operation: str) -> None:
    """A disk that stays broken loses nothing that was promised, and the log goes on when it is well."""
    calls = calls_of_a_healthy_life()[operation]
    for nth in range(1, calls + 1, max(1, calls // 6)):
        run(operation, nth, errno.EIO, None)


@pytest.mark.parametrize("short", [0, 1, 11, 30, 44, 60])
def test_a_write_that_stops_in_the_middle(short: int) -> None:
    """A full disk leaves part of a record; what is appended behind it is read all the same."""
    for nth in range(1, calls_of_a_healthy_life()["append"] + 1):
        run("append", nth, errno.ENOSPC, 1, short)
