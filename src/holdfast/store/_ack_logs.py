"""The ack logs of a topic's shards, each opened when it is first asked for."""

from __future__ import annotations

from pathlib import Path

from holdfast.acks import AckLog
from holdfast.clock import Clock
from holdfast.files import Files
from holdfast.store.layout import shard_folder
from holdfast.store.shard_checkpoint import ShardCheckpoint


class AckLogs:
    """One for each open topic of a process."""

    def __init__(self, folder: Path, files: Files, clock: Clock) -> None:
        self._folder, self._files, self._clock = folder, files, clock
        self._open: dict[int, AckLog] = {}

    def of(self, shard: int) -> AckLog:
        """The ack log of a shard."""
        log = self._open.get(shard)
        if log is None:
            folder = shard_folder(self._folder, shard)
            shard_id = ShardCheckpoint.read(self._files, folder).shard_id
            log = self._open.setdefault(shard, AckLog(self._files, folder, shard_id, clock=self._clock))
        return log

    def highest_outcome(self, shard: int) -> int:
        """One above every offset that a subscriber has finished: below it no number may be given out again."""
        log = self.of(shard)
        log.refresh()
        with log.lock:
            return max((progress.end for progress in log.state.progress.values()), default=0)

    def close(self) -> None:
        for log in self._open.values():
            log.close()
