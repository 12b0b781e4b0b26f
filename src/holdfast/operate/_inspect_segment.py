"""A segment file, shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.bundle import decode_attributes
from holdfast.files import Files
from holdfast.operate._values import event_time, moment, schema_document, value
from holdfast.segment import SegmentReader, StreamEntry

Document = dict[str, Any]


def inspect_segment(files: Files, path: Path, *, bundles: bool) -> Document:
    """Header, streams with their statistics, manifest, and the widest schema of each slot."""
    reader = SegmentReader(files, path)
    times = reader.manifest.ingestion_times
    document: Document = {
        "segment_seq": reader.segment_seq,
        "shard_id": reader.shard_id.hex(),
        "first_offset": reader.first_offset,
        "end_offset": reader.end_offset,
        "bytes": reader.size,
        "rows": sum(stream.rows for stream in reader.streams),
        "manifest": {
            "bundles": reader.bundle_count,
            "first_ingested": moment(min(times)) if len(times) else None,
            "last_ingested": moment(max(times)) if len(times) else None,
            "signals": {
                signal: reader.manifest.signals.count(signal) for signal in sorted(set(reader.manifest.signals))
            },
        },
        "streams": [_stream(reader, stream) for stream in reader.streams],
        "schemas": {str(slot): schema_document(reader.representative(slot)) for slot in sorted(reader.slots)},
    }
    if bundles:
        document["bundles"] = [_bundle(reader, index) for index in range(reader.bundle_count)]
    return document


def _stream(reader: SegmentReader, stream: StreamEntry) -> Document:
    schema = reader.schema(stream)
    bounds = reader.bounds(stream)
    return {
        "id": stream.id,
        "slot": stream.slot,
        "fingerprint": stream.fingerprint.hex(),
        "rows": stream.rows,
        "chunks": stream.chunks,
        "bytes": stream.length,
        "absent": list(stream.absent),
        "event_time": event_time(stream.event_time),
        "columns": [_column(field, nulls, bounds) for field, nulls in zip(schema, stream.null_counts, strict=True)],
    }


def _column(field: pa.Field, nulls: int | None, bounds: pa.RecordBatch | None) -> Document:
    low = high = None
    if bounds is not None and field.name in bounds.schema.names:
        low, high = (value(each) for each in bounds.column(field.name))
    return {"name": field.name, "type": str(field.type), "nulls": nulls, "min": low, "max": high}


def _bundle(reader: SegmentReader, index: int) -> Document:
    manifest = reader.manifest
    attributes = manifest.attributes[index]
    return {
        "offset": reader.first_offset + index,
        "ingested": moment(manifest.ingestion_times[index]),
        "event_time": event_time(manifest.event_times[index]),
        "signal": manifest.signals[index],
        "attributes": value(decode_attributes(attributes)) if attributes else {},
        "slots": [
            {"slot": reader.streams[stream].slot, "stream": stream, "chunk": chunk}
            for stream, chunk in manifest.pairs(index)
        ],
    }
