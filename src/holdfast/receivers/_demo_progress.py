"""How far a demo source is, on the disk: `<state>/<source>.checkpoint`, or one for each of several workers.

The document of worker i of n says: of the blocks k with `k % n == i`, all below `next` are answered, and none from
`sent` on was ever appended (the last only after a clean stop; a crash may leave it too low). It is a lower bound: after
a crash the blocks from `next` on are sent again, and their idempotency keys have each stored once.

A block's number says which rows it holds, so rows per bundle and seed are part of the document. What other numbers of
workers have left behind counts too: each of those layouts says that everything below the lowest of its `next` is
answered, and that stays true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corruption, InvalidSettings
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint

KIND: Final = "demo source"
_NAME: Final = re.compile(r"^(?P<source>[^.]+)(?:\.(?P<worker>\d+)-(?P<workers>\d+))?\.checkpoint$")


class DemoProgress:
    """The checkpoint of one worker; it alone writes it."""

    def __init__(
        self, files: Files, folder: Path, source: str, *,
        worker: int, workers: int, store_id: str, rows_per_bundle: int, seed: int,
    ) -> None:  # fmt: skip
        self._files, self._folder, self._source = files, folder, source
        self._worker, self._workers = worker, workers
        self._fixed = {"kind": KIND, "store": store_id, "rows_per_bundle": rows_per_bundle, "seed": seed}
        name = f"{source}.checkpoint" if workers == 1 else f"{source}.{worker}-{workers}.checkpoint"
        self.path = folder / name

    def resume(self) -> int:
        """The first block that may have to be sent: all this worker's blocks below it are answered."""
        self._files.make_folder(self._folder)
        layouts: dict[int, dict[int, int]] = {}
        for path, worker, workers in _checkpoints(self._files, self._folder, self._source):
            document = _read(self._files, path)
            if document["store"] != self._fixed["store"]:
                continue  # of a store that was here before: this one has none of its blocks
            self._check(path, document)
            layouts.setdefault(workers, {})[worker] = document["next"]
        own = layouts.get(self._workers, {}).get(self._worker, 0)
        everyone = [min(found.get(worker, 0) for worker in range(workers)) for workers, found in layouts.items()]
        first = max([own, *everyone])
        return first + (self._worker - first) % self._workers

    def save(self, following: int, sent: int, limit: int | None) -> None:
        """Durable on return: all blocks below `following` are answered, those below `sent` were appended."""
        write_checkpoint(self._files, self.path, {**self._fixed, "next": following, "sent": sent, "limit_rows": limit})

    def _check(self, path: Path, document: dict[str, Any]) -> None:
        for key in ("rows_per_bundle", "seed"):
            if document[key] != self._fixed[key]:
                raise InvalidSettings(
                    f"source {self._source} has sent blocks with {key} {document[key]}, and is now set to "
                    f"{self._fixed[key]}: its rows would be others. Set it back, or give the source another name "
                    f"({path} remembers it)"
                )


def sent_blocks(files: Files, folder: Path, source: str, store_id: str) -> set[int]:
    """The numbers of all blocks that were appended to a store, as the checkpoints tell after a clean stop."""
    found: set[int] = set()
    for path, worker, workers in _checkpoints(files, folder, source):
        document = _read(files, path)
        if document["store"] == store_id:
            found.update(range(worker, document["sent"], workers))
    return found


def _checkpoints(files: Files, folder: Path, source: str) -> Iterator[tuple[Path, int, int]]:
    """Each checkpoint of a source, with the worker it is of and how many there were."""
    for name in files.list(folder) if files.exists(folder) else []:
        match = _NAME.match(name)
        if match is not None and match["source"] == source:
            yield folder / name, int(match["worker"] or 0), int(match["workers"] or 1)


def _read(files: Files, path: Path) -> dict[str, Any]:
    document = read_checkpoint(files, path)
    numbers = [document.get(key) for key in ("rows_per_bundle", "seed", "next", "sent")]
    if document.get("kind") != KIND or "store" not in document or not all(type(each) is int for each in numbers):
        raise Corruption(path, 20, f"not the checkpoint of a {KIND}: {document!r:.200}")
    return document
