"""Do WAL and segments agree where both hold the same bundle?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from holdfast.encoded import EncodedBundle
from holdfast.errors import Corruption
from holdfast.files import Files
from holdfast.operate._findings import Finding
from holdfast.operate._judge import damage
from holdfast.operate._survey import ShardSurvey
from holdfast.segment import SegmentReader


def disagreements(files: Files, found: ShardSurvey) -> Iterator[Finding]:
    """A finding for each WAL file with a bundle that its segment has otherwise.

    Compared are times, attributes, and for each slot rows and schema; the rows themselves are under checksums on both
    sides, and dictionaries may be ordered otherwise in a segment.
    """
    for segment in found.own_segments:
        if segment.damage or segment.end is None:
            continue
        overlap = [
            (look, bundle)
            for look in found.own_wal
            for bundle in look.counted
            if segment.first <= bundle.offset < segment.end
        ]
        if not overlap:
            continue
        with contextlib.suppress(FileNotFoundError):  # trimmed meanwhile
            reader = SegmentReader(files, segment.path)
            told = set()
            for look, bundle in overlap:
                try:
                    difference = _difference(reader, bundle)
                except Corruption:  # damaged since it was surveyed: the next check tells
                    break
                if difference is not None and look.path not in told:
                    told.add(look.path)
                    yield damage(
                        look.path, None, f"offset {bundle.offset} differs from {segment.path.name}: {difference}"
                    )


def _difference(reader: SegmentReader, bundle: EncodedBundle) -> str | None:
    index = bundle.offset - reader.first_offset
    if (bundle.segment_seq, bundle.bundle_index) != (reader.segment_seq, index):
        return (
            f"number {bundle.bundle_index} of segment {bundle.segment_seq} here, "
            f"number {index} of segment {reader.segment_seq} there"
        )
    manifest = reader.manifest
    if manifest.ingestion_times[index] != bundle.ingestion_time_ns:
        return "another ingestion time"
    if manifest.event_times[index] != bundle.event_time:
        return "another event time"
    if manifest.attributes[index] != bundle.attributes:
        return "other attributes"
    sealed = reader.bundle(index)
    there = {reader.streams[stream].slot: reader.streams[stream].fingerprint for stream, _ in manifest.pairs(index)}
    here = {slot.slot: slot.fingerprint for slot in bundle.slots}
    if here != there:
        return f"slots {sorted(here)} here, {sorted(there)} there, or other schemas"
    for slot in bundle.slots:
        if sealed.batches[slot.slot].num_rows != slot.rows:
            return f"slot {slot.slot} has {slot.rows} rows here, {sealed.batches[slot.slot].num_rows} there"
    return None
