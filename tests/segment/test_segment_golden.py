"""The format, byte by byte: a change here is a change of what is on people's disks."""

from __future__ import annotations

import base64
from pathlib import Path
from types import ModuleType

import msgspec
import pyarrow as pa
import pytest
from sealing import PATH, SHARD_ID, Slots, seal, simulated, unsealed

import holdfast.segment
from holdfast.segment import parse_segment_name, segment_name
from holdfast.segment._meta import Section, StreamEntry
from holdfast.segment.format import FOOTER_SIZE, HEADER_SIZE, Footer, Header, encode_footer, encode_header

GOLDEN = base64.b64decode(Path(__file__).with_name("golden_segment.txt").read_text())
WRITTEN_BY = "26.0.1"  # the pyarrow that wrote it; another may lay out Arrow's own parts otherwise


def golden_contents() -> list[Slots]:
    """What the golden segment holds."""
    logs = pa.record_batch(
        {"ts": pa.array([1, 2], pa.timestamp("ns", "UTC")), "text": pa.array(["first", None])}, metadata={"k": "v"}
    )
    wider = logs.append_column("level", pa.array(["info", "warn"]).dictionary_encode())
    return [{0: logs, 3: pa.record_batch({"n": pa.array([7], pa.int8())})}, {}, {0: wider}, {0: logs.slice(1)}]


def test_header() -> None:
    """The header is these 64 bytes."""
    header = encode_header(Header(segment_seq=0x0102, first_offset=0x0304, bundle_count=5, shard_id=SHARD_ID))
    assert len(header) == HEADER_SIZE
    assert header.hex(" ", 8) == (
        "48465345470d0a00 0100000005000000 0201000000000000 0403000000000000 "
        "0001020304050607 08090a0b0c0d0e0f 0000000000000000 00000000b62d9ffa"
    )


def test_footer() -> None:
    """The footer is these 64 bytes."""
    footer = encode_footer(
        Footer(
            meta_position=0x1000,
            meta_length=0x200,
            meta_checksum=0x11223344,
            segment_seq=0x0102,
            first_offset=0x0304,
            bundle_count=5,
            file_size=0x1240,
        )
    )
    assert len(footer) == FOOTER_SIZE
    assert footer.hex(" ", 8) == (
        "0010000000000000 0002000000000000 4433221105000000 0201000000000000 "
        "0403000000000000 4012000000000000 0100000011f32dc9 4846534547454e44"
    )


def test_directory_entry() -> None:
    """An entry of the directory is this JSON."""
    entry = StreamEntry(
        id=0,
        slot=3,
        fingerprint=bytes(range(16)),
        position=64,
        length=1000,
        rows=5,
        chunks=2,
        absent=("level",),
        null_counts=(0, None),
        event_time=(-5, 10),
        schema_length=200,
        schema_checksum=1,
        dictionaries_checksum=2,
        footer_checksum=3,
        statistics=Section(8, 16),
    )
    text = (
        b'{"id":0,"slot":3,"fingerprint":"AAECAwQFBgcICQoLDA0ODw==","position":64,"length":1000,"rows":5,"chunks":2,'
        b'"absent":["level"],"null_counts":[0,null],"event_time":[-5,10],"schema_length":200,"schema_checksum":1,'
        b'"dictionaries_checksum":2,"footer_checksum":3,"statistics":[8,16]}'
    )
    assert msgspec.json.encode(entry) == text
    assert msgspec.json.decode(text, type=StreamEntry) == entry


def test_golden_segment_stays_readable() -> None:
    """A segment written by the first version opens, is sound, and holds what it held."""
    reader = unsealed(GOLDEN)
    assert reader.verify() == []
    assert (reader.segment_seq, reader.first_offset, reader.end_offset) == (7, 100, 104)
    for index, slots in enumerate(golden_contents()):
        bundle = reader.bundle(index)
        assert bundle.batches.keys() == slots.keys()
        for number, batch in slots.items():
            assert bundle.batches[number].schema.equals(batch.schema, check_metadata=True)
            assert bundle.batches[number].equals(batch)
    assert [reader.bundle(index).signal for index in range(4)] == ["signal-0", "", "signal-0", "signal-0"]
    assert [reader.bundle(index).event_time for index in range(4)] == [None, (1, 10), None, (3, 30)]
    assert [reader.bundle(index).attributes for index in range(4)] == [b"", b"attributes 1", b"attributes 2", b""]
    assert [reader.bundle(index).ingestion_time_ns for index in range(4)] == [1000, 1001, 1002, 1003]
    assert reader.representative(0).names == ["ts", "text", "level"]


@pytest.mark.skipif(pa.__version__ != WRITTEN_BY, reason="another pyarrow may write other bytes")
def test_golden_segment_is_written_again() -> None:
    """The same bundles give the same file to the last byte."""
    files = simulated()
    seal(files, golden_contents())
    assert files.read(PATH) == GOLDEN


def test_names() -> None:
    """Names sort as segments do, and nothing else passes for one."""
    assert segment_name(120, 4200) == "0000000000000120-00000000000000004200.seg"
    assert parse_segment_name("0000000000000120-00000000000000004200.seg") == (120, 4200)
    for name in ("0000000000000120-00000000000000004200.seg.tmp", "120-4200.seg", "LOCK", ""):
        assert parse_segment_name(name) is None


def test_exported_names() -> None:
    """What the package offers is what it lists."""
    public = {
        name
        for name, value in vars(holdfast.segment).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(holdfast.segment.__all__)
    assert holdfast.segment.__all__ == sorted(
        holdfast.segment.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
