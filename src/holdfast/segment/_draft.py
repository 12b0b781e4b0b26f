"""A segment file while it is written: what was appended, and what the meta block has to say about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import crc32c
import pyarrow as pa
from pyarrow import ipc

from holdfast.clock import breathe
from holdfast.errors import Corruption
from holdfast.files import Files, WritableFile
from holdfast.schema import widest
from holdfast.segment._group import Group, Grouping, union_of_times
from holdfast.segment._ipc import StreamImage
from holdfast.segment._manifest import build_chunks
from holdfast.segment._meta import StreamEntry, encode_meta
from holdfast.segment._statistics import Statistics, measure
from holdfast.segment._stream import ARROW_ERRORS
from holdfast.segment.format import FOOTER_SIZE, Footer, Header, encode_footer, encode_header, padding

_SLICE_BYTES: Final = 4 << 20  # per write; then the disk gets to work while the rest is written and measured


class _Placed(NamedTuple):
    """A stream in the file: payloads `first` and on of its group. Its bytes are let go once written."""

    group: Group
    first: int
    position: int
    image: StreamImage


class Draft:
    """Takes the header, the streams, then meta block and footer; `size` is the length so far."""

    def __init__(self, files: Files, file: WritableFile, header: Header) -> None:
        self._files = files
        self._file = file
        self._header = header
        self._streams: list[_Placed] = []
        self.size = 0
        self._append([encode_header(header)])

    def add_streams(
        self, grouping: Grouping, compression: str | None, max_dictionary_size: int
    ) -> tuple[list[int], list[int]]:
        """Append the streams of all groups; returns stream and chunk of each payload, in bundle order."""
        places: list[list[tuple[int, int]]] = []
        for group in grouping.groups:
            place: list[tuple[int, int]] = []
            for image in self._images(group, compression, max_dictionary_size):
                self._append([bytes(padding(self.size))])
                number, first = len(self._streams), len(place)
                self._streams.append(_Placed(group, first, self.size, image._replace(buffers=[])))
                place += ((number, chunk) for chunk in range(len(image.positions)))
                self._append(image.buffers)
            places.append(place)
        pairs = [places[group][number] for group, number in breathe(zip(*grouping.pairs, strict=True))]
        return [stream for stream, _ in pairs], [chunk for _, chunk in pairs]

    def finish(self, manifest: pa.RecordBatch) -> None:
        """Append meta block and footer; the statistics come from what was written, read back."""
        statistics = self._measure()
        representatives = {
            slot: widest([stream.group.schema for stream in self._streams if stream.group.slot == slot])
            for slot in sorted({stream.group.slot for stream in self._streams})
        }
        self._append([bytes(padding(self.size))])
        position = self.size
        meta = encode_meta(
            [
                _entry(number, stream, measured.null_counts, representatives[stream.group.slot])
                for number, (stream, measured) in enumerate(zip(self._streams, statistics, strict=True))
            ],
            [measured.bounds for measured in statistics],
            manifest,
            build_chunks([stream.image for stream in self._streams], [stream.position for stream in self._streams]),
            representatives,
        )
        header = self._header
        end = position + len(meta)
        footer = Footer(
            meta_position=position,
            meta_length=len(meta),
            meta_checksum=crc32c.crc32c(meta),
            segment_seq=header.segment_seq,
            first_offset=header.first_offset,
            bundle_count=header.bundle_count,
            file_size=end + padding(end) + FOOTER_SIZE,
        )
        self._append([meta, bytes(padding(end)), encode_footer(footer)])

    def _images(self, group: Group, compression: str | None, max_dictionary_size: int) -> Iterator[StreamImage]:
        images = group.images(compression, max_dictionary_size)
        while True:
            try:
                image = next(images, None)
            except ARROW_ERRORS as error:
                what = f"payloads of slot {group.slot} cannot be encoded into a stream: {error}"
                raise Corruption(self._file.path, self.size, what) from error
            if image is None:
                return
            yield image

    def _measure(self) -> list[Statistics]:
        """Decode every stream from a map of the file; pyarrow lets other threads run meanwhile."""
        found = []
        written = self._files.map(self._file.path)
        for stream in self._streams:
            rows = sum(stream.image.rows)
            try:
                table = ipc.open_file(written.slice(stream.position, stream.image.length)).read_all()
            except ARROW_ERRORS as error:
                what = f"stream of slot {stream.group.slot} cannot be read back: {error}"
                raise Corruption(self._file.path, stream.position, what) from error
            if table.num_rows != rows:
                what = f"stream of slot {stream.group.slot} reads back as {table.num_rows} rows, expected {rows}"
                raise Corruption(self._file.path, stream.position, what)
            found.append(measure(table))
        return found

    def _append(self, buffers: Sequence[Any]) -> None:
        start = size = 0
        for index, buffer in enumerate(buffers):
            size += len(buffer)
            if size >= _SLICE_BYTES or index == len(buffers) - 1:
                self.size += self._file.append(buffers[start : index + 1])
                if size >= _SLICE_BYTES:
                    self._file.start_sync()
                start, size = index + 1, 0


def _entry(number: int, stream: _Placed, null_counts: list[int | None], representative: pa.Schema) -> StreamEntry:
    group, first, position, image = stream
    present = set(group.schema.names)
    return StreamEntry(
        id=number,
        slot=group.slot,
        fingerprint=group.fingerprint,
        position=position,
        length=image.length,
        rows=sum(image.rows),
        chunks=len(image.rows),
        absent=tuple(name for name in representative.names if name not in present),
        null_counts=tuple(null_counts),
        event_time=union_of_times(group.event_times[first : first + len(image.rows)]),
        schema_length=image.schema_length,
        schema_checksum=image.schema_checksum,
        dictionaries_checksum=image.dictionaries_checksum,
        footer_checksum=image.footer_checksum,
    )
