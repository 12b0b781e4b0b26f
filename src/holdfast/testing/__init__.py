"""The kit that Holdfast is tested with, for those who build on it: a disk that crashes, a clock that obeys.

_simulated.py   `SimulatedFiles`: a filesystem in memory, with faults, a capacity and a journal of changes
_crash.py       `crash_states`: every state in which a crash can leave it, from each prefix of the journal
_pending.py     what is undecided at one moment, and the disks that come of deciding it
_fates.py       what can become of a pending change: kept, lost, torn, in sectors, a length without bytes
_journal.py     the records of the journal
_disk.py        the disk model: what is seen, what is durable, what lies between
_content.py     a file's bytes as a value that shares what did not change
_tree.py        a whole disk as a value, and its digest
_handle.py      open files
_locks.py       who holds which lock file
_watch.py       who waits for which change
_faults.py      calls that fail on request
_dice.py        choices that come out the same everywhere
_clock.py       `FakeClock` and `SequenceIds`
_flip.py        `flip_bit`: damage on purpose
_copy.py        `dump` and `load`: trees to a real folder and back
"""

from holdfast.testing._clock import FakeClock, SequenceIds
from holdfast.testing._copy import copy_tree, dump, load
from holdfast.testing._crash import POWER_CUT_MODES, CrashState, crash, crash_states
from holdfast.testing._faults import OPERATIONS, Fault
from holdfast.testing._flip import flip_bit
from holdfast.testing._journal import (
    Create,
    LockNote,
    MakeFolder,
    Note,
    Operation,
    Rename,
    Sync,
    SyncFolder,
    Truncate,
    Unlink,
    Write,
)
from holdfast.testing._pending import CrashMode
from holdfast.testing._simulated import SimulatedFiles

__all__ = [
    "OPERATIONS",
    "POWER_CUT_MODES",
    "CrashMode",
    "CrashState",
    "Create",
    "FakeClock",
    "Fault",
    "LockNote",
    "MakeFolder",
    "Note",
    "Operation",
    "Rename",
    "SequenceIds",
    "SimulatedFiles",
    "Sync",
    "SyncFolder",
    "Truncate",
    "Unlink",
    "Write",
    "copy_tree",
    "crash",
    "crash_states",
    "dump",
    "flip_bit",
    "load",
]
