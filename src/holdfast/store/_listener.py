"""One thread that hears of what other processes do: bundles made durable, shards made, acks written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from holdfast.files import Files, Watch

Heard = Callable[[], None]
_log = structlog.get_logger("holdfast.store")


class Listener:
    """Calls every listener whenever anything watched changed: each finds out by itself what that means for it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._mutex = threading.Lock()
        self._watch: Watch | None = None
        self._paths: dict[Path, int] = {}  # how many asked for it
        self._listeners: list[Heard] = []
        self._closing = False
        self._thread: threading.Thread | None = None

    def add(self, heard: Heard) -> None:
        with self._mutex:
            self._listeners = [*self._listeners, heard]
            if self._thread is None and not self._closing:
                self._watch = self._files.watch()
                self._thread = threading.Thread(
                    target=self._run, args=(self._watch,), name="holdfast hear", daemon=True
                )
                self._thread.start()

    def remove(self, heard: Heard) -> None:
        with self._mutex:
            self._listeners = [each for each in self._listeners if each != heard]

    def watch(self, path: Path) -> bool:
        """False if there is no such file or folder yet: then watch the folder that it will be in."""
        with self._mutex:
            if self._watch is None:
                return False
            try:
                if path not in self._paths:
                    self._watch.add(path)
            except FileNotFoundError:
                return False
            self._paths[path] = self._paths.get(path, 0) + 1
            return True

    def unwatch(self, path: Path) -> None:
        with self._mutex:
            left = self._paths.pop(path, 0) - 1
            if left > 0:
                self._paths[path] = left
            elif left == 0 and self._watch is not None:
                self._watch.remove(path)

    def close(self) -> None:
        with self._mutex:
            self._closing = True
            watch, thread = self._watch, self._thread
        if watch is not None and thread is not None:
            watch.wake()
            thread.join()
            watch.close()

    def _run(self, watch: Watch) -> None:
        while not self._closing:
            watch.wait(None)
            for heard in self._listeners:
                try:
                    heard()
                except Exception as problem:  # the others still want to hear
                    _log.error("a task in the background failed", task=repr(heard), error=repr(problem))
