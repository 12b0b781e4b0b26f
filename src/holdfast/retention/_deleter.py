"""Carries deletions out: each on its own, so that one that fails stops no other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from holdfast.clock import Clock, breathe
from holdfast.files import Files
from holdfast.retention._plan import Deletion
from holdfast.retention._trash import Trash

_log = structlog.get_logger("holdfast.retention")

# Beyond this many the disk as a whole is at fault. What is not on the list stays on disk, where the next plan finds it.
MAX_RETRIES: Final = 1_000
PAUSE_SECONDS: Final = 0.001  # after every other file: appends want the disk too, and nobody waits for a deletion


class Doomed(NamedTuple):
    """A file that is to go."""

    path: Path
    deletion: Deletion


class Failure(NamedTuple):
    """A file that would not go, and how often that was tried."""

    doomed: Doomed
    error: str
    attempts: int


class Report(NamedTuple):
    """What became of one call of `delete`; files that an earlier call failed at are among them."""

    deleted: tuple[Doomed, ...]
    failed: tuple[Failure, ...]

    @property
    def freed_bytes(self) -> int:
        """What is in the trash is not free yet."""
        return sum(each.deletion.size for each in self.deleted if each.deletion.final)


class Deleter:
    """Deletes the segment files of one shard, into its trash or for good. One thread at a time.

    The caller has recorded, and synced, that nothing in these files is needed: a crash may bring a file back until
    `delete` returns, and whoever finds it then deletes it by that record.
    """

    def __init__(self, files: Files, clock: Clock, shard: Path, name: str) -> None:
        """`name` is what the log lines call the shard."""
        self._files, self._clock, self._name = files, clock, name
        self.trash = Trash(files, shard)
        self._failed: dict[Path, Failure] = {}
        self._unsynced: dict[Path, None] = {}  # folders, in the order in which they are to be synced

    @property
    def failed(self) -> tuple[Failure, ...]:
        """Files that are tried again with each `delete`."""
        return tuple(self._failed.values())

    def delete(self, doomed: Iterable[Doomed] = ()) -> Report:
        """Delete these files, and again those that would not go before.

        1. Unlink each, or rename it into the trash.
        2. Sync the trash.                             A moved file is now in the trash, or there and in its old folder.
        3. Sync the folders that the files were in.    From here on no crash brings any of them back.
        """
        todo = {path: failure.doomed for path, failure in self._failed.items()}
        todo.update((each.path, each) for each in doomed)
        deleted, failed = [], []
        for each in breathe(todo.values(), every=2, pause=PAUSE_SECONDS):
            error = self._try(each)
            if error is None:
                self._failed.pop(each.path, None)
                deleted.append(each)
            else:
                failed.append(self._remember(each, error))
        self._sync()
        return Report(tuple(deleted), tuple(failed))

    def _try(self, doomed: Doomed) -> str | None:
        path, deletion = doomed
        try:
            if deletion.final:
                self._files.unlink(path)
            else:
                self.trash.put(path, self._clock.now_ns())
                self._unsynced[self.trash.folder] = None
        except FileNotFoundError:
            pass  # gone is what was wanted; the folder is synced all the same, whoever it was
        except OSError as problem:
            return str(problem)
        self._unsynced[path.parent] = None
        _log.info(
            "segment deleted",
            shard=self._name,
            first=deletion.first,
            end=deletion.end,
            bytes=deletion.size,
            age_seconds=round(deletion.age_seconds, 3),
            reason=deletion.reason,
            unfinished=deletion.unfinished,
            trash=not deletion.final,
        )
        return None

    def _remember(self, doomed: Doomed, error: str) -> Failure:
        before = self._failed.get(doomed.path)
        failure = Failure(doomed, error, 1 if before is None else before.attempts + 1)
        if before is not None or len(self._failed) < MAX_RETRIES:
            self._failed[doomed.path] = failure
        _log.warning(
            "segment could not be deleted; the next sweep tries again",
            shard=self._name,
            first=doomed.deletion.first,
            end=doomed.deletion.end,
            attempts=failure.attempts,
            error=error,
        )
        return failure

    def _sync(self) -> None:
        trash = self.trash.folder
        for folder in sorted(self._unsynced, key=lambda each: each != trash):
            try:
                self._files.sync_folder(folder)
            except OSError as problem:
                _log.warning(
                    "deletions are not durable yet; the next sweep tries again", folder=str(folder), error=str(problem)
                )
            else:
                del self._unsynced[folder]
