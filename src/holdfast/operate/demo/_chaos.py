"""When to kill what: Spark's driver with its Java, and the process that receives, in turn, on the way.

A process is killed only after it came back from the time before, and the driver only after something was acked since,
unless there is nothing left to ack: so the kills fall into work, and the work goes on between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clock import Ids
from holdfast.operate.demo._figures import DRIVER, INGEST, DemoFigures

FEWEST: Final = 2  # of each
SECONDS_EACH: Final = 15.0  # so many more the longer it runs: a driver is back after about as long
_FIRST, _LAST = 0.1, 0.9  # of the rows that are generated: where the first and the last kill fall due


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that is to be killed, or was."""

    process: str
    pid: int
    seconds: float  # since the start
    generated: int  # rows, at that moment


class Chaos:
    """Asked with every look at the figures; the shares of the rows at which kills fall due are chosen by chance."""

    def __init__(self, seconds: float, ids: Ids) -> None:
        rounds = max(FEWEST, round(seconds / SECONDS_EACH))
        step = (_LAST - _FIRST) / (2 * rounds)
        self._due = [
            (name, _FIRST + step * (2 * turn + place + int.from_bytes(ids.random_bytes(2), "big") / 2**16))
            for turn in range(rounds)
            for place, name in enumerate((DRIVER, INGEST))
        ]
        self._acked = 0  # rows, when the driver was last killed
        self.kills: list[Kill] = []

    @property
    def done(self) -> bool:
        return not self._due

    def next(self, figures: DemoFigures, health: Mapping[str, Mapping[str, Any]]) -> Kill | None:
        """What to kill now, if anything."""
        working = _acked(figures) > self._acked or figures.drained
        for name, share in self._due:
            earlier = sum(kill.process == name for kill in self.kills)
            part = health.get(name, {})
            back = part.get("address") is not None and part.get("restarts", 0) >= earlier
            if figures.generated >= share * figures.wanted and back and (working or name != DRIVER):
                return Kill(name, int(part["pid"]), round(figures.seconds, 1), figures.generated)
        return None

    def killed(self, kill: Kill, figures: DemoFigures) -> None:
        """It was done."""
        self.kills.append(kill)
        self._due.remove(next(each for each in self._due if each[0] == kill.process))
        if kill.process == DRIVER:
            self._acked = _acked(figures)


def _acked(figures: DemoFigures) -> int:
    return sum(sink.acked for sink in figures.sinks)
