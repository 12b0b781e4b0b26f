"""The subscribers of a topic as they are told, paused, resumed and removed."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import InvalidName, UnknownSubscriber, UnknownTopic
from holdfast.operate import (
    inspect,
    pause_subscriber,
    pin_line,
    remove_subscriber,
    resume_subscriber,
    subscriber,
    subscribers,
    topics,
)
from holdfast.testing import FakeClock, SimulatedFiles
from operate.acked_store import opened
from operate.crashed_store import SHARD, STORE, TOPIC

NOW = "2023-11-14T22:13:20.000000000Z"


def test_every_subscriber_is_listed(acked: SimulatedFiles) -> None:
    """Who it is, how far it is, what it pins since when, and how it is registered."""
    clock = FakeClock()
    clock.advance(90)
    document = subscribers(STORE, TOPIC, files=acked, clock=clock)
    assert json.loads(json.dumps(document)) == document
    alerts, lake = document["subscribers"]
    assert {key: value for key, value in lake.items() if key != "shards"} == {
        "name": "lake", "number": 1, "state": "absent", "holder": None, "registered": NOW, "watermark": {"0": 4},
        "gaps": 1, "lag_bundles": 4, "lag_seconds": 90.0, "pinned_bytes": lake["pinned_bytes"], "pinned_since": NOW,
        "on_full": "block", "authoritative": False, "expire_after": None,
    }  # fmt: skip
    assert lake["shards"] == [
        {
            "shard": "shard-0000", "start": 0, "watermark": 4, "durable": 18, "lag_bundles": 4, "gaps": 1,
            "finished_above": 10, "rejected": 1, "dropped": 0, "oldest": NOW, "pinned_bytes": lake["pinned_bytes"],
        }
    ]  # fmt: skip
    assert (alerts["name"], alerts["state"], alerts["watermark"]) == ("alerts", "paused", {"0": 0})
    assert (alerts["on_full"], alerts["authoritative"], alerts["expire_after"]) == ("drop", True, 60.0)
    assert alerts["pinned_bytes"] > lake["pinned_bytes"] > 0
    assert document["removals"] == [{"name": "gone", "number": 3, "time": NOW, "why": "not wanted any more"}]


def test_a_holder_is_seen_and_not_disturbed(acked: SimulatedFiles) -> None:
    """Beside a running writer, which goes on."""
    with opened(acked) as store, store.topic(TOPIC).subscribe("lake") as lake:
        shown = subscriber(STORE, TOPIC, "lake", files=acked)
        assert shown["state"] == "active"
        assert shown["holder"].startswith("process ")
        for delivery in lake.take(1, timeout=0):
            delivery.ack()
        lake.flush()
        assert subscriber(STORE, TOPIC, "lake", files=acked)["watermark"] == {"0": 15}


def test_looking_changes_nothing(acked: SimulatedFiles) -> None:
    """Nothing is written, synced, renamed or unlinked."""
    acked.clear_journal()
    subscribers(STORE, TOPIC, files=acked)
    subscriber(STORE, TOPIC, "lake", files=acked)
    inspect(STORE, files=acked)
    assert acked.journal == ()


def test_pause_and_resume(acked: SimulatedFiles) -> None:
    """On record at once; whether it was so before is told."""
    with opened(acked) as store, store.topic(TOPIC).subscribe("lake") as lake:
        assert pause_subscriber(STORE, TOPIC, "lake", files=acked)["changed"] is True
        assert pause_subscriber(STORE, TOPIC, "lake", files=acked)["changed"] is False
        lake.look_again()
        assert lake.take(1, timeout=0) == []
        resumed = resume_subscriber(STORE, TOPIC, "lake", files=acked)
        assert (resumed["changed"], resumed["state"], resumed["lag_bundles"]) == (True, "active", 4)
        lake.look_again()
        assert len(lake.take(1, timeout=0)) == 1


def test_remove_says_what_it_released(acked: SimulatedFiles) -> None:
    """The bytes that it pinned; afterwards it is among the removed ones."""
    before = subscriber(STORE, TOPIC, "lake", files=acked)
    removed = remove_subscriber(STORE, TOPIC, "lake", files=acked)
    assert (removed["pinned_bytes"], removed["lag_bundles"]) == (before["pinned_bytes"], 4)
    document = subscribers(STORE, TOPIC, files=acked)
    assert [each["name"] for each in document["subscribers"]] == ["alerts"]
    assert [(each["name"], each["why"]) for each in document["removals"]] == [
        ("gone", "not wanted any more"), ("lake", "on request"),
    ]  # fmt: skip


@pytest.mark.parametrize("change", [subscriber, pause_subscriber, resume_subscriber, remove_subscriber])
def test_an_unknown_subscriber(acked: SimulatedFiles, change: object) -> None:
    """The message names those that there are."""
    with pytest.raises(UnknownSubscriber, match=r"^there is no subscriber 'nobody'; there are: alerts, lake$"):
        change(STORE, TOPIC, "nobody", files=acked)  # type: ignore[operator]


def test_an_unknown_topic(acked: SimulatedFiles) -> None:
    """It is not made by asking for it."""
    with pytest.raises(UnknownTopic, match=r"has no topic 'prod/metrics'; it has prod/logs, prod/logs.dead"):
        subscribers(STORE, "prod/metrics", files=acked)
    with pytest.raises(InvalidName, match="write 'namespace/name'"):
        subscribers(STORE, "prod", files=acked)
    assert acked.list(STORE / "prod") == ["logs", "logs.dead"]


def test_the_line_that_says_who_pins_what(acked: SimulatedFiles) -> None:
    """Bytes, since when, and what keeps them; nothing for one that pins none."""
    alerts, lake = subscribers(STORE, TOPIC, files=acked)["subscribers"]
    assert pin_line({**lake, "pinned_bytes": 22_592}) == (
        f"lake pins 22.6 KB since {NOW} (4 bundles unfinished; held by nobody; on_full: block)"
    )
    assert pin_line({**alerts, "pinned_bytes": 38_000}) == (
        f"alerts pins 38 KB since {NOW} (17 bundles unfinished; paused, held by nobody; on_full: drop)"
    )
    assert pin_line({**lake, "pinned_bytes": 0}) is None


def test_inspect_and_topics_tell_of_subscribers(acked: SimulatedFiles) -> None:
    """A topic and a shard show how far each one is; the overview how many there are, and every byte."""
    (topic, dead) = inspect(STORE, files=acked)["topics"]
    assert [(each["name"], each["watermark"]) for each in topic["subscribers"]] == [
        ("alerts", {"0": 0}), ("lake", {"0": 4}),
    ]  # fmt: skip
    assert (dead["subscribers"], dead["subscribers_problem"]) == ([], None)
    shard = inspect(SHARD, files=acked)
    assert [(each["name"], each["lag_bundles"], each["gaps"]) for each in shard["subscribers"]] == [
        ("alerts", 17, 1), ("lake", 4, 1),
    ]  # fmt: skip
    assert [each["record_count"] for each in shard["ack_list"]] == [2]
    overview = topics(STORE, files=acked)["topics"][0]
    assert overview["subscribers"] == 2
    assert overview["bytes"] > overview["shards"][0]["bytes"] > overview["shards"][0]["segment_bytes"]


def test_inspect_tells_why_subscribers_cannot_be_told(acked: SimulatedFiles) -> None:
    """A topic without its store around it is shown all the same."""
    acked.unlink(STORE / "store.checkpoint")
    document = inspect(STORE / TOPIC, files=acked)
    assert document["subscribers"] == []
    assert document["subscribers_problem"].startswith("there is no store at /store: ")
    assert document["shards"][0]["durable"] == 18
