"""Bundles as the store hands them to the WAL, on a simulated disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.bundle import encode_attributes
from holdfast.encoded import EncodedBundle, decode_slot, encode_slot, payload_kind
from holdfast.files import Files
from holdfast.schema import fingerprint
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from holdfast.wal import FileHeader, Replay, WalScan, WriteAheadLog, encode_bundle, replay, scan_file

FOLDER = Path("/shard/wal")
SHARD_ID = bytes(range(16))


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_folder(FOLDER)
    return files


def bundle(
    offset: int, width: int = 0, *, seq: int = 0, slots: dict[int, pa.RecordBatch] | None = None
) -> EncodedBundle:
    """Bundle `offset`: one slot with its number in it and `width` bytes of text, unless `slots` are given."""
    given = {0: pa.record_batch({"id": [offset], "text": ["x" * width]})} if slots is None else slots
    payloads = tuple(
        encode_slot(number, fingerprint(each.schema), payload_kind(each.schema), each)
        for number, each in sorted(given.items())
    )
    return EncodedBundle(
        offset,
        seq,
        offset,
        1_700_000_000_000_000_000 + offset,
        (offset, 2 * offset) if offset % 2 else None,
        encode_attributes({"n": offset}) if offset % 3 else b"",
        payloads,
        sum(payload.data.size for payload in payloads),
    )


def new_log(files: Files, *, file_size: int = 1 << 20, generation: int = 0, **options: Any) -> WriteAheadLog:
    return WriteAheadLog(
        files, FOLDER, SHARD_ID,
        file_size=file_size, clock=FakeClock(), ids=SequenceIds(generation + 5), next_generation=generation, **options,
    )  # fmt: skip


def write(files: Files, offsets: range, *, synced: int | None = None, **options: Any) -> WriteAheadLog:
    """A log with these bundles, each synced before the next is written, unless `synced` says what was."""
    log = new_log(files, **options)
    for offset in offsets:
        log.write([bundle(offset)], offset if synced is None else synced)
        log.sync()
    return log


def record(encoded: EncodedBundle, *, salt: int, position: int, synced: int) -> bytes:
    """A whole bundle record."""
    header = encode_bundle(encoded, salt=salt, position=position, synced=synced)
    return header + b"".join(bytes(slot.data) for slot in encoded.slots)


def salt_of(files: Files, path: Path) -> int:
    return FileHeader.decode(files.read(path), path).salt


def names(files: Files) -> list[str]:
    return [name for name in files.list(FOLDER) if name.endswith(".wal")]


def only(files: Files) -> Path:
    (name,) = names(files)
    return FOLDER / name


def written(files: Files, path: Path | None = None) -> bytes:
    """A file up to the end of its last record: room that was made ready behind it is left out."""
    data = files.read(only(files) if path is None else path)
    return data[: scan(data)[0].position]


def replace(files: Files, path: Path, data: bytes) -> None:
    """Give a file other bytes."""
    files.unlink(path)
    file = files.create(path)
    file.append([data])
    file.close()


def scan(data: bytes, path: Path = FOLDER / "x.wal") -> tuple[WalScan, list[EncodedBundle]]:
    return scan_file(pa.py_buffer(data), path)


def replayed(files: Files, start: int = 0, **options: Any) -> Replay:
    return replay(files, FOLDER, SHARD_ID, start=start, **options)


def offsets(found: Replay | list[EncodedBundle]) -> list[int]:
    return [each.offset for each in (found.bundles if isinstance(found, Replay) else found)]


def assert_same(found: EncodedBundle, expected: EncodedBundle, *, payload_bytes: bool = True) -> None:
    """Equal in every field, schemas included; `payload_bytes`: and byte by byte, not only as values."""
    for name in ("offset", "segment_seq", "bundle_index", "ingestion_time_ns", "event_time", "attributes"):
        assert getattr(found, name) == getattr(expected, name), name
    assert len(found.slots) == len(expected.slots)
    for one, other in zip(found.slots, expected.slots, strict=True):
        assert (one.slot, one.kind, one.rows, one.fingerprint) == (
            other.slot,
            other.kind,
            other.rows,
            other.fingerprint,
        )
        assert one.schema is not None
        assert one.schema.equals(other.schema, check_metadata=True)
        assert decode_slot(one.kind, one.data, one.schema).equals(
            decode_slot(other.kind, other.data, other.schema), check_metadata=True
        )
        if payload_bytes:
            assert (one.checksum, bytes(one.data)) == (other.checksum, bytes(other.data))
