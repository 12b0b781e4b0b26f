"""The only code that touches the filesystem.

_protocol.py    what the rest of Holdfast may ask of a filesystem: `Files`, `WritableFile`, `Lock`, ...
_system.py      the real one: `SystemFiles`
_handles.py     its open files: honest syncs, appends beside other processes, memory maps
_locks.py       its locks, by `flock`
_watch.py       its watches, by inotify or by polling
_native.py      what one system calls otherwise than another
_tree.py        folders that others write: remove, make durable
_atomic.py      replace a file so that a crash leaves the old one or the new one
checkpoint.py   the small checksummed documents that state is kept in (format drawn there)
"""

from holdfast.files._atomic import TEMPORARY_SUFFIX, replace_file
from holdfast.files._protocol import Files, Lock, LockHeld, MappedFile, SharedFile, Watch, WritableFile
from holdfast.files._system import SystemFiles
from holdfast.files._tree import remove_tree, sync_tree

__all__ = [
    "TEMPORARY_SUFFIX",
    "Files",
    "Lock",
    "LockHeld",
    "MappedFile",
    "SharedFile",
    "SystemFiles",
    "Watch",
    "WritableFile",
    "remove_tree",
    "replace_file",
    "sync_tree",
]
