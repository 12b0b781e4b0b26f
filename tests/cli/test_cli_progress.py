"""How far long work has got, without a terminal."""

from __future__ import annotations

import pytest

from holdfast.cli._progress import LINE_SECONDS, lines
from holdfast.testing import FakeClock


def test_plain_lines_come_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing for quick work; then one line for each interval, on standard error."""
    clock = FakeClock()
    report = lines("checking", clock)
    report("a.seg", 1_000_000, 5_000_000)
    clock.advance(LINE_SECONDS)
    report("b.seg", 2_000_000, 5_000_000)
    report("c.seg", 3_000_000, 5_000_000)
    clock.advance(LINE_SECONDS)
    report("d.seg", 4_000_000, 5_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "holdfast: checking: 2 MB of 5 MB, b.seg\nholdfast: checking: 4 MB of 5 MB, d.seg\n"
