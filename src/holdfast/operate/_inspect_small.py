"""A WAL file, a tail, a checkpoint, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.encoded import EncodedBundle
from holdfast.errors import HoldfastError
from holdfast.files import Files
from holdfast.files.checkpoint import read_checkpoint
from holdfast.operate._values import event_time, moment
from holdfast.wal import read_tail, scan_file
from holdfast.wal._format import PREFIX
from holdfast.wal._tail import SLOT_BYTES, TAIL_BYTES, _decode

Document = dict[str, Any]


def inspect_wal(files: Files, path: Path, *, bundles: bool) -> Document:
    """Header, records, and where and why they end."""
    data = files.map(path)
    scan, found = scan_file(data, path)
    header, end = scan.header, scan.end
    if end is None:
        raise ValueError("a scan to the end of a file has an end")
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
        "rows": sum(slot.rows for bundle in found for slot in bundle.slots),
        "synced": scan.synced,
        "end": {"position": end.position, "offset": end.offset, "why": end.bad or "nothing more was written"},
    }
    if bundles:
        document["records"] = [_record(bundle, data) for bundle in found]
    return document


def _record(bundle: EncodedBundle, data: Any) -> Document:
    return {
        "offset": bundle.offset,
        "segment_seq": bundle.segment_seq,
        "index": bundle.bundle_index,
        "slots": [slot.slot for slot in bundle.slots],
        "rows": sum(slot.rows for slot in bundle.slots),
        "bytes": bundle.size,
        "ingested": moment(bundle.ingestion_time_ns),
        "event_time": event_time(bundle.event_time),
    }


def inspect_tail(files: Files, path: Path) -> Document:
    """Both slots; the one with the higher turn counts."""
    data = files.read(path)
    current = read_tail(files, path)
    slots = [_decode(data[at : at + SLOT_BYTES], path) for at in (0, SLOT_BYTES)]
    return {
        "durable": current.durable,
        "sealed": current.sealed,
        "schemas": current.schemas,
        "bytes": len(data),
        "expected_bytes": TAIL_BYTES,
        "slots": [None if slot is None else slot._asdict() for slot in slots],
    }


def inspect_checkpoint(files: Files, path: Path) -> Document:
    """The document in it, as it is."""
    return {"bytes": files.size(path), "document": read_checkpoint(files, path)}
