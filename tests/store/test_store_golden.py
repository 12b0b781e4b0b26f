"""The bytes of the store's checkpoints and the names of its files, pinned."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.testing import SimulatedFiles
from store.storekit import FOLDER, SHARD, STORE, TOPIC, open_store, put


def a_life() -> SimulatedFiles:
    """Three bundles, the first deleted, then killed."""
    files = SimulatedFiles()
    topic = open_store(files).topic(TOPIC)
    for number in range(3):
        put(topic, number)
    topic.truncate(1)
    return files.kill()


def checkpoint(body: str) -> bytes:
    """A checkpoint file, written out by hand."""
    encoded = body.encode()
    head = struct.pack("<HHI", 1, 0, len(encoded))
    return b"HFCKPT\r\n" + head + struct.pack("<I", crc32c.crc32c(encoded, crc32c.crc32c(head))) + encoded


def test_store_checkpoint() -> None:
    """An id and a kind."""
    body = '{"id":"317e11b83e19bc6c38bb8198bbba3eb9","kind":"store"}'
    assert a_life().read(STORE / "store.checkpoint") == checkpoint(body)
    assert checkpoint(body)[:20].hex() == "4846434b50540d0a010000003800000019ad842a"


def test_shard_checkpoint() -> None:
    """Identity, what was trimmed, what was lost, and the numbers that go on."""
    assert a_life().read(SHARD / "shard.checkpoint") == checkpoint(
        '{"kind":"shard","lost":[],"next_offset":3,"next_segment_seq":0,'
        '"shard_id":"637ea36f772c631587d1b52d21a90cfb","trimmed":1}'
    )


def test_topic_checkpoint() -> None:
    """Slot table, count of changes, and the merged schema of each slot as an Arrow message in base64."""
    data = a_life().read(FOLDER / "topic.checkpoint")
    document = json.loads(data[20:])
    message = document["schemas"].pop("0")
    assert document == {"kind": "topic", "schema_count": 1, "schemas": {}, "slots": {"slots": {"logs": 0}}}
    schema = ipc.read_schema(pa.py_buffer(base64.b64decode(message)))
    assert schema.equals(pa.schema({"id": pa.int64()}), check_metadata=True)
    assert data == checkpoint(data[20:].decode())
    assert list(json.loads(data[20:])) == sorted(json.loads(data[20:]))


def test_names_on_disk() -> None:
    """Which files a store is made of, and what they are called."""
    files = a_life()
    found = sorted(path.relative_to(STORE).as_posix() for path in _walk(files, STORE))
    assert found == [
        "prod/logs/claims.lock",
        "prod/logs/shard-0000/LOCK",
        "prod/logs/shard-0000/acks/0000000000000000.acks",
        "prod/logs/shard-0000/acks/LOCK",
        "prod/logs/shard-0000/shard.checkpoint",
        "prod/logs/shard-0000/tail",
        "prod/logs/shard-0000/wal/00000000000000000000-0000000000.wal",
        "prod/logs/topic.checkpoint",
        "prod/logs/topic.lock",
        "store.checkpoint",
        "store.lock",
    ]
    with open_store(files, seed=2) as store:
        store.topic(TOPIC).seal()
    segments = [path.name for path in _walk(files, SHARD) if path.suffix == ".seg"]
    assert segments == ["0000000000000000-00000000000000000001.seg"]


def _walk(files: SimulatedFiles, folder: Path) -> Iterator[Path]:
    for name in files.list(folder):
        if files.is_folder(folder / name):
            yield from _walk(files, folder / name)
        else:
            yield folder / name
