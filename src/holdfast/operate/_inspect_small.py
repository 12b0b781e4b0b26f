"""A WAL file, a tail, a checkpoint, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.encoded import EncodedBundle
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint
from holdfast.operate._inspect_acks import ack_checkpoint
from holdfast.operate._values import event_time, moment, schema_document
from holdfast.store.topic_state import decode_schema
from holdfast.wal import FileHeader, ScanEnd, WalScan, bundle_bytes, read_tail
from holdfast.wal.format import PREFIX
from holdfast.wal.tail import SLOT_BYTES, TAIL_BYTES, decode_slot

Document = dict[str, Any]


def inspect_wal(files: Files, path: Path, *, records: bool) -> Document:
    """Header, records if asked for, and where and why they end."""
    data = files.map(path)
    header = FileHeader.decode(data, path)
    scan = WalScan(path, header)
    found: list[Document] = []
    end: ScanEnd | None = None
    while end is None:
        found += [_record(bundle, scan.position, data) for bundle in scan.advance(data, scan.offset + 1)]
        end = scan.end
    scan.look_beyond(data)
    end = scan.end or end
    document: Document = {
        "shard_id": header.shard_id.hex(),
        "generation": header.generation,
        "first_offset": header.first_offset,
        "end_offset": scan.offset,
        "supersedes": header.supersedes,
        "next_segment_seq": header.next_segment_seq,
        "created": moment(header.created_ns),
        "bytes": files.size(path),
        "bundles": len(found),
        "rows": sum(record["rows"] for record in found),
        "synced": scan.synced,
        "end": {"position": end.position, "offset": end.offset, "why": end.bad or "nothing more was written"},
    }
    if records:
        document["records"] = found
    return document


def _record(bundle: EncodedBundle, end: int, data: Any) -> Document:
    position = end - bundle_bytes(bundle)
    return {
        "position": position,
        "offset": bundle.offset,
        "segment_seq": bundle.segment_seq,
        "index": bundle.bundle_index,
        "slots": [slot.slot for slot in bundle.slots],
        "rows": sum(slot.rows for slot in bundle.slots),
        "bytes": end - position,
        "synced": PREFIX.unpack_from(data, position)[-1],
        "ingested": moment(bundle.ingestion_time_ns),
        "event_time": event_time(bundle.event_time),
    }


def inspect_tail(files: Files, path: Path) -> Document:
    """Both slots; the one with the higher turn counts."""
    data = files.read(path)
    current = read_tail(files, path)
    slots = [decode_slot(data[at : at + SLOT_BYTES], path) for at in (0, SLOT_BYTES)]
    return {
        "durable": current.durable,
        "sealed": current.sealed,
        "schemas": current.schemas,
        "bytes": len(data),
        "expected_bytes": TAIL_BYTES,
        "slots": [None if slot is None else slot._asdict() for slot in slots],
    }


def inspect_checkpoint(files: Files, path: Path) -> Document:
    """The document in it, as it is; a topic's schemas, and the progress in an ack checkpoint, are decoded too."""
    inner = read_checkpoint(files, path)
    document: Document = {"bytes": files.size(path), "document": inner}
    if inner.get("kind") == "topic":
        schemas = {slot: decode_schema(text) for slot, text in inner["schemas"].items()}
        document["schemas"] = {slot: schema_document(schema) for slot, schema in schemas.items()}
        document["subscribers"] = registered(inner)
    elif inner.get("kind") == "acks":
        document |= ack_checkpoint(inner, path)
    return document


def registered(inner: Document) -> list[Document]:
    """The registrations in a topic's checkpoint."""
    found = inner.get("subscribers", {}).get("registered", {})
    kept = ("number", "starts", "paused", "on_full", "authoritative", "expire_after")
    return [
        {"name": name, "registered": moment(each["since_ns"]), **{key: each[key] for key in kept}}
        for name, each in found.items()
    ]
