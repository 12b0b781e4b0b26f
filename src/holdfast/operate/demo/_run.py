"""`holdfast run` as a process of its own, with all that it starts.

It leads a session of its own: a terminal's Ctrl-C does not reach it, and a process is known to be one of its own by
that session. It ends when its standard input does, so that nothing is left if the demonstration itself is killed.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from holdfast.errors import HoldfastError
from holdfast.pipeline._watch import ANSWER_SECONDS, ask

LOG: Final = "run.log"
END_SECONDS: Final = 20.0  # for everything to be killed
_ADDRESS: Final = re.compile(rb"serving metrics and health +address=(\S+)")
_TAIL_BYTES: Final = 4096

Metrics = dict[tuple[str, str], float]


class DemoRun:
    """From its start to the end of the block; its output goes to `run.log` in the folder."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.log = folder / LOG
        with self.log.open("xb") as log:
            self._popen = subprocess.Popen(  # noqa: S603  our own program
                list(command), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, start_new_session=True,
                env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip
        self._address: str | None = None

    def health(self) -> dict[str, dict[str, Any]]:
        """How each process is, by name; empty if that is not known just now."""
        if self._address is None and (match := _ADDRESS.search(self.log.read_bytes())):
            self._address = match[1].decode()
        document = None if self._address is None else ask(self._address)
        parts: dict[str, dict[str, Any]] = (document or {}).get("parts", {})
        return parts

    def pause(self, seconds: float) -> None:
        """Wait; raises if it ends meanwhile."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._popen.wait(seconds)
            raise HoldfastError(
                f"`holdfast run` ended by itself with {code}; {self.log} says why: {self._last_words()}"
            )

    def kill(self, leader: int) -> bool:
        """SIGKILL for a process and all of its group, if it is one of ours; whether it was."""
        try:
            if os.getsid(leader) != self._popen.pid or os.getpgid(leader) != leader:
                return False
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return False
        return True

    def stop(self, seconds: float) -> int:
        """Ask it to stop, and wait; its exit code."""
        self._popen.send_signal(signal.SIGTERM)
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise HoldfastError(f"`holdfast run` did not stop in {seconds:.0f} s; see {self.log}") from None

    def _last_words(self) -> str:
        lines = self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")

    def __enter__(self) -> DemoRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """If it still runs, something went wrong: it is asked twice, so it kills all that it started."""
        if self._popen.poll() is None:
            for each in (signal.SIGTERM, signal.SIGINT):
                self._popen.send_signal(each)
            try:
                self._popen.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._popen.kill()  # what it started ends by itself then
        self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()


def read_metrics(address: str) -> Metrics:
    """The metrics with one label that a process serves: (name, label's value) -> value; none if it does not answer."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
    return {
        (sample.name, next(iter(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if len(sample.labels) == 1
    }
