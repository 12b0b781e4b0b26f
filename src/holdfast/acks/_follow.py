"""Following the files of a shard's ack log as others write, rotate and remove them; takes no lock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.acks._checkpoint import AckCheckpoint
from holdfast.acks._found import Damage, Found
from holdfast.acks._scan import AckScan
from holdfast.acks._state import AckState
from holdfast.acks.format import CHECKPOINT, FOLDER, HEAD, MAX_BODY_BYTES, file_name, list_acks
from holdfast.acks.records import BatchId
from holdfast.errors import Corruption
from holdfast.files import Files

READ_BYTES: Final = 4 << 20  # of a file at a time
if HEAD.size + MAX_BODY_BYTES > READ_BYTES:
    raise RuntimeError("a record must fit into what is read at a time")


@dataclass(frozen=True, slots=True)
class Change:
    """What a refresh brought. After `reloaded`, every `Progress` is another object than before."""

    subscribers: frozenset[int] = frozenset()
    batches: frozenset[BatchId] = frozenset()
    damage: tuple[Damage, ...] = ()
    reloaded: bool = False


NOTHING: Final = Change()


class Follower:
    """Reads on where it stopped, through rotations; if what it needs is gone, begins again at the checkpoint."""

    def __init__(self, files: Files, folder: Path, shard_id: bytes) -> None:
        self._files, self._shard, self._shard_id = files, folder, shard_id
        self._folder = folder / FOLDER
        self.state = AckState()
        self.replay_from = 0  # files below this one are in the checkpoint
        self.records = 0  # read since the checkpoint
        self.damage_count = 0  # since the shard was made
        self.damage_bytes = 0
        self._read_before = 0  # bytes of files between the checkpoint and this one
        self._loaded = False
        self._missing_told = False
        self._news = _News()
        self._begin(0)

    @property
    def number(self) -> int:
        """The file that is being read."""
        return self._scan.number

    @property
    def position(self) -> int:
        """How far it was read."""
        return self._scan.position

    @property
    def is_untouched(self) -> bool:
        """Whether the file that is being read has a whole header and nothing behind it."""
        return self._scan.is_untouched

    @property
    def replayed_bytes(self) -> int:
        """How much would have to be read again after opening."""
        return self._read_before + self._scan.position

    def path(self, number: int) -> Path:
        return self._folder / file_name(number)

    def refresh(self, *, alone: bool) -> None:
        """Read to the end; `alone`: nobody else can be writing, so what is cut short there stays so.

        Raises `OSError` and `NewerVersion`; then it can be repeated, and nothing that was read is forgotten.
        """
        thorough = alone or not self._loaded
        if not self._loaded:
            self._load()
            self._loaded = True
        while True:
            # First this question, then the reading: once there is a next file, nobody appends to this one.
            followed = self._is_followed(thorough=thorough)
            try:
                self._read(settled=followed or alone)
            except FileNotFoundError:
                if not self._find_another():
                    return
                thorough = True
                continue
            if not followed:
                return
            self._read_before += self._scan.position
            self._begin(self._scan.number + 1)

    def take_change(self) -> Change:
        """What was read since this was last asked."""
        news = self._news
        if not (news.subscribers or news.batches or news.damage or news.reloaded):
            return NOTHING
        self._news = _News()
        return Change(frozenset(news.subscribers), frozenset(news.batches), tuple(news.damage), news.reloaded)

    def rotated(self, replay_from: int) -> None:
        """The checkpoint now holds everything before this file, which has nothing in it yet."""
        self.replay_from, self._read_before, self.records = replay_from, 0, 0
        self._begin(replay_from)

    def _is_followed(self, *, thorough: bool) -> bool:
        if self._files.exists(self._next_path):
            return True
        return thorough and any(number > self.number for number in list_acks(self._files, self._folder))

    def _read(self, *, settled: bool) -> None:
        size = self._files.size(self._scan.path)
        if size < self._scan.position:
            what = f"the file ends here and was {self._scan.position} bytes long"
            self._report(Damage(str(self._scan.path), size, 0, what))
            self._begin(self._scan.number)
        scan = self._scan
        while scan.position < size:
            data = self._files.read(scan.path, scan.position, READ_BYTES)
            at_end = scan.position + len(data) >= size
            found = Found()
            scan.advance(data, found, settled=settled and at_end)
            self._apply(found)
            if at_end or not data:
                return

    def _apply(self, found: Found) -> None:
        subscribers, batches = self.state.apply(found)
        self.records += found.records
        self._news.subscribers |= subscribers
        self._news.batches |= batches
        for damage in found.damage:
            self._report(damage)

    def _report(self, damage: Damage) -> None:
        self._news.damage.append(damage)
        self.damage_count += 1
        self.damage_bytes += damage.length

    def _begin(self, number: int) -> None:
        self._scan = AckScan(self.path(number), number, self._shard_id)
        self._next_path = self.path(number + 1)
        self._missing_told = False

    def _load(self) -> None:
        """Begin at the checkpoint, or with the first file if there is none."""
        present = list_acks(self._files, self._folder)  # before the checkpoint, which is there before files go
        problem = "there is none, and ack files that follow one" if present and present[0] > 0 else None
        try:
            checkpoint = AckCheckpoint.read(self._files, self._shard, self._shard_id)
        except Corruption as damaged:
            checkpoint, problem = None, damaged.what
        if checkpoint is None:
            checkpoint = AckCheckpoint(AckState(), present[0] if present else 0)
            if problem is not None:
                what = f"{problem}: what the checkpoint recorded is delivered again"
                self._report(Damage(str(self._shard / CHECKPOINT), 0, 0, what))
        self._take_over(checkpoint)

    def _take_over(self, checkpoint: AckCheckpoint) -> None:
        self._news.reloaded = self._loaded
        for state in (self.state, checkpoint.state):
            self._news.subscribers |= state.progress.keys()
            self._news.batches |= state.batches.keys() | state.answers.keys()
        self.state, self.replay_from = checkpoint.state, checkpoint.replay_from
        self.damage_count = max(self.damage_count, checkpoint.damage_count)
        self.damage_bytes = max(self.damage_bytes, checkpoint.damage_bytes)
        self.records = self._read_before = 0
        self._begin(checkpoint.replay_from)

    def _find_another(self) -> bool:
        """The file to be read is not there: was it rotated away, or is it missing, or not made yet?"""
        number = self.number
        later = [each for each in list_acks(self._files, self._folder) if each > number]
        try:
            checkpoint = AckCheckpoint.read(self._files, self._shard, self._shard_id)
        except Corruption:  # what it recorded up to here is in this state, or was reported when it was loaded
            checkpoint = None
        if checkpoint is not None and checkpoint.replay_from > number:
            self._take_over(checkpoint)
            return True
        expected = number > 0 or self.position > 0 or bool(later)
        if expected and not self._missing_told:
            self._missing_told = True
            last = f" to {later[0] - 1}" if later and later[0] > number + 1 else ""
            self._report(Damage(str(self.path(number)), 0, 0, f"missing: ack file {number}{last}"))
        if later:
            self._read_before += self.position
            self._begin(later[0])
        return bool(later)


class _News:
    """What was read and not told yet."""

    def __init__(self) -> None:
        self.subscribers: set[int] = set()
        self.batches: set[BatchId] = set()
        self.damage: list[Damage] = []
        self.reloaded = False
