"""A subscriber has one holder at a time; an epoch tells the holders apart, so that an earlier one can be fenced.

<topic>/subscribers/<name>.lease        checkpoint: epoch, and who holds it
<topic>/subscribers/<name>-<epoch>.held locked for as long as that holder lives

The epoch only rises. Whoever holds the lease checks it under the ack log's lock at each write; whoever takes it over
waits for those locks once. So when a takeover returns, nothing of the earlier holder can be written any more.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corruption, Fenced, SubscriberTaken
from holdfast.files import Files, Lock, LockHeld
from holdfast.files.checkpoint import decode_checkpoint, encode_checkpoint, write_checkpoint
from holdfast.store.registry import Registration

SUBSCRIBERS: Final = "subscribers"


class Lease:
    """Held from `take` to `release`, unless another one takes over."""

    def __init__(self, files: Files, path: Path, name: str, epoch: int, held: Lock, document: bytes) -> None:
        self.epoch = epoch
        self._files, self._path, self._name = files, path, name
        self._held, self._document = held, document

    @classmethod
    def take(
        cls,
        files: Files,
        topic: Path,
        registration: Registration,
        *,
        note: str,
        takeover: bool,
        barriers: Iterable[Path],
    ) -> Lease:
        """The caller holds the topic's lock. `barriers`: the lock files of the ack logs.

        1. Is the present holder alive? Then raise `SubscriberTaken`, or go on to fence it.
        2. Lock a file of the new epoch's own.   A crash now: the old epoch stands, and its holder is dead or fenced.
        3. Write the new epoch.                  A crash now: whoever comes next finds it free.
        4. Wait until nobody writes acks who checked the old epoch.
        """
        name, folder = registration.name, topic / SUBSCRIBERS
        files.make_folder(folder)
        path = folder / f"{name}.lease"
        epoch, holder = read_lease(files, path)
        alive = epoch > 0 and is_held(files, folder, name, epoch)
        if alive and not takeover:
            raise SubscriberTaken(
                f"subscriber {name!r} is held by {holder or 'another process'}; "
                "close it there, or subscribe with takeover=True to fence that holder"
            )
        held = files.lock(_held_path(folder, name, epoch + 1), note=note)
        try:
            document = {"kind": "lease", "number": registration.number, "epoch": epoch + 1, "holder": note}
            write_checkpoint(files, path, document)
            if alive:
                for barrier in barriers:
                    files.lock(barrier, note="", wait=True).release()
        except BaseException:
            held.release()
            raise
        with contextlib.suppress(OSError):  # tidying; its holder, if any, keeps its open file
            files.unlink(_held_path(folder, name, epoch))
        return cls(files, path, name, epoch + 1, held, encode_checkpoint(document))

    def check(self) -> None:
        """Raises `Fenced` if another holder has taken over, or if the subscriber was removed."""
        try:
            if self._files.read(self._path) == self._document:
                return
        except FileNotFoundError:
            raise Fenced(f"subscriber {self._name!r} was removed; subscribe again to start anew") from None
        epoch, holder = read_lease(self._files, self._path)
        raise Fenced(
            f"subscriber {self._name!r} was taken over by {holder} (epoch {epoch}, ours was {self.epoch}); "
            "what is unfinished is delivered there"
        )

    def release(self) -> None:
        self._held.release()


def read_lease(files: Files, path: Path) -> tuple[int, str]:
    """The epoch and its holder; 0 if nobody ever held it."""
    try:
        document: dict[str, Any] = decode_checkpoint(files.read(path), path)
    except FileNotFoundError:
        return 0, ""
    if document.get("kind") != "lease" or not isinstance(document.get("epoch"), int):
        raise Corruption(path, 20, "not a subscriber's lease")
    return document["epoch"], str(document.get("holder", ""))


def is_held(files: Files, folder: Path, name: str, epoch: int) -> bool:
    """Does the holder of this epoch still live?"""
    path = _held_path(folder, name, epoch)
    if not files.exists(path):
        return False
    try:
        files.lock(path, note="", shared=True).release()  # shared: others may be looking too
    except LockHeld:
        return True
    return False


def holder(files: Files, topic: Path, name: str) -> str | None:
    """Who holds the subscriber now; `None` if nobody does."""
    folder = topic / SUBSCRIBERS
    try:
        epoch, who = read_lease(files, folder / f"{name}.lease")
    except Corruption:
        return "nobody can tell: its lease is damaged; run `holdfast fsck`"
    return who if epoch and is_held(files, folder, name, epoch) else None


def forget(files: Files, topic: Path, name: str) -> None:
    """The subscriber was removed: whoever holds it is fenced."""
    folder = topic / SUBSCRIBERS
    if not files.is_folder(folder):
        return
    held = re.compile(re.escape(name) + r"-\d+\.held")
    for present in files.list(folder):
        if present == f"{name}.lease" or held.fullmatch(present):
            with contextlib.suppress(FileNotFoundError):
                files.unlink(folder / present)


def _held_path(folder: Path, name: str, epoch: int) -> Path:
    return folder / f"{name}-{epoch}.held"
