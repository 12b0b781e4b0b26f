"""What `inspect` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from holdfast.cli._subscriber_tables import pin_lines, subscriber_rows
from holdfast.cli._tables import facts, table

Document = Mapping[str, Any]

MOST_RANGES: Final = 8  # of a record of outcomes, in one cell
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
    "trash_bytes",
    "bytes",
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
_SHARD_ACKS: Final = ["file", "file_number", "bytes", "record_count", "damaged", "problem"]
_REGISTERED: Final = [
    "name",
    "number",
    "registered",
    "starts",
    "paused",
    "on_full",
    "authoritative",
    "expire_after",
]
_PROGRESS: Final = ["subscriber", "watermark", "gaps", "finished_above", "rejected", "dropped"]
_OUTCOMES: Final = ["subscriber", "records", "ack", "rejected", "dropped", "nack", "failed"]
_ACK_RECORDS: Final = [
    "position",
    "what",
    "subscriber",
    "epoch",
    "bundles",
    "ranges",
    "batch",
    "status",
    "time",
    "reason",
]
_KEY_FILE: Final = ["generation", "follows", "carried", "bytes", "record_count", "keys"]


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
    if document.get("subscribers"):
        yield from _listed("subscribers", _REGISTERED, document["subscribers"])
    if "progress" in document:
        yield from _listed("progress by subscriber's number", _PROGRESS, document["progress"])
        yield from facts("\nbatches of sources", document, ("batches", "answers"))


def _acks(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"ack file {document['path']}", document, ("file_number", "shard_id", "bytes", "record_count"))
    if document["torn"] is not None:
        yield Text(f"a record that is cut short begins at byte {document['torn']}: being written, or left by a crash")
    yield from _damage(document["damage"], "what it recorded is delivered again")
    if document["subscribers"]:
        yield from _listed("bundles by subscriber's number and outcome", _OUTCOMES, document["subscribers"])
    records = [{**each, "ranges": _ranges(each["ranges"])} for each in document["records"]]
    yield from _listed("records", _ACK_RECORDS, records)


def _ranges(ranges: Sequence[Sequence[int]]) -> str:
    """Both ends included; the first few of many."""
    shown = [str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in ranges[:MOST_RANGES]]
    more = len(ranges) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _keys(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"key file {document['path']}", document, _KEY_FILE)
    yield from _damage(document["damage"], "keys in it are forgotten")
    rows = [
        {"position": record["position"], "what": record["what"], **entry}
        for record in document["records"]
        for entry in record["entries"] or [{"shard": record["void"]["shard"], "offset": _span(record["void"])}]
    ]
    yield from _listed("records", ("position", "what", "key", "shard", "offset", "time"), rows)


def _span(void: Document) -> str:
    return f"from {void['first']} on" if void["end"] is None else f"{void['first']} to {void['end'] - 1}"


def _claim(document: Document) -> Iterator[RenderableType]:
    keys = ("limit_bytes", "wanted_bytes", "wanted_since", "wanted_of")
    yield from facts(f"claim {document['path']}", document, keys)


def _damage(damage: Sequence[Document], meaning: str) -> Iterator[RenderableType]:
    for each in damage:
        yield Text(f"byte {each['position']}, {each['bytes']} bytes: {each['what']}; {meaning}", style="red")


def _store(document: Document) -> Iterator[RenderableType]:
    checkpoint = document["checkpoint"]
    yield from facts(f"store {document['path']}", checkpoint.get("document", checkpoint), ("id", "problem"))
    for topic in document["topics"]:
        yield from _topic(topic)


def _topic(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"\ntopic {document['name']}", document, ("slots", "bytes", "problem"))
    yield from _subscribers(document)
    for shard in document["shards"]:
        yield from _shard(shard)


def _shard(document: Document) -> Iterator[RenderableType]:
    yield from facts(f"\n{document['shard']}", document, _SHARD)
    yield from _subscribers(document)
    if document["segment_list"]:
        yield from _listed("segments", _SHARD_SEGMENTS, document["segment_list"])
    if document["wal_list"]:
        yield from _listed("WAL files", _SHARD_WAL, document["wal_list"])
    if document["ack_list"]:
        yield from _listed("ack files", _SHARD_ACKS, document["ack_list"])


def _subscribers(document: Document) -> Iterator[RenderableType]:
    """Of a topic, or of a shard that was asked for by itself."""
    if document.get("subscribers_problem"):
        yield Text(f"subscribers cannot be told: {document['subscribers_problem']}", style="red")
    if document.get("subscribers"):
        yield Text("")
        yield from subscriber_rows(document["subscribers"])
        yield from pin_lines(document["subscribers"])


_BY_KIND = {
    "segment": _segment, "wal": _wal, "tail": _tail, "checkpoint": _checkpoint,
    "acks": _acks, "keys": _keys, "claim": _claim, "store": _store, "topic": _topic, "shard": _shard,
}  # fmt: skip
