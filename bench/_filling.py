"""Stores with a given amount of data in them, and the same data in plain Arrow IPC files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

import holdfast as hf
from _data import SCHEMA, Pool
from _ours import TOPIC, confirm
from _peers import IN_FLIGHT

SLOT = "logs"
_FILE_BYTES = 32_000_000  # of a plain file: what a segment has by default


def append_bundles(store: hf.Store, pool: Pool, count: int) -> None:
    """Appends `count` bundles and returns when each is synced."""
    topic = store.topic(TOPIC)
    waiting: deque[hf.Receipt] = deque()
    for number in range(count):
        if len(waiting) == IN_FLIGHT:
            confirm(waiting.popleft())
        waiting.append(topic.append({SLOT: pool.batch(number)}))
    for receipt in waiting:
        confirm(receipt)


def fill_store(folder: Path, pool: Pool, count: int, settings: Mapping[str, Any] | None = None) -> None:
    """A store of `count` bundles, all sealed."""
    with hf.Store.open(folder, settings=settings) as store:
        append_bundles(store, pool, count)


def fill_plain_files(folder: Path, pool: Pool, count: int) -> None:
    """The same batches, in files of the size of segments."""
    folder.mkdir()
    per_file = max(1, round(_FILE_BYTES / pool.payload_bytes))
    for first in range(0, count, per_file):
        with ipc.new_file(folder / f"{first:012}.arrow", SCHEMA) as writer:
            for number in range(first, min(count, first + per_file)):
                writer.write_batch(pool.batch(number))


def plain_batches(folder: Path, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Every batch of the plain files in order, memory-mapped."""
    wanted = None if columns is None else [SCHEMA.get_field_index(name) for name in columns]
    options = ipc.IpcReadOptions(included_fields=wanted)
    for path in sorted(folder.iterdir()):
        with pa.memory_map(str(path)) as source:
            reader = ipc.open_file(source, options=options)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def bundles_in(size: int, pool: Pool) -> int:
    """How many bundles make up `size` bytes."""
    return max(1, round(size / pool.payload_bytes))
