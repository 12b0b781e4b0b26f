"""What the documents of `holdfast.operate` look like to people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.operate import DemoFigures
from holdfast.units import format_bytes

Document = Mapping[str, Any]


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{key}: {_cell(each)}" for key, each in value.items()) or "-"
        case list() | tuple():
            return ", ".join(map(_cell, value)) or "-"
    return str(value)


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[RenderableType]:
    """Numbers stand to the right; no cell is shortened."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, heading in enumerate(headings):
        numeric = bool(rows) and all(type(row[index]) in (int, type(None)) for row in rows)
        made.add_column(heading, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(_cell(each) for each in row))
    yield Text(title, style="bold")
    yield made


def facts(title: str, document: Document, keys: Sequence[str]) -> Iterator[RenderableType]:
    """One line for each fact."""
    yield Text(title, style="bold")
    width = max(map(len, keys))
    for key in keys:
        yield Text(f"{key.replace('_', ' '):{width}}  {_cell(document.get(key))}")


# -- topics -------------------------------------------------------------------------------------------------------


def topics_tables(document: Document) -> Iterator[RenderableType]:
    """A row for each shard."""
    if not document["topics"]:
        yield f"{document['path']} has no topics yet"
        return
    headings = ("topic", "shard", "slots", "start", "durable", "bundles sealed", "segments", "WAL", "writer")
    rows = [
        (
            topic["name"], shard["shard"], list(topic["slots"]), shard["start"], shard["durable"],
            shard["bundles_sealed"], format_bytes(shard["segment_bytes"]), format_bytes(shard["wal_bytes"]),
            _writer(shard["writer"]),
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


# -- inspect ------------------------------------------------------------------------------------------------------

_SEGMENT: Final = ["segment_seq", "shard_id", "first_offset", "end_offset", "rows", "bytes", "manifest"]
_STREAMS: Final = ["id", "slot", "fingerprint", "rows", "chunks", "bytes", "absent", "event_time"]
_COLUMNS: Final = ["name", "type", "nulls", "min", "max"]
_BUNDLES: Final = ["offset", "ingested", "event_time", "signal", "attributes", "slots"]
_WAL: Final = [
    "shard_id",
    "generation",
    "first_offset",
    "end_offset",
    "supersedes",
    "next_segment_seq",
    "created",
    "bytes",
    "bundles",
    "rows",
    "synced",
    "end",
]
_RECORDS: Final = ["position", "offset", "segment_seq", "index", "slots", "rows", "bytes", "synced", "ingested"]
_SHARD: Final = [
    "start",
    "durable",
    "sealed",
    "segments",
    "segment_bytes",
    "wal_files",
    "wal_bytes",
    "writer",
    "problem",
]
_SHARD_SEGMENTS: Final = [
    "file",
    "segment_seq",
    "first_offset",
    "end_offset",
    "bundles",
    "streams",
    "rows",
    "bytes",
    "problem",
]
_SHARD_WAL: Final = [
    "file",
    "generation",
    "first_offset",
    "end_offset",
    "bundles",
    "rows",
    "bytes",
    "synced",
    "end",
    "problem",
]


def inspect_tables(document: Document) -> Iterator[RenderableType]:
    """By the kind of what was inspected."""
    yield from _BY_KIND[document["kind"]](document)


def _listed(title: str, keys: Sequence[str], documents: Sequence[Document]) -> Iterator[RenderableType]:
    rows = [[each.get(key) for key in keys] for each in documents]
    yield from table(f"\n{title}", [key.replace("_", " ") for key in keys], rows)


def _segment(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"segment {document['path']}", document, _SEGMENT)
    yield from _listed("streams", _STREAMS, document["streams"])
    for stream in document["streams"]:
        yield from _listed(f"columns of stream {stream['id']}", _COLUMNS, stream["columns"])
    yield from _schemas(document["schemas"])
    if "bundles" in document:
        slots = [{**each, "slots": [slot["slot"] for slot in each["slots"]]} for each in document["bundles"]]
        yield from _listed("bundles", _BUNDLES, slots)


def _schemas(schemas: Document) -> Iterator[RenderableType]:
    for slot, fields in schemas.items():
        yield from _listed(f"widest schema of slot {slot}", ("name", "type", "nullable"), fields)


def _wal(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"WAL file {document['path']}", document, _WAL)
    yield from _listed("records", _RECORDS, document["records"])


def _tail(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"tail {document['path']}", document, ("durable", "sealed", "schemas", "bytes"))
    slots = [{"slot": number, **(slot or {})} for number, slot in enumerate(document["slots"])]
    yield from _listed("slots", ("slot", "durable", "sealed", "schemas", "turn"), slots)


def _checkpoint(document: Document) -> Iterator[RenderableType]:
    inner = document["document"]
    yield from facts(f"checkpoint {document['path']}", inner, [key for key in sorted(inner) if key not in document])
    yield from _schemas(document.get("schemas", {}))


def _store(document: Document) -> Iterator[RenderableType]:
    checkpoint = document["checkpoint"]
    yield from facts(f"store {document['path']}", checkpoint.get("document", checkpoint), ("id", "problem"))
    for topic in document["topics"]:
        yield from _topic(topic)


def _topic(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"\ntopic {document['name']}", document, ("slots", "problem"))
    for shard in document["shards"]:
        yield from _shard(shard)


def _shard(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"\n{document['shard']}", document, _SHARD)
    if document["segment_list"]:
        yield from _listed("segments", _SHARD_SEGMENTS, document["segment_list"])
    if document["wal_list"]:
        yield from _listed("WAL files", _SHARD_WAL, document["wal_list"])


_BY_KIND = {
    "segment": _segment, "wal": _wal, "tail": _tail, "checkpoint": _checkpoint,
    "store": _store, "topic": _topic, "shard": _shard,
}  # fmt: skip


# -- fsck and demo ------------------------------------------------------------------------------------------------

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


def demo_table(figures: DemoFigures) -> Table:
    """The figures as they stand."""
    made = Table(box=None, show_header=False, title=figures.doing, title_justify="left")
    made.add_column(style="dim")
    made.add_column(justify="right")
    for name in ("acknowledged", "found", "lost", "invented", "kills"):
        made.add_row(name, f"{getattr(figures, name):,}")
    return made
