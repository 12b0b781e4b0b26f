"""The write-ahead log: what makes a bundle durable before its segment is sealed.

A shard's `wal/` folder holds files named `<first offset>-<generation>.wal`, both decimal and zero-padded, so that a
listing is in order. Generations rise with every file; only once the folder is durably empty do they begin again.

A file is an 80-byte header, then records. All numbers are little-endian; every record starts at a multiple of 8.

    file header                                        record: prefix, 48 bytes
     0  8s   magic "HFWAL\\r\\n\\0"                        0  4s   magic: "HFrs" schema, "HFrb" bundle
     8  u16  version                                    4  u32  the file's salt
    10  u16  0                                          8  u32  crc32c of the header from byte 12 on
    12  u32  salt, random                              12  u32  header length, this prefix included
    16  16s  shard id                                  16  u16  slots;  u16 flags (1: has an event time)
    32  u64  generation                                20  u32  payload length
                                                       24  u64  position of this record in its file
    40  u64  first offset                              32  u64  offset (of a schema: of the next bundle)
    48  u64  next segment_seq                          40  u64  synced: every offset below it was durable
    56  u64  supersedes: offsets from here on in              when this record was written
             older generations are void
    64  i64  created, ns                               schema record: prefix, then
    72  u32  0                                         48  16s  fingerprint
    76  u32  crc32c of bytes 0..76                     64  u32  crc32c of the payload;  u32 0
                                                       72  payload: the Arrow IPC schema message
    bundle record: prefix, then
    48  u64  segment_seq                               a slot, 40 bytes
    56  u32  bundle_index                               0  u16  slot number
    60  u32  length of the attributes                   2  u8   kind (0 message, 1 stream);  u8 0
    64  i64  ingestion time, ns                         4  u32  crc32c of the payload
    72  i64  event time, first                          8  u64  rows
    80  i64  event time, last                          16  u64  payload length, a multiple of 8
    88  slots, 40 bytes each                           24  16s  schema fingerprint
    ..  attributes (MessagePack), zeros to a multiple of 8
    ..  payloads, in the order of the slots

Each file repeats the schemas that its bundles need, before the first bundle that needs one.

A file that is no longer needed is kept as a spare and written over: a sync that changes no metadata takes half the
time. So what follows the last record may be anything. The salt tells what is of this file from what was there
before, and from bytes that only look like records (a WAL file stored as somebody's payload); the position does the
same for a record that was written to the wrong place. Records end where no record with this file's salt begins.

A torn tail is told apart from damage by the synced marks: whatever is bad at or above every mark, and above what
the `tail` file says, was never acknowledged. Whatever is bad below is corruption, and is reported, not cut.

format.py    structs, file header, file names
_encode.py   bundles to record bytes
_scan.py     record bytes to bundles; where and why a scan ended
_log.py      the files of a shard that is being written: append, sync, rotate, supersede, retire
_replay.py   the files of a shard that is being opened: which bundles count, what was torn, what is damaged
_repair.py   keep a copy of a torn tail, then cut it
tail.py      the `tail` file: how far other processes may read (format drawn there)
"""

from holdfast.wal._encode import bundle_bytes, encode_bundle
from holdfast.wal._log import SPARE_PREFIX, LogFile, WriteAheadLog, list_spares
from holdfast.wal._repair import cut_torn_tail
from holdfast.wal._replay import Progress, Replay, TornTail, replay
from holdfast.wal._scan import ScanEnd, WalScan, scan_file
from holdfast.wal.format import FILE_HEADER_BYTES, FileHeader, WalName, list_wal
from holdfast.wal.tail import Tail, TailFile, read_tail

__all__ = [
    "FILE_HEADER_BYTES",
    "SPARE_PREFIX",
    "FileHeader",
    "LogFile",
    "Progress",
    "Replay",
    "ScanEnd",
    "Tail",
    "TailFile",
    "TornTail",
    "WalName",
    "WalScan",
    "WriteAheadLog",
    "bundle_bytes",
    "cut_torn_tail",
    "encode_bundle",
    "list_spares",
    "list_wal",
    "read_tail",
    "replay",
    "scan_file",
]
