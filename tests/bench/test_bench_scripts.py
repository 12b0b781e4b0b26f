"""The benchmarks themselves, in their short form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "titles"),
    [
        ("append.py", ["append", "append", "one caller, one at a time", "one caller, one at a time"]),
        ("read.py", ["read", "read", "anonymous resident memory", "recovery", "anonymous resident memory"]),
        (
            "acks.py",
            [
                "single acks",
                "price of an ack",
                "replay",
                "subscriber's own cost",
                "subscriber's own cost",
                "deletion",
                "from receipt to delivery",
            ],
        ),
        ("on_spark.py", ["read", "read", "price of durability", "to Delta", "from append to acknowledged"]),
    ],
)
def test_the_short_form_runs_and_leaves_nothing(tmp_path, script, titles):
    """Every part of a benchmark runs, whether its targets are met or not, and its folder is empty afterwards."""
    command = [sys.executable, BENCH / script, "--quick", "--output", "json", "--folder", tmp_path]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    found = [section["title"] for section in json.loads(finished.stdout)["sections"]]
    assert len(found) == len(titles)
    assert all(title.startswith(expected) for title, expected in zip(found, titles, strict=True))
    assert list(tmp_path.iterdir()) == []
