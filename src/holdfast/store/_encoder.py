"""From a caller's bundle to bytes: slots get their numbers, schemas their fingerprints."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from operator import attrgetter
from typing import Final, NamedTuple

import pyarrow as pa

from holdfast.config.settings import MAX_BUNDLE_BYTES
from holdfast.encoded import EncodedSlot, PayloadKind, encode_slot, payload_kind
from holdfast.errors import InvalidBundle
from holdfast.names import validate_slot
from holdfast.schema import check_storable, fingerprint
from holdfast.store.topic_state import TopicState

REMEMBERED_SCHEMAS: Final = 16  # per slot; one that is not remembered costs a fingerprint again


_number = attrgetter("slot")


class _Known(NamedTuple):
    schema: pa.Schema
    number: int
    fingerprint: bytes
    kind: PayloadKind


class Encoder:
    """Encodes bundles of one topic; threads share it."""

    def __init__(self, topic: TopicState) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._known: dict[str, list[_Known]] = {}  # the one used last comes first; lists are replaced, never changed

    def encode(self, slots: Mapping[str, pa.RecordBatch]) -> tuple[EncodedSlot, ...]:
        """Raises `InvalidBundle` for what cannot be stored, before anything is."""
        encoded = [self._encode_slot(name, batch) for name, batch in slots.items()]
        if len(encoded) > 1:
            encoded.sort(key=_number)
        size = sum([slot.data.size for slot in encoded])
        if size > MAX_BUNDLE_BYTES:
            raise InvalidBundle(_too_large(size))
        return tuple(encoded)

    def _encode_slot(self, name: str, batch: pa.RecordBatch) -> EncodedSlot:
        schema = batch.schema
        for known in self._known.get(name, ()):
            if known.schema.equals(schema, check_metadata=True) and (
                known.kind is PayloadKind.MESSAGE or known.fingerprint == fingerprint(schema)
            ):  # Arrow's comparison looks past field names inside dictionary values
                slot = encode_slot(known.number, known.fingerprint, known.kind, batch)
                slot.schema = known.schema  # one object for all bundles, so that theirs can go
                return slot
        return self._encode_new(name, batch)

    def _encode_new(self, name: str, batch: pa.RecordBatch) -> EncodedSlot:
        """A slot or schema that we have not met: it is written down once we know that the batch can be stored."""
        schema = batch.schema
        validate_slot(name)
        check_storable(schema)
        slot = encode_slot(0, fingerprint(schema), payload_kind(schema), batch)
        if slot.data.size > MAX_BUNDLE_BYTES:
            raise InvalidBundle(_too_large(slot.data.size))
        slot.slot = self._topic.admit(name, schema)
        known = _Known(schema, slot.slot, slot.fingerprint, slot.kind)
        with self._lock:
            self._known[name] = [known, *self._known.get(name, ())][:REMEMBERED_SCHEMAS]
        return slot


def _too_large(size: int) -> str:
    return f"the bundle has {size} bytes; at most {MAX_BUNDLE_BYTES} are possible: split it"
