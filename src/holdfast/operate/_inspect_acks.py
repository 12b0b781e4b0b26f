"""An ack file, the ack checkpoint, a file of idempotency keys and a claim, shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from holdfast.acks import AckState
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.operate._ack_look import AckEntry, look_at_acks
from holdfast.operate._values import moment
from holdfast.retention import decode_claim
from holdfast.store.key_format import HEADER_BYTES, UNPLACED, WITHDRAWN, Damage, KeyFileHeader, Void, read_records

Document = dict[str, Any]


def inspect_acks(files: Files, path: Path) -> Document:
    """Header, outcomes by subscriber, every record, and what is damaged."""
    look = look_at_acks(files.read(path), path)
    return {
        "file_number": None if look.header is None else look.header.number,
        "shard_id": None if look.header is None else look.header.shard_id.hex(),
        "bytes": look.size,
        "record_count": len(look.entries),
        "torn": look.torn,
        "damage": [{"position": at, "bytes": size, "what": what} for at, size, what in look.damage],
        "subscribers": _by_subscriber(look.entries),
        "records": [_record(each) for each in look.entries],
    }


def _by_subscriber(entries: list[AckEntry]) -> list[Document]:
    counts: dict[int, Counter[str]] = {}
    for each in entries:
        if not each.batch:
            counts.setdefault(each.subscriber, Counter()).update({"records": 1, each.what: each.bundles})
    return [{"subscriber": number, **counted} for number, counted in sorted(counts.items())]


def _record(entry: AckEntry) -> Document:
    return {
        "position": entry.position,
        "what": entry.what,
        "subscriber": None if entry.batch else entry.subscriber,
        "epoch": entry.epoch,
        "bundles": entry.bundles,
        "ranges": [list(each) for each in entry.ranges],
        "batch": list(entry.batch) or None,
        "status": entry.status or None,
        "time": moment(entry.time_ns),
        "reason": entry.reason or None,
    }


def ack_checkpoint(document: Document, path: Path) -> Document:
    """What the ack checkpoint says of each subscriber, and how many batches wait or were answered."""
    try:
        state = AckState.from_document(document)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise Corruption(path, 20, f"not an ack checkpoint: {problem!r}") from None
    progress = [
        {
            "subscriber": number,
            "watermark": each.watermark,
            "gaps": each.gap_count,
            "finished_above": each.final_above,
            "rejected": each.rejected,
            "dropped": each.dropped,
        }
        for number, each in sorted(state.progress.items())
    ]
    return {"progress": progress, "batches": len(state.batches), "answers": len(state.answers)}


def inspect_keys(files: Files, path: Path) -> Document:
    """Header, every record, and what is damaged."""
    data = files.read(path)
    header = KeyFileHeader.decode(data, path)
    records: list[Document] = []
    damage: list[Document] = []
    at = HEADER_BYTES
    for found in read_records(data[HEADER_BYTES:]):
        if isinstance(found, Damage):
            what = "cut short at the end" if found.tail else "no whole record begins here"
            damage.append({"position": HEADER_BYTES + found.start, "bytes": found.end - found.start, "what": what})
            at = HEADER_BYTES + found.end
            continue
        records.append({"position": at, **_key_record(found.record)})
        at = HEADER_BYTES + found.end
    return {
        "generation": header.generation,
        "follows": header.follows,
        "carried": header.carried,
        "bytes": len(data),
        "record_count": len(records),
        "keys": sum(len(each["entries"]) for each in records),
        "damage": damage,
        "records": records,
    }


def _key_record(record: Any) -> Document:
    if isinstance(record, Void):
        lost = {"shard": record.shard, "first": record.first, "end": record.end or None}
        return {"what": record.kind.name.lower(), "entries": [], "void": lost}
    places = {UNPLACED: "unplaced", WITHDRAWN: "withdrawn"}
    entries = [
        {
            "key": each.key.decode(errors="backslashreplace"),
            "shard": each.shard,
            "offset": places.get(each.offset, each.offset),
            "time": moment(each.time_ns),
        }
        for each in record
    ]
    return {"what": "keys", "entries": entries, "void": None}


def inspect_claim(files: Files, path: Path) -> Document:
    """What a worker may write, and what it waits for."""
    claim = decode_claim(files.read(path))
    if claim is None:
        raise Corruption(path, 0, "the claim fails its checksum; it counts as nothing promised")
    return {
        "limit_bytes": claim.limit,
        "wanted_bytes": claim.wanted,
        "wanted_since": moment(claim.wanted_at_ns) if claim.wanted else None,
        "wanted_of": ("store", "namespace", "topic")[claim.wanted_level] if claim.wanted else None,
    }
