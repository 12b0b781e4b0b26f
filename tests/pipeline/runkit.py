"""A supervisor as a process: what it logs, what its processes note down, and that none of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.pipeline._watch import ask
from sparkkit import environment
from store.storekit import until

RUN = str(Path(__file__).with_name("fake_run.py"))
QUICK = {"first_retry": 0.01, "last_retry": 0.05}


class Run:
    """`stages` are lists of (name, behaviour): see fake_child.py."""

    def __init__(self, folder: Path, stages: list[list[tuple[str, str]]], **patience: float) -> None:
        self.journal = folder / "journal"
        self.journal.touch()
        arguments = [str(self.journal), json.dumps(stages), json.dumps({**QUICK, **patience})]
        self.process = subprocess.Popen(
            [sys.executable, RUN, *arguments], stdout=subprocess.PIPE, text=True, env=environment()
        )
        self.log: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.append(json.loads(line))

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}
        return [line for line in list(self.log) if wanted.items() <= line.items()]

    def wait_for(self, event: str, times: int = 1, **fields: Any) -> dict[str, Any]:
        """Until it was logged so often; the last such line."""
        until(lambda: len(self.logged(event, **fields)) >= times or self.process.poll() is not None)
        return self.logged(event, **fields)[times - 1]

    def notes(self, name: str | None = None) -> list[str]:
        """What processes noted down, in order; pids left out."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [" ".join(words[:2]) for words in lines if name in (None, words[0])]

    def pids(self, name: str, what: str = "starting") -> list[int]:
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [int(words[2]) for words in lines if words[:2] == [name, what]]

    def health(self) -> dict[str, Any]:
        return ask(self.wait_for("serving metrics and health")["address"]) or {}

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def code(self) -> int:
        """What it ends with."""
        return self.process.wait(120)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if kind is None:
            until(lambda: not self.alive())
        for pid in self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def alive(self) -> list[int]:
        """All processes that were noted down and still run."""
        words = [line.split() for line in self.journal.read_text().splitlines()]
        return [int(each[2]) for each in words if len(each) == 3 and runs(int(each[2]))]


def runs(pid: int) -> bool:
    """Does it run? One that ended and that nobody asked after does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
