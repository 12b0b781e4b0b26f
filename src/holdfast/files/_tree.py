"""Folders that others write for us."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it; nothing, if it is not there. What cannot be removed raises `OSError`."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if path.exists():
            raise


def sync_tree(path: Path) -> None:
    """Make durable all that is in a folder, whoever wrote it: every file, and every folder's entries.

    What goes while we look was not needed: whoever writes there replaces files by others.
    """
    for folder, _, names in os.walk(path):
        for name in (*names, "."):
            try:
                descriptor = os.open(Path(folder) / name, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
