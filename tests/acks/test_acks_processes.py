"""Real processes at one ack log on a real disk, one of them killed in the middle of its work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acks import appender
from holdfast.acks import AckLog
from holdfast.clock import SystemClock
from holdfast.files import SystemFiles

pytestmark = pytest.mark.timeout(280)


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, appender.__file__, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )


def last_line(process: subprocess.Popen[str], *, kill_after: int | None = None) -> int:
    """The last number it printed, after which it ended, or was killed when it had printed so many."""
    assert process.stdout is not None
    last = -1
    for seen, line in enumerate(process.stdout, 1):
        if line.endswith("\n"):
            last = int(line)
        if seen == kill_after:
            process.kill()
    process.stdout.close()
    assert process.wait() == (0 if kill_after is None else -9)
    return last


@pytest.mark.parametrize("count", [25_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_no_record_is_lost_among_appends_rotations_and_a_kill(tmp_path: Path, count: int) -> None:
    """Two processes append, a third rotates, one of the first is killed: all that returned is there, in order.

    `count` is of the one that lives; the other one is killed at about half of that.
    """
    files, shard, until = SystemFiles(), tmp_path / "shard", tmp_path / "until"
    shard.mkdir()
    AckLog.create(files, shard, appender.SHARD_ID)
    rotator = start("rotate", shard, until)
    assert rotator.stdout is not None
    assert rotator.stdout.readline() == "0\n"  # it is at work before there is anything to rotate
    survivor, victim = start("append", shard, 1, count), start("append", shard, 2, 10 * count)
    returned = last_line(victim, kill_after=count // appender.EVERY // 2)
    assert last_line(survivor) == count - 1
    until.touch()
    assert last_line(rotator) > 3

    log = AckLog(files, shard, appender.SHARD_ID, clock=SystemClock())
    with log.exclusive() as change:
        assert len(change.damage) <= 1  # a kill may fall into a write, and tear that one record
        assert (log.progress(1).watermark, log.progress(1).gap_count) == (count, 0)
        assert returned < log.progress(2).watermark <= returned + 1 + appender.EVERY
        assert log.progress(2).gap_count == 0
