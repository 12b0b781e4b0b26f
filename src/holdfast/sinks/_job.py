"""A Spark job that ends by its deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.clock import Deadline
from holdfast.errors import SinkFailed, SinkTimeout

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

T = TypeVar("T")
_INTERRUPT: Final = "spark.job.interruptOnCancel"
_AGAIN_SECONDS: Final = 0.5  # a job that was still being planned when it was cancelled starts all the same


def run_job(spark: SparkSession, deadline: Deadline, name: str, action: Callable[[], T]) -> T:
    """Run `action`, which starts Spark jobs in this thread; raises `SinkTimeout` or `SinkFailed`.

    Jobs are cancelled by a tag of theirs: the job group belongs to the streaming query, which stops by it. `name` has
    to differ from that of every job that runs at the same time.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from holdfast.spark.causes import cause_of

    if deadline.passed():
        raise SinkTimeout(f"{name}: the deadline passed before anything was written")
    with _cancelled(spark.sparkContext, name, deadline) as late:
        try:
            return action()
        except (PySparkException, Py4JError) as problem:
            if late.is_set():
                raise SinkTimeout(
                    f"{name}: not written by its deadline and cancelled; if batches are large, raise `deadline` or "
                    "lower `max_batch_bytes`"
                ) from problem
            raise SinkFailed(f"{name}: {cause_of(problem)[1]}") from problem


@contextmanager
def _cancelled(context: SparkContext, tag: str, deadline: Deadline) -> Iterator[threading.Event]:
    """Jobs that this thread starts meanwhile are cancelled when the deadline passes; the event says that they were."""
    late, done = threading.Event(), threading.Event()

    def watch() -> None:
        wait = deadline.remaining()
        while not done.wait(wait):
            late.set()
            context.cancelJobsWithTag(tag)
            wait = _AGAIN_SECONDS

    interrupt = context.getLocalProperty(_INTERRUPT)
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    watchdog = threading.Thread(target=watch, name=f"deadline of {tag}", daemon=True)
    watchdog.start()
    try:
        yield late
    finally:
        done.set()
        watchdog.join()
        context.removeJobTag(tag)
        context.setLocalProperty(_INTERRUPT, interrupt)  # type: ignore[arg-type]  # None takes it away
