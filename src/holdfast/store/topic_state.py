"""What belongs to a whole topic: slot table, merged schema of each slot, subscribers; in `topic.checkpoint`.

It changes only under the topic's lock, by replacement; every process keeps a copy and reads it again when it meets
a slot or a schema that its copy does not know.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from holdfast.errors import Corruption, InvalidSettings
from holdfast.files import Files, Lock, replace_file
from holdfast.files.checkpoint import decode_checkpoint, encode_checkpoint
from holdfast.schema import widest
from holdfast.slots import FIXED_TABLES, SlotTable
from holdfast.store.layout import TOPIC_CHECKPOINT, TOPIC_LOCK
from holdfast.store.registry import Registry


class TopicState:
    """A topic's slot table, merged schemas and subscribers, and how they change."""

    def __init__(self, files: Files, folder: Path, *, note: str) -> None:
        self._files, self._folder, self._note = files, folder, note
        self._changing = threading.RLock()  # held through a change, also while waiting for locks of files
        self._mutex = threading.RLock()  # guards all below; never held while waiting for a lock of a file
        self.slots = SlotTable()
        self.schema_count = 0  # how often the merged schemas changed
        self._merged: dict[int, pa.Schema] = {}
        self.registry = Registry()
        self._read = b""  # the checkpoint as last read or written
        self._durable = False  # did we ourselves make durable what we know?
        self.reload()

    @classmethod
    def create(cls, files: Files, folder: Path, *, slots: str, note: str) -> TopicState:
        """Make the topic's folder and checkpoint, unless another process just did."""
        files.make_folder(folder)
        lock = files.lock(folder / TOPIC_LOCK, note=note, wait=True)
        try:
            if not files.exists(folder / TOPIC_CHECKPOINT):
                table = SlotTable() if slots == "default" else FIXED_TABLES[slots]
                write_topic_checkpoint(files, folder, table, {}, 0, Registry())
        finally:
            lock.release()
        return cls(files, folder, note=note)

    def lock(self) -> Lock:
        return self._files.lock(self._folder / TOPIC_LOCK, note=self._note, wait=True)

    def reload(self) -> None:
        """Read the checkpoint again; what we know already never gets less by it."""
        path = self._folder / TOPIC_CHECKPOINT
        try:
            with self._mutex:
                data = self._files.read(path)
                if data == self._read:
                    return
                document = decode_checkpoint(data, path)
                slots = SlotTable.from_document(document["slots"])
                merged = {int(slot): decode_schema(text) for slot, text in document["schemas"].items()}
                registry = Registry.from_document(document["subscribers"]) if "subscribers" in document else Registry()
                self.slots, self._merged, self.schema_count = slots, merged, int(document["schema_count"])
                self.registry, self._read = registry, data
                self._durable = False
        except (KeyError, TypeError, ValueError, pa.ArrowException, InvalidSettings) as problem:
            raise Corruption(path, 20, f"not a topic's checkpoint: {problem!r}") from None

    def current(self) -> Registry:
        """The subscribers as they are now: read again if another process changed the checkpoint."""
        if self._files.read(self._folder / TOPIC_CHECKPOINT) != self._read:
            self.reload()
        return self.registry

    @contextlib.contextmanager
    def changing(self) -> Iterator[Callable[[Registry], None]]:
        """Hold the topic's lock, with what is known read anew; call what you get to write other subscribers down."""
        with self._changing:
            lock = self.lock()
            try:
                self.reload()
                yield self._register
            finally:
                lock.release()

    def secure(self) -> None:
        """Make durable what is known of subscribers: whoever wrote it may have failed to, or been killed before.

        Written again, not only synced: a folder whose sync failed once may never make that name durable.
        """
        self.current()
        if not self._durable:
            with self.changing() as write:
                if not self._durable:
                    write(self.registry)

    @property
    def is_secure(self) -> bool:
        """Is what stands in the checkpoint now what we ourselves made durable?"""
        self.current()
        return self._durable

    def _register(self, registry: Registry) -> None:
        self._write(self.slots, self._merged, self.schema_count, registry)

    def admit(self, name: str, schema: pa.Schema) -> int:
        """The number of slot `name`, known to hold `schema` from now on; durable on return.

        What another process wrote, or what a failed write of ours left, may not be durable although it can be read:
        so whatever this process has not itself made durable it writes again before it relies on it.
        """
        with self._changing:
            if not (self._durable and self._knows(name, schema)):
                lock = self.lock()
                try:
                    self.reload()
                    self._write(*self._with(name, schema), self.registry)
                finally:
                    lock.release()
            return self.slots.number(name)

    def _knows(self, name: str, schema: pa.Schema) -> bool:
        if name not in self.slots:
            return False
        merged = self._merged.get(self.slots.number(name))
        return merged is not None and widest([merged, schema]).equals(merged, check_metadata=True)

    def _with(self, name: str, schema: pa.Schema) -> tuple[SlotTable, dict[int, pa.Schema], int]:
        """Slot table, merged schemas and their count once `name` holds `schema`; as they are if it does."""
        if self._knows(name, schema):
            return self.slots, self._merged, self.schema_count
        slots = self.slots.with_name(name)
        number = slots.number(name)
        merged = dict(self._merged)
        merged[number] = widest([merged[number], schema] if number in merged else [schema])
        return slots, merged, self.schema_count + 1

    def _write(self, slots: SlotTable, merged: dict[int, pa.Schema], count: int, registry: Registry) -> None:
        with self._mutex:
            self._durable = False
            self._read = b""  # after a failure nobody knows which of the two is there
            self._read = write_topic_checkpoint(self._files, self._folder, slots, merged, count, registry)
            self.slots, self._merged, self.schema_count, self.registry = slots, merged, count, registry
            self._durable = True

    def slot_name(self, number: int) -> str:
        """Raises `UnknownSlot` only if the checkpoint on disk lacks it too."""
        if number not in self.slots.names.values():
            self.reload()
        return self.slots.name(number)

    def slot_number(self, name: str) -> int:
        if name not in self.slots:
            self.reload()
        return self.slots.number(name)

    def schema(self, name: str) -> pa.Schema:
        """The union of all columns that slot `name` ever held, each with the widest type."""
        self.reload()
        return self._merged[self.slots.number(name)]


def write_topic_checkpoint(
    files: Files, folder: Path, slots: SlotTable, merged: dict[int, pa.Schema], count: int, registry: Registry
) -> bytes:
    """Durable on return; what stands in the file now."""
    document: dict[str, Any] = {
        "kind": "topic",
        "slots": slots.to_document(),
        "schemas": {str(slot): encode_schema(schema) for slot, schema in merged.items()},
        "schema_count": count,
    }
    if registry:
        document["subscribers"] = registry.to_document()
    data = encode_checkpoint(document)
    replace_file(files, folder / TOPIC_CHECKPOINT, [data])
    return data


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    return ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
