"""Copies of what a repair is about to change or remove."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from holdfast.files import Files, replace_file

DAMAGED: Final = "damaged"
_NUMBERED: Final = re.compile(r"(\d{4,})-.*")


class Aside:
    """The `damaged` folder of a shard or topic, and what this repair did with it, told line by line."""

    def __init__(self, files: Files, folder: Path, name: str = DAMAGED) -> None:
        self._files, self._folder = files, folder / name
        self._number: int | None = None
        self._copied: dict[Path, Path] = {}
        self.actions: list[str] = []

    @property
    def folder(self) -> Path:
        return self._folder

    def did(self, action: str) -> None:
        self.actions.append(action)

    def place(self, name: str) -> Path:
        """Where something of that name goes; all of one repair share a number."""
        if self._number is None:
            self._files.make_folder(self._folder)
            taken = [int(match[1]) for each in self._files.list(self._folder) if (match := _NUMBERED.fullmatch(each))]
            self._number = max(taken, default=0) + 1
        return self._folder / f"{self._number:04d}-{name}"

    def copy(self, path: Path) -> Path | None:
        """Keep a synced copy of a file, once; `None` if there is no file."""
        if path not in self._copied:
            try:
                content = self._files.read(path)
            except FileNotFoundError:
                return None
            place = self.place(path.name)
            replace_file(self._files, place, [content])
            self._copied[path] = place
            self.did(f"kept a copy of {path} as {place}")
        return self._copied[path]

    def remove(self, path: Path) -> None:
        """Take a file away, a copy of it being kept."""
        if self.copy(path) is not None:
            self._files.unlink(path)
            self._files.sync_folder(path.parent)
            self.did(f"removed {path}")
