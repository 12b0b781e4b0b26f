"""Real processes on a real disk, killed with no warning in the middle of their work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import holdfast as hf
from crash import writer

pytestmark = pytest.mark.timeout(280)

TINY = {"segment": {"target_size": 20_000}, "wal": {"file_size": 16_384, "max_size": 1_000_000}}


def start(path: Path, first: int, threads: int = 4, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, writer.__file__, str(path), str(first), str(threads), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines_until_killed(process: subprocess.Popen[str], count: int) -> Iterator[str]:
    """What it says, until it has said `count` lines and was killed, and what it had said by then."""
    assert process.stdout is not None
    for seen, line in enumerate(process.stdout, 1):
        if line.endswith("\n"):
            yield line
        if seen == count:
            process.kill()
    process.stdout.close()
    assert process.wait() == -9


@pytest.mark.parametrize("kills", [8, pytest.param(40, marks=pytest.mark.long)])
def test_many_kills_of_one_store(tmp_path: Path, kills: int) -> None:
    """Whatever was acknowledged, at os or fsync, is there after each of many kills; no offset is used twice."""
    path, random = tmp_path / "data", Random(4)
    acked: dict[int, int] = {}
    numbers: set[int] = set()
    first = 0
    for _ in range(kills):
        process = start(path, first, buffer=TINY)
        for line in lines_until_killed(process, random.randrange(1, 120)):
            _, shard, offset, number = line.split()
            assert shard == "0"
            assert int(offset) not in acked, f"offset {offset} was given twice"
            acked[int(offset)] = int(number)
            numbers.add(int(number))
        first = max(numbers, default=0) + 1000  # so that numbers that were never acknowledged are known by their run
    with hf.Store.open(path, settings={"buffer": TINY}) as store:
        check(store.topic(writer.TOPIC), acked)
        receipt = store.topic(writer.TOPIC).append({"logs": writer.batch(0)}, attributes={"id": 0})
        receipt.wait()
        assert receipt.offset > max(acked)
    with hf.Store.open(path, read_only=True) as store:
        check(store.topic(writer.TOPIC), {**acked, receipt.offset: 0})


def check(topic: hf.Topic, acked: dict[int, int]) -> None:
    found: dict[int, int] = {}
    for bundle in topic.bundles():
        assert bundle.offset is not None
        assert bundle.offset not in found
        assert not found or bundle.offset > max(found)
        number = bundle.attributes["id"]
        assert bundle["logs"].equals(writer.batch(number))
        found[bundle.offset] = number
    missing = {offset: number for offset, number in acked.items() if found.get(offset) != number}
    assert missing == {}
    assert len(acked) > 20


def test_kills_while_it_seals_and_truncates(tmp_path: Path) -> None:
    """Sealing and deleting while it is killed: what is above the last deletion is all there."""
    path, random = tmp_path / "data", Random(5)
    acked: dict[int, int] = {}
    keep = 60
    for run in range(5):
        process = start(path, 10_000 * run, 3, buffer=TINY, seal_every=7, truncate_every=20, keep=keep)
        for line in lines_until_killed(process, random.randrange(50, 150)):
            _, _, offset, number = line.split()
            assert int(offset) not in acked
            acked[int(offset)] = int(number)
        with hf.Store.open(path, settings={"buffer": TINY}) as store:
            topic = store.topic(writer.TOPIC)
            start_offset, durable = topic.positions()[0]
            assert start_offset <= max(acked)
            check(topic, {offset: number for offset, number in acked.items() if offset >= start_offset} or acked)
            assert durable > max(acked)
