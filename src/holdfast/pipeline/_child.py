"""A process that can be supervised: how it says that it is ready, and hears that it must stop.

It says so by one JSON line on the descriptor that `--ready-fd` names: `{"address": "127.0.0.1:40123"}`, or why it does
not start: `{"error": "...", "exit_code": 78, "final": true}`; final is what another attempt cannot mend. It hears it by
one JSON line on standard input: `{"stop": 42.5}`, the seconds in which it should have ended. When standard input ends,
the supervisor is gone: the process keeps what it has and ends, so that nothing is left running.

On its own, without `--ready-fd`, it stops at SIGTERM or SIGINT, and at the second one at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from holdfast.clock import Clock, Deadline
from holdfast.errors import HoldfastError, InputError, Missing

CHECK_SECONDS: Final = 0.2  # between two looks whether the part still works
GONE_SECONDS: Final = 5.0  # to end in, without a supervisor
MARGIN_SECONDS: Final = 1.0  # what ends later than its deadline by this much is ended
GAVE_UP: Final = 75  # sysexits.h
INTERRUPTED: Final = 130
_INPUT: Final = 0


class Part(Protocol):
    """What a process is for. All calls come from its main thread."""

    def start(self) -> str:
        """On return it does its work; the address where it says how it is."""
        ...

    def check(self) -> None:
        """Raises why it cannot go on."""
        ...

    def stop(self, deadline: Deadline) -> None:
        """Also after a `start` that failed, or was never made."""
        ...


class Stop:
    """The request to stop, from whoever makes it; what takes longer than was asked for is ended the hard way.

    `request` may be called in a signal handler: it takes no lock that its own thread could hold.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._asked: SimpleQueue[Deadline] = SimpleQueue()
        self._watched: SimpleQueue[float] = SimpleQueue()
        self._deadline: Deadline | None = None
        threading.Thread(target=self._watch, name="holdfast-stop", daemon=True).start()

    def request(self, seconds: float) -> None:
        self._asked.put(Deadline(seconds, self._clock))
        self._watched.put(self._clock.monotonic() + seconds + MARGIN_SECONDS)

    def wait(self, timeout: float) -> Deadline | None:
        """The deadline of the first request, once there is one."""
        if self._deadline is None:
            with contextlib.suppress(Empty):
                self._deadline = self._asked.get(timeout=timeout)
        return self._deadline

    def _watch(self) -> None:
        end = self._watched.get()
        while (left := end - self._clock.monotonic()) > 0:
            with contextlib.suppress(Empty):
                end = min(end, self._watched.get(timeout=left))
        os._exit(GAVE_UP)  # threads that hang would hold any other way out; what is on disk is whole at any moment


def serve(part: Part, *, ready_fd: int | None, stop_seconds: float, clock: Clock) -> None:
    """Run a part until it is to stop; raises why it could not go on, or not stop properly."""
    stop = Stop(clock)
    if ready_fd is not None:
        threading.Thread(target=_obey, args=(stop,), name="holdfast-supervisor", daemon=True).start()
    _handle_signals(stop, stop_seconds)
    problem: Exception | None = None
    try:
        address = part.start()
        _handle_signals(stop, stop_seconds)  # Spark has set handlers of its own
        _announce(ready_fd, {"address": address})
        while stop.wait(CHECK_SECONDS) is None:
            part.check()
    except Exception as failed:  # it is stopped properly, whatever happened
        problem = failed
    try:
        part.stop(stop.wait(0.0) or Deadline(stop_seconds, clock))
    except Exception as failed:
        problem = problem or failed
    if problem is not None:
        final = isinstance(problem, InputError | Missing)
        code = problem.exit_code if isinstance(problem, HoldfastError) else HoldfastError.exit_code
        _announce(ready_fd, {"error": str(problem), "exit_code": code, "final": final})
        raise problem


def _handle_signals(stop: Stop, seconds: float) -> None:
    asked = False

    def handle(_number: int, _frame: Any) -> None:
        nonlocal asked
        if asked:
            os._exit(INTERRUPTED)
        asked = True
        stop.request(seconds)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, handle)


def _obey(stop: Stop) -> None:
    """Read what the supervisor says, until it says no more."""
    said = b""
    while True:
        try:
            more = os.read(_INPUT, 4096)
        except OSError:
            more = b""
        if not more:
            stop.request(GONE_SECONDS)
            return
        *lines, said = (said + more).split(b"\n")
        for line in lines:
            stop.request(float(json.loads(line)["stop"]))


def _announce(descriptor: int | None, document: dict[str, Any]) -> None:
    """Once: after the first line nobody listens."""
    if descriptor is None:
        return
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # told already, or the supervisor is gone
        os.write(descriptor, json.dumps(document).encode() + b"\n")
        os.close(descriptor)
