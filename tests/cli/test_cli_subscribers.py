"""`holdfast subscribers` and `holdfast dead-letters`, as people and programs see them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from cli.conftest import Run
from holdfast import Store

TOPIC = "prod/events"
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Ten bundles: `lake` finished two, rejected the third and has the rest to do; `gone` was removed."""
    path = tmp_path / "data"
    with Store.open(path) as opened:
        topic = opened.topic(TOPIC)
        with topic.subscribe("lake", expire_after=3600) as lake:
            for number in range(10):
                receipt = topic.append({"rows": pa.record_batch({"id": [number]})}, attributes={"number": number})
            receipt.wait()
            first, second, third = lake.take(3, timeout=60)
            first.ack()
            second.ack()
            third.reject("no such table")
        topic.subscribe("gone").close()
        topic.remove("gone", "not wanted")
    return path


def lines(text: str) -> list[str]:
    """With single spaces, and times and sizes replaced."""
    plain = re.sub(r"[\d.]+ K?B\b", "SIZE", re.sub(MOMENT, "TIME", text))
    return [" ".join(line.split()) for line in plain.splitlines()]


def test_subscribers_list(call: Run, store: Path) -> None:
    """A row for each, a line for who pins what, and the removed ones."""
    done = call("subscribers", "list", store, TOPIC)
    assert (done.returncode, done.stderr) == (0, "")
    title, headings, row, pins, empty, *removed = lines(done.stdout)
    assert (title, empty) == ("subscribers", "")
    assert headings == (
        "name number state holder watermark gaps lag behind pinned since on full authoritative expires after"
    )
    assert re.fullmatch(r"lake 1 absent - 3 0 7 [\d.]+ s SIZE TIME block no 3600 s", row)
    assert pins == "lake pins SIZE since TIME (7 bundles unfinished; held by nobody; on_full: block)"
    assert removed == ["removed", "name number time why", "gone 2 TIME not wanted"]


def test_subscribers_as_json(call: Run, store: Path) -> None:
    """Documents with stable keys."""
    document = json.loads(call("subscribers", "list", store, TOPIC, "--output", "json").stdout)
    assert set(document) == {"path", "topic", "subscribers", "removals"}
    shown = json.loads(call("subscribers", "show", store, TOPIC, "lake", "--output", "json").stdout)
    assert set(shown) == {"path", "topic", *document["subscribers"][0]}
    assert set(shown["shards"][0]) == {
        "shard", "start", "watermark", "durable", "lag_bundles", "gaps", "finished_above", "rejected", "dropped",
        "oldest", "pinned_bytes",
    }  # fmt: skip


def test_subscribers_of_a_topic_without_any(call: Run, tmp_path: Path) -> None:
    """One line that says what that means."""
    with Store.open(tmp_path / "data") as opened:
        opened.topic(TOPIC)
    assert call("subscribers", "list", tmp_path / "data", TOPIC).stdout == (
        f"{TOPIC} has no subscribers: everything in it is kept\n"
    )


def test_pause_show_resume_remove(call: Run, store: Path) -> None:
    """Each says what it did, and what that means for the data."""
    said = [
        call("subscribers", command, store, TOPIC, "lake") for command in ("pause", "pause", "show", "resume", "remove")
    ]
    assert [(done.returncode, done.stderr) for done in said] == [(0, "")] * 5
    paused, again, shown, resumed, removed = (lines(done.stdout) for done in said)
    assert paused == ["lake paused; 7 bundles are kept for it until it is resumed"]
    assert again == ["lake was paused already; 7 bundles are kept for it until it is resumed"]
    assert shown[:3] == [f"subscriber lake of {TOPIC}", "number 1", "state paused"]
    assert resumed == ["lake resumed; 7 bundles wait for it"]
    assert removed == [
        "removed lake: SIZE that it pinned since TIME are released (7 bundles unfinished); what no other subscriber "
        "needs is deleted by the writers, or when the store is next opened for writing"
    ]


@pytest.mark.parametrize("command", ["show", "pause", "resume", "remove"])
def test_an_unknown_subscriber_ends_with_64(call: Run, store: Path, command: str) -> None:
    """The line names those that there are."""
    done = call("subscribers", command, store, TOPIC, "nobody")
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "holdfast: there is no subscriber 'nobody'; there are: lake\n"


def test_dead_letters_list_and_show(call: Run, store: Path) -> None:
    """What was rejected, by whom and why; and its rows."""
    done = call("dead-letters", "list", store, TOPIC)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(done.stdout) == [
        f"dead letters of {TOPIC}",
        "id subscriber shard offset rows attempts time replayed reason",
        "0/0 lake 0 2 1 1 TIME no no such table",
    ]
    assert lines(call("dead-letters", "show", store, TOPIC, "0/0").stdout) == [
        "dead letter 0/0", "subscriber lake", f"topic {TOPIC}", "shard 0", "offset 2", "rows 1", "only -",
        "reason no such table", "attempts 1", "time TIME", "replayed no", "",
        "attributes", "number 2", "",
        "slot rows: 1 of 1 rows", "id", "2",
    ]  # fmt: skip
    assert call("dead-letters", "list", store, TOPIC, "--subscriber", "nobody").stdout == (
        f"{TOPIC}.dead holds no such dead letters\n"
    )


def test_dead_letters_export(call: Run, store: Path, tmp_path: Path) -> None:
    """What was written is said; nothing is overwritten."""
    target = tmp_path / "letters.jsonl"
    done = call("dead-letters", "export", store, TOPIC, "all", "--to", target)
    assert lines(done.stdout) == ["exported 1 dead letter", f"wrote {target}: 1 line, SIZE"]
    assert json.loads(target.read_text())["slots"] == {"rows": [{"id": 2}]}
    again = call("dead-letters", "export", store, TOPIC, "all", "--to", target)
    assert (again.returncode, again.stdout) == (64, "")
    assert again.stderr == f"holdfast: {target} is there already; nothing is overwritten: choose another name\n"


def test_dead_letters_replay_beside_a_writer(run: Run, store: Path) -> None:
    """The subscriber of a running process gets the letter again, from the shard that the replay wrote to."""
    with Store.open(store) as opened, opened.topic(TOPIC).subscribe("lake") as lake:
        for delivery in lake.take(7, timeout=60):
            delivery.ack()
        done = run("dead-letters", "replay", store, TOPIC, "0/0")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "replayed 0/0 to lake: it is now offset 0 of shard 1",
            "replayed 1 dead letter",
        ]
        (delivery,) = lake.take(1, timeout=60)
        assert (delivery.bundle["rows"].to_pylist(), delivery.shard) == ([{"id": 2}], 1)
        delivery.ack()


def test_dead_letters_usage(call: Run, store: Path) -> None:
    """What is missing is said in one line."""
    done = call("dead-letters", "replay", store, TOPIC)
    assert (done.returncode, done.stderr) == (
        64, "holdfast: say which dead letters: ids as `dead-letters list` shows them, or all\n",
    )  # fmt: skip
    done = call("dead-letters", "show", store, "prod/none", "0/0")
    assert (done.returncode, done.stderr) == (
        64, f"holdfast: {store} has no topic 'prod/none'; it has {TOPIC}, {TOPIC}.dead\n",
    )  # fmt: skip


def test_inspect_shows_subscribers_and_every_kind_of_file(call: Run, store: Path) -> None:
    """Who pins what is in the overview; every file of the store can be looked at by itself."""
    whole = lines(call("inspect", store).stdout)
    assert "lake pins SIZE since TIME (7 bundles unfinished; held by nobody; on_full: block)" in whole
    shard = store / TOPIC / "shard-0000"
    (acks,) = (shard / "acks").glob("*.acks")
    shown = lines(call("inspect", acks).stdout)
    assert shown[0] == f"ack file {acks}"
    assert "bundles by subscriber's number and outcome" in shown
    assert any(line.endswith("rejected 1 1 1 2 - - TIME no such table") for line in shown)
    for path in (store / TOPIC / "topic.checkpoint", store / TOPIC / "subscribers/lake.lease", shard):
        done = call("inspect", path)
        assert (done.returncode, done.stderr) == (0, ""), path
        assert len(done.stdout.splitlines()) > 3
    assert lines(call("topics", store).stdout)[2].startswith(f"{TOPIC} shard-0000 rows 1 0 10 10 SIZE SIZE SIZE last: ")
