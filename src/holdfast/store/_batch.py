"""A source's batch: any number of bundles, and one status once every subscriber has finished them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from holdfast.acks import BatchId, BatchStatus
from holdfast.bundle import RecordBundle
from holdfast.errors import Closed, InputError, WaitTimeout
from holdfast.store._receipt import Receipt, wake_once


class Answerer(Protocol):
    """Who stores a batch's bundles and finds out its status."""

    @property
    def append(self) -> Callable[..., Receipt]: ...

    def batch_closed(self, batch: Batch) -> None: ...


class Batch:
    """Append to it, close it, wait for its status. As a context manager it closes itself.

    The status is the worst of all its bundles, for all subscribers that decide: `delivered`, `errored` (some of it
    could not be stored: send it again), `rejected` (some of it is in the dead letters) or `dropped` (given up by
    policy: not delivered). A source may be told more than once: after a crash it asks again, by the batch's id.
    """

    def __init__(self, batch_id: BatchId, answerer: Answerer) -> None:
        self.id = batch_id
        self._answerer = answerer
        self._condition = threading.Condition()
        self._receipts: list[Receipt] = []
        self._closed = False
        self._status: BatchStatus | None = None
        self._ended = False
        self._callbacks: list[Callable[[], None]] = []

    def append(self, bundle: RecordBundle | Mapping[str, pa.RecordBatch | pa.Table], **options: Any) -> Receipt:
        """As `Topic.append`, as part of this batch."""
        return self._answerer.append(bundle, batches=[self], **options)

    def include(self, receipt: Receipt) -> None:
        """A bundle that was appended belongs to this batch, perhaps among others."""
        with self._condition:
            if self._closed:
                raise InputError(f"batch {self.id.batch!r} of {self.id.source!r} is closed; open another")
            self._receipts.append(receipt)

    def expect_open(self, topic: Answerer) -> None:
        """Raises `InputError` unless bundles of this topic may still be added."""
        if topic is not self._answerer:
            raise InputError(f"batch {self.id.batch!r} of {self.id.source!r} is another topic's; open one here")
        if self._closed:
            raise InputError(f"batch {self.id.batch!r} of {self.id.source!r} is closed; open another")

    def close(self) -> None:
        """Nothing more belongs to it: from now on it can be answered."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
        self._answerer.batch_closed(self)

    @property
    def receipts(self) -> list[Receipt]:
        return self._receipts

    @property
    def status(self) -> BatchStatus | None:
        """`None` until it is known."""
        return self._status

    def wait(self, timeout: float | None = None) -> BatchStatus:
        """The status, once it is known; raises `WaitTimeout`, or `Closed` when the store was closed before that."""
        self.close()
        with self._condition:
            if not self._condition.wait_for(lambda: self._status is not None or self._ended, timeout):
                raise WaitTimeout(f"batch {self.id.batch!r} of {self.id.source!r} is not finished after {timeout} s")
        return self._known()

    def __await__(self) -> Generator[Any, None, BatchStatus]:
        self.close()
        return self._wait().__await__()

    async def _wait(self) -> BatchStatus:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(wake_once, done)

        with self._condition:
            if self._status is None and not self._ended:
                self._callbacks.append(wake)
            else:
                done.set_result(None)
        await done
        return self._known()

    def _known(self) -> BatchStatus:
        if self._status is None:
            raise Closed(f"the store was closed before batch {self.id.batch!r} was finished; open it and ask again")
        return self._status

    def resolve(self, status: BatchStatus | None) -> None:
        """`None`: the store closes, and the answer is to be asked for again."""
        with self._condition:
            if self._status is None:
                self._status, self._ended = status, True
            self._closed = True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            callback()

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A block that ended with an error leaves the batch incomplete: it is errored."""
        if error is None:
            self.close()
        else:
            self.resolve(BatchStatus.ERRORED)

    def __repr__(self) -> str:
        return f"<Batch {self.id.source}/{self.id.run}/{self.id.batch}: {self._status or 'unfinished'}>"
