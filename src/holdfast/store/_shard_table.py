"""The shards of a topic as this process sees them: the one that it owns, and those that it follows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from holdfast.errors import Closed, InvalidPosition, ReadOnly
from holdfast.files import Files
from holdfast.store._disk_error import disk_error
from holdfast.store._follower import ShardFollower
from holdfast.store._ownership import Ownership, list_shards
from holdfast.store._shard import Shard
from holdfast.store._span import Span
from holdfast.store.layout import shard_folder

Position = int | Mapping[int, int] | None


class ShardTable:
    """One for each open topic of a process. `begin` is called with a shard that this process owns from now on."""

    def __init__(
        self,
        name: str,
        folder: Path,
        files: Files,
        ownership: Ownership,
        begin: Callable[[Shard], None],
        *,
        read_only: bool,
    ) -> None:
        self._name, self._folder, self._files = name, folder, files
        self._ownership, self._begin, self._read_only = ownership, begin, read_only
        self.lock = threading.Lock()  # one thread at a time claims
        self.own: Shard | None = None
        self._looked = False
        self._followers: dict[int, ShardFollower] = {}
        self._closed = False

    def claim(self) -> Shard:
        """The shard that this process owns; takes a free one, or makes one."""
        with self.lock:
            self._expect_open()
            if self._read_only:
                raise ReadOnly(f"{self._name} was opened read-only; open the store without read_only=True to write")
            if self.own is None:
                try:
                    own = self._ownership.take_free() or self._ownership.make()
                    self._begin(own)
                except OSError as problem:
                    raise disk_error(problem, self._name) from problem
                self.own = own
                self._looked = True
            return self.own

    def look(self) -> None:
        """Before the first read: what a crashed writer left is made whole, so that all of it can be read."""
        self._expect_open()
        if self._looked or self._read_only:
            return
        with self.lock:
            if self.own is None and not self._closed:
                free = self._ownership.take_free()
                if free is not None:
                    self._begin(free)
                self.own = free
            self._looked = True

    def _expect_open(self) -> None:
        if self._closed:
            raise Closed(f"topic {self._name} is closed; open the store again")

    def all(self) -> list[Shard | ShardFollower]:
        shards: list[Shard | ShardFollower] = []
        for number in list_shards(self._files, self._folder):
            if self.own is not None and number == self.own.number:
                shards.append(self.own)
                continue
            follower = self._followers.get(number)
            if follower is None:
                follower = self._followers[number] = ShardFollower(
                    number, shard_folder(self._folder, number), self._files, name=f"{self._name}/{number}"
                )
            shards.append(follower)
        return shards

    def spans(self, start: Position, end: Position) -> Iterator[tuple[Shard | ShardFollower, Span]]:
        """Everything from `start` up to `end`, shard by shard, as far as it is durable now."""
        firsts, ends = self.mapping(start), self.mapping(end)
        for shard in self.all():
            position, stop = firsts.get(shard.number, 0), ends.get(shard.number, shard.durable)
            while (span := shard.span(position, stop)) is not None:
                yield shard, span
                position = span.end

    def mapping(self, position: Position) -> dict[int, int]:
        """A position as shard -> offset; a plain number only where there is one shard."""
        if position is None:
            return {}
        numbers = [shard.number for shard in self.all()]
        if isinstance(position, Mapping):
            mapping = dict(position)
        elif len(numbers) <= 1:
            mapping = dict.fromkeys(numbers, position)
        elif position == 0:
            return {}
        else:
            raise InvalidPosition(
                f"{self._name} has shards {numbers}: give a position for each, as {{shard: offset}}, not {position}"
            )
        for number, offset in mapping.items():
            if number not in numbers:
                raise InvalidPosition(f"{self._name} has no shard {number!r}; it has {numbers}")
            if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise InvalidPosition(f"offset {offset!r} of shard {number}: an offset is a whole number, 0 or more")
        return mapping

    def close(self) -> Shard | None:
        """Claim and follow none any more; the one that was owned, for the caller to let go of."""
        with self.lock:
            self._closed = True
            own, self.own = self.own, None
            for follower in self._followers.values():
                follower.close()
            self._followers.clear()
        return own
