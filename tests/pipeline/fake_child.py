"""A process to supervise: python fake_child.py NAME JOURNAL BEHAVIOUR --ready-fd N; the journal says what it did.

On its own: --stop-seconds N.

good      serves until it is to stop
deaf      serves, and does not stop
hurt      says that something is wrong, and will stay wrong
missing   says that something is not installed
weak      ends before it is ready
failing   serves, and says that it is not well
parent    serves, and has started a process that does not end by itself
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from holdfast.clock import Deadline, SystemClock
from holdfast.errors import HoldfastError, InvalidSettings, Missing, TryAgain
from holdfast.health import Health, HealthServer, Status
from holdfast.pipeline._child import serve


class Fake:
    def __init__(self, name: str, journal: Path, behaviour: str) -> None:
        self._name, self._journal, self._behaviour = name, journal, behaviour

    def note(self, text: str) -> None:
        with self._journal.open("a") as file:
            file.write(f"{self._name} {text}\n")

    def start(self) -> str:
        self.note(f"starting {os.getpid()}")
        problems = {
            "hurt": InvalidSettings("it is not right"),
            "missing": Missing("install it"),
            "weak": TryAgain("weak"),
        }
        if self._behaviour in problems:
            raise problems[self._behaviour]
        if self._behaviour == "parent":
            other = subprocess.Popen(["sleep", "1000"])
            self.note(f"child {other.pid}")
        status = Status.FAILING if self._behaviour == "failing" else Status.OK
        address = HealthServer(lambda: Health(status, {"part": {"status": str(status)}})).address
        self.note("ready")
        return address

    def check(self) -> None:
        """It can always go on."""

    def stop(self, deadline: Deadline) -> None:
        self.note("stopping")
        if self._behaviour == "deaf":
            threading.Event().wait()
        self.note("stopped")


if __name__ == "__main__":
    _, name, journal, behaviour, option, number = sys.argv
    supervised = option == "--ready-fd"
    try:
        serve(
            Fake(name, Path(journal), behaviour),
            ready_fd=int(number) if supervised else None,
            stop_seconds=600 if supervised else float(number),
            clock=SystemClock(),
        )
    except HoldfastError as error:
        sys.exit(error.exit_code)
