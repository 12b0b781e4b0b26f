"""A store without background threads: whatever they would do is done when a test says so, and in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import holdfast as hf
from holdfast.clock import Ids
from holdfast.store._committer import Committer
from holdfast.testing import FakeClock, SimulatedFiles

STORE = Path("/store")


class StillKeeper:
    """Does what is due when it is told to, and nothing that is due later."""

    def __init__(self) -> None:
        self._due: dict[Callable[[], None], None] = {}

    def soon(self, task: Callable[[], None], delay: float = 0.0) -> None:
        if not delay:
            self._due[task] = None

    def work(self) -> None:
        while self._due:
            task = next(iter(self._due))
            del self._due[task]
            task()

    def forget(self, task: Callable[[], None]) -> None:
        self._due.pop(task, None)

    def close(self) -> None:
        self._due.clear()


class StillSealer:
    """Seals nothing: `Topic.seal` and `Store.close` do."""

    def add(self, shard: object) -> None: ...

    def due(self, shard: object) -> None: ...

    def opened(self, deadline: float) -> None: ...

    def remove(self, shard: object) -> None: ...

    def close(self) -> None: ...


class StillListener:
    """Hears nothing of what other processes do."""

    def add(self, heard: Callable[[], None]) -> None: ...

    def remove(self, heard: Callable[[], None]) -> None: ...

    def watch(self, path: Path) -> bool:
        return False

    def unwatch(self, path: Path) -> None: ...

    def close(self) -> None: ...


def open_still(files: SimulatedFiles, settings: Mapping[str, Any], clock: FakeClock, ids: Ids) -> hf.Store:
    """A store on which nothing happens by itself."""
    store = hf.Store.open(STORE, settings=settings, files=files, clock=clock, ids=ids)
    store._keeper = StillKeeper()  # type: ignore[assignment]
    store._sealer = StillSealer()  # type: ignore[assignment]
    store._listener = StillListener()  # type: ignore[assignment]
    return store


def work(store: hf.Store) -> None:
    """What the background thread has to do right now."""
    store._keeper.work()  # type: ignore[attr-defined]


@contextmanager
def without_committers() -> Iterator[None]:
    """Appends are committed by whoever waits for one, or flushes."""
    with mock.patch.object(Committer, "_start", return_value=None):
        yield
