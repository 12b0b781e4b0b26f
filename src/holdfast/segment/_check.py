"""What must hold between the parts of a meta block, checked whenever a segment is opened.

Checksums tell that bytes are as they were written; this tells that what was written makes sense. Checks go
over whole columns, so that they cost about the same for ten bundles and for ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import compute as pc

from holdfast.errors import Corruption
from holdfast.schema import FINGERPRINT_BYTES
from holdfast.segment._manifest import Chunks, flat_view
from holdfast.segment._meta import Meta
from holdfast.segment.format import ALIGNMENT, HEADER_SIZE, Footer

# A typed scalar, for given a plain number pyarrow looks for pandas first, each time.
_ZERO: Final = pa.scalar(0, pa.int64())

Require = Callable[[bool, str], None]


def check_references(meta: Meta, chunks: Chunks, footer: Footer, path: Path) -> None:
    """Raise `Corruption` unless every range lies in the file and every reference has exactly one target."""

    def require(holds: bool, what: str) -> None:
        if not holds:
            raise Corruption(path, footer.meta_position, what)

    bundles, count = meta.manifest.num_rows, footer.bundle_count
    require(bundles == count, f"manifest has {bundles} bundles, the footer says {count}")
    firsts = list(accumulate((stream.chunks for stream in meta.directory.streams), initial=0))
    require(
        firsts[-1] == chunks.count,
        f"chunk table has {chunks.count} chunks, the streams of the directory have {firsts[-1]}",
    )
    _check_chunk_table(meta.chunks, require)
    _check_directory(meta, chunks, firsts, footer.meta_position, require)
    _check_manifest(meta, firsts, require)


def _check_chunk_table(table: pa.RecordBatch, require: Require) -> None:
    stream, position, length, rows, _ = table.columns
    require(_all(pc.greater(length, _ZERO)), "chunk table has a chunk without bytes")
    require(_all(pc.greater_equal(rows, _ZERO)), "chunk table has a negative row count")
    require(_all(pc.greater_equal(stream[1:], stream[:-1])), "chunk table is not in the order of streams")
    same = pc.equal(stream[1:], stream[:-1])
    adjacent = pc.equal(position[1:], pc.add(position[:-1], length[:-1]))
    require(_all(pc.or_(pc.invert(same), adjacent)), "chunk table has a gap or an overlap inside a stream")


def _check_directory(meta: Meta, chunks: Chunks, firsts: list[int], limit: int, require: Require) -> None:
    """Streams follow each other up to `limit`, and agree with their part of the chunk table."""
    stream_of_chunk = flat_view(meta.chunks.column("stream"), "I")
    rows_up_to = flat_view(pc.cumulative_sum(meta.chunks.column("rows")), "q")
    end = HEADER_SIZE
    for number, stream in enumerate(meta.directory.streams):
        name = f"stream {number}"
        require(stream.id == number, f"{name} has the id {stream.id}")
        size = len(stream.fingerprint)
        require(size == FINGERPRINT_BYTES, f"{name} has a fingerprint of {size} bytes")
        has_schema = stream.slot in meta.directory.representatives
        require(has_schema, f"slot {stream.slot} has no representative schema")
        require(
            stream.position >= end and stream.position % ALIGNMENT == 0,
            f"{name} begins at {stream.position}, expected a multiple of {ALIGNMENT} from {end} on",
        )
        end = stream.position + stream.length
        require(end <= limit, f"{name} ends at {end}, beyond the meta block's start at {limit}")
        require(stream.chunks > 0, f"{name} has no chunk")
        first, last = firsts[number], firsts[number + 1] - 1
        require(
            stream_of_chunk[first] == stream_of_chunk[last] == number,
            f"chunks {first} to {last} of the chunk table are not those of {name}",
        )
        low, high = chunks.positions[first], chunks.positions[last] + chunks.lengths[last]
        require(
            0 <= stream.schema_length <= low - stream.position and high <= end,
            f"chunks from {low} to {high} do not lie inside {name}, {stream.position} to {end}",
        )
        rows = rows_up_to[last] - (rows_up_to[first - 1] if first else 0)
        require(stream.rows == rows, f"{name} has {stream.rows} rows, its chunks have {rows}")


def _check_manifest(meta: Meta, firsts: list[int], require: Require) -> None:
    """Each chunk belongs to one bundle: as many pairs as chunks, all within bounds, no two the same."""
    streams = meta.directory.streams
    pairs = meta.manifest.column("slots").values
    stream, chunk = pairs.field(0), pairs.field(1)
    require(len(pairs) == firsts[-1], f"manifest names {len(pairs)} chunks, the chunk table has {firsts[-1]}")
    known = pc.less(stream, pa.scalar(len(streams), pa.uint32()))
    require(_all(known), "manifest names a stream that is not in the directory")
    counts = pa.array([entry.chunks for entry in streams], pa.uint32())
    require(_all(pc.less(chunk, counts.take(stream))), "manifest names a chunk that its stream does not have")
    rows = pc.add(pa.array(firsts[:-1], pa.int64()).take(stream), chunk.cast(pa.int64()))
    require(len(pc.unique(rows)) == len(pairs), "manifest names a chunk twice")


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())
