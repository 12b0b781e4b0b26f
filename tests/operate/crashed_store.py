"""A small store as a crash leaves it: three segments, the rest in several WAL files, no writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from holdfast import RecordBundle
from holdfast.testing import SimulatedFiles

STORE = Path("/store")
TOPIC = "prod/logs"
SHARD = STORE / "prod/logs/shard-0000"
SETTINGS = {"buffer": {"wal": {"file_size": 4096}}}
BUNDLES = 18
SEALED_ENDS = (6, 10, 12)  # where the segments end; the rest is in the WAL alone


def bundle(number: int) -> RecordBundle:
    """Bundle `number` of the store; everything in it follows from the number."""
    rows = range(number, number + 4)
    kinds = pa.array([f"kind {row % 3}" for row in rows]).dictionary_encode()
    slots = {
        "logs": pa.record_batch({"id": pa.array(rows, pa.int64()), "text": pa.array([f"line {row}" for row in rows])}),
        "attrs": pa.record_batch({"kind": kinds}),
    }
    if number % 5 == 4:  # another schema now and then
        slots["logs"] = slots["logs"].append_column("flag", pa.array([True] * 4))
    return RecordBundle(slots, {"number": number}, event_time=(number * 10, number * 10 + 3))


def same(one: RecordBundle, other: RecordBundle) -> bool:
    """Equal in values; the order of a dictionary may differ."""

    def plain(each: RecordBundle) -> object:
        return {name: batch.to_pylist() for name, batch in each.slots.items()}, each.attributes, each.event_time

    return plain(one) == plain(other)


def wal_paths(files: SimulatedFiles) -> list[Path]:
    """The WAL files, oldest first."""
    names = sorted(files.list(SHARD / "wal"), key=lambda name: name.split("-")[1])
    return [SHARD / "wal" / name for name in names]


def segment_paths(files: SimulatedFiles) -> list[Path]:
    """The segments, oldest first."""
    return [SHARD / "segments" / name for name in files.list(SHARD / "segments")]


def all_files(files: SimulatedFiles, folder: Path) -> dict[Path, bytes]:
    """Every file below a folder, with its content."""
    found: dict[Path, bytes] = {}
    for name in files.list(folder):
        path = folder / name
        found |= all_files(files, path) if files.is_folder(path) else {path: files.read(path)}
    return found
