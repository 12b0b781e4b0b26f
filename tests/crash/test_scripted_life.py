"""Crash a scripted life at every point, in every way, and open what is left."""

from __future__ import annotations

from collections import Counter

import pytest

from crash.life import check, live
from holdfast.testing import CrashMode, crash_states

PARTS = 8  # runs of the journal, so that workers share the states
PER_PREFIX = 26  # states for each prefix and each way to crash that leaves a choice
STATES = 10_000


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything(part: int) -> None:
    """Whatever a crash leaves opens; all that was acknowledged is there, and nothing that was never appended."""
    life = live()
    length = len(life.files.journal) + 1
    first, last = part * length // PARTS, (part + 1) * length // PARTS - 1
    counted: Counter[CrashMode] = Counter()
    for state in crash_states(life.files, modes=CrashMode, per_prefix=PER_PREFIX, first=first, last=last):
        check(state)
        counted[state.mode] += 1
    assert set(counted) >= set(CrashMode) - {CrashMode.RESURRECTED}, f"some way to crash never came up: {counted}"


def test_there_are_enough_distinct_crash_states() -> None:
    """The parts above cover at least ten thousand disks that differ in a byte or a name, in every way to crash."""
    modes: set[CrashMode] = set()
    disks: set[str] = set()
    for state in crash_states(live().files, modes=CrashMode, per_prefix=PER_PREFIX):
        modes.add(state.mode)
        disks.add(state.digest)
    assert modes == set(CrashMode)
    assert len(disks) >= STATES, f"only {len(disks)}"
