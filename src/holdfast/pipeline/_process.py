"""One process that the supervisor starts, with all that it starts in turn (Spark's Java, above all).

It is the leader of a process group of its own, so that a terminal's Ctrl-C reaches the supervisor alone, and so that
the whole group can be killed. Its standard input is a pipe that the supervisor holds open: `holdfast.pipeline._child`
says what goes through it, and what its end means.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clock import Clock, Deadline

GROUP_SECONDS: Final = 10.0  # for Java to clean up after the driver has ended properly
_MOST: Final = 65_536  # bytes of a line about the start


@dataclass(frozen=True, slots=True)
class Program:
    """What is to run, under which name."""

    name: str
    command: Sequence[str]


def holdfast_program(name: str, *arguments: str) -> Program:
    """A command of `holdfast` itself."""
    return Program(name, [sys.executable, "-m", "holdfast", *arguments])


class Process:
    """Starts when it is made. `ready` is what it said on starting, once it has: see `_child`."""

    def __init__(self, program: Program, clock: Clock) -> None:
        self._clock = clock
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        self._ready_fd: int | None = ours
        try:
            self._popen = subprocess.Popen(  # noqa: S603  our own program
                [*program.command, "--ready-fd", str(theirs)],
                stdin=subprocess.PIPE,
                pass_fds=[theirs],
                process_group=0,
                bufsize=0,
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
        self.pid = self._popen.pid
        self._said = b""
        self._leaving: Deadline | None = None
        self.ready: dict[str, Any] | None = None

    def listen(self) -> None:
        """Read what it says on starting, as far as it is there."""
        while self._ready_fd is not None:
            try:
                more = os.read(self._ready_fd, 4096)
            except BlockingIOError:
                return
            self._said += more
            line, found, _ = self._said.partition(b"\n")
            if found:
                with contextlib.suppress(ValueError):  # not a document: as if it had said nothing
                    document = json.loads(line)
                    self.ready = document if isinstance(document, dict) else None
            if found or not more or len(self._said) > _MOST:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._ready_fd is not None:
            os.close(self._ready_fd)
            self._ready_fd = None

    def ask_to_stop(self, seconds: float) -> None:
        """It should have ended in so many seconds."""
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended already
                self._popen.stdin.write(json.dumps({"stop": max(0.0, seconds)}).encode() + b"\n")

    def kill(self) -> None:
        """The process, and all of its group, now."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Its exit code, once it and all that it started have ended. What it leaves behind is killed."""
        code = self._popen.poll()
        if code is None:
            return None
        if self._leaving is None:
            self._leaving = Deadline(0.0 if code else GROUP_SECONDS, self._clock)
        if self._group_lives():
            if not self._leaving.passed():
                return None
            self.kill()
        self.listen()
        self._hang_up()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        return code

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True
