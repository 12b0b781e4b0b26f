"""Asks processes how they are, by their `/healthz`, in a thread of its own: one that hangs holds up nobody else."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clock import Clock
from holdfast.health import Status

ASK_SECONDS: Final = 1.0  # between two rounds
ANSWER_SECONDS: Final = 5.0
_MOST: Final = 1_000_000  # bytes of an answer


@dataclass(frozen=True, slots=True)
class _Seen:
    """The process at an address: when it last answered (or was first asked), and what."""

    address: str
    since: float
    document: dict[str, Any]


class Watch:
    """`addresses()` says whom to ask; `health(name)` is the last answer, `silent(name)` for how long there was none."""

    def __init__(self, addresses: Callable[[], Mapping[str, str]], clock: Clock) -> None:
        self._addresses, self._clock = addresses, clock
        self._seen: dict[str, _Seen] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ask no more."""
        self._closing.set()
        self._thread.join(ANSWER_SECONDS + ASK_SECONDS)

    def health(self, name: str) -> dict[str, Any]:
        """Empty when the process that is there now has not answered yet."""
        seen = self._present(name)
        return {} if seen is None else seen.document

    def silent(self, name: str) -> float:
        """Seconds without an answer, since it was first asked; zero for one that was not asked."""
        seen = self._present(name)
        return 0.0 if seen is None else self._clock.monotonic() - seen.since

    def _present(self, name: str) -> _Seen | None:
        """One that was started again has another address; what its predecessor said does not count."""
        seen = self._seen.get(name)
        return seen if seen is not None and seen.address == self._addresses().get(name) else None

    def _run(self) -> None:
        while not self._closing.is_set():
            for name, address in self._addresses().items():
                if self._present(name) is None:
                    self._seen[name] = _Seen(address, self._clock.monotonic(), {})
                found = ask(address)
                if found is not None:
                    self._seen[name] = _Seen(address, self._clock.monotonic(), found)
            self._closing.wait(ASK_SECONDS)


def ask(address: str) -> dict[str, Any] | None:
    """What a process says of itself at `address`; `None` if it says nothing that can be understood."""
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        document = json.loads(connection.getresponse().read(_MOST))
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return document if isinstance(document, dict) and document.get("status") in set(Status) else None
