"""What tests of batches share: opening, filling and finding them."""

from __future__ import annotations

import holdfast as hf
from holdfast.acks import BatchStatus
from holdfast.store._batch import Batch
from store.subkit import put

DELIVERED, ERRORED = BatchStatus.DELIVERED, BatchStatus.ERRORED
REJECTED, DROPPED = BatchStatus.REJECTED, BatchStatus.DROPPED


def opened(topic: hf.Topic, number: int = 1) -> Batch:
    return topic.batch("source", "run", str(number))


def found(topic: hf.Topic, number: int = 1) -> Batch | None:
    return topic.find_batch("source", "run", str(number))


def fill(topic: hf.Topic, made: Batch, *given: int) -> Batch:
    """Append these bundles to the batch, durable, and close it."""
    put(topic, *given, batches=[made])
    made.close()
    return made


def unanswered(topic: hf.Topic, *batches: Batch) -> bool:
    """Nothing that is written so far answers them: the thread that would do it has looked since."""
    topic._upkeep.run()
    return all(each.status is None for each in batches)
