"""A demo source in this process, and what its topic holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import Store, Topic
from holdfast.clock import Deadline, SystemClock, SystemIds
from holdfast.files import Files, SystemFiles
from holdfast.receivers import Context, DemoSettings
from holdfast.receivers.demo import DemoReceiver

TOPIC = "demo/events"


def settings(**values: Any) -> DemoSettings:
    """Fast, with an end, unless told otherwise."""
    return DemoSettings(**{"type": "demo", "topic": TOPIC, "rows_per_second": 10**6, "rows_per_bundle": 10, **values})


def receiver(
    store: Store, state: Path, *, worker: int = 0, workers: int = 1, acknowledgements: bool = True,
    topic: Topic | None = None, files: Files | None = None, **values: Any,
) -> DemoReceiver:  # fmt: skip
    context = Context(
        "demo", topic or store.topic(TOPIC), store.id, state, worker, workers, acknowledgements,
        files or SystemFiles(), SystemClock(), SystemIds(),
    )  # fmt: skip
    return DemoReceiver(settings(**values), context)


@contextmanager
def running(store: Store, state: Path, **options: Any) -> Iterator[DemoReceiver]:
    source = receiver(store, state, **options)
    source.start()
    try:
        yield source
    finally:
        stop(source)


def stop(source: DemoReceiver) -> None:
    source.stop(Deadline(60, SystemClock()))


def stored(store: Store) -> pa.Table:
    """All rows of the topic, in the order of their numbers."""
    table = pa.Table.from_batches(store.topic(TOPIC).read(slot="events"))
    return table.sort_by("seq").combine_chunks()
