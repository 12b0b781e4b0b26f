"""Crash a scripted life at every point, in every way, and open what is left."""

from __future__ import annotations

from collections import Counter

import pytest

from crash.life import check, live
from holdfast.testing import CrashMode, crash_states

PARTS = 8  # so that workers share the states


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_loses_invents_or_renumbers_anything(part: int) -> None:
    """Whatever a crash leaves opens; all that was acknowledged is there, and nothing that was never appended."""
    life = live()
    counted: Counter[CrashMode] = Counter()
    for state in crash_states(life.files, modes=CrashMode, seed=part, per_prefix=6, stride=PARTS, offset=part):
        check(state)
        counted[state.mode] += 1
    assert set(counted) == set(CrashMode), f"some way to crash never came up: {counted}"
    assert counted.total() > 10_000 / PARTS, f"only {counted.total()} states: {counted}"
