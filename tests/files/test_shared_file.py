"""Files that several processes append to at once."""

from __future__ import annotations

import array
import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.files import Files, SystemFiles
from holdfast.testing import SimulatedFiles

Place = tuple[Files, Path]

APPENDER = """
import random, sys
from pathlib import Path
from holdfast.files import SystemFiles

file, letter, choices = SystemFiles().open_shared(Path(sys.argv[1])), sys.argv[2].encode(), random.Random(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for number in range(5000):
    file.append([b"<%d:" % number, letter * choices.randrange(1, 3000), b">"])
file.close()
"""


def empty(files: Files, path: Path) -> Path:
    files.create(path).close()
    return path


def test_handles_see_each_others_appends(place: Place) -> None:
    """What one handle appends goes behind what any other has appended, of either kind."""
    files, folder = place
    path = empty(files, folder / "a")
    one, two = files.open_shared(path), files.open_shared(path)
    assert one.path == path
    assert one.append([b"1"]) == 1
    assert two.append([b"2", b"", b"2"]) == 2
    alone = files.open(path)
    alone.append([b"3"])
    one.append([pa.py_buffer(b"4"), memoryview(b"5"), array.array("B", [54])])
    assert two.append([]) == 0
    two.append([b"7"])
    one.sync()
    assert files.read(path) == b"12234567"
    for file in (one, two, alone):
        file.close()


def test_append_follows_the_end_when_the_file_is_cut(place: Place) -> None:
    """The end is where the file ends now, not where this handle left it."""
    files, folder = place
    path = empty(files, folder / "a")
    shared, alone = files.open_shared(path), files.open(path)
    shared.append([b"abcdef"])
    alone.truncate(2)
    shared.append([b"X"])
    assert files.read(path) == b"abX"
    shared.close()
    alone.close()


def test_more_buffers_than_one_system_call_takes(place: Place) -> None:
    """Thousands of buffers are one append still."""
    files, folder = place
    file = files.open_shared(empty(files, folder / "a"))
    assert file.append([b"ab"] * 3000) == 6000
    file.close()
    assert files.read(folder / "a") == b"ab" * 3000


def test_short_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the system takes only some bytes the append fails and is not gone on with: others may write meanwhile."""
    file = SystemFiles().open_shared(empty(SystemFiles(), tmp_path / "a"))
    real = os.write

    def short(descriptor: int, data: Any) -> int:
        return real(descriptor, bytes(data)[:4])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match=r"only 4 of 10 bytes fitted in: make room, then append them again") as raised:
            file.append([b"01234", b"56789"])
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(tmp_path / "a"))
    file.append([b"next"])
    file.close()
    assert (tmp_path / "a").read_bytes() == b"0123next"


def test_short_write_on_a_simulated_disk() -> None:
    """What a failed append left behind stays, and the next append of any handle goes behind it."""
    files, path = SimulatedFiles(), Path("/a")
    one, two = files.open_shared(empty(files, path)), files.open_shared(path)
    files.fail("append", short=3)
    with pytest.raises(OSError, match="Input/output error"):
        one.append([b"torn apart"])
    two.append([b"|whole"])
    files.capacity = files.size(path) + 2
    with pytest.raises(OSError) as raised:
        one.append([b"|too much"])
    assert raised.value.errno == errno.ENOSPC
    assert files.read(path) == b"tor|whole|t"


def test_two_processes_append_whole_records(tmp_path: Path) -> None:
    """Records of two processes are interleaved in any way, but each is there once, in one piece and in order."""
    path = empty(SystemFiles(), tmp_path / "a")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(path), letter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for letter in "ab"
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    data = path.read_bytes()
    records = re.findall(rb"<(\d+):(a+|b+)>", data)
    assert sum(len(b"<%b:%b>" % record) for record in records) == len(data), "something is between the records"
    for letter in (b"a", b"b"):
        assert [int(number) for number, body in records if body[:1] == letter] == list(range(5000))
