"""Crash a scripted life at every point, in every way, and open what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest

from crash.life import check, live
from holdfast.testing import CrashMode, CrashState, SimulatedFiles, crash_states

PARTS = 8  # runs of the journal, so that workers share the states
PER_PREFIX = 26  # states for each prefix and each way to crash that leaves a choice
STATES = 10_000  # disks that differ in a byte or a name
SHARE = 7  # besides the first state of each prefix, one state in so many is for the usual run
USUAL_STATES = 1_800


@cache
def lived() -> SimulatedFiles:
    """The disk of the scripted life, its whole journal included."""
    return live().files


def states(*, usual: bool, part: int) -> Iterator[CrashState]:
    """The states of one part that are for the usual run, or all the others."""
    length = len(lived().journal) + 1
    first, last = part * length // PARTS, (part + 1) * length // PARTS - 1
    prefix = -1
    found = crash_states(lived(), modes=CrashMode, per_prefix=PER_PREFIX, first=first, last=last)
    for number, state in enumerate(found):
        if (number % SHARE == 0 or state.prefix != prefix) is usual:
            yield state
        prefix = state.prefix


def check_all(states: Iterator[CrashState]) -> None:
    counted: Counter[CrashMode] = Counter()
    for state in states:
        check(state)
        counted[state.mode] += 1
    assert set(counted) >= set(CrashMode) - {CrashMode.RESURRECTED}, f"some way to crash never came up: {counted}"


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything(part: int) -> None:
    """Whatever a crash leaves opens; all that was acknowledged is there, and nothing that was never appended."""
    check_all(states(usual=True, part=part))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything_in_all_other_states(part: int) -> None:
    """The same for the states that the usual run leaves out."""
    check_all(states(usual=False, part=part))


def test_there_are_enough_distinct_crash_states() -> None:
    """The usual run covers 1,800 disks, both runs together ten thousand; both in every variant of every way.

    And the usual run leaves out no prefix that has a state of its own.
    """
    usual = [state for part in range(PARTS) for state in states(usual=True, part=part)]
    every = [*usual, *(state for part in range(PARTS) for state in states(usual=False, part=part))]
    assert {state.mode for state in usual} == set(CrashMode)
    assert {(state.mode, state.variant) for state in usual} == {(state.mode, state.variant) for state in every}
    assert {state.prefix for state in usual} == {state.prefix for state in every}
    assert len({state.digest for state in usual}) >= USUAL_STATES
    assert len({state.digest for state in every}) >= STATES
