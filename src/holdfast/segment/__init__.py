r"""Segments: sealed bundles in one immutable file, laid out by column, read by memory map.

    shard-0000/segments/0000000000000120-00000000000000004200.seg       segment_seq, first offset

    0         64            each part at a multiple of 64                               size - 64
    +---------+------------+---+------------+---+-...-+---+--------------------------+---+----------+
    | header  | stream 0   | 0 | stream 1   | 0 |     | 0 | meta block               | 0 | footer   |
    +---------+------------+---+------------+---+-...-+---+--------------------------+---+----------+
                Arrow IPC        Arrow IPC                  directory, manifest,
                file             file                       chunks, schemas, statistics

Numbers are little-endian, checksums are CRC32C, `0` is padding that must be zero. Every byte is covered:
header and footer by their own checksums, the meta block by the footer, streams by the meta block, padding by
its value.

Header                                          Footer
     0  8   magic  "HFSEG\r\n\0"                     0  u64  position of the meta block
     8  u16 version, 1                               8  u64  its length
    10  u16 zero                                    16  u32  its checksum
    12  u32 how many bundles                        20  u32  how many bundles       )
    16  u64 segment_seq                             24  u64  segment_seq            ) as in the header
    24  u64 offset of the first bundle              32  u64  first offset           )
    32  16  id of the shard                         40  u64  size of the file
    48  12  zero                                    48  u16  version, 1
    60  u32 checksum of bytes 0 to 59               50  u16  zero
                                                    52  u32  checksum of bytes 0 to 51 and 56 to 63
                                                    56  8    magic "HFSEGEND"

A stream holds the record batches of one slot and schema fingerprint: a chunk for each bundle that has them.
It is an Arrow IPC file that any Arrow library reads, once cut out:

    "ARROW1\0\0", schema | dictionaries | chunk 0 | chunk 1 | ... | end of stream, footer, length, "ARROW1"
    <--------------------> <------------> <-------> <------->       <-------------------------------------->
     a checksum each, in the meta block

The batch manifest says for each bundle which chunks it is made of. Three bundles, of which the second lacks
slot 1 and the third has a new column in slot 0:

    bundle 0    (stream 0, chunk 0)  (stream 1, chunk 0)        stream 0    slot 0, fingerprint A
    bundle 1    (stream 0, chunk 1)                             stream 1    slot 1, fingerprint B
    bundle 2    (stream 2, chunk 0)  (stream 1, chunk 1)        stream 2    slot 0, fingerprint C

format.py          name, header and footer
_meta.py           the meta block (drawn there)
_manifest.py       batch manifest and chunk table
_ipc.py            a stream's file, from messages as they were appended
_dictionaries.py   one vocabulary per stream and column; when a stream must rotate
_statistics.py     null counts and bounds
_group.py          payloads to streams
_draft.py          the file while it is written
_write.py          seal: the steps to a durable segment
_check.py          do the parts of a meta block agree?
_stream.py         read the chunks of one stream
_read.py           read a segment
_verify.py         every byte, for fsck
"""

from holdfast.segment._manifest import Manifest
from holdfast.segment._meta import StreamEntry
from holdfast.segment._read import SealedBundle, SegmentReader
from holdfast.segment._write import MAX_DICTIONARY_SIZE, SegmentInfo, write_segment
from holdfast.segment.format import SUFFIX, parse_segment_name, read_header, segment_name

__all__ = [
    "MAX_DICTIONARY_SIZE",
    "SUFFIX",
    "Manifest",
    "SealedBundle",
    "SegmentInfo",
    "SegmentReader",
    "StreamEntry",
    "parse_segment_name",
    "read_header",
    "segment_name",
    "write_segment",
]
