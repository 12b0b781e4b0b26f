"""Crash two processes of a topic at every point of a scripted life, in every way, and use their keys again."""

from __future__ import annotations

import errno
from collections import Counter
from typing import NamedTuple

import pytest

from holdfast.errors import TryAgain
from holdfast.testing import CrashMode, CrashState, FakeClock, SimulatedFiles, crash_states
from store.keykit import Process

PARTS = 4
KEYS = [b"%d" % number for number in range(16)]


class Promised(NamedTuple):
    """A caller was told that the bundle with this key is durable at this place."""

    key: bytes
    shard: int
    offset: int


class Life:
    """Two processes; what callers are told goes into the disk's journal when they are told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.files = SimulatedFiles(clock=self.clock)
        self.serial = 0
        self.one, self.two = self.process(0), self.process(1)

    def process(self, number: int) -> Process:
        return Process(self.files, number, self.clock, switch_bytes=500)

    def append(self, process: Process, *numbers: int) -> None:
        for number in numbers:
            self.serial += 1
            try:
                process.append(KEYS[number], self.serial)
            except OSError:
                continue

    def commit(self, process: Process) -> None:
        for stored in process.commit():
            self.files.note(Promised(stored.key, process.number, stored.offset))


def live() -> Life:
    """Appends and repeats on both sides, sealing, switching, failing, a refused sync and switch, a kill."""
    life = Life()
    one, two = life.one, life.two
    life.append(one, 0, 1, 0)
    life.append(two, 1, 2)
    life.commit(one)
    life.commit(two)
    one.seal()
    life.append(two, 3, 0)
    two.fail(written=True)
    life.append(one, 3)
    life.commit(one)
    life.append(two, 4, 5, 3)
    life.commit(two)
    life.files.fail("sync", errno.EIO, path="*.keys")
    with pytest.raises(OSError, match="Input/output"):
        two.seal()
    two.seal()
    life.append(one, 6, 7, 8)
    life.files.fail("sync_folder", errno.EIO, path="*/keys")
    life.append(one, 9, 10, 6)
    life.files.heal()
    life.commit(one)
    life.append(two, 11, 9)
    two.write()
    two.kill()
    life.append(one, 11, 12)
    two = life.process(1)
    life.append(two, 11, 12, 13)
    one.fail(written=True)
    life.append(two, 12)
    life.commit(two)
    life.commit(one)
    one.seal()
    two.seal()
    life.append(one, 13, 14)
    life.append(two, 14, 15)
    life.commit(one)
    return life


def check(state: CrashState, clock: FakeClock) -> None:
    """Open what the crash left: keys and bundles agree, nothing is stored twice, no promise is broken."""
    process = Process(state.files, 1, clock, switch_bytes=500)
    told = {key: process.append(key, 1000) for key in KEYS}
    found = {place: each for place, each in process.stored().items() if each.serial < 1000}
    for note in state.notes:
        assert isinstance(note, Promised)
        assert found[note.shard, note.offset].key == note.key, f"{note} is broken; {state.description}"
    counted = Counter(each.key for each in found.values())
    assert not [key for key, count in counted.items() if count > 1], f"stored twice: {counted}; {state.description}"
    places = {each.key: place for place, each in found.items()}
    for key, (receipt, repeated) in told.items():
        if key in places:
            assert repeated, f"{key!r} is stored, and its key was forgotten; {state.description}"
            assert (receipt.shard, receipt.offset) == places[key], state.description
            receipt.wait(timeout=0)
        else:
            assert not repeated, f"{key!r} is not stored, and its append was swallowed; {state.description}"


@pytest.mark.parametrize("part", range(PARTS))
def test_keys_and_bundles_agree_after_any_crash(part: int) -> None:
    """A key whose bundle is durable is found, one whose bundle is not is free again, and no bundle is there twice."""
    life = live()
    counted: Counter[CrashMode] = Counter()
    for state in crash_states(life.files, modes=CrashMode, per_prefix=3, stride=PARTS, offset=part):
        try:
            check(state, life.clock)
        except TryAgain as problem:
            raise AssertionError(f"{problem}; {state.description}") from problem
        counted[state.mode] += 1
    assert set(counted) >= set(CrashMode) - {CrashMode.RESURRECTED}, f"some way to crash never came up: {counted}"


@pytest.mark.long
def test_crash_while_recovering() -> None:
    """A crash in the middle of opening after a crash is as harmless as the first."""
    life = live()
    for state in crash_states(life.files, modes=[CrashMode.LOST, CrashMode.KILLED], per_prefix=1, stride=7):
        files = state.files
        Process(files, 1, life.clock, switch_bytes=500).append(b"begin")
        for number, second in enumerate(crash_states(files, modes=[CrashMode.LOST, CrashMode.REORDERED], per_prefix=1)):
            if number % 5 == 0:
                second._notes[:0] = state.notes  # what was promised before the first crash holds after the second
                second._note_count = len(second._notes)
                check(second, life.clock)
