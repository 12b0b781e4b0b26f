"""What range a batch covers: from Spark's own log of offsets, since `foreachBatch` is not told.

A file `offsets/<batch>` of a checkpoint: a version, a line of metadata, then one line of JSON for each source, or `-`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.spark._offsets import positions_in

_HEADER_LINES: Final = 2


def ends_of(files: Files, checkpoint: Path, batch: int) -> dict[str, int]:
    """Shard key -> where the batch ends, of all topics of the query; raises `FileNotFoundError` or `Corruption`."""
    path = checkpoint / "offsets" / str(batch)
    lines = files.read(path).decode(errors="replace").splitlines()
    try:
        found = [positions_in(line) for line in lines[_HEADER_LINES:] if line.strip() not in ("", "-")]
    except (ValueError, AttributeError, TypeError) as problem:
        raise Corruption(path, 0, f"not an entry of Spark's log of offsets: {problem}") from None
    if not found:
        raise Corruption(path, 0, "no source's offset is in it")
    ends: dict[str, int] = {}
    for key, end in (pair for each in found for pair in each.items()):
        if ends.setdefault(key, end) != end:  # what one reader has had, another one has not
            raise Corruption(path, 0, f"{key} ends at {ends[key]} and at {end}: the query reads it in two places")
    return ends


def last_entry(files: Files, checkpoint: Path, log: str) -> int | None:
    """The highest batch in a log of a checkpoint, `offsets` or `commits`; `None` if there is none."""
    folder = checkpoint / log
    names = files.list(folder) if files.exists(folder) else []
    return max((int(name) for name in names if name.isdecimal()), default=None)
