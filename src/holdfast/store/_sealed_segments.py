"""The sealed segments of a shard that this process owns: which there are, what is known of each, how one goes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.clock import breathe
from holdfast.errors import Corruption, NewerVersion
from holdfast.files import Files
from holdfast.retention import SegmentFacts, SegmentTable
from holdfast.segment import SegmentReader
from holdfast.store.segments import SegmentName, SegmentReaders, facts_of, rough_facts
from holdfast.store.shard_checkpoint import ShardCheckpoint

_log = structlog.get_logger("holdfast.store")


class SealedSegments:
    """`view` guards `names` and `sizes`, which readers see; `table_lock` guards the table, which retention marks."""

    def __init__(
        self,
        found: Sequence[tuple[SegmentName, int]],
        folder: Path,
        files: Files,
        view: threading.Lock,
        *,
        shard: str,
        exact: bool,
    ) -> None:
        self._folder, self._files, self._view, self._shard = folder, files, view, shard
        self._exact = exact
        self.readers = SegmentReaders(files, folder)
        self.names = [name for name, _ in found]  # oldest first
        self.sizes = dict(found)
        self.table_lock = threading.RLock()
        self._table: SegmentTable | None = None  # of all segments, once somebody has asked for it

    def add(self, name: SegmentName, size: int) -> None:
        """Readers find this one from now on. Called with the view."""
        self.names.append(name)
        self.sizes[name] = size

    def enter(self, facts: SegmentFacts) -> None:
        """Retention finds it too."""
        with self.table_lock:
            if self._table is not None and not (self._table and self._table[-1].first >= facts.first):
                self._table.append(facts)

    def table(self) -> SegmentTable:
        """The facts of all of them, oldest first. To be used, and marked, under `table_lock`."""
        with self.table_lock:
            if self._table is None:
                with self._view:
                    names = list(self.names)
                self._table = table = SegmentTable()
                for name in breathe(names):
                    facts = self._look_at(name)
                    if facts is not None:
                        table.append(facts)
            return self._table

    def _look_at(self, name: SegmentName) -> SegmentFacts | None:
        """What is known of a segment that was here before; exactly, if its age counts."""
        try:
            if self._exact:
                return facts_of(SegmentReader(self._files, self._folder / str(name)))
            return rough_facts(self._files, self._folder / str(name))
        except (Corruption, NewerVersion, FileNotFoundError) as problem:  # it stays, and stops nothing else
            _log.warning("segment is left alone by retention", shard=self._shard, segment=str(name), error=str(problem))
            return None

    def take_deleted(self, checkpoint: ShardCheckpoint, sealed: int) -> list[SegmentName]:
        """Take those out of the readers' view that the checkpoint says are deleted. Called with the view."""
        follows = [*(name.first_offset for name in self.names[1:]), sealed]
        gone = [
            name
            for name, next_one in zip(self.names, follows, strict=False)
            if self._is_deleted(name, next_one, checkpoint)
        ]
        if gone:
            left = set(gone)
            self.names = [name for name in self.names if name not in left]
        return gone

    def _is_deleted(self, name: SegmentName, following: int, checkpoint: ShardCheckpoint) -> bool:
        """`following` is at or above the segment's end. Only if that does not tell is the file opened: readers and
        the committer wait meanwhile."""
        if any(first <= name.first_offset < end for first, end in checkpoint.deleted):
            return True
        if name.first_offset >= checkpoint.trimmed:
            return False
        return following <= checkpoint.trimmed or self.readers.get(name).end_offset <= checkpoint.trimmed

    def let_go(self, names: Sequence[SegmentName]) -> list[Path]:
        """Of what was taken out of the view, keep nothing but the files: these."""
        for name in names:
            self.readers.forget(name)
            self.sizes.pop(name, None)
        with self.table_lock:
            if self._table is not None:
                self._table.remove({name.first_offset for name in names})
        return [self._folder / str(name) for name in names]

    def unlink(self, names: Sequence[SegmentName]) -> None:
        """Let go of them, and of the files too."""
        for path in self.let_go(names):
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as problem:  # trimmed all the same; unlinked when the shard is next opened
                _log.warning("segment could not be deleted", shard=self._shard, segment=path.name, error=str(problem))

    def total_bytes(self) -> int:
        """Called with the view."""
        return sum(self.sizes.get(name, 0) for name in self.names)
