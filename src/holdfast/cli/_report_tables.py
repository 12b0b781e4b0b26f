"""What `topics` and `fsck` print for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from holdfast.cli._tables import table
from holdfast.units import format_bytes

Document = dict[str, Any]


def topics_tables(document: Document) -> Iterator[RenderableType]:
    """A row for each shard."""
    if not document["topics"]:
        yield f"{document['path']} has no topics yet"
        return
    headings = (
        "topic", "shard", "slots", "subscribers", "start", "durable", "bundles sealed", "segments", "WAL", "bytes",
        "writer",
    )  # fmt: skip
    rows = [
        (
            topic["name"], shard["shard"], list(topic["slots"]), topic["subscribers"], shard["start"],
            shard["durable"], shard["bundles_sealed"], format_bytes(shard["segment_bytes"]),
            format_bytes(shard["wal_bytes"]), format_bytes(shard["bytes"]), _writer(shard["writer"]),
        )
        for topic in document["topics"]
        for shard in topic["shards"]
    ]  # fmt: skip
    yield from table(f"store {document['path']}", headings, rows)
    for topic in document["topics"]:
        if not topic["shards"]:
            yield f"{topic['name']}: no shards yet"
        for where, problem in [(topic["name"], topic["problem"])] + [
            (f"{topic['name']}/{shard['shard']}", shard["problem"]) for shard in topic["shards"]
        ]:
            if problem:
                yield Text(f"{where}: {problem}; run `holdfast fsck`", style="red")


def _writer(writer: Document) -> str:
    last = writer["last"] or "nobody yet"
    return {"held": f"{last}, writing", "not seen": f"last: {last}"}.get(writer["lock"], f"last known: {last}")


_STYLES = {"damage": "bold red", "warning": "yellow", "note": "dim"}


def fsck_tables(document: Document) -> Iterator[RenderableType]:
    """Each finding in three lines, what a repair did, and one line to sum up."""
    if document["repair"] is not None:
        actions = document["repair"]["actions"]
        for action in actions:
            yield f"repair: {action}"
        if not actions:
            yield "repair: there was nothing to do"
    for finding in document["findings"]:
        place = "" if finding["position"] is None else f", byte {finding['position']}"
        yield Text(f"{finding['severity']}: {finding['path']}{place}", style=_STYLES[finding["severity"]])
        yield f"  {finding['what']}"
        yield f"  to do: {finding['advice']}"
    counts = document["counts"]
    yield (
        f"{document['kind']} {document['path']}: {counts['damage']} damage, {counts['warning']} warnings, "
        f"{counts['note']} notes in {document['files_checked']} files, {format_bytes(document['bytes_checked'])}"
    )
