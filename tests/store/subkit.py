"""Stores to subscribe to: on a simulated disk with a clock that stands still, or on a real one with other processes.

Run as a program it is such a process: it does what it is told, line by line, and answers each line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import holdfast as hf
from holdfast.clock import Clock, SystemClock
from holdfast.files import Files
from holdfast.store._delivery import Delivery
from holdfast.store._subscriber import Subscriber
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles
from store.storekit import STORE, TOPIC, append, batch

T = TypeVar("T")
DEAD = TOPIC + ".dead"
WAIT = 60.0  # for what must happen; nothing takes this long


# -- a store -----------------------------------------------------------------------------------------------------------


def simulated(
    files: Files | None = None, clock: Clock | None = None, *, seed: int = 1, read_only: bool = False, **buffer: Any
) -> hf.Store:
    """A store in memory that commits by itself; its clock stands still unless one that moves is passed."""
    return hf.Store.open(
        STORE,
        settings={"buffer": {"append_timeout": 0, **buffer}},
        files=SimulatedFiles() if files is None else files,
        clock=FakeClock() if clock is None else clock,
        ids=SequenceIds(seed),
        read_only=read_only,
    )


def put(topic: hf.Topic, *numbers: int, width: int = 0, **options: Any) -> list[int]:
    """Append bundles and wait until they are durable; their offsets."""
    receipts = [append(topic, number, width=width, **options) for number in numbers]
    topic.flush()
    for receipt in receipts:
        assert receipt.wait(timeout=WAIT) >= hf.Durability.FSYNC
    return [receipt.offset for receipt in receipts]


# -- deliveries --------------------------------------------------------------------------------------------------------


def numbers(deliveries: Iterable[Delivery]) -> list[int]:
    """The bundles' own numbers; that rows and attributes agree is checked on the way."""
    found = []
    for delivery in deliveries:
        number = delivery.bundle.attributes["id"]
        assert set(delivery.bundle["logs"]["id"].to_pylist()) == {number}
        found.append(number)
    return found


def now(subscriber: Subscriber, count: int = 1_000) -> list[Delivery]:
    """What can be delivered without waiting."""
    return subscriber.take(count, timeout=0)


def ack_all(deliveries: Iterable[Delivery]) -> list[int]:
    taken = list(deliveries)
    for delivery in taken:
        delivery.ack()
    return numbers(taken)


def unfinished(topic: hf.Topic, name: str) -> list[int]:
    """What a new holder of the subscriber is given; it answers nothing."""
    with topic.subscribe(name) as subscriber:
        return numbers(now(subscriber))


def watermark(topic: hf.Topic, name: str, shard: int = 0) -> int:
    return topic.subscribers()[name].shards[shard].watermark


# -- threads -----------------------------------------------------------------------------------------------------------


class Background(Generic[T]):
    """A call in another thread; `result` waits for it and passes on what it raised."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: list[T] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except BaseException as error:  # handed to whoever asks for the result
            self._error.append(error)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, timeout: float = WAIT) -> T:
        self._thread.join(timeout)
        assert self.done, f"it did not end within {timeout} s"
        if self._error:
            raise self._error[0]
        return self._value[0]


class CountingClock:
    """The machine's clock, which counts how often it is asked: rarely by who waits, all the time by who spins."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self.asked = 0

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def monotonic(self) -> float:
        self.asked += 1
        return self._clock.monotonic()


# -- other processes ---------------------------------------------------------------------------------------------------


class Child:
    """Another process with one store open at a time. `call` sends it one order and returns its answer."""

    _idle: ClassVar[list[Child]] = []  # they start slowly, so a test takes over the child of the one before

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @classmethod
    @contextlib.contextmanager
    def on(cls, path: Path, **options: Any) -> Iterator[Child]:
        """A child with the store at `path` open."""
        child = cls._idle.pop() if cls._idle else cls()
        child.call("open", str(path), **options)
        try:
            yield child
        finally:
            if child.alive:
                child.call("close")
                cls._idle.append(child)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, order: str, *args: Any, **options: Any) -> None:
        """Without waiting for the answer: `answer` does."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, args, options]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the child is gone: {self._process.wait(timeout=WAIT)}"
        kind, value = json.loads(line)
        if kind == "error":
            raise ChildError(value)
        return value

    def call(self, order: str, *args: Any, **options: Any) -> Any:
        self.send(order, *args, **options)
        return self.answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """As by `kill -9`."""
        self._process.kill()
        self._process.wait(timeout=WAIT)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


@atexit.register
def _end_children() -> None:
    for child in Child._idle:
        child.kill()


class ChildError(Exception):
    """What a child raised, as `Name: text`."""


class _Orders:
    """What a child can do."""

    def __init__(self) -> None:
        self.store: hf.Store | None = None
        self.subscribers: dict[str, Subscriber] = {}
        self.deliveries: dict[int, Delivery] = {}

    @property
    def topic(self) -> hf.Topic:
        assert self.store is not None
        return self.store.topic(TOPIC)

    def open(self, path: str, **options: Any) -> str:
        self.store = hf.Store.open(path, **options)
        return self.store.id

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        self.store, self.subscribers, self.deliveries = None, {}, {}

    def append(self, *given: int) -> list[tuple[int, int]]:
        receipts = [append(self.topic, number) for number in given]
        for receipt in receipts:
            receipt.wait(timeout=WAIT)
        return [(receipt.shard, receipt.offset) for receipt in receipts]

    def subscribe(self, name: str, start: Any = "earliest", **options: Any) -> None:
        self.subscribers[name] = self.topic.subscribe(name, start, **options)

    def take(self, name: str, count: int = 100, timeout: float | None = WAIT) -> list[int]:
        taken = self.subscribers[name].take(count, timeout)
        self.deliveries.update({delivery.bundle.attributes["id"]: delivery for delivery in taken})
        return numbers(taken)

    def ack(self, *given: int) -> None:
        for number in given:
            self.deliveries[number].ack()

    def nack(self, number: int, reason: str, **options: Any) -> None:
        self.deliveries[number].nack(reason, **options)

    def reject(self, number: int, reason: str) -> None:
        self.deliveries[number].reject(reason)

    def flush(self, name: str, **options: Any) -> None:
        self.subscribers[name].flush(**options)

    def release(self, name: str) -> None:
        self.subscribers.pop(name).close()

    def lifecycle(self, verb: str, name: str) -> None:
        getattr(self.topic, verb)(name)

    def batch(self, number: int, *given: int) -> None:
        """A batch of these bundles, written down as closed."""
        made = self.topic.batch("source", "run", str(number))
        for each in given:
            made.append({"logs": batch(each)}, attributes={"id": each}).wait(timeout=WAIT)
        made.close()

    def status(self, number: int, timeout: float = WAIT) -> str | None:
        found = self.topic.find_batch("source", "run", str(number))
        return None if found is None else str(found.wait(timeout))

    def moment(self) -> float:
        """Of a clock that all processes of a machine share."""
        return SystemClock().monotonic()


def _obey() -> None:
    orders = _Orders()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # whatever is logged must not look like an answer
    for line in sys.stdin:
        order, args, options = json.loads(line)
        try:
            told = ["answer", getattr(orders, order)(*args, **options)]
        except hf.errors.HoldfastError as error:
            told = ["error", f"{type(error).__name__}: {error}"]
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    _obey()
