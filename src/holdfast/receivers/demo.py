"""The demo source: rows that say of themselves which they are, at a steady rate, each stored once whatever is killed.

Rows go in blocks of `rows_per_bundle`; block k holds the rows from `k * rows_per_bundle` on and is appended under the
idempotency key `<source>/<k>`. Of n workers, worker i sends the blocks with `k % n == i`.

1. A block is appended. A crash after this: it is in the store or it is not; it is sent again under the same key.
2. It is answered: durable, or, without `acknowledgements`, its batch is delivered. A crash after this: it is sent
   again, or its batch found, and the answer is the same.
3. Once all blocks before it are answered too, the checkpoint says so, within `SAVE_SECONDS`. It is not sent again.

The keys are remembered for `idempotency.window`, and at most `idempotency.max_keys` of them: a source that comes back
later than that may store again what it had sent after its last checkpoint.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import Final

import structlog

from holdfast import metrics
from holdfast.acks import BatchStatus
from holdfast.clock import Deadline
from holdfast.errors import Backpressure, TryAgain, WaitTimeout
from holdfast.receivers._demo_group import Group
from holdfast.receivers._demo_progress import DemoProgress
from holdfast.receivers._demo_rows import rows
from holdfast.receivers._pace import Pace
from holdfast.receivers._receiver import SOURCE, Context, ReceiverStatistics
from holdfast.receivers._settings import DemoSettings
from holdfast.store import Batch, Receipt

__all__ = ["DemoReceiver", "rows"]

BATCH_BLOCKS: Final = 10  # of one batch, where the answers of sinks are waited for
WINDOW_DURABLE: Final = 1_000  # blocks without an answer: a sync takes milliseconds
WINDOW_DELIVERED: Final = 20_000  # where sinks answer, at each commit interval: 2,000 batches
SAVE_SECONDS: Final = 0.2
BURST_SECONDS: Final = 0.1
PATIENCE_SECONDS: Final = 0.1  # the longest wait in which nobody looks for answers, or whether to stop
RETRY_SECONDS: Final = 1.0  # after the disk failed
_log = structlog.get_logger("holdfast.receivers")


class _Stopped(Exception):
    """It is time to stop, in the middle of something that will be done by the next run."""


class DemoReceiver:
    """A thread that appends; everything but the counts is its own."""

    def __init__(self, settings: DemoSettings, context: Context) -> None:
        self._settings, self._context, self._topic = settings, context, context.topic
        self._progress = DemoProgress(
            context.files, context.state, context.source, worker=context.worker, workers=context.workers,
            store_id=context.store_id, rows_per_bundle=settings.rows_per_bundle, seed=settings.seed,
        )  # fmt: skip
        limit = settings.limit
        self._end = None if limit is None else -(-limit // settings.rows_per_bundle)  # the block where it ends
        rate = settings.rows_per_second / context.workers
        self._pace = Pace(rate, max(settings.rows_per_bundle, int(rate * BURST_SECONDS)), context.clock)
        self._window = WINDOW_DURABLE if context.acknowledgements else WINDOW_DELIVERED
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{context.source}", daemon=True)
        self._reporter: metrics.Reporter | None = None
        self.failure: Exception | None = None

        self._filling: Group | None = None
        self._waiting: deque[Group] = deque()  # in the order of their blocks
        self._resumed = self._following = self._sent = 0  # all blocks below were answered before, are now, were sent
        self._saved: tuple[int, int] | None = None
        self._save_at = context.clock.monotonic()
        self._rows = self._bundles = self._unanswered = self._waits = 0
        self._answered: Counter[str] = Counter()

    # -- what others call ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._resumed = self._following = self._sent = self._progress.resume()
        self._reporter = metrics.Reporter(self._samples)
        self._thread.start()

    def stop(self, deadline: Deadline) -> None:
        self._stopping.set()
        if self._reporter is None:
            return
        self._thread.join(deadline.remaining())
        if self._thread.is_alive():
            raise WaitTimeout(f"source {self._context.source} did not stop in time; its last blocks will be sent again")
        self._reporter.close()

    def statistics(self) -> ReceiverStatistics:
        finished = self._finished_sending() and not self._unanswered
        return ReceiverStatistics(
            self._rows, self._bundles, dict(self._answered), self._unanswered, self._waits, finished
        )

    def _samples(self) -> Iterator[metrics.Sample]:
        now, source = self.statistics(), self._context.source
        yield metrics.Sample(metrics.INGEST_ROWS, now.rows, (source,))
        yield metrics.Sample(metrics.INGEST_BUNDLES, now.bundles, (source,))
        yield metrics.Sample(metrics.INGEST_WAITS, now.waits, (source,))
        yield metrics.Sample(metrics.INGEST_UNANSWERED, now.unanswered, (source,))
        for status, count in now.answered.items():
            yield metrics.Sample(metrics.INGEST_ANSWERS, count, (source, status))

    # -- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            try:
                while not self._stopping.is_set():
                    self._step()
                self._topic.flush()
                self._collect(0.0)
            except _Stopped:
                self._topic.flush()
            self._save()
        except Exception as problem:  # the process must hear of it, whatever it is: see `failure`
            self.failure = problem

    def _step(self) -> None:
        """Append one block, or wait a little for what has to come first."""
        self._collect(0.0)
        if self._context.clock.monotonic() >= self._save_at:
            self._save()
        if self._filling is None and not self._finished_sending() and self._unanswered < self._window:
            self._filling = self._begin()
        if self._filling is None:
            self._collect(PATIENCE_SECONDS)
        elif wait := self._pace.take(self._settings.rows_per_bundle):
            self._stopping.wait(min(wait, PATIENCE_SECONDS))
        else:
            self._unanswered += 1
            self._append(self._filling)
            if self._filling.missing is None:
                self._waiting.append(self._filling)
                self._filling = None

    def _finished_sending(self) -> bool:
        return self._end is not None and self._sent >= self._end

    def _begin(self) -> Group | None:
        """The next group to fill; `None` if the topic knows it from an earlier run, and its answer is waited for."""
        context, first = self._context, self._sent
        last = first + (1 if context.acknowledgements else BATCH_BLOCKS) * context.workers
        blocks = range(first, last if self._end is None else min(last, self._end), context.workers)
        if context.acknowledgements:
            return Group(blocks)
        if first < self._resumed + self._window * context.workers:  # an earlier run came no further than this
            batch = self._topic.find_batch(*self._identity(blocks))
            if batch is not None:
                self._sent = blocks[-1] + context.workers
                self._unanswered += len(blocks)
                self._waiting.append(Group(blocks, batch, known=True))
                return None
        return Group(blocks, self._open_batch(blocks))

    def _identity(self, blocks: range) -> tuple[str, str, str]:
        """Of a batch: the same in every run, so that a later one finds it."""
        return self._context.source, f"{self._context.worker}-{self._context.workers}", f"{blocks[0]}-{blocks[-1]}"

    def _open_batch(self, blocks: range) -> Batch:
        while True:
            try:
                return self._topic.batch(*self._identity(blocks))
            except TryAgain as problem:
                self._hold_up(problem)

    def _append(self, group: Group) -> None:
        """Append a group's next block, as soon as the store takes it."""
        block = group.missing
        if block is None:
            raise ValueError(f"all blocks of {group.blocks} were appended")
        first, size, context = block * self._settings.rows_per_bundle, self._settings.rows_per_bundle, self._context
        count = size if self._settings.limit is None else min(size, self._settings.limit - first)
        bundle = {self._settings.slot: rows(first, count, self._settings.seed)}
        receipt: Receipt | None = None
        while receipt is None:
            try:
                receipt = self._topic.append(
                    bundle,
                    attributes={SOURCE: context.source},
                    idempotency_key=f"{context.source}/{block}",
                    batches=[] if group.batch is None else [group.batch],
                    timeout=PATIENCE_SECONDS,
                )
            except TryAgain as problem:
                self._hold_up(problem)
        self._rows += count
        self._bundles += 1
        self._sent = max(self._sent, block + context.workers)
        group.add(receipt)

    def _hold_up(self, problem: TryAgain) -> None:
        """Wait before the next attempt; raises `_Stopped` when there will be none."""
        self._waits += 1
        if not isinstance(problem, Backpressure):
            _log.warning("source could not append; tried again", source=self._context.source, error=str(problem))
        if self._stopping.wait(problem.retry_after if isinstance(problem, Backpressure) else RETRY_SECONDS):
            raise _Stopped

    def _collect(self, timeout: float) -> None:
        """Take the answers that are there, in the order of the blocks; wait for the first at most `timeout`."""
        if not self._waiting:
            self._stopping.wait(timeout)
        while self._waiting:
            group = self._waiting[0]
            try:
                status = group.answer(timeout)
            except TryAgain as problem:
                self._hold_up(problem)
                self._send_again(group)
                continue
            if status is None:
                return
            self._answered[status] += len(group.blocks)
            if status not in ("durable", BatchStatus.DELIVERED):
                _log.warning(
                    "batch of a source was not delivered", source=self._context.source, status=str(status),
                    first=group.blocks[0], last=group.blocks[-1],
                )  # fmt: skip
            if status == BatchStatus.ERRORED:
                self._send_again(group)
                continue
            self._waiting.popleft()
            self._unanswered -= len(group.blocks)
            self._following = group.blocks[-1] + self._context.workers
            timeout = 0.0

    def _send_again(self, group: Group) -> None:
        """What could not be stored is appended anew, in its place."""
        again = Group(group.blocks, None if group.batch is None else self._open_batch(group.blocks))
        while again.missing is not None:
            self._append(again)
        self._waiting[0] = again

    def _save(self) -> None:
        self._save_at = self._context.clock.monotonic() + SAVE_SECONDS
        state = (self._following, self._sent)
        if state == self._saved:
            return
        try:
            self._progress.save(*state, self._settings.limit)
            self._saved = state
        except OSError as problem:  # only a lower bound: more is sent again after a crash
            _log.warning(
                "progress of a source could not be saved; tried again",
                path=str(self._progress.path),
                error=str(problem),
            )
