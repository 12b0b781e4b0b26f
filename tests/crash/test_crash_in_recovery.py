"""A crash while a store is being opened after a crash; and a power cut after work that followed a kill."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pyarrow as pa
import pytest

import holdfast as hf
from crash.life import SETTINGS, STORE, TOPIC, Appended, Promised, Trimmed, Trimming, contents, live
from holdfast.testing import CrashMode, CrashState, FakeClock, SequenceIds, SimulatedFiles, crash, crash_states

PARTS = 4


@cache
def lived() -> SimulatedFiles:
    """The disk of the scripted life, its whole journal included."""
    return live().files


def first_crashes(part: int, stride: int) -> Iterator[CrashState]:
    """Some of the states that the scripted life may leave."""
    yield from crash_states(
        lived(), modes=CrashMode, seed=part, per_prefix=1, stride=PARTS * stride, offset=part * stride
    )


def open_again(files: SimulatedFiles, seed: int) -> hf.Store:
    return hf.Store.open(STORE, settings=SETTINGS, files=files, clock=FakeClock(), ids=SequenceIds(seed))


def found(files: SimulatedFiles, seed: int) -> dict[int, int]:
    with open_again(files, seed) as store:
        return {offset: each.number for offset, each in contents(store.topic(TOPIC)).items()}


def must_have(state: CrashState) -> dict[int, int]:
    """What callers were told to be durable, and nobody began to delete."""
    trimming = max((note.before for note in state.notes if isinstance(note, Trimming)), default=0)
    return {
        note.offset: note.number
        for note in state.notes
        if isinstance(note, Promised) and note.level >= hf.Durability.FSYNC and note.offset >= trimming
    }


def check_second_crashes(state: CrashState, stride: int, part: int) -> int:
    """Open what the first crash left; crash that too, anywhere, in every way; open again."""
    promised = must_have(state)
    appended = {note.offset: note.number for note in state.notes if isinstance(note, Appended)}
    trimmed = max((note.before for note in state.notes if isinstance(note, Trimmed)), default=0)
    files = state.files
    files.clear_journal()
    shown = found(files, 20)
    count = 0
    for second in crash_states(files, modes=CrashMode, seed=part, per_prefix=2, stride=stride, offset=part % stride):
        again = found(second.files, 21)
        what = f"{state.description}, then {second.description}"
        assert {offset: again.get(offset) for offset in promised} == promised, what
        for offset, number in again.items():
            assert appended.get(offset, number) == number, what
            assert offset in shown or offset >= trimmed or trimmed >= 10**6, what
        count += 1
    return count


@pytest.mark.parametrize("part", range(PARTS))
def test_crash_while_recovering(part: int) -> None:
    """Recovery can be interrupted anywhere, and done again, without losing what was acknowledged."""
    states = list(first_crashes(part, stride=40))
    count = sum(check_second_crashes(state, 19, part + place) for place, state in enumerate(states))
    assert count > 10


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_crash_while_recovering_from_many_more_states(part: int) -> None:
    """The same, several times as densely in both crashes."""
    for place, state in enumerate(first_crashes(part, stride=12)):
        check_second_crashes(state, 11, part + place)


@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_after_work_that_followed_a_kill(part: int) -> None:
    """Who takes over from a killed process makes durable whatever it relies on, before it acknowledges anything."""
    check_work_after_kills(stride=7 * PARTS, offset=7 * part)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_power_cut_after_work_that_followed_a_kill_anywhere(part: int) -> None:
    """The same for every prefix."""
    check_work_after_kills(stride=PARTS, offset=part)


def check_work_after_kills(stride: int, offset: int) -> None:
    """Take over after a kill, append, and cut the power: everything shown and acknowledged is there."""
    for state in crash_states(lived(), modes=[CrashMode.KILLED], stride=stride, offset=offset):
        store = open_again(state.files, 30)
        topic = store.topic(TOPIC)
        shown = {offset: each.number for offset, each in contents(topic).items()}
        receipt = topic.append({"brand-new": pa.record_batch({"id": [1]})}, attributes={"id": -1})
        topic.flush()
        receipt.wait(timeout=30)
        for mode in (CrashMode.LOST, CrashMode.REORDERED):
            after = crash(state.files, mode, seed=state.prefix)
            with open_again(after, 31) as again:
                bundles = list(again.topic(TOPIC).bundles())
            assert {each.offset: each.attributes["id"] for each in bundles} == {**shown, receipt.offset: -1}, (
                f"{state.description}, then {mode}"
            )
            assert bundles[-1]["brand-new"].to_pydict() == {"id": [1]}
        store.close()
