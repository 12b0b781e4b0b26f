"""What every receiver is: something that takes rows in from somewhere and appends them to a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.clock import Clock, Deadline, Ids
from holdfast.files import Files
from holdfast.store import Topic

SOURCE: str = "source"  # the attribute of every bundle that says which source it came from


@dataclass(frozen=True, slots=True)
class Context:
    """Where a receiver works: its source's name, the topic it appends to, and what it may keep for itself."""

    source: str
    topic: Topic
    store_id: str
    state: Path  # the folder for the state of sources
    worker: int  # this process is one of `workers`, counted from 0
    workers: int
    acknowledgements: bool  # answered when durable; otherwise when the sinks have delivered
    files: Files
    clock: Clock
    ids: Ids


@dataclass(frozen=True, slots=True)
class ReceiverStatistics:
    """What a receiver has done since it was made."""

    rows: int = 0
    bundles: int = 0  # repeats included
    answered: Mapping[str, int] = field(default_factory=dict)  # bundles by their answer: `durable`, `delivered`, ...
    unanswered: int = 0  # bundles
    waits: int = 0  # times that it waited because the store took nothing
    finished: bool = False  # there is nothing more to receive


class Receiver(Protocol):
    """One source in one ingest process. Made by `SOURCES[type].make(settings, context)`."""

    def start(self) -> None:
        """Begin to receive; raises what is wrong with the settings or with what it finds on the disk."""
        ...

    def stop(self, deadline: Deadline) -> None:
        """Accept nothing more; on return all that was accepted is answered or durable. Raises `WaitTimeout`."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why it receives no more, if something went wrong that it cannot mend."""
        ...

    def statistics(self) -> ReceiverStatistics: ...
