r"""The ack log: what became of each bundle of a shard for each subscriber.

A shard's `acks/` folder holds files named by their number, 16 digits, so that a listing is in order. Any number of
processes append to the file with the highest number, each write in one piece behind all others. Rotation, which is
alone, brings everything into `acks.checkpoint` in the shard's folder, begins the next file and unlinks the old ones.

    acks/LOCK                            shared to append, exclusive to rotate; reading takes no lock
    acks/0000000000000003.acks           the records since the checkpoint
    acks/0000000000000003.distrusted     a sync of file 3 failed: it is to be rotated away from
    acks.checkpoint                      the state up to a file, which is the first one to be replayed

A file is a 48-byte header, then records, packed. All numbers are little-endian.

    file header                                 record
     0  8s   magic "HFACK\r\n\0"                 0  4s   magic F5 "HFa"
     8  u16  version                             4  u32  crc32c of everything from byte 8 on
    10  u16  0;  u32 0                           8  u32  length of the body, 24 to 1 MiB
    16  u64  file number                        12  u8   kind: 1 offsets, 2 ranges, 3 batch, 4 answer
    24  16s  shard id                           13  u8   outcome, of kinds 1 and 2
    40  u32  0                                  14  u16  length of the text, 1024 at most
    44  u32  crc32c of bytes 0..44              16  u32  subscriber
                                                20  u32  lease epoch of whoever wrote it
    entries                                     24  u32  count of entries
    offsets  u64 each                           28  i64  time, ns
    ranges   u64 first, u64 end (not included)  36  text: the reason, UTF-8
    batch    MessagePack [id, ranges]           ..  entries
    answer   MessagePack [id, status]
             id is [source, run, batch], status a text

Subscriber 7 acked offset 5, in epoch 2, on 14 November 2023:

    f5 48 46 61  65 cb 7f 45  20 00 00 00                   magic, crc32c, 32 bytes of body
    01  01  00 00  07 00 00 00  02 00 00 00  01 00 00 00    offsets, ack, no text, subscriber, epoch, one entry
    00 00 2a 36 fe 9c 97 17                                 time
    05 00 00 00 00 00 00 00                                 the offset

The first final outcome of an offset stands: whatever is recorded later changes nothing. So a record may be written
twice, and one that is lost means that a bundle is delivered again. That is the rule for all damage: it is passed over
and reported, and what it said is delivered again. A record that fails its checksum is passed over up to the next one
that is whole (no text can hold the magic, for F5 stands in no UTF-8); so is one that makes no sense, or is of a kind
that is not known. A record cut short at the end of the current file may still be being written, and is waited for.
A damaged file header is reported, and the records behind it count, for they have checksums of their own; a whole one
of another file or shard makes the file count for nothing. A damaged checkpoint, or a missing file, is reported.
Only a file or checkpoint of a later version is refused.

outcome.py       the outcomes
records.py       what is written: outcomes, batches that were closed, their answers
format.py        structs, file header, file names
_encode.py       records to bytes
_scan.py         bytes to what they record, and on behind damage
_found.py        what a scan finds, gathered so that it can be applied in bulk
_bounds.py       arithmetic on many intervals at once
_intervals.py    a set of offsets as intervals
_progress.py     one subscriber: watermark, what is final above it, tries
_state.py        all subscribers of a shard, batches and answers
_packed.py       many numbers as a short text, for the checkpoint
_checkpoint.py   `acks.checkpoint`
_follow.py       reading on through rotations, or again from the checkpoint
_log.py          append, sync, lock, rotate
"""

from holdfast.acks._bounds import Range
from holdfast.acks._checkpoint import AckCheckpoint
from holdfast.acks._follow import Change
from holdfast.acks._found import Damage
from holdfast.acks._intervals import IntervalSet
from holdfast.acks._log import ROTATE_BYTES, AckLog, AckLogStatistics
from holdfast.acks._progress import MAX_NOTED, Progress
from holdfast.acks._state import MAX_ANSWERS, AckState
from holdfast.acks.outcome import Outcome
from holdfast.acks.records import AnswerRecord, BatchId, BatchRecord, BatchStatus, OutcomeRecord, Record

__all__ = [
    "MAX_ANSWERS",
    "MAX_NOTED",
    "ROTATE_BYTES",
    "AckCheckpoint",
    "AckLog",
    "AckLogStatistics",
    "AckState",
    "AnswerRecord",
    "BatchId",
    "BatchRecord",
    "BatchStatus",
    "Change",
    "Damage",
    "IntervalSet",
    "Outcome",
    "OutcomeRecord",
    "Progress",
    "Range",
    "Record",
]
