"""Crash a scripted life with subscribers at every point, in every way, and open what is left."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from crash.ack_fault_life import live_with_faults
from crash.ack_life import Life, live
from crash.ack_oracle import check, check_second_crashes
from holdfast.testing import CrashMode, crash_states

PARTS = 4
DENSE = 8  # states for each prefix and each way to crash that leaves a choice
STATES = 1_000
_MODES = list(CrashMode)


@cache
def lived() -> Life:
    return live()


def test_the_same_life_leaves_the_same_journal() -> None:
    """Without background threads the script is the same each time, so that a state that fails can be found again."""
    assert [str(each) for each in live().files.journal] == [str(each) for each in lived().files.journal]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_forgets_skips_or_brings_anything_back(part: int) -> None:
    """Whatever a crash leaves opens, and every law of outcomes, registration and deletion holds.

    After a kill they hold for what the next process has acted on, too, when the power is cut right then.
    """
    states = crash_states(lived().files, modes=CrashMode, per_prefix=2, stride=PARTS, offset=part)
    modes = Counter()
    for state in states:
        # One in four, in turn over prefixes, modes and variants; the rest is for the long run.
        if (state.prefix // PARTS + state.variant + _MODES.index(state.mode)) % 4 == 0:
            check(state)
            modes[state.mode] += 1
    assert set(modes) == set(CrashMode)
    assert modes.total() >= STATES // PARTS, f"only {modes}"


@pytest.mark.parametrize("part", range(2))
def test_a_crash_while_looking_after_what_a_crash_left(part: int) -> None:
    """Recovery and upkeep can be interrupted anywhere, and done again, and all laws hold."""
    states = crash_states(lived().files, modes=CrashMode, per_prefix=1, first=60, stride=160, offset=80 * part)
    assert sum(check_second_crashes(state, stride=13) for state in states) > 100


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_a_crash_while_looking_after_what_a_crash_left_in_many_more_states(part: int) -> None:
    """The same, several times as densely in both crashes."""
    for state in crash_states(lived().files, modes=CrashMode, per_prefix=1, first=60, stride=40, offset=10 * part):
        check_second_crashes(state, stride=5)


@pytest.mark.parametrize("part", range(2))
def test_no_crash_after_faults_forgets_skips_or_brings_anything_back(part: int) -> None:
    """The same on a disk that failed now and then before: syncs, renames, records of deletions, files that stay."""
    files = live_with_faults().files
    for state in crash_states(files, modes=CrashMode, seed=1, per_prefix=2, stride=14, offset=7 * part):
        check(state)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_no_crash_after_faults_in_many_more_states(part: int) -> None:
    """The same for every prefix, more densely."""
    for state in crash_states(live_with_faults().files, modes=CrashMode, per_prefix=4, stride=4, offset=part):
        check(state)


@pytest.mark.long
@pytest.mark.parametrize("part", range(8))
def test_no_crash_forgets_skips_or_brings_anything_back_in_many_more_states(part: int) -> None:
    """The same for every prefix, several times as densely."""
    for state in crash_states(lived().files, modes=CrashMode, per_prefix=DENSE, stride=8, offset=part):
        check(state)
