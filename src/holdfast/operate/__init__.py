"""Looking after stores: what is in them, whether it is whole, and making it whole again.

All functions return plain data and go through `holdfast.files`; the command line only prints what they return.

_topics.py           topics: an overview of a store
_subscribers.py      subscribers: how far each one is and what it pins; pause, resume, remove
_letters.py          dead letters: list, show       _export.py          to files     _replay.py   to their subscribers
_inspect.py          inspect: what is at a path; _inspect_segment.py, _inspect_small.py, _inspect_acks.py,
                     _inspect_folder.py, _values.py
demo/                a pipeline from source to tables, and the proof that nothing was lost or doubled
_kinds.py            what a path is, by its content
_findings.py         Finding, FsckReport
_fsck.py             fsck: check, and on request repair
_check.py            a store, topic, shard or file: what is to be said about it
_check_beside.py     leases, keys, trash, claims
_survey.py           a shard's folder as found, read beside a running writer
_wal_look.py         its WAL files                  _segment_look.py    its segments
_ack_folder.py       its ack log                    _ack_look.py        one ack file, record by record
_judge.py            what a survey means            _judge_acks.py      and what the ack log means
_overlap.py          do WAL and segments agree?
_repair.py           lock, check, mend              _mend.py            the plan of a shard's repair
_repair_shard.py     carrying it out                _repair_acks.py     its ack log
_repair_topic.py     the checkpoints of topic and store
_repair_registry.py  who is subscribed              _repair_leases.py   and who holds a subscriber
_salvage.py          whole bundles out of damaged files
_aside.py            copies of what changes
_holder.py           who writes a shard, told without touching its lock
_ranges.py           ranges of offsets              _progress.py        how far long work has got
"""

from holdfast.operate._export import export_letters
from holdfast.operate._findings import Finding, FsckReport, Repair, Severity
from holdfast.operate._fsck import fsck
from holdfast.operate._inspect import inspect
from holdfast.operate._kinds import Kind, recognise
from holdfast.operate._letters import dead_letter, dead_letters
from holdfast.operate._progress import Progress
from holdfast.operate._replay import replay_letters
from holdfast.operate._subscribers import (
    pause_subscriber,
    pin_line,
    remove_subscriber,
    resume_subscriber,
    subscriber,
    subscribers,
)
from holdfast.operate._topics import topics

__all__ = [
    "Finding",
    "FsckReport",
    "Kind",
    "Progress",
    "Repair",
    "Severity",
    "dead_letter",
    "dead_letters",
    "export_letters",
    "fsck",
    "inspect",
    "pause_subscriber",
    "pin_line",
    "recognise",
    "remove_subscriber",
    "replay_letters",
    "resume_subscriber",
    "subscriber",
    "subscribers",
    "topics",
]
