"""A store on a simulated disk with a clock that stands still, and what tests ask of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import holdfast as hf
from holdfast.clock import Clock, SystemClock
from holdfast.files import Files
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles

STORE = Path("/store")
TOPIC = "prod/logs"
FOLDER = STORE / "prod" / "logs"
SHARD = FOLDER / "shard-0000"
WAL = SHARD / "wal"
SEGMENTS = SHARD / "segments"

# Nothing is synced before a test says so: the clock stands still, and `flush` is the only way on.
BY_HAND: dict[str, Any] = {
    "segment": {"target_size": 1_000_000},
    "wal": {"file_size": 4096, "max_size": 1_000_000, "flush_interval": "1h"},
    "append_timeout": 0,
}


def open_store(
    files: Files,
    *,
    buffer: dict[str, Any] | None = None,
    clock: Clock | None = None,
    seed: int = 1,
    path: Path = STORE,
    **options: Any,
) -> hf.Store:
    """A store whose commits are made by hand, unless `buffer` says otherwise."""
    merged = {**BY_HAND, **(buffer or {})}
    return hf.Store.open(
        path,
        settings={"buffer": merged},
        files=files,
        clock=FakeClock() if clock is None else clock,
        ids=SequenceIds(seed),
        **options,
    )


def running_store(files: Files, *, clock: Clock | None = None, **buffer: Any) -> hf.Store:
    """A store on the machine's clock, that commits by itself."""
    return hf.Store.open(STORE, settings={"buffer": buffer}, files=files, clock=clock or SystemClock())


def batch(number: int, rows: int = 1, width: int = 0) -> pa.RecordBatch:
    """Rows that say which bundle they are of; `width` more bytes of text in each."""
    columns: dict[str, Any] = {"id": pa.array([number] * rows, pa.int64())}
    if width:
        columns["text"] = ["x" * width] * rows
    return pa.record_batch(columns)


def append(topic: hf.Topic, number: int, level: str = "fsync", *, width: int = 0, **options: Any) -> hf.Receipt:
    return topic.append({"logs": batch(number, width=width)}, durability=level, attributes={"id": number}, **options)


def put(topic: hf.Topic, number: int, *, width: int = 0) -> int:
    """Append and make durable; the offset."""
    receipt = append(topic, number, width=width)
    topic.flush()
    assert receipt.wait(timeout=30) >= hf.Durability.FSYNC
    return receipt.offset


def put_failing(topic: hf.Topic, number: int) -> tuple[int, hf.errors.HoldfastError]:
    """Append and flush while the disk fails; the offset, and what the receipt raised."""
    receipt = append(topic, number)
    topic.flush()
    try:
        receipt.wait(timeout=30)
    except hf.errors.HoldfastError as error:
        return receipt.offset, error
    raise AssertionError(f"offset {receipt.offset} was acknowledged although the disk failed")


def contents(topic: hf.Topic, **options: Any) -> dict[int, int]:
    """Bundle number by offset; that offsets rise is checked here, and that rows say the same as attributes."""
    found: dict[int, int] = {}
    for bundle in topic.bundles(**options):
        assert bundle.offset is not None
        assert not found or bundle.offset > max(found), "bundles come out of order"
        number = bundle.attributes["id"]
        assert set(bundle["logs"]["id"].to_pylist()) == {number}
        found[bundle.offset] = number
    return found


def seen_by_others(files: Files) -> dict[int, int]:
    """What another process reads."""
    with hf.Store.open(STORE, read_only=True, files=files) as store:
        return contents(store.topic(TOPIC))


def reopened(files: Files, **options: Any) -> dict[int, int]:
    """What the next writer finds."""
    with open_store(files, seed=99, **options) as store:
        return contents(store.topic(TOPIC))


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition that other threads bring about."""
    pause = threading.Event()
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < end, f"this did not become true within {seconds} s"
        pause.wait(0.002)


class Gate:
    """A `before` hook that holds calls of one operation back until it is opened."""

    def __init__(self, files: SimulatedFiles, operation: str, ending: str = "") -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._operation, self._ending = operation, ending
        self._files = files
        files.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if operation == self._operation and str(path).endswith(self._ending) and not self._open.is_set():
            self.reached.set()
            assert self._open.wait(60), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        self._files.before = None


def offsets(bundles: Iterator[hf.RecordBundle]) -> list[int]:
    return [bundle.offset for bundle in bundles if bundle.offset is not None]
