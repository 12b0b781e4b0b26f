"""Drivers and writers as processes of their own, to be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparkkit import environment

HERE = Path(__file__).parent
SECONDS = 500.0


def drive(file: Path, *gap: object, master: str = "local[2]") -> str:
    """A driver until it has drained everything, or killed itself in the gap; what it printed."""
    arguments = [sys.executable, str(HERE / "driver_life.py"), str(file), master, *map(str, gap)]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=SECONDS)
    words = [line.split()[0] for line in done.stdout.splitlines() if line.split()[:1] in (["killed"], ["drained"])]
    expected = -signal.SIGKILL if gap else 0
    assert done.returncode == expected, f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return words[-1]


@contextmanager
def driving(file: Path, *, master: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that runs meanwhile."""
    arguments = [sys.executable, str(HERE / "driver_life.py"), str(file), master]
    process = subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def write_until_killed(store: Path, topic: str, first: int, bundles: int, size: int) -> tuple[set[int], set[int]]:
    """A writer that is killed after some bundles, in the middle of one; what was answered, and what was begun."""
    arguments = [sys.executable, str(HERE / "ingest_life.py"), str(store), topic, str(first), "1000000", str(size)]
    begun: set[int] = set()
    durable: set[int] = set()
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            what, number = line.split()
            ids = range(int(number), int(number) + size)
            (begun if what == "begun" else durable).update(ids)
            if len(durable) == bundles * size:
                process.kill()
                break
        for line in process.stdout:  # what it said before the signal came
            what, _, number = line.strip().partition(" ")
            if number.isdecimal():
                (begun if what == "begun" else durable).update(range(int(number), int(number) + size))
        process.wait()
    # The next bundle may have been on its way without having been told of.
    return durable, set(range(first, max(begun) + 1 + size))
