"""The keys of a topic in memory: where each one's bundle is, and since when.

A place is packed into one number, and the dictionary keeps its order, the oldest first: a key of 36 bytes costs less
than 200. Forgetting is put off until there is something to forget for an eighth of all keys; what is too old but still
there is not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from holdfast.config import IdempotencySettings
from holdfast.store.key_format import UNPLACED, WITHDRAWN, KeyEntry, Kind, Record, Void

Range = tuple[int, int]  # of offsets, the end not included

_TIME: Final = 80  # bits below: 64 of offset, 16 of shard
_SHARD: Final = 64
_OFFSETS: Final = (1 << _SHARD) - 1
_SHARDS: Final = (1 << (_TIME - _SHARD)) - 1
_FEW: Final = 1024  # keys that are not worth the while of forgetting


class KeyTable:
    """What the records of a key log come to."""

    def __init__(self, settings: IdempotencySettings) -> None:
        self._window_ns = int(settings.window * 10**9)
        self._max_keys = settings.max_keys
        self.clear()

    def clear(self) -> None:
        self._places: dict[bytes, int] = {}
        self._lost: dict[int, list[Range]] = {}
        self._forget_above = min(_FEW, self._max_keys)

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: bytes) -> KeyEntry | None:
        """The entry of `key`, however old."""
        place = self._places.get(key)
        return None if place is None else _unpacked(key, place)

    def find(self, key: bytes, now_ns: int) -> KeyEntry | None:
        """The entry of `key`, if it is within the window."""
        place = self._places.get(key)
        if place is None or now_ns - (place >> _TIME) >= self._window_ns:
            return None
        return _unpacked(key, place)

    def lost(self, shard: int) -> list[Range]:
        """Offsets of a shard whose append failed, as far as its owner has not opened it since."""
        return list(self._lost.get(shard, ()))

    def apply(self, record: Record) -> None:
        """Take up what one more record of the log says."""
        if isinstance(record, Void):
            self._void(record)
            return
        places = self._places
        for key, shard, offset, time_ns in record:
            if offset == WITHDRAWN:
                if places.get(key, 0) & _OFFSETS == UNPLACED:
                    del places[key]
                continue
            place = time_ns << _TIME | shard << _SHARD | offset
            if places.get(key, place) >> _TIME != time_ns:
                del places[key]  # so that it goes to the end, among its contemporaries
            places[key] = place

    def _void(self, void: Void) -> None:
        for key in list(self.voided(void)):
            del self._places[key]
        ranges = self._lost.pop(void.shard, [])
        if void.kind is Kind.LOST:
            self._lost[void.shard] = _joined([*ranges, (void.first, void.end)])

    def voided(self, void: Void) -> Iterator[bytes]:
        """The keys that a void takes away."""
        shard, first = void.shard, void.first
        end = void.end if void.kind is Kind.LOST else UNPLACED + 1  # whoever opened a shard again knows of no others
        for key, place in self._places.items():
            if first <= (place & _OFFSETS) < end and (place >> _SHARD) & _SHARDS == shard:
                yield key

    def forget(self, now_ns: int, *, all_due: bool = False) -> None:
        """Let go of what is older than the window, and of the oldest above the highest number of keys."""
        if len(self._places) <= self._forget_above and not all_due:
            return
        excess = len(self._places) - self._max_keys
        due: list[bytes] = []
        for key, place in self._places.items():
            if len(due) >= excess and now_ns - (place >> _TIME) < self._window_ns:
                break
            due.append(key)
        for key in due:
            del self._places[key]
        left = len(self._places)
        self._forget_above = min(max(_FEW, left + left // 8), self._max_keys + self._max_keys // 8)

    def carried(self) -> Iterator[Void | KeyEntry]:
        """All of it, for the next generation: first the voids that still say something, then the keys."""
        for shard, ranges in self._lost.items():
            for first, end in ranges:
                yield Void(Kind.LOST, shard, first, end)
        for key, place in self._places.items():
            yield _unpacked(key, place)


def _unpacked(key: bytes, place: int) -> KeyEntry:
    return KeyEntry(key, (place >> _SHARD) & _SHARDS, place & _OFFSETS, place >> _TIME)


def _joined(ranges: list[Range]) -> list[Range]:
    joined: list[Range] = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((first, end))
    return joined
