"""Append, kill, recover, compare: the recipe of `holdfast demo`, over the public interface.

A writer process appends bundles and says on its output which ids it is about to append and which are acknowledged. It
is killed with SIGKILL at a random moment; the store is opened again, and what is there is compared with what was said.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from holdfast.bundle import RecordBundle
from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import HoldfastError
from holdfast.store import Store

TOPIC: Final = "demo/events"
SETTINGS: Final[dict[str, Any]] = {  # small, so that kills also hit sealing and the change of WAL files
    "buffer": {"segment": {"target_size": 500_000, "max_open_duration": 0.5}, "wal": {"file_size": 500_000}}
}
IN_FLIGHT: Final = 16
ROWS: Final = 20
SHORTEST_SECONDS: Final = 0.2  # of a writer's life after its first acknowledgement
_FIRST_OVERHEAD_SECONDS: Final = 1.5  # of a round besides the writer's life; later ones go by the one before
_START_SECONDS: Final = 60.0  # by then a writer has acknowledged something, or something is wrong


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """How the demonstration stands."""

    rounds: int
    kills: int = 0
    appended: int = 0  # ids that a writer said it would append
    acknowledged: int = 0
    found: int = 0  # of the acknowledged ones
    lost: int = 0
    invented: int = 0  # in the store but never appended, or not as they were appended, or out of order
    doing: str = ""

    @property
    def passed(self) -> bool:
        return self.lost == 0 and self.invented == 0 and self.kills == self.rounds


def demo_bundle(number: int) -> RecordBundle:
    """The bundle with this id; everything in it follows from the id."""
    values = [number * ROWS + row for row in range(ROWS)]
    batch = pa.record_batch(
        {"id": pa.array(values, pa.int64()), "text": pa.array([f"event {each} of {number}" for each in values])}
    )
    return RecordBundle({"events": batch}, {"id": number})


def write_demo(folder: Path, first: int, output: TextIO) -> None:
    """Append until killed. `+ n` goes out before the ids below n are appended, `= n` when id n is acknowledged."""
    with Store.open(folder, settings=SETTINGS) as store:
        topic = store.topic(TOPIC)
        number = first
        while True:
            output.write(f"+ {number + IN_FLIGHT}\n")
            output.flush()
            receipts = [topic.append(demo_bundle(each)) for each in range(number, number + IN_FLIGHT)]
            for each, receipt in enumerate(receipts, number):
                receipt.wait()
                output.write(f"= {each}\n")
            output.flush()
            number += IN_FLIGHT


@dataclass(slots=True)
class _Said:
    """What writers said so far."""

    acknowledged: list[int] = field(default_factory=list)
    appended: int = 0

    def hear(self, line: bytes) -> None:
        mark, number = line.split()
        if mark == b"=":
            self.acknowledged.append(int(number))
        else:
            self.appended = int(number)


def run_demo(
    folder: Path, *, rounds: int, seconds: float, clock: Clock, ids: Ids, show: Callable[[DemoFigures], None]
) -> DemoFigures:
    """Kill `rounds` writers one after the other, within about `seconds` in all; calls `show` as figures change."""
    said = _Said()
    figures = DemoFigures(rounds)
    whole, overhead = Deadline(seconds, clock), _FIRST_OVERHEAD_SECONDS
    for number in range(rounds):
        left = whole.remaining() or 0.0
        share = int.from_bytes(ids.random_bytes(4), "little") / 2**32
        life = SHORTEST_SECONDS + share * max(0.0, left / (rounds - number) - overhead - SHORTEST_SECONDS)
        figures = replace(figures, doing=f"round {number + 1}: a writer appends")
        for _ in _write_and_kill(folder, said, life, clock):
            figures = replace(figures, appended=said.appended, acknowledged=len(said.acknowledged))
            show(figures)
        figures = replace(
            figures, kills=number + 1, appended=said.appended, acknowledged=len(said.acknowledged),
            doing=f"round {number + 1}: killed after {life:.1f} s; opening the store again",
        )  # fmt: skip
        show(figures)
        found, lost, invented = _compare(folder, said)
        figures = replace(
            figures, found=found, lost=lost, invented=invented, doing=f"round {number + 1}: recovered and compared"
        )
        show(figures)
        overhead = left - (whole.remaining() or 0.0) - life
    return figures


def _write_and_kill(folder: Path, said: _Said, life: float, clock: Clock) -> Iterator[None]:
    """Start a writer, listen, and kill it `life` seconds after its first acknowledgement."""
    command = [sys.executable, "-m", "holdfast.cli._demo_writer", os.fspath(folder), str(said.appended)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603 - our own module
        if writer.stdout is None:
            raise RuntimeError("the writer has no output to listen to")
        pipe = writer.stdout.fileno()
        heard = len(said.acknowledged)
        deadline, living, rest = Deadline(_START_SECONDS, clock), False, b""
        try:
            while not deadline.passed():
                ready, _, _ = select.select([pipe], [], [], min(0.2, deadline.remaining() or 0.0))
                if not ready:
                    continue
                data = os.read(pipe, 1 << 16)
                if not data:
                    raise HoldfastError(
                        f"the writer ended by itself with status {writer.wait()}; see its message above"
                    )
                rest = _listen(said, rest + data)
                if not living and len(said.acknowledged) > heard:
                    deadline, living = Deadline(life, clock), True
                yield
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        while data := os.read(pipe, 1 << 16):  # said before it was killed
            rest = _listen(said, rest + data)
        if not living:
            raise HoldfastError(f"the writer acknowledged nothing within {_START_SECONDS:.0f} s")


def _listen(said: _Said, heard: bytes) -> bytes:
    *lines, rest = heard.split(b"\n")
    for line in lines:
        said.hear(line)
    return rest


def _compare(folder: Path, said: _Said) -> tuple[int, int, int]:
    """How many acknowledged bundles are there, how many are not, and how many are there that should not be."""
    present: set[int] = set()
    invented = 0
    last = -1
    with Store.open(folder, settings=SETTINGS) as store:
        for bundle in store.topic(TOPIC).bundles():
            number = bundle.attributes.get("id")
            if not isinstance(number, int) or not last < number < said.appended or bundle != demo_bundle(number):
                invented += 1
                continue
            present.add(number)
            last = number
    found = sum(number in present for number in said.acknowledged)
    return found, len(said.acknowledged) - found, invented
