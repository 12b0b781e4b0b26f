"""Seal bundles into a segment file: temporary file, sync, check, rename, sync the folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.clock import breathe
from holdfast.encoded import EncodedBundle
from holdfast.files import TEMPORARY_SUFFIX, Files
from holdfast.segment._draft import Draft
from holdfast.segment._group import group
from holdfast.segment._manifest import build_manifest
from holdfast.segment._read import SegmentReader
from holdfast.segment.format import SHARD_ID_SIZE, Header, segment_name

MAX_DICTIONARY_SIZE: Final = 65_536  # values in one vocabulary before its stream rotates
_META_BYTES: Final = 128  # reserved per bundle for its share of the meta block; an estimate

Signal = Callable[[Iterable[int]], str]  # the signal type of a bundle, from its slot numbers


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A published segment."""

    path: Path
    segment_seq: int
    first_offset: int
    bundle_count: int
    size: int  # bytes
    stream_count: int
    rows: int

    @property
    def end_offset(self) -> int:
        """The offset after the last bundle."""
        return self.first_offset + self.bundle_count


def write_segment(
    files: Files,
    folder: Path,
    bundles: Sequence[EncodedBundle],
    *,
    shard_id: bytes,
    signal: Signal,
    compression: str | None = None,
    max_dictionary_size: int = MAX_DICTIONARY_SIZE,
) -> SegmentInfo:
    """Write `bundles`, all of one segment, into `folder`; on return the segment is durable.

    1. Write a temporary file: header, streams.     A crash leaves rubbish that ends in `.tmp`.
    2. Map it, decode it, take statistics.          What cannot be read back is never published.
    3. Append meta block and footer, and sync.
    4. Open it as any reader would.
    5. Rename it to its name.                       A crash leaves no segment or the whole one.
    6. Sync the folder.                             From here on it is there.

    An `OSError` before step 6 leaves nothing behind, and the call may be repeated. One from step 6 leaves the
    whole segment under its name, and repeating the call replaces it. The WAL must stay until this returns.
    """
    header = _header(bundles, shard_id)
    path = folder / segment_name(header.segment_seq, header.first_offset)
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with contextlib.suppress(FileNotFoundError):
        files.unlink(temporary)
    file = files.create(temporary)
    try:
        try:
            file.preallocate(sum(bundle.size + _META_BYTES for bundle in bundles))
            draft = Draft(files, file, header)
            grouping = group(bundles)
            streams, chunks = draft.add_streams(grouping, compression, max_dictionary_size)
            draft.finish(build_manifest(bundles, _signals(bundles, signal), grouping.ends, streams, chunks))
            file.truncate(draft.size)  # gives back what was reserved beyond the end
            file.sync()
        finally:
            file.close()
        info = _opened(files, temporary, path)
        files.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync_folder(folder)
    return info


def _header(bundles: Sequence[EncodedBundle], shard_id: bytes) -> Header:
    """The header that fits all bundles; a list that is not one segment is a mistake of the caller."""
    if not bundles or len(shard_id) != SHARD_ID_SIZE:
        raise ValueError(f"a segment needs a bundle at least, and a shard id of {SHARD_ID_SIZE} bytes")
    header = Header(bundles[0].segment_seq, bundles[0].offset, len(bundles), shard_id)
    for index, bundle in enumerate(breathe(bundles)):
        if (bundle.segment_seq, bundle.bundle_index, bundle.offset) != (
            header.segment_seq,
            index,
            header.first_offset + index,
        ):
            raise ValueError(
                f"bundle {index} of segment {header.segment_seq}, first offset {header.first_offset}, says that "
                f"it is bundle {bundle.bundle_index} of segment {bundle.segment_seq}, offset {bundle.offset}"
            )
    return header


def _signals(bundles: Sequence[EncodedBundle], signal: Signal) -> list[str]:
    """One per bundle; asked once for each combination of slots. A bundle without slots has none."""
    known: dict[tuple[int, ...], str] = {(): ""}
    found = []
    for bundle in breathe(bundles):
        numbers = tuple([payload.slot for payload in bundle.slots])
        if numbers not in known:
            known[numbers] = signal(numbers)
        found.append(known[numbers])
    return found


def _opened(files: Files, temporary: Path, path: Path) -> SegmentInfo:
    """Step 4; the map is let go again on return, for some systems do not rename a mapped file."""
    reader = SegmentReader(files, temporary)
    reader.open_streams()
    return SegmentInfo(
        path,
        reader.segment_seq,
        reader.first_offset,
        reader.bundle_count,
        reader.size,
        len(reader.streams),
        sum(stream.rows for stream in reader.streams),
    )
