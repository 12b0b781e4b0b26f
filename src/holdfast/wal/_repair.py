"""Cut a torn tail, after a copy is kept."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from holdfast.files import Files, replace_file
from holdfast.wal._replay import TornTail

KEPT_COPIES: Final = 8  # a crash leaves at most one tail; older copies than this make room for new ones
_SUFFIX: Final = ".torn"


def cut_torn_tail(files: Files, torn: TornTail, copies: Path) -> Path:
    """Copy what follows the last whole record into `copies`, then cut it off. Returns where the copy is.

    1. The copy is written and synced.   A crash now leaves the tail uncut; the next opening does this again.
    2. The file is cut, and synced; one without a whole header is unlinked.
    """
    files.make_folder(copies)
    copy = copies / f"{torn.path.name}.{torn.position}{_SUFFIX}"
    replace_file(files, copy, [files.read(torn.path, torn.position)])
    if torn.position == 0:
        files.unlink(torn.path)
        files.sync_folder(torn.path.parent)
    else:
        file = files.open(torn.path)
        try:
            file.truncate(torn.position)
            file.sync()
        finally:
            file.close()
    _forget_oldest(files, copies)
    return copy


def _forget_oldest(files: Files, copies: Path) -> None:
    kept = [name for name in files.list(copies) if name.endswith(_SUFFIX)]
    for name in sorted(kept, key=lambda name: files.modified_ns(copies / name))[:-KEPT_COPIES]:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(copies / name)
