"""The sources of a topic: opening a batch, finding one again, hearing of answers that another process gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.acks import BatchId
from holdfast.store._ack_logs import AckLogs
from holdfast.store._batch import Batch
from holdfast.store._finalizers import Finalizers
from holdfast.store._listener import Listener
from holdfast.store._shard_table import ShardTable
from holdfast.store._upkeep import Upkeep
from holdfast.store.layout import ACKS


class Sources:
    """One for each open topic of a process. `heard` is the topic's, called when another process wrote something."""

    def __init__(
        self,
        finalizers: Finalizers,
        upkeep: Upkeep,
        shards: ShardTable,
        acks: AckLogs,
        listener: Listener,
        heard: Callable[[], None],
    ) -> None:
        self._finalizers, self._upkeep, self._shards, self._acks = finalizers, upkeep, shards, acks
        self._listener, self._heard = listener, heard
        self._watched: list[Path] = []  # the ack logs that are watched for answers

    def open(self, batch_id: BatchId) -> Batch:
        """As `Topic.batch`."""
        self._shards.claim()
        known = self.find(batch_id)
        return self._finalizers.open(batch_id) if known is None else known

    def find(self, batch_id: BatchId) -> Batch | None:
        """As `Topic.find_batch`."""
        self._shards.look()
        logs = [self._acks.of(shard.number) for shard in self._shards.all()]
        for log in logs:
            log.refresh()
        found = self._finalizers.find(batch_id, logs)
        if found is not None and found.status is None:
            self._hear_answers()
        self._upkeep.soon()
        return found

    def _hear_answers(self) -> None:
        """Another process may answer for its own shards: hear of it."""
        with self._shards.lock:
            if not self._watched:
                own = self._shards.own
                self._watched = [shard.folder / ACKS for shard in self._shards.all() if shard is not own]
                if self._watched:
                    self._listener.add(self._heard)
                for path in self._watched:
                    self._listener.watch(path)

    def closed(self, batch: Batch) -> None:
        """It can be answered from now on."""
        self._finalizers.closed(batch)
        self._upkeep.soon()

    def close(self) -> None:
        """Hear of no more answers."""
        for path in self._watched:
            self._listener.unwatch(path)
