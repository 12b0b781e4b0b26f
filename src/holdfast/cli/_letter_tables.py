"""What dead letters look like to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rich.console import RenderableType

from holdfast.cli._tables import facts, table
from holdfast.units import format_bytes

Document = dict[str, Any]
_LISTED: Final = ("id", "subscriber", "shard", "offset", "rows", "attempts", "time", "replayed", "reason")
_FACTS: Final = ("subscriber", "topic", "shard", "offset", "rows", "only", "reason", "attempts", "time", "replayed")


def listed(document: Document) -> Iterator[RenderableType]:
    """A row for each letter."""
    if not document["letters"]:
        yield f"{document['kept_in']} holds no such dead letters"
        return
    rows = [[each[key] for key in _LISTED] for each in document["letters"]]
    yield from table(f"dead letters of {document['topic']}", _LISTED, rows)
    if document["more"]:
        yield "there are more"


def shown(document: Document) -> Iterator[RenderableType]:
    """What is known of a letter, and its first rows."""
    yield from facts(f"dead letter {document['id']}", document, _FACTS)
    if document["attributes"]:
        yield from facts("\nattributes", document["attributes"], list(document["attributes"]))
    for slot, content in document["slots"].items():
        first = content["first"]
        columns = list(first[0]) if first else []
        title = f"\nslot {slot}: {len(first)} of {content['rows']} rows"
        yield from table(title, columns, [[_cell(row[name]) for name in columns] for row in first])


def _cell(value: Any) -> Any:
    """Numbers of the data stand as they are, without separators."""
    return None if value is None else str(value)


def exported(document: Document) -> Iterator[RenderableType]:
    """A line for each file."""
    yield f"exported {_counted(document['letters'], 'dead letter')}"
    for each in document["written"]:
        unit = "line" if each["path"].endswith(".jsonl") else "row"
        yield f"wrote {each['path']}: {_counted(each['rows'], unit)}, {format_bytes(each['bytes'])}"


def replayed(document: Document) -> Iterator[RenderableType]:
    """A line for each letter, and one to sum up."""
    for each in document["replayed"]:
        yield (
            f"replayed {each['id']} to {each['subscriber']}: it is now offset {each['offset']} of shard {each['shard']}"
        )
    before = len(document["replayed_before"])
    yield f"replayed {_counted(len(document['replayed']), 'dead letter')}" + (
        f"; {before} had been replayed before" if before else ""
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
