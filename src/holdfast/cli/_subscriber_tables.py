"""What subscribers look like to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from holdfast import operate
from holdfast.cli._tables import facts, table
from holdfast.units import format_bytes

Document = dict[str, Any]
_HEADINGS = (
    "name", "number", "state", "holder", "watermark", "gaps", "lag", "behind", "pinned", "since", "on full",
    "authoritative", "expires after",
)  # fmt: skip
_FACTS = (
    "number", "state", "holder", "registered", "gaps", "lag_bundles", "lag_seconds", "pinned_bytes", "pinned_since",
    "on_full", "authoritative", "expire_after",
)  # fmt: skip
_SHARDS = (
    "shard", "start", "watermark", "durable", "lag_bundles", "gaps", "finished_above", "rejected", "dropped",
    "oldest", "pinned_bytes",
)  # fmt: skip


def subscriber_rows(documents: list[Document]) -> Iterator[RenderableType]:
    """The subscribers of one topic, a row for each."""
    rows = [
        (
            each["name"], each["number"], each["state"], each["holder"], _watermark(each["watermark"]), each["gaps"],
            each["lag_bundles"], _seconds(each["lag_seconds"]), format_bytes(each["pinned_bytes"]),
            each["pinned_since"], each["on_full"], each["authoritative"], _seconds(each["expire_after"]),
        )
        for each in documents
    ]  # fmt: skip
    yield from table("subscribers", _HEADINGS, rows)


def pin_lines(documents: list[Document]) -> Iterator[RenderableType]:
    """A line for each subscriber that holds something back."""
    for each in documents:
        line = operate.pin_line(each)
        if line is not None:
            yield Text(line)


def _watermark(watermark: dict[str, int]) -> Any:
    """A plain number where there is one shard."""
    return next(iter(watermark.values())) if len(watermark) == 1 else watermark


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:g} s"


def listed(document: Document) -> Iterator[RenderableType]:
    """All subscribers of a topic, and those that were removed."""
    if document["subscribers"]:
        yield from subscriber_rows(document["subscribers"])
        yield from pin_lines(document["subscribers"])
    else:
        yield f"{document['topic']} has no subscribers: everything in it is kept"
    if document["removals"]:
        keys = ("name", "number", "time", "why")
        rows = [[each[key] for key in keys] for each in document["removals"]]
        yield from table("\nremoved", keys, rows)


def shown(document: Document) -> Iterator[RenderableType]:
    """One subscriber, shard by shard."""
    yield from facts(f"subscriber {document['name']} of {document['topic']}", document, _FACTS)
    rows = [[each[key] for key in _SHARDS] for each in document["shards"]]
    yield from table("\nshards", [key.replace("_", " ") for key in _SHARDS], rows)
    yield from pin_lines([document])


def paused(document: Document) -> Iterator[RenderableType]:
    """What pausing it did."""
    what = "paused" if document["changed"] else "was paused already"
    yield f"{document['name']} {what}; {document['lag_bundles']} bundles are kept for it until it is resumed"


def resumed(document: Document) -> Iterator[RenderableType]:
    """What resuming it did."""
    what = "resumed" if document["changed"] else "was not paused"
    yield f"{document['name']} {what}; {document['lag_bundles']} bundles wait for it"


def removed(document: Document) -> Iterator[RenderableType]:
    """What removing it released."""
    if not document["pinned_bytes"]:
        yield f"removed {document['name']}; it held nothing back"
        return
    yield (
        f"removed {document['name']}: {format_bytes(document['pinned_bytes'])} that it pinned since "
        f"{document['pinned_since']} are released ({document['lag_bundles']} bundles unfinished); what no other "
        "subscriber needs is deleted by the writers, or when the store is next opened for writing"
    )
