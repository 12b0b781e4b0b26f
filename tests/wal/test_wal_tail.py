"""The tail file: two slots in turn, of which one is always whole."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c
import pytest

from holdfast.errors import Corruption, NewerVersion
from holdfast.testing import CrashMode, SimulatedFiles, crash_states, flip_bit
from holdfast.wal import Tail, TailFile, read_tail

PATH = Path("/tail")


def test_what_is_written_comes_back() -> None:
    """The newest of all writes counts, and turns rise over reopening."""
    files = SimulatedFiles()
    tail = TailFile(files, PATH, Tail(3, 2, 1, 10))
    assert read_tail(files, PATH) == Tail(3, 2, 1, 12)
    for durable in range(4, 9):
        tail.write(durable, 3, 1)
        assert read_tail(files, PATH) == Tail(durable, 3, 1, 9 + durable)
    tail.close()
    TailFile(files, PATH, read_tail(files, PATH)).close()
    assert read_tail(files, PATH) == Tail(8, 3, 1, 19)
    assert files.size(PATH) == 128


def test_no_crash_leaves_a_value_that_was_never_written() -> None:
    """What is read after a crash was true once; a tail of which nothing is whole says so."""
    files = SimulatedFiles()
    tail = TailFile(files, PATH, Tail(5, 0, 0, 0))
    files.clear_journal()
    for durable in range(6, 12):
        tail.write(durable, durable - 1, durable)
    found = []
    for state in crash_states(files, modes=CrashMode, per_prefix=16):
        try:
            found.append(read_tail(state.files, PATH))
        except Corruption:
            assert state.mode is CrashMode.REORDERED  # both slots pending, both torn
    for each in found:
        assert each.durable == 5 or (each.sealed, each.schemas) == (each.durable - 1, each.durable)
    assert {each.durable for each in found} == set(range(5, 12))


def test_every_flipped_bit_falls_back_to_the_slot_before() -> None:
    """One damaged slot costs one turn, never a wrong number."""
    files = SimulatedFiles()
    tail = TailFile(files, PATH, Tail(5, 1, 1, 0))
    tail.write(6, 2, 2)
    tail.close()
    whole = read_tail(files, PATH)
    for bit in range(files.size(PATH) * 8):
        damaged = files.kill()
        flip_bit(damaged, PATH, bit)
        assert read_tail(damaged, PATH) in (whole, Tail(5, 1, 1, whole.turn - 1))


def test_both_slots_damaged() -> None:
    """Without a whole slot the file is damaged, and says how long it is."""
    files = SimulatedFiles()
    TailFile(files, PATH, Tail()).close()
    for bit in (100, 700):
        flip_bit(files, PATH, bit)
    with pytest.raises(Corruption, match=r"neither of the two slots is whole \(128 bytes\)"):
        read_tail(files, PATH)


@pytest.mark.parametrize("size", [0, 63])
def test_cut_short(size: int) -> None:
    """A file without even one slot is damaged."""
    files = SimulatedFiles()
    TailFile(files, PATH, Tail()).close()
    files.open(PATH).truncate(size)
    with pytest.raises(Corruption):
        read_tail(files, PATH)


def test_missing() -> None:
    """A tail that was never made is not damage."""
    with pytest.raises(FileNotFoundError):
        read_tail(SimulatedFiles(), PATH)


def test_newer_version() -> None:
    """A slot of a later Holdfast asks for an upgrade."""
    files = SimulatedFiles()
    TailFile(files, PATH, Tail()).close()
    slot = bytearray(files.read(PATH, 0, 60))
    struct.pack_into("<H", slot, 8, 2)
    files.open(PATH).write_at(0, bytes(slot) + struct.pack("<I", crc32c.crc32c(bytes(slot))))
    with pytest.raises(NewerVersion, match=r"^/tail is of version 2; this Holdfast reads up to 1: upgrade it$"):
        read_tail(files, PATH)
