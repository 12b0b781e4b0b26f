"""Answers sources: what became of each batch, once everyone who decides has finished with it.

1. The source closes the batch. Once all its bundles are synced, its offsets are written into the ack log. A crash
   before that: nobody knows the batch, and the source sends it again.
2. When the last outcome is there, the ack log is synced. A crash before that: the batch is found unanswered, and
   looked at again.
3. The answer is written into the ack log, and the source is told. A crash in between: the source asks, and is told
   again. The last 10,000 answers of a shard are kept.

A batch that repeats bundles of another shard, by their idempotency keys, is not written down in step 1: after a crash
its source sends it once more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from holdfast.acks import AckLog, AnswerRecord, BatchId, BatchRecord, BatchStatus, Outcome
from holdfast.durability import Durability
from holdfast.errors import Backpressure, InputError
from holdfast.store._batch import Answerer, Batch
from holdfast.store._receipt import Receipt
from holdfast.store._subscriptions import progress_of
from holdfast.store.registry import Registration, Registry
from holdfast.store.shard_checkpoint import Range

Places = dict[int, list[Range]]  # ranges of offsets by shard
MAX_BATCHES: Final = 10_000  # of one topic in this process, open or unanswered
_STATUS: Final = {
    Outcome.ACK: BatchStatus.DELIVERED,
    Outcome.REJECTED: BatchStatus.REJECTED,
    Outcome.DROPPED: BatchStatus.DROPPED,
}
_SEVERITY: Final = {status: rank for rank, status in enumerate(BatchStatus)}
_log = structlog.get_logger("holdfast.store")


class Finalizers:
    """The batches of one topic that this process knows of."""

    def __init__(self, topic: str, answerer: Answerer, registry: Callable[[], Registry]) -> None:
        self._topic, self._answerer, self._registry = topic, answerer, registry
        self._mutex = threading.Lock()
        self._batches: dict[BatchId, Batch] = {}  # open, or closed and unanswered
        self._closing: dict[BatchId, Batch] = {}  # closed, but not all of it is synced yet
        self._mixed: dict[BatchId, Places] = {}  # over several shards, all of it synced
        self._warned = False
        self.answered: dict[BatchStatus, int] = dict.fromkeys(BatchStatus, 0)

    def open(self, batch_id: BatchId) -> Batch:
        with self._mutex:
            known = self._batches.get(batch_id)
            if known is not None:
                return known
            if len(self._batches) >= MAX_BATCHES:
                raise Backpressure(
                    f"{self._topic}: {MAX_BATCHES} batches are unanswered; wait for some of them", retry_after=1.0
                )
            batch = self._batches[batch_id] = Batch(batch_id, self._answerer)
            return batch

    def find(self, batch_id: BatchId, logs: Iterable[AckLog]) -> Batch | None:
        """A batch by its id: open here, closed and unanswered, or answered not too long ago. Else `None`."""
        with self._mutex:
            known = self._batches.get(batch_id)
            if known is not None:
                return known
            for log in logs:
                with log.lock:
                    status, pending = log.state.answers.get(batch_id), batch_id in log.state.batches
                if status is None and not pending:
                    continue
                batch = Batch(batch_id, self._answerer)
                if status is not None:
                    batch.resolve(status)
                else:
                    self._batches[batch_id] = batch
                    batch._closed = True
                return batch
            return None

    def closed(self, batch: Batch) -> None:
        with self._mutex:
            if self._batches.get(batch.id) is batch:
                self._closing[batch.id] = batch

    @property
    def waiting(self) -> bool:
        """Is there a batch that only waits to be synced?"""
        return bool(self._closing)

    def settle(self, answering: Sequence[int], logs: Mapping[int, AckLog]) -> None:
        """Go through steps 1 to 3 as far as they can be gone.

        `answering` are the shards whose batches are this process's to answer: its own, which is the first, and those
        that nobody holds.
        """
        self._drop_failed()
        if answering:
            self._write_closed(answering[0], logs[answering[0]])
        for place, shard in enumerate(answering):
            self._answer(shard, logs, mixed=not place)
        self._hear_others([log for shard, log in logs.items() if shard not in answering])

    def _drop_failed(self) -> None:
        with self._mutex:
            failed = [batch for batch in self._closing.values() if any(each.failed for each in batch.receipts)]
            abandoned = [batch for batch in self._batches.values() if batch.status is not None]
        for batch in (*failed, *abandoned):
            self._tell(batch.id, BatchStatus.ERRORED)

    def _write_closed(self, own: int, log: AckLog) -> None:
        with self._mutex:
            ready = [
                batch
                for batch in self._closing.values()
                if all(receipt.durability >= Durability.FSYNC for receipt in batch.receipts)
            ]
        for batch in ready:
            places = _places(batch.receipts)
            mixed = not set(places) <= {own}
            try:
                if not mixed:
                    log.append([BatchRecord(batch.id, places.get(own, []))])
            except InputError as problem:  # too many scattered offsets for a record
                _log.warning("batch cannot be written down", topic=self._topic, batch=batch.id, error=str(problem))
                self._tell(batch.id, BatchStatus.ERRORED)
                continue
            with self._mutex:
                self._closing.pop(batch.id, None)
                if mixed:
                    self._mixed[batch.id] = places
        if ready:
            log.refresh()

    def _answer(self, own: int, logs: Mapping[int, AckLog], *, mixed: bool) -> None:
        deciding = self._registry().deciding
        log = logs[own]
        with log.lock:
            written = {batch_id: {own: ranges} for batch_id, ranges in log.state.batches.items()}
        found = [
            (batch_id, status)
            for batch_id, places in (*written.items(), *(self._mixed.items() if mixed else ()))
            if (status := _status(logs, deciding, places)) is not None
        ]
        if not found:
            return
        if not deciding and not self._warned:
            self._warned = True
            _log.warning("no subscriber: batches are answered as soon as they are durable", topic=self._topic)
        for each in logs.values():
            each.sync()
        log.append([AnswerRecord(batch_id, status) for batch_id, status in found])
        log.refresh()
        for batch_id, status in found:
            self._tell(batch_id, status)

    def _hear_others(self, others: Iterable[AckLog]) -> None:
        """Batches that another process answers: those of a shard that it owns."""
        for log in others:
            with log.lock:
                known = [
                    (batch_id, log.state.answers[batch_id])
                    for batch_id in self._batches
                    if batch_id in log.state.answers
                ]
            for batch_id, status in known:
                self._tell(batch_id, status)

    def _tell(self, batch_id: BatchId, status: BatchStatus) -> None:
        with self._mutex:
            batch = self._batches.pop(batch_id, None)
            self._closing.pop(batch_id, None)
            self._mixed.pop(batch_id, None)
            self.answered[status] += 1
        if batch is not None:
            batch.resolve(status)

    def close(self) -> None:
        """Whoever waits is told that the store closes; the answers can be asked for later."""
        with self._mutex:
            batches, self._batches, self._closing = list(self._batches.values()), {}, {}
        for batch in batches:
            batch.resolve(None)


def _status(logs: Mapping[int, AckLog], deciding: list[Registration], places: Places) -> BatchStatus | None:
    """The worst of all; `None` while something is unfinished. Without subscribers what is durable is delivered."""
    worst = BatchStatus.DELIVERED
    for registration in deciding:
        for shard, ranges in places.items():
            log = logs.get(shard)
            if log is None:
                return None
            with log.lock:
                progress = progress_of(log, registration, shard)
                outcomes = [progress.worst(first, end) for first, end in ranges]
            for outcome in outcomes:
                if outcome is None:
                    return None
                worst = max(worst, _STATUS[outcome], key=_SEVERITY.__getitem__)
    return worst


def _places(receipts: Iterable[Receipt]) -> Places:
    """The offsets of some receipts, as ranges by shard."""
    places: Places = {}
    for shard, offset in sorted({(receipt.shard, receipt.offset) for receipt in receipts}):
        ranges = places.setdefault(shard, [])
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return places
