"""Real processes on a real disk that append the same keys at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.files import SystemFiles
from store.keykit import Process

STEP = 100  # keys after which they wait for each other, so that neither does all the work
SOURCES = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")]
WORKER = """
import json, random, sys
sys.path[:0] = {sources!r}
from pathlib import Path
from holdfast.clock import SystemClock
from holdfast.files import SystemFiles
from store.keykit import Process

topic, number = Path(sys.argv[1]), int(sys.argv[2])
process = Process(SystemFiles(), number, SystemClock(), topic=topic, switch_bytes=20_000)
keys = [b"key %d" % each for each in range({keys})]
random.Random(number).shuffle(keys)
told = dict()
for count, key in enumerate(keys):
    if count % {step} == 0:
        process.commit()
        print("ready", flush=True)
        sys.stdin.readline()
    receipt, _ = process.append(key)
    told[key.decode()] = [receipt.shard, receipt.offset]
process.commit()
print(json.dumps(told), flush=True)
"""


@pytest.mark.parametrize("keys", [600, pytest.param(5_000, marks=pytest.mark.long)])
def test_two_processes_store_each_key_once(tmp_path: Path, keys: int) -> None:
    """Both are told the same place for each of many keys, and that is the only bundle with this key."""
    source = WORKER.format(sources=SOURCES, keys=keys, step=STEP)
    command = [sys.executable, "-c", source, str(tmp_path)]
    workers = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    for _ in range(keys // STEP):
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
    told = [json.loads(worker.communicate()[0]) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    assert told[0] == told[1]
    onlooker = Process(SystemFiles(), 2, SystemClock(), topic=tmp_path)
    stored = {each.key.decode(): list(place) for place, each in onlooker.stored().items()}
    assert stored == told[0]
    assert len(onlooker.stored()) == keys
    assert {shard for shard, _ in told[0].values()} == {0, 1}
