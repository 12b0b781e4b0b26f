"""What belongs to a whole topic: its slot table and the merged schema of each slot, in `topic.checkpoint`.

It changes only under the topic's lock, by replacement; every process keeps a copy and reads it again when it meets
a slot or a schema that its copy does not know.
"""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from holdfast.errors import Corruption, InvalidSettings
from holdfast.files import Files, Lock
from holdfast.files.checkpoint import read_checkpoint, write_checkpoint
from holdfast.schema import widest
from holdfast.slots import FIXED_TABLES, SlotTable
from holdfast.store.layout import TOPIC_CHECKPOINT, TOPIC_LOCK


class TopicState:
    """A topic's slot table and merged schemas, and how they change."""

    def __init__(self, files: Files, folder: Path, *, note: str) -> None:
        self._files, self._folder, self._note = files, folder, note
        self._mutex = threading.RLock()
        self.slots = SlotTable()
        self.schema_count = 0  # how often the merged schemas changed
        self._merged: dict[int, pa.Schema] = {}
        self._durable = False  # is what we know known to be durable?
        self.reload()

    @classmethod
    def create(cls, files: Files, folder: Path, *, slots: str, note: str) -> TopicState:
        """Make the topic's folder and checkpoint, unless another process just did."""
        files.make_folder(folder)
        lock = files.lock(folder / TOPIC_LOCK, note=note, wait=True)
        try:
            if not files.exists(folder / TOPIC_CHECKPOINT):
                table = SlotTable() if slots == "default" else FIXED_TABLES[slots]
                write_topic_checkpoint(files, folder, table, {}, 0)
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
                document = read_checkpoint(self._files, path)
                slots = SlotTable.from_document(document["slots"])
                merged = {int(slot): decode_schema(text) for slot, text in document["schemas"].items()}
                self.slots, self._merged, self.schema_count = slots, merged, int(document["schema_count"])
                self._durable = False
        except (KeyError, TypeError, ValueError, pa.ArrowException, InvalidSettings) as problem:
            raise Corruption(path, 20, f"not a topic's checkpoint: {problem!r}") from None

    def admit(self, name: str, schema: pa.Schema) -> int:
        """The number of slot `name`, known to hold `schema` from now on; durable on return.

        What another process wrote, or what a failed write of ours left, may not be durable although it can be read:
        so whatever this process has not itself made durable it writes again before it relies on it.
        """
        with self._mutex:
            if not (self._durable and self._knows(name, schema)):
                lock = self.lock()
                try:
                    self.reload()
                    self._write(*self._with(name, schema))
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

    def _write(self, slots: SlotTable, merged: dict[int, pa.Schema], count: int) -> None:
        write_topic_checkpoint(self._files, self._folder, slots, merged, count)
        self.slots, self._merged, self.schema_count = slots, merged, count
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
    files: Files, folder: Path, slots: SlotTable, merged: dict[int, pa.Schema], count: int
) -> None:
    document: dict[str, Any] = {
        "kind": "topic",
        "slots": slots.to_document(),
        "schemas": {str(slot): encode_schema(schema) for slot, schema in merged.items()},
        "schema_count": count,
    }
    write_checkpoint(files, folder / TOPIC_CHECKPOINT, document)


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    return ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
