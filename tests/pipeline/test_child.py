"""A process on its own, without a supervisor; and how long to wait between attempts."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.pipeline._backoff import Backoff
from holdfast.testing import SequenceIds
from sparkkit import environment
from store.storekit import until

CHILD = str(Path(__file__).with_name("fake_child.py"))


@contextmanager
def alone(folder: Path, behaviour: str, stop_seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A process without a supervisor that is ready, and its journal."""
    journal = folder / "journal"
    journal.touch()
    command = [sys.executable, CHILD, "one", str(journal), behaviour, "--stop-seconds", str(stop_seconds)]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL) as process:
        try:
            until(lambda: said(journal, "ready") or process.poll() is not None)
            yield process, journal
        finally:
            process.kill()


def said(journal: Path, what: str) -> bool:
    return f"one {what}" in journal.read_text().splitlines()


def test_sigterm_stops_it_cleanly(tmp_path: Path) -> None:
    """One signal is a graceful stop, with code 0; that nobody holds its standard input means nothing."""
    with alone(tmp_path, "good", 600) as (process, journal):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert said(journal, "stopped")


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """While it stops, another signal ends it with 130."""
    with alone(tmp_path, "deaf", 600) as (process, journal):
        process.send_signal(signal.SIGINT)
        until(lambda: said(journal, "stopping"))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_what_takes_longer_than_its_deadline_ends_the_hard_way(tmp_path: Path) -> None:
    """A stop that hangs is given up with 75."""
    with alone(tmp_path, "deaf", 0.1) as (process, journal):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
        assert not said(journal, "stopped")


def test_backoff_doubles_up_to_its_longest_and_starts_over() -> None:
    """Each wait is between half and all of twice the one before; after a success the first one comes again."""
    backoff = Backoff(1.0, 8.0, SequenceIds(3))
    waits = [backoff.after_failure() for _ in range(2000)]
    assert all(whole / 2 <= wait < whole for wait, whole in zip(waits, [1.0, 2.0, 4.0] + [8.0] * 1997, strict=True))
    assert len(set(waits[3:])) > 1000
    backoff.reset()
    assert 0.5 <= backoff.after_failure() < 1.0
