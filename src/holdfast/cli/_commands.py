"""The commands: each one calls `holdfast.operate` and prints what it returns."""

from __future__ import annotations

from pathlib import Path

from holdfast import operate
from holdfast.cli._inspect_tables import inspect_tables
from holdfast.cli._output import Output, quiet, show
from holdfast.cli._progress import progress
from holdfast.cli._report_tables import fsck_tables, topics_tables


def topics(path: Path, /, *, output: Output = "text") -> int:
    """List the topics of a store: shards, slots, subscribers, offsets, sizes, and who writes them.

    Parameters
    ----------
    path
        The store's folder.
    """
    document = operate.topics(path)
    show(document, output, topics_tables)
    return 0


def inspect(path: Path, /, *, bundles: bool = False, output: Output = "text") -> int:
    """Show what is in a store, topic or shard folder, or in any file of theirs.

    Parameters
    ----------
    path
        A file or folder; what it is, is told by its content.
    bundles
        List every bundle of a segment.
    """
    with progress("inspecting") as report:
        document = operate.inspect(path, bundles=bundles, progress=report)
    show(document, output, inspect_tables)
    return 0


def fsck(path: Path, /, *, repair: bool = False, output: Output = "text") -> int:
    """Verify every checksum and cross-reference; ends with 65 if there is damage.

    Parameters
    ----------
    path
        A store, topic or shard folder, or a single file.
    repair
        Set damage aside, save what can be read, record the rest as lost. Needs the shards to have no writer.
    """
    quiet()
    with progress("checking") as report:
        result = operate.fsck(path, repair=repair, progress=report)
    show(result.to_document(), output, fsck_tables)
    return 65 if result.damaged else 0
