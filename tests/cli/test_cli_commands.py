"""The commands, as people and programs see them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import ENVIRONMENT, Run
from holdfast import Store


def test_topics_as_json(run: Run, store: Path) -> None:
    """One document with stable keys, and nothing else on standard output."""
    done = run("topics", store, "--output", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert set(document) == {"path", "topics"}
    logs, metrics = document["topics"]
    assert (logs["name"], metrics["name"], logs["slots"]) == ("prod/logs", "prod/metrics", {"rows": 0})
    (shard,) = logs["shards"]
    assert set(shard) == {
        "shard", "start", "durable", "sealed", "bundles_sealed", "segments", "segment_bytes", "wal_files", "wal_bytes",
        "trash_bytes", "bytes", "writer", "problem",
    }  # fmt: skip
    assert (shard["start"], shard["durable"], shard["bundles_sealed"], shard["problem"]) == (0, 1234, 1234, None)
    assert shard["writer"]["last"].startswith("process ")


def test_topics_for_people(call: Run, store: Path) -> None:
    """A row for each shard."""
    lines = call("topics", store).stdout.splitlines()
    assert " ".join(lines[1].split()) == (
        "topic shard slots subscribers start durable bundles sealed segments WAL bytes writer"
    )
    assert lines[2].split()[:7] == ["prod/logs", "shard-0000", "rows", "0", "0", "1,234", "1,234"]


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_no_number_is_cut_in_a_narrow_terminal(call: Run, store: Path, columns: int) -> None:
    """What does not fit side by side stands one below the other."""
    done = call("topics", store, COLUMNS=str(columns))
    assert done.returncode == 0
    assert done.stdout.count("1,234") == 4
    assert "…" not in done.stdout


def test_a_writer_is_seen_and_not_disturbed(run: Run, store: Path) -> None:
    """The list shows who holds a shard, and taking it works right afterwards."""
    with Store.open(store) as opened:
        opened.topic("prod/logs").positions()
        document = json.loads(run("topics", store, "--output", "json").stdout)
        states = {topic["name"]: topic["shards"][0]["writer"]["lock"] for topic in document["topics"]}
        assert states["prod/logs"] in {"held", "unknown"}
        assert states["prod/metrics"] in {"not seen", "unknown"}
        opened.topic("prod/metrics").positions()


def test_inspect_a_segment(run: Run, segment: Path) -> None:
    """Header, streams with statistics, manifest and schemas."""
    document = json.loads(run("inspect", segment, "--output", "json").stdout)
    assert (document["kind"], document["first_offset"], document["end_offset"]) == ("segment", 0, 1234)
    (stream,) = document["streams"]
    assert (stream["rows"], stream["chunks"], stream["absent"]) == (1234, 1234, [])
    assert stream["columns"][0] == {"name": "id", "type": "int64", "nulls": 0, "min": 0, "max": 1233}
    assert document["manifest"]["bundles"] == 1234
    assert [field["name"] for field in document["schemas"]["0"]] == ["id", "text"]
    assert "bundles" not in document


def test_inspect_lists_bundles_on_request(call: Run, segment: Path) -> None:
    """Each with its offset and place."""
    bundles = json.loads(call("inspect", segment, "--bundles", "--output", "json").stdout)["bundles"]
    assert [each["offset"] for each in bundles] == list(range(1234))
    assert bundles[7]["slots"] == [{"slot": 0, "stream": 0, "chunk": 7}]


@pytest.mark.parametrize(
    "name", ["", "prod/logs", "prod/logs/shard-0000", "prod/logs/topic.checkpoint", "prod/logs/shard-0000/tail"]
)
def test_inspect_everything_else(call: Run, store: Path, name: str) -> None:
    """Folders and small files: text with content, and JSON with kind and path."""
    done = call("inspect", store / name)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 3
    document = json.loads(call("inspect", store / name, "--output", "json").stdout)
    assert document["path"] == str(store / name)


def test_inspect_a_wal_file(call: Run, store: Path) -> None:
    """Records with their marks, and why they end."""
    with Store.open(store) as opened:
        topic = opened.topic("prod/logs")
        for bundle in list(topic.bundles(start=1231)):
            topic.append(bundle).wait()
        (path,) = (store / "prod/logs/shard-0000/wal").glob("*.wal")
        document = json.loads(call("inspect", path, "--output", "json").stdout)
    assert [(each["offset"], each["synced"]) for each in document["records"]] == [
        (1234, 1234), (1235, 1235), (1236, 1236),
    ]  # fmt: skip
    assert document["end"]["why"] == "nothing more was written"


def test_fsck_of_a_sound_store(call: Run, store: Path) -> None:
    """Ends with 0 and one line."""
    done = call("fsck", store)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"store {store}: 0 damage, 0 warnings, 0 notes in ")


def test_fsck_finds_and_repairs(run: Run, call: Run, store: Path, segment: Path) -> None:
    """65 with the place and the advice; after a repair 0, and the text says what was done."""
    content = bytearray(segment.read_bytes())
    content[len(content) // 4] ^= 1
    segment.write_bytes(content)
    found = run("fsck", store)
    assert found.returncode == 65
    assert f"damage: {segment}, byte " in found.stdout
    assert "to do: run `holdfast fsck --repair` on the shard" in found.stdout
    repaired = call("fsck", store, "--repair")
    assert repaired.returncode == 0
    assert "repair: kept a copy of " in repaired.stdout
    assert "repair: recorded as lost: offset " in repaired.stdout
    assert call("fsck", store).returncode == 0
    with Store.open(store) as opened:
        assert len(list(opened.topic("prod/logs").bundles())) == 1233


def test_fsck_as_json(call: Run, store: Path) -> None:
    """What a repair did is in the document."""
    document = json.loads(call("fsck", store, "--repair", "--output", "json").stdout)
    assert (document["damaged"], document["repair"]) == (False, {"found": [], "actions": []})


def test_repair_beside_a_writer_ends_with_69(run: Run, store: Path) -> None:
    """The line names the writer."""
    with Store.open(store) as opened:
        opened.topic("prod/logs").positions()
        done = run("fsck", store, "--repair")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith(f"holdfast: {store}/prod/logs/shard-0000 is being written by process ")


def test_a_reader_that_stops_early(segment: Path) -> None:
    """`| head` ends quietly."""
    command = f"{sys.executable} -m holdfast inspect --bundles {segment} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"segment {segment}\n"


def test_no_colour_on_request(run: Run, call: Run, store: Path) -> None:
    """NO_COLOR, and a pipe, give plain text."""
    assert "\x1b" not in run("topics", store).stdout
    assert "\x1b" not in call("topics", store, NO_COLOR="1").stdout


def test_fsck_and_inspect_beside_a_running_writer(call: Run, tmp_path: Path) -> None:
    """A process that appends and seals all the time gives no damage, whenever one looks."""
    command = [sys.executable, str(Path(__file__).with_name("busy_writer.py")), str(tmp_path / "busy")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(32):
            assert writer.stdout.readline()
        try:
            for _ in range(3):
                done = call("fsck", tmp_path / "busy", "--output", "json")
                assert done.returncode == 0, done.stdout
                assert call("inspect", tmp_path / "busy", "--output", "json").returncode == 0
                assert call("topics", tmp_path / "busy").returncode == 0
                for _ in range(64):
                    assert writer.stdout.readline()
        finally:
            writer.kill()
    assert call("fsck", tmp_path / "busy").returncode == 0
