"""Checkpoints: the format and what it notices."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files
from holdfast.files.checkpoint import (
    VERSION,
    decode_checkpoint,
    encode_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from holdfast.testing import CrashMode, SimulatedFiles, crash_states, flip_bit

PATH = Path("/store/topic.checkpoint")
DOCUMENT = {"b": [1, 2, None], "a": "é", "nested": {"x": 1.5, "y": True}}
GOLDEN = (
    b"HFCKPT\r\n"  # magic
    b"\x01\x00"  # version
    b"\x00\x00"  # reserved
    b"\x35\x00\x00\x00"  # 53 bytes of JSON
    b"\x12\x0e\xdf\x4b"  # CRC32C of the eight bytes before and of the JSON
    b'{"a":"\xc3\xa9","b":[1,2,null],"nested":{"x":1.5,"y":true}}'
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def sealed(version: int, body: bytes, reserved: int = 0, length: int | None = None) -> bytes:
    """A checkpoint with a right checksum, whatever else is wrong with it."""
    head = struct.pack("<HHI", version, reserved, len(body) if length is None else length)
    return b"HFCKPT\r\n" + head + struct.pack("<I", crc32c.crc32c(body, crc32c.crc32c(head))) + body


def test_golden_bytes() -> None:
    """The format is what it was: a change of a single byte shows here."""
    assert encode_checkpoint(DOCUMENT) == GOLDEN
    assert decode_checkpoint(GOLDEN, PATH) == DOCUMENT


@given(st.dictionaries(st.text(), values, max_size=5))
def test_round_trip(document: dict[str, Any]) -> None:
    """What is read is what was written, whatever JSON can hold."""
    assert decode_checkpoint(encode_checkpoint(document), PATH) == document


def test_write_and_read(place: tuple[Files, Path]) -> None:
    """A checkpoint is replaced as a whole and read back; a missing one is a missing file."""
    files, folder = place
    path = folder / "x.checkpoint"
    with pytest.raises(FileNotFoundError):
        read_checkpoint(files, path)
    write_checkpoint(files, path, {"n": 1})
    write_checkpoint(files, path, DOCUMENT)
    assert read_checkpoint(files, path) == DOCUMENT
    assert files.list(folder) == ["x.checkpoint"]


def test_order_of_keys_does_not_show() -> None:
    """Equal documents give equal bytes."""
    assert encode_checkpoint({"a": 1, "b": 2}) == encode_checkpoint({"b": 2, "a": 1})


def test_every_single_bit_flip_is_noticed() -> None:
    """No bit of the file can change without `Corruption`, which names the file."""
    files = SimulatedFiles()
    files.make_folder(PATH.parent)
    write_checkpoint(files, PATH, DOCUMENT)
    for bit in range(files.size(PATH) * 8):
        flip_bit(files, PATH, bit)
        with pytest.raises(Corruption, match=r"topic\.checkpoint"):
            read_checkpoint(files, PATH)
        flip_bit(files, PATH, bit)
    assert read_checkpoint(files, PATH) == DOCUMENT


def test_every_truncation_and_every_addition_is_noticed() -> None:
    """A checkpoint that is too short or too long is corrupt."""
    data = encode_checkpoint(DOCUMENT)
    for length in range(len(data)):
        with pytest.raises(Corruption):
            decode_checkpoint(data[:length], PATH)
    with pytest.raises(Corruption):
        decode_checkpoint(data + b"\0", PATH)


def test_newer_version_is_named() -> None:
    """A sound checkpoint of a later version asks for an upgrade and is not called corrupt."""
    with pytest.raises(NewerVersion) as raised:
        decode_checkpoint(sealed(VERSION + 1, b"anything"), PATH)
    assert str(raised.value) == (
        "/store/topic.checkpoint is a checkpoint of version 2; this Holdfast reads up to 1: upgrade it"
    )


@pytest.mark.parametrize("data", [sealed(VERSION, b"{}", reserved=1), sealed(VERSION, b"{}", length=3)])
def test_contradiction_under_a_right_checksum_is_noticed(data: bytes) -> None:
    """A header that does not fit its body is corrupt even if the checksum holds."""
    with pytest.raises(Corruption, match="byte 12: checkpoint says"):
        decode_checkpoint(data, PATH)


def test_other_file_is_not_taken_for_a_checkpoint() -> None:
    """The error shows what the file begins with and what was expected."""
    with pytest.raises(Corruption) as raised:
        decode_checkpoint(b"PK\x03\x04 and so on, for a while", PATH)
    assert str(raised.value).startswith(
        "/store/topic.checkpoint, byte 0: not a checkpoint: begins with b'PK\\x03\\x04 and', "
        "expected b'HFCKPT\\r\\n'. Run `holdfast fsck`"
    )


def test_crash_at_every_point_leaves_a_readable_checkpoint() -> None:
    """After any crash the checkpoint is one of those written, and not older than the last acknowledged."""
    files = SimulatedFiles()
    files.make_folder(PATH.parent)
    write_checkpoint(files, PATH, {"n": 0})
    files.clear_journal()
    for number in range(1, 4):
        write_checkpoint(files, PATH, {"n": number, "filler": "x" * 2000 * number})
        files.note(number)
    for state in crash_states(files, modes=CrashMode, per_prefix=20):
        found = read_checkpoint(state.files, PATH)["n"]
        acknowledged = len(state.notes)
        assert acknowledged <= found <= acknowledged + 1, state.description
