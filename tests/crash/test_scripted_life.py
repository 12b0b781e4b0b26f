"""Crash a scripted life at every point, in every way, and open what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from crash.life import check, live
from holdfast.testing import CrashMode, CrashState, SimulatedFiles, crash_states

PARTS = 8  # runs of the journal, so that workers share the states
PER_PREFIX = 32  # states for each prefix and each way to crash that leaves a choice
STATES = 10_000  # disks that differ in a byte or a name
SHARE = 9  # one state in so many is for the usual run, besides the first of each prefix, and of each mode in a part
USUAL_STATES = 1_500


@cache
def lived() -> SimulatedFiles:
    """The disk of the scripted life, its whole journal included."""
    return live().files


def states(part: int) -> Iterator[tuple[CrashState, bool]]:
    """The states of one part; and is it for the usual run?"""
    length = len(lived().journal) + 1
    first, last = part * length // PARTS, (part + 1) * length // PARTS - 1
    met: set[int | CrashMode] = set()
    found = crash_states(lived(), modes=CrashMode, per_prefix=PER_PREFIX, first=first, last=last)
    for number, state in enumerate(found):
        yield state, number % SHARE == 0 or not {state.prefix, state.mode} <= met
        met |= {state.prefix, state.mode}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything(part: int) -> None:
    """Whatever a crash leaves opens; all that was acknowledged is there, and nothing that was never appended."""
    counted: Counter[CrashMode] = Counter()
    for state, usual in states(part):
        if usual:
            check(state)
            counted[state.mode] += 1
    assert set(counted) >= set(CrashMode) - {CrashMode.RESURRECTED}, f"some way to crash never came up: {counted}"


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything_in_all_other_states(part: int) -> None:
    """The same for the states that the usual run leaves out."""
    for state, usual in states(part):
        if not usual:
            check(state)


def test_there_are_enough_distinct_crash_states() -> None:
    """The usual run covers 1,500 disks that differ in a byte or a name, both runs together ten thousand.

    Also the usual run has states of every prefix, and of every way to crash.
    """
    disks: set[str] = set()
    usual_disks: set[str] = set()
    prefixes: set[int] = set()
    usual_prefixes: set[int] = set()
    usual_modes: set[CrashMode] = set()
    for state, usual in (each for part in range(PARTS) for each in states(part)):
        disks.add(state.digest)
        prefixes.add(state.prefix)
        if usual:
            usual_disks.add(state.digest)
            usual_prefixes.add(state.prefix)
            usual_modes.add(state.mode)
    assert usual_modes == set(CrashMode)
    assert usual_prefixes == prefixes
    assert len(usual_disks) >= USUAL_STATES, f"only {len(usual_disks)}"
    assert len(disks) >= STATES, f"only {len(disks)}"
