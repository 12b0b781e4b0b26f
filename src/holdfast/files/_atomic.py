"""Replace a file whole, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.files._protocol import Bytes, Files

# Files with this ending are leftovers of a crash: whoever owns the folder may delete them.
TEMPORARY_SUFFIX: Final = ".tmp"


def replace_file(files: Files, path: Path, buffers: Sequence[Bytes]) -> None:
    """Write `buffers` as the whole content of `path`.

    1. Write a temporary file and sync it.     A crash leaves the old file, and rubbish that ends in `.tmp`.
    2. Rename it over `path`.                  A crash leaves the old file or the new one.
    3. Sync the folder.                        From here on it is the new one.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with contextlib.suppress(FileNotFoundError):
        files.unlink(temporary)
    file = files.create(temporary)
    try:
        file.append(buffers)
        file.sync()
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):  # the first error is the one to tell
            files.unlink(temporary)
        raise
    file.close()
    files.rename(temporary, path)
    files.sync_folder(path.parent)
