"""Bundles as the store would hand them over, sealed and opened again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.encoded import EncodedBundle, encode_slot, payload_kind
from holdfast.files import Files
from holdfast.schema import fingerprint
from holdfast.segment import SegmentReader, segment_name, write_segment
from holdfast.testing import SimulatedFiles

SEQ = 7
FIRST = 100
SHARD_ID = bytes(range(16))
FOLDER = Path("/segments")
PATH = FOLDER / segment_name(SEQ, FIRST)

Slots = Mapping[int, pa.RecordBatch]


def encode(contents: Sequence[Slots]) -> list[EncodedBundle]:
    """One bundle for each mapping of slot number to batch; odd ones have an event time."""
    return [_bundle(index, slots) for index, slots in enumerate(contents)]


def _bundle(index: int, slots: Slots) -> EncodedBundle:
    payloads = tuple(
        encode_slot(number, fingerprint(batch.schema), payload_kind(batch.schema), batch)
        for number, batch in sorted(slots.items())
    )
    return EncodedBundle(
        offset=FIRST + index,
        segment_seq=SEQ,
        bundle_index=index,
        ingestion_time_ns=1_000 + index,
        event_time=(index, 10 * index) if index % 2 else None,
        attributes=b"attributes %d" % index if index % 3 else b"",
        slots=payloads,
        size=sum(len(payload.data) for payload in payloads),
    )


def signal(numbers: Iterable[int]) -> str:
    return f"signal-{min(numbers)}"


def simulated() -> SimulatedFiles:
    """An empty disk with the folder that segments go to."""
    files = SimulatedFiles()
    files.make_folder(FOLDER)
    return files


def seal(
    files: Files, contents: Sequence[Slots] | Sequence[EncodedBundle], folder: Path = FOLDER, **options: Any
) -> Any:
    """Write a segment; `options` are those of `write_segment`."""
    bundles: Any = contents if isinstance(contents[0], EncodedBundle) else encode(contents)
    return write_segment(files, folder, bundles, shard_id=SHARD_ID, signal=signal, **options)


def sealed(contents: Sequence[Slots], **options: Any) -> SegmentReader:
    """A reader of a new segment on a disk of its own."""
    files = simulated()
    return SegmentReader(files, seal(files, contents, **options).path)


def unsealed(data: bytes) -> SegmentReader:
    """A reader of these bytes as a segment file."""
    files = simulated()
    file = files.create(PATH)
    file.append([data])
    file.close()
    return SegmentReader(files, PATH)
