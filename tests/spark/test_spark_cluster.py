"""On a session with executors in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from spark.topickit import TOPIC, fill, ids, read_all
from sparkkit import environment


@pytest.mark.long
def test_two_executors(tmp_path: Path) -> None:
    """A batch read and a stream over two shards have every row once, read by two executors; a job writes from both."""
    path = tmp_path / "store"
    for shard in (0, 1):
        numbers = range(100 * shard, 100 * shard + 100)
        fill(path, [ids(*numbers[:50])], [ids(number) for number in numbers[50:]], shard=shard)

    program = Path(__file__).parent / "cluster_job.py"
    done = subprocess.run(
        [sys.executable, str(program), str(path), str(tmp_path / "work")],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])

    assert found["batch"] == [[shard, 100 * shard + number] for shard in (0, 1) for number in range(100)]
    assert sorted(number for batch in found["stream"] for number in batch) == list(range(200))
    assert len(found["stream"]) > 2
    assert len(found["places"]) == 2, "both executors took part"
    assert sorted(read_all(path, topic="prod/copy")["id"].to_pylist()) == list(range(10))
    with hf.Store.open(path, read_only=True) as store:
        topic = store.topic(TOPIC)
        assert {shard: topic.progress("lake", shard).watermark for shard in (0, 1)} == {0: 51, 1: 51}
