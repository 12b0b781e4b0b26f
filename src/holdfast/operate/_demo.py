"""Append, deliver, kill, recover, compare: the recipe of `holdfast demo`, over the public interface.

A process appends bundles, takes some of them as the subscriber `reader` and acks them. On its output it says which ids
it is about to append, which are acknowledged (stored for good), and which were delivered, before it acks them. It is
killed with SIGKILL at a random moment. The store is opened again: what was acknowledged has been delivered, or is still
there. What everyone has finished is deleted meanwhile. At the end the rest is delivered, and then every acknowledged
id must have been delivered at least once, and nothing that was never appended.
"""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from holdfast.bundle import RecordBundle
from holdfast.clock import Clock, Deadline, Ids
from holdfast.errors import HoldfastError
from holdfast.store import Delivery, Store

TOPIC: Final = "demo/events"
SUBSCRIBER: Final = "reader"
SETTINGS: Final[dict[str, Any]] = {  # small, so that kills also hit sealing and the change of WAL files
    "buffer": {"segment": {"target_size": 500_000, "max_open_duration": 0.5}, "wal": {"file_size": 500_000}}
}
IN_FLIGHT: Final = 16
TAKEN: Final = 12  # of them are delivered before the next are appended, so that some always wait
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
    delivered: int = 0  # of the acknowledged ones
    again: int = 0  # deliveries of ids that had been delivered before: a kill came before their ack was written
    waiting: int = 0  # acknowledged, not delivered yet, and in the store
    lost: int = 0  # acknowledged, neither delivered nor in the store
    invented: int = 0  # delivered or stored but never appended, or not as they were appended, or out of order
    doing: str = ""

    @property
    def passed(self) -> bool:
        return not (self.lost or self.invented or self.waiting) and self.kills == self.rounds


def demo_bundle(number: int) -> RecordBundle:
    """The bundle with this id; everything in it follows from the id."""
    values = [number * ROWS + row for row in range(ROWS)]
    batch = pa.record_batch(
        {"id": pa.array(values, pa.int64()), "text": pa.array([f"event {each} of {number}" for each in values])}
    )
    return RecordBundle({"events": batch}, {"id": number})


def write_demo(folder: Path, first: int, output: TextIO) -> None:
    """Append and deliver until killed.

    `+ n` goes out before the ids below n are appended, `= n` when id n is acknowledged, `> n` when it was delivered as
    it was appended, and `! n` when it was not.
    """
    with Store.open(folder, settings=SETTINGS) as store:
        topic = store.topic(TOPIC)
        number = first
        with topic.subscribe(SUBSCRIBER, "earliest") as subscriber:
            while True:
                output.write(f"+ {number + IN_FLIGHT}\n")
                output.flush()
                receipts = [topic.append(demo_bundle(each)) for each in range(number, number + IN_FLIGHT)]
                for each, receipt in enumerate(receipts, number):
                    receipt.wait()
                    output.write(f"= {each}\n")
                number += IN_FLIGHT
                _deliver(subscriber.take(TAKEN, timeout=0.0), output)


def _deliver(deliveries: Sequence[Delivery], output: TextIO) -> None:
    """Say what came, then ack it: in this order, so that a kill in between has it delivered again."""
    for delivery in deliveries:
        number = delivery.bundle.attributes["id"]
        output.write(f"{'>' if delivery.bundle == demo_bundle(number) else '!'} {number}\n")
    output.flush()
    for delivery in deliveries:
        delivery.ack()


@dataclass(slots=True)
class _Said:
    """What writers said so far."""

    acknowledged: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)
    again: int = 0
    spoiled: int = 0  # delivered, and not as they were appended
    appended: int = 0

    def hear(self, line: bytes) -> None:
        mark, text = line.split()
        number = int(text)
        match mark:
            case b"+":
                self.appended = number
            case b"=":
                self.acknowledged.add(number)
            case b">" if number < self.appended:
                self.again += number in self.delivered
                self.delivered.add(number)
            case _:
                self.spoiled += 1

    def told(self, figures: DemoFigures) -> DemoFigures:
        return replace(
            figures, appended=self.appended, acknowledged=len(self.acknowledged),
            delivered=len(self.acknowledged & self.delivered), again=self.again,
        )  # fmt: skip


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
        figures = replace(figures, doing=f"round {number + 1}: a writer appends, a subscriber acks")
        for _ in _write_and_kill(folder, said, life, clock):
            figures = said.told(figures)
            show(figures)
        doing = f"round {number + 1}: killed after {life:.1f} s; opening the store again"
        figures = replace(said.told(figures), kills=number + 1, doing=doing)
        show(figures)
        figures = replace(_compare(folder, said, figures), doing=f"round {number + 1}: recovered and compared")
        show(figures)
        overhead = left - (whole.remaining() or 0.0) - life
    show(replace(figures, doing="delivering what is left"))
    _deliver_rest(folder, said)
    figures = replace(_compare(folder, said, said.told(figures)), doing="everything is delivered")
    show(figures)
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


def _compare(folder: Path, said: _Said, figures: DemoFigures) -> DemoFigures:
    """What was acknowledged has been delivered, or is in the store; and nothing else is."""
    present: set[int] = set()
    invented = said.spoiled
    last = -1
    with Store.open(folder, settings=SETTINGS) as store:
        topic = store.topic(TOPIC)
        waits = topic.subscribers()[SUBSCRIBER].lag_bundles > 0
        for bundle in topic.bundles():
            number = bundle.attributes.get("id")
            if not isinstance(number, int) or not last < number < said.appended or bundle != demo_bundle(number):
                invented += 1
                continue
            present.add(number)
            last = number
    missing = said.acknowledged - said.delivered
    waiting = len(missing & present) if waits else 0
    return replace(figures, waiting=waiting, lost=len(missing) - waiting, invented=invented)


def _deliver_rest(folder: Path, said: _Said) -> None:
    """Be the subscriber, in place of the one that was killed, until nothing is left."""
    heard = io.StringIO()
    with Store.open(folder, settings=SETTINGS) as store:
        topic = store.topic(TOPIC)
        with topic.subscribe(SUBSCRIBER) as subscriber:
            while deliveries := subscriber.take(1_000, timeout=0.0):
                _deliver(deliveries, heard)
    for line in heard.getvalue().encode().splitlines():
        said.hear(line)
