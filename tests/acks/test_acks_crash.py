"""Crash the life of an ack log at every point, in every way, and read what is left."""

from __future__ import annotations

import pytest

from acks.ackkit import content, offsets, open_log, read, rotate
from acks.acklife import Life, check, facts_in, places, run_with_faults
from holdfast.testing import CrashMode, CrashState, Sync, SyncFolder, crash, crash_states


def lived(*, faults: bool) -> Life:
    life = Life()
    if faults:
        run_with_faults(life)
        assert len(life.errors) >= 4
    else:
        life.run()
        assert not life.errors
    return life


def before_the_mark(state: CrashState) -> bool:
    """Killed between a sync that failed and the mark that tells others of it: the one moment nobody is told."""
    failed = isinstance(state.last, Sync | SyncFolder) and state.last.failed
    return state.mode is CrashMode.KILLED and failed


@pytest.mark.parametrize("faults", [False, True], ids=["healthy", "faulty"])
def test_no_crash_forgets_what_was_durable_or_invents_anything(faults: bool) -> None:
    """Whatever a crash leaves can be read: what was synced is there, no watermark is over a gap, and work goes on."""
    life = lived(faults=faults)
    modes = set()
    for number, state in enumerate(crash_states(life.files, modes=CrashMode, per_prefix=6)):
        modes.add(state.mode)
        log = check(state.files, state.notes, returned=state.mode is CrashMode.KILLED)
        if before_the_mark(state):
            continue
        before = content(log.state)
        if number % 2:
            rotate(log)
        log.append([offsets(9, 0)], sync=True)
        after, _ = read(crash(state.files, CrashMode.LOST))
        assert after.state.of(9).is_final(0)
        if number % 2:  # and a rotation has made all the rest durable
            del after.state.progress[9]
            assert content(after.state) == before
    assert modes >= {CrashMode.KILLED, CrashMode.LOST, CrashMode.REORDERED, CrashMode.TORN}


@pytest.mark.parametrize("faults", [False, True], ids=["healthy", "faulty"])
def test_what_a_successor_has_synced_survives_a_power_cut(faults: bool) -> None:
    """After a kill, what the next process reads may be in memory only; once it has synced, it is not."""
    life = lived(faults=faults)
    for state in crash_states(life.files, modes=[CrashMode.KILLED]):
        if before_the_mark(state):
            continue
        log = open_log(state.files)
        log.refresh()
        seen = facts_in(log.state)
        log.sync()
        for mode in (CrashMode.LOST, CrashMode.REORDERED, CrashMode.TORN):
            after, _ = read(crash(state.files, mode, seed=state.prefix))
            assert places(seen) <= places(facts_in(after.state)), state.description


def test_old_files_that_come_back_change_nothing() -> None:
    """Files that a rotation unlinked and a crash brought back are not read, and go with the next rotation."""
    life = lived(faults=False)
    brought_back = 0
    for state in crash_states(life.files, modes=[CrashMode.RESURRECTED], per_prefix=4):
        log = check(state.files, state.notes)
        brought_back += log.statistics().files > 1
        rotate(log)
        assert log.statistics().files == 1
    assert brought_back > 5
