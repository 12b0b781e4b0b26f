"""Append to a topic: encode, claim a shard if none is owned yet, and store each idempotency key once."""

from __future__ import annotations

from holdfast.bundle import MAX_ATTRIBUTE_BYTES, RecordBundle, encode_attributes
from holdfast.clock import Clock, Deadline
from holdfast.config import BufferSettings
from holdfast.config.settings import level_of
from holdfast.durability import Durability
from holdfast.metrics import REPEATED_APPENDS
from holdfast.store._disk_error import disk_error
from holdfast.store._encoder import Encoder
from holdfast.store._receipt import Receipt
from holdfast.store._shard_table import ShardTable
from holdfast.store.keys import KeyIndex, encode_key
from holdfast.store.reserved import KEY
from holdfast.store.topic_state import TopicState


class Appender:
    """One for each open topic of a process. Threads share it."""

    def __init__(
        self, topic: str, shards: ShardTable, state: TopicState, keys: KeyIndex, settings: BufferSettings, clock: Clock
    ) -> None:
        self._topic, self._shards, self._keys, self._settings, self._clock = topic, shards, keys, settings, clock
        self._encoder = Encoder(state)

    def append(
        self,
        record: RecordBundle,
        durability: Durability | str | None,
        timeout: float | None,
        *,
        key: str | bytes | None = None,
        limit: int = MAX_ATTRIBUTE_BYTES,
    ) -> Receipt:
        """As `Topic.append`; attributes of Holdfast's own are allowed, and `limit` bytes of attributes in all."""
        level = None if durability is None else level_of(durability)
        own = self._shards.own or self._shards.claim()
        try:
            slots = self._encoder.encode(record.slots)
        except OSError as problem:  # a new slot or schema could not be written down
            raise disk_error(problem, self._topic) from problem
        if key is None:
            return own.append(slots, encode_attributes(record.attributes, limit), record.event_time, level, timeout)
        encoded = encode_key(key)
        attributes = encode_attributes({**record.attributes, KEY: encoded}, limit + len(encoded) + len(KEY))
        wanted = self._settings.durability if level is None else level
        room = Deadline(self._settings.append_timeout if timeout is None else timeout, self._clock)
        try:
            receipt, repeated = self._keys.append(
                encoded,
                own.number,
                lambda: own.append(slots, attributes, record.event_time, level, 0.0),
                wait_for_room=lambda: own.wait_for_room(slots, room.remaining()),
                level=wanted,
            )
        except OSError as problem:
            raise disk_error(problem, self._topic) from problem
        if repeated:
            REPEATED_APPENDS.inc(self._topic)
        # A repeat may ask for more than the first append did.
        return receipt.at(wanted) if repeated and receipt.level < wanted else receipt
