"""Dead letters: listed, shown, exported, and sent once more to whoever rejected them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from holdfast import RecordBundle, Store
from holdfast.errors import InputError, UnknownSubscriber, UnknownTopic
from holdfast.operate import dead_letter, dead_letters, export_letters, fsck, replay_letters, subscribers
from holdfast.testing import FakeClock, SequenceIds, SimulatedFiles

STORE = Path("/store")
TOPIC = "prod/logs"
DEAD = "prod/logs.dead"
NOW = "2023-11-14T22:13:20.000000000Z"


def opened(files: SimulatedFiles, seed: int = 1) -> Store:
    return Store.open(STORE, files=files, clock=FakeClock(), ids=SequenceIds(seed))


def letter_bundle(number: int) -> RecordBundle:
    slots = {
        "logs": pa.record_batch({"id": [number, number + 1], "text": ["a", None]}),
        "attrs": pa.record_batch({"kind": pa.array([f"kind {number}"]).dictionary_encode()}),
    }
    if number == 2:  # a wider schema
        slots["logs"] = slots["logs"].append_column("flag", pa.array([True, False]))
    return RecordBundle(slots, {"number": number}, event_time=(number, number + 5))


@pytest.fixture
def files() -> SimulatedFiles:
    """Subscriber `lake` rejected 0 and 2 and row 1 of the logs of 3, `alerts` rejected 0; the rest is finished."""
    disk = SimulatedFiles()
    with opened(disk) as store:
        topic = store.topic(TOPIC)
        lake, alerts = topic.subscribe("lake"), topic.subscribe("alerts")
        for number in range(4):
            topic.append(letter_bundle(number)).wait()
        for delivery in lake.take(10, timeout=0):
            if delivery.offset in (0, 2):
                delivery.reject(f"cannot take {delivery.offset}")
                continue
            if delivery.offset == 3:
                delivery.reject_rows("logs", [1], "no text")
            delivery.ack()
        for delivery in alerts.take(10, timeout=0):
            if delivery.offset == 0:
                delivery.reject("not for me")
            else:
                delivery.ack()
        lake.close()
        alerts.close()
    return disk


def listed(files: SimulatedFiles, **options: Any) -> list[tuple[Any, ...]]:
    letters = dead_letters(STORE, TOPIC, files=files, **options)["letters"]
    return [(each["id"], each["subscriber"], each["offset"], each["rows"], each["replayed"]) for each in letters]


def test_letters_are_listed_oldest_first(files: SimulatedFiles) -> None:
    """With who rejected what, where it stood, why, after how many attempts, and when."""
    document = dead_letters(STORE, TOPIC, files=files)
    assert (document["kept_in"], document["more"]) == (DEAD, False)
    assert document["letters"][0] == {
        "id": "0/0", "subscriber": "lake", "topic": TOPIC, "shard": 0, "offset": 0, "rows": 3,
        "reason": "cannot take 0", "attempts": 1, "time": NOW, "replayed": False,
    }  # fmt: skip
    assert listed(files) == [
        ("0/0", "lake", 0, 3, False), ("0/1", "lake", 2, 3, False),
        ("0/2", "lake", 3, 1, False), ("0/3", "alerts", 0, 3, False),
    ]  # fmt: skip


def test_letters_of_one_subscriber_and_only_so_many(files: SimulatedFiles) -> None:
    """That there are more is told."""
    assert [each[0] for each in listed(files, subscriber="alerts")] == ["0/3"]
    assert listed(files, subscriber="nobody") == []
    assert dead_letters(STORE, TOPIC, limit=3, subscriber="lake", files=files)["more"] is False
    document = dead_letters(STORE, TOPIC, limit=2, files=files)
    assert ([each["id"] for each in document["letters"]], document["more"]) == (["0/0", "0/1"], True)
    with pytest.raises(InputError, match="--limit 0: ask for one dead letter at least"):
        dead_letters(STORE, TOPIC, limit=0, files=files)


def test_a_letter_is_shown_with_its_rows(files: SimulatedFiles) -> None:
    """Attributes without what Holdfast added, and the first rows of each slot."""
    shown = dead_letter(STORE, TOPIC, "0/1", files=files)
    assert (shown["attributes"], shown["only"]) == ({"number": 2}, None)
    assert shown["slots"]["logs"] == {
        "rows": 2,
        "first": [{"id": 2, "text": "a", "flag": True}, {"id": 3, "text": None, "flag": False}],
    }
    rows = dead_letter(STORE, TOPIC, "0/2", files=files)
    assert rows["only"] == {"slot": "logs", "rows": [1]}
    assert rows["slots"] == {"logs": {"rows": 1, "first": [{"id": 4, "text": None}]}}


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ("7", r"^'7' is no dead letter's id: that is shard/offset, as `dead-letters list` shows it$"),
        ("0/17", r"^there is no dead letter 0/17 in prod/logs.dead: it was deleted, or never was$"),
        ("3/0", r"^there is no dead letter 3/0 in prod/logs.dead: it was deleted, or never was$"),
    ],
)
def test_a_letter_that_is_not_there(files: SimulatedFiles, identity: str, message: str) -> None:
    """The message says what an id looks like, or that there is none."""
    with pytest.raises(InputError, match=message):
        dead_letter(STORE, TOPIC, identity, files=files)


def test_topics_without_letters(files: SimulatedFiles) -> None:
    """One that nobody rejected anything from has none; one that is not there, or holds letters itself, is an error."""
    with opened(files) as store:
        store.topic("prod/quiet")
    assert dead_letters(STORE, "prod/quiet", files=files)["letters"] == []
    assert replay_letters(STORE, "prod/quiet", ["all"], files=files)["replayed"] == []
    with pytest.raises(UnknownTopic, match="has no topic 'prod/none'"):
        replay_letters(STORE, "prod/none", ["all"], files=files)
    with pytest.raises(InputError, match=r"prod/logs\.dead holds dead letters; name the topic they are of: prod/logs$"):
        dead_letters(STORE, DEAD, files=files)
    assert files.list(STORE / "prod") == ["logs", "logs.dead", "quiet"]


# -- export -------------------------------------------------------------------------------------------------------


def test_export_as_lines(files: SimulatedFiles) -> None:
    """One line of JSON for each letter, with everything in it."""
    done = export_letters(STORE, TOPIC, ["all"], "/letters.jsonl", files=files)
    content = files.read(Path("/letters.jsonl"))
    assert done["written"] == [{"path": "/letters.jsonl", "rows": 4, "bytes": len(content)}]
    lines = [json.loads(line) for line in content.splitlines()]
    assert [each["id"] for each in lines] == ["0/0", "0/1", "0/2", "0/3"]
    assert lines[0]["slots"] == {
        "logs": [{"id": 0, "text": "a"}, {"id": 1, "text": None}],
        "attrs": [{"kind": "kind 0"}],
    }


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_export_as_tables(files: SimulatedFiles, suffix: str) -> None:
    """A file for each slot, in its widest schema; the first column says which letter a row is of."""
    done = export_letters(STORE, TOPIC, ["all"], f"/letters{suffix}", subscriber="lake", files=files)
    assert done["letters"] == 3
    assert sorted((each["path"], each["rows"]) for each in done["written"]) == [
        (f"/letters.attrs{suffix}", 2), (f"/letters.logs{suffix}", 5),
    ]  # fmt: skip
    data = pa.py_buffer(files.read(Path(f"/letters.logs{suffix}")))
    table = pq.read_table(pa.BufferReader(data)) if suffix == ".parquet" else ipc.open_file(data).read_all()
    assert table.to_pydict() == {
        "holdfast.letter": ["0/0", "0/0", "0/1", "0/1", "0/2"],
        "id": [0, 1, 2, 3, 4],
        "text": ["a", None, "a", None, None],
        "flag": [None, None, True, False, None],
    }


def test_export_overwrites_nothing(files: SimulatedFiles) -> None:
    """What is there stays, and what was begun goes."""
    files.create(Path("/letters.attrs.parquet")).close()
    with pytest.raises(InputError, match=r"^/letters.attrs.parquet is there already; nothing is overwritten: "):
        export_letters(STORE, TOPIC, ["0/0"], "/letters.parquet", files=files)
    assert not files.exists(Path("/letters.logs.parquet"))
    assert files.size(Path("/letters.attrs.parquet")) == 0


def test_export_needs_a_format_and_a_choice(files: SimulatedFiles) -> None:
    """By the ending of the file; and ids, or all."""
    with pytest.raises(InputError, match=r"ends in '.csv'; it has to end in .jsonl, .parquet or .arrow$"):
        export_letters(STORE, TOPIC, ["all"], "/letters.csv", files=files)
    for which in ([], ["all", "0/0"]):
        with pytest.raises(
            InputError, match=r"^say which dead letters: ids as `dead-letters list` shows them, or all$"
        ):
            export_letters(STORE, TOPIC, which, "/letters.jsonl", files=files)
    assert not files.exists(Path("/letters.jsonl"))


def test_a_type_that_a_table_cannot_hold(files: SimulatedFiles) -> None:
    """Columns that have no common type are refused with a way out; nothing is left behind."""
    with opened(files) as store:
        topic = store.topic(TOPIC)
        topic.append({"logs": pa.record_batch({"id": ["not a number"]})}).wait()
        with topic.subscribe("lake") as lake:
            lake.take(1, timeout=0)[0].reject("odd")
    with pytest.raises(InputError, match=r"^slot 'logs' of dead letter 0/4 cannot be written as .parquet: .*jsonl$"):
        export_letters(STORE, TOPIC, ["all"], "/letters.parquet", files=files)
    assert not files.exists(Path("/letters.logs.parquet"))
    assert export_letters(STORE, TOPIC, ["all"], "/letters.jsonl", files=files)["letters"] == 5


# -- replay -------------------------------------------------------------------------------------------------------


def delivered(files: SimulatedFiles, name: str) -> list[RecordBundle]:
    """What a subscriber gets that it has not finished; it acks all of it."""
    with opened(files, 7) as store, store.topic(TOPIC).subscribe(name) as subscriber:
        deliveries = subscriber.take(100, timeout=0)
        for each in deliveries:
            each.ack()
        return [each.bundle for each in deliveries]


def test_replay_goes_to_who_rejected_it_alone(files: SimulatedFiles) -> None:
    """The bundle comes as it was appended, to that subscriber and to no other."""
    done = replay_letters(STORE, TOPIC, ["0/1"], files=files, clock=FakeClock())
    assert done["replayed"] == [{"id": "0/1", "subscriber": "lake", "shard": 0, "offset": 4}]
    (bundle,) = delivered(files, "lake")
    assert {name: batch.to_pylist() for name, batch in bundle.slots.items()} == {
        name: batch.to_pylist() for name, batch in letter_bundle(2).slots.items()
    }
    assert (bundle.attributes["number"], bundle.event_time) == (2, (2, 7))
    assert delivered(files, "alerts") == []
    assert not fsck(STORE, files=files).damaged


def test_a_letter_is_replayed_once(files: SimulatedFiles) -> None:
    """A second replay leaves out what was replayed before, and what is not there any more is not asked for."""
    with opened(files) as store:
        store.topic(DEAD).subscribe("auditor").close()  # so that letters stay
    replay_letters(STORE, TOPIC, ["0/0", "0/1"], files=files, clock=FakeClock())
    assert [each[-1] for each in listed(files)] == [True, True, False, False]
    again = replay_letters(STORE, TOPIC, ["all"], subscriber="lake", files=files, clock=FakeClock())
    assert ([each["id"] for each in again["replayed"]], again["replayed_before"]) == (["0/2"], ["0/0", "0/1"])
    assert [each["logs"].num_rows for each in delivered(files, "lake")] == [2, 2, 1]


def test_replayed_letters_can_go(files: SimulatedFiles) -> None:
    """Nothing keeps them once they are replayed."""
    replay_letters(STORE, TOPIC, ["all"], files=files, clock=FakeClock())
    assert subscribers(STORE, DEAD, files=files)["subscribers"][0]["lag_bundles"] == 0
    with opened(files, 5) as store:
        dead = store.topic(DEAD)
        dead.positions()
        assert dead.sweeper is not None
        while dead.sweeper.sweep():
            pass
        assert dead.positions() == {0: (4, 4)}
    assert listed(files) == []


def test_a_removed_subscriber_gets_nothing(files: SimulatedFiles) -> None:
    """The error says so, before anything is replayed; another one can be named."""
    with opened(files) as store:
        store.topic(TOPIC).remove("lake", "moved away")
    message = (
        rf"^dead letter 0/0 was rejected by 'lake', which was removed at {NOW} \(moved away\); "
        "name who gets it with --to-subscriber: alerts$"
    )
    with pytest.raises(InputError, match=message):
        replay_letters(STORE, TOPIC, ["all"], files=files, clock=FakeClock())
    assert not any(each[-1] for each in listed(files))
    assert delivered(files, "alerts") == []
    done = replay_letters(STORE, TOPIC, ["0/0"], to_subscriber="alerts", files=files, clock=FakeClock())
    assert done["replayed"][0]["subscriber"] == "alerts"
    assert [each.attributes["number"] for each in delivered(files, "alerts")] == [0]


def test_a_subscriber_that_was_registered_anew(files: SimulatedFiles) -> None:
    """It is another one, although it has the same name: it has to be named."""
    with opened(files) as store:
        store.topic(TOPIC).remove("lake")
        store.topic(TOPIC).subscribe("lake", "latest").close()
    with pytest.raises(InputError, match=r"removed at .* \(on request\) and has been registered anew since; name who"):
        replay_letters(STORE, TOPIC, ["0/0"], files=files, clock=FakeClock())
    replay_letters(STORE, TOPIC, ["0/0"], to_subscriber="lake", files=files, clock=FakeClock())
    assert [each.attributes["number"] for each in delivered(files, "lake")] == [0]


def test_an_unknown_receiver(files: SimulatedFiles) -> None:
    """Nothing is replayed to nobody."""
    with pytest.raises(UnknownSubscriber, match="there is no subscriber 'nobody'; there are: alerts, lake"):
        replay_letters(STORE, TOPIC, ["all"], to_subscriber="nobody", files=files, clock=FakeClock())


def test_a_replay_that_was_cut_off_delivers_once(files: SimulatedFiles) -> None:
    """Killed between appending a letter and writing down that it was replayed: the next replay appends nothing."""
    images = []

    def keep(operation: str, path: Path) -> None:
        if operation == "append" and path.suffix == ".acks" and DEAD in str(path) and not images:
            images.append(files.kill())

    files.before = keep
    replay_letters(STORE, TOPIC, ["0/0"], files=files, clock=FakeClock())
    files.before = None
    (killed,) = images
    assert not any(each[-1] for each in listed(killed))
    assert replay_letters(STORE, TOPIC, ["0/0"], files=killed, clock=FakeClock())["replayed"][0]["offset"] == 4
    assert [each.attributes["number"] for each in delivered(killed, "lake")] == [0]
