"""Which shard of a topic this process writes: taking one that nobody holds, making one, holding one for a moment.

The order of locks, for all who open a shard: the key log's `OPENING`, shared; `claims.lock`, while finding out which
shards nobody holds; the shard's own `LOCK`. So who claims a shard waits for those who hold one only for a moment,
rather than take it for held and make another.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.clock import Clock, Ids
from holdfast.config import BufferSettings
from holdfast.errors import Corruption, ReadOnly, ShardTaken
from holdfast.files import Files, Lock, LockHeld
from holdfast.store._disk_error import disk_error
from holdfast.store._sealer import Sealer
from holdfast.store._shard import Shard
from holdfast.store.keys import KeyIndex
from holdfast.store.layout import CLAIMS_LOCK, LOCK, MAX_SHARDS, TAIL, shard_folder, shard_number
from holdfast.store.recovery import create_shard, is_shard, lock_shard, recover
from holdfast.store.topic_state import TopicState
from holdfast.wal import Progress, read_tail


def list_shards(files: Files, topic: Path) -> list[int]:
    """The numbers of the shards in a topic's folder; one that was never finished being made does not count."""
    numbers = [number for name in files.list(topic) if (number := shard_number(name)) is not None]
    return sorted(number for number in numbers if is_shard(files, shard_folder(topic, number)))


def holds_shards(files: Files, topic: Path) -> bool:
    """Is there anything in this folder that only a topic has?"""
    return files.is_folder(topic) and any(shard_number(name) is not None for name in files.list(topic))


class Ownership:
    """Opens the shards of one topic for writing; also what the key index has to know of them."""

    def __init__(
        self,
        name: str,
        folder: Path,
        state: TopicState,
        settings: BufferSettings,
        highest_outcome: Callable[[int], int],
        *,
        files: Files,
        clock: Clock,
        ids: Ids,
        sealer: Sealer | None,
        note: str,
        wanted: int | None,
        progress: Callable[[str], Progress] | None,
    ) -> None:
        self._name, self._folder, self._state, self._settings = name, folder, state, settings
        self._highest_outcome = highest_outcome
        self._files, self._clock, self._ids = files, clock, ids
        self._sealer, self._note, self._wanted, self._progress = sealer, note, wanted, progress
        self._closed = False
        self.keys = KeyIndex(files, folder, clock, settings.idempotency, self)

    def take_free(self) -> Shard | None:
        """Open the lowest shard that nobody holds, or the one that was asked for.

        Further ones are recovered too, and let go: only then can all be read that a crash left in them.
        """
        with self.keys.opening():
            own = self._lock_free()
            return None if own is None else self._open(*own)

    def _lock_free(self) -> tuple[int, Lock] | None:
        own: tuple[int, Lock] | None = None
        claims = self._claims(wait=True)
        try:
            for number in list_shards(self._files, self._folder):
                wanted = self._wanted in (None, number)
                try:
                    lock = lock_shard(self._files, shard_folder(self._folder, number), note=self._note)
                except ShardTaken:
                    if number == self._wanted:
                        raise
                    continue
                if wanted and own is None:
                    own = number, lock
                else:
                    self.let_go(self._open(number, lock))
        except BaseException:
            if own is not None:
                own[1].release()
            raise
        finally:
            claims.release()
        return own

    def make(self) -> Shard:
        """A new shard, or the one that was asked for."""
        with self.keys.opening():
            lock = self._state.lock()
            try:
                existing = list_shards(self._files, self._folder)
                number = max(existing, default=-1) + 1 if self._wanted is None else self._wanted
                if number >= MAX_SHARDS:
                    raise ShardTaken(f"all {MAX_SHARDS} shards of {self._name} are taken; close some of their writers")
                folder = shard_folder(self._folder, number)
                if number not in existing:
                    create_shard(self._files, folder, self._ids)
                return self._open(number, lock_shard(self._files, folder, note=self._note))
            finally:
                lock.release()

    def is_free(self, number: int) -> bool:
        """Does nobody hold this shard right now? False also while somebody else is finding out."""
        try:
            claims = self._claims(wait=False)
        except LockHeld:
            return False
        try:
            self._files.lock(shard_folder(self._folder, number) / LOCK, note="").release()
        except LockHeld:
            return False
        finally:
            claims.release()
        return True

    @contextlib.contextmanager
    def adopting(self, number: int, *, wait: bool = False) -> Iterator[Shard | None]:
        """Hold a shard that nobody holds, recovered, for a moment; `None` if somebody does.

        What is in its WAL is sealed at the end. Whoever wants to claim a shard meanwhile waits.
        """
        with self.keys.opening():
            try:
                claims = self._claims(wait=wait)
            except LockHeld:
                yield None
                return
            try:
                shard = self._adopted(number)
                try:
                    yield shard
                finally:
                    if shard is not None:
                        self.let_go(shard)
            finally:
                claims.release()

    def _adopted(self, number: int) -> Shard | None:
        try:
            lock = lock_shard(self._files, shard_folder(self._folder, number), note=self._note)
        except ShardTaken:
            return None
        return self._open(number, lock)

    def _claims(self, *, wait: bool) -> Lock:
        return self._files.lock(self._folder / CLAIMS_LOCK, note=self._note, wait=wait)

    def _open(self, number: int, lock: Lock) -> Shard:
        """Recover a shard whose lock is held; lets go of it if that fails."""
        name = f"{self._name}/{number}"
        try:
            if self._sealer is None:
                raise ReadOnly(f"{self._name} was opened read-only")
            progress = None if self._progress is None else self._progress(name)
            folder = shard_folder(self._folder, number)
            starts = [each.start(number) for each in self._state.current().subscribers.values()]
            state = recover(
                self._files, folder, self._settings, self._clock, self._ids, self.keys, progress,
                floor=max([self._highest_outcome(number), *starts]),
            )  # fmt: skip
            shard = Shard(
                number, folder, lock, state, self._settings, self._files, self._clock, self._state,
                name=name, sealer=self._sealer, keys=self.keys,
            )  # fmt: skip
            shard.begin()
        except BaseException as problem:
            lock.release()
            if isinstance(problem, OSError):
                raise disk_error(problem, name) from problem
            raise
        self._sealer.add(shard)
        return shard

    def let_go(self, shard: Shard) -> None:
        if self._sealer is not None:
            self._sealer.remove(shard)
        shard.close()

    def close(self) -> None:
        """Open no shard any more."""
        self._closed = True
        self.keys.close()

    # -- for the key index --------------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """All shards of the topic."""
        return list_shards(self._files, self._folder)

    def durable(self, shard: int) -> int:
        """One above the highest offset that another process's tail shows."""
        try:
            return read_tail(self._files, shard_folder(self._folder, shard) / TAIL).durable
        except (FileNotFoundError, Corruption):
            return 0

    def attend(self, shard: int) -> bool:
        """Recover a shard that nobody holds, and let go of it; False if somebody does."""
        if self._closed:
            return False
        with self.adopting(shard, wait=True) as adopted:
            return adopted is not None
