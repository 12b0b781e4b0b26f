"""What a user may say to `format("holdfast")`, and what is said about the rest."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidName, InvalidPosition, InvalidSettings
from holdfast.spark._options import MAX_BYTES, METADATA, OPTIONS, PARTITION_BYTES, Options

BASE = {"path": "/data", "topic": "prod/logs"}
POSITION = 'use earliest, latest, an offset, or JSON: {"<shard>": <offset>, ...}'


def test_defaults() -> None:
    """Path and topic are enough."""
    options = Options.of(BASE)

    assert options == Options(path="/data", topic="prod/logs")
    assert (options.max_bytes, options.partition_bytes) == (MAX_BYTES, PARTITION_BYTES)
    assert options.fail_on_data_loss
    assert options.start == "earliest"


def test_every_option_is_taken() -> None:
    """Each option reaches its field, whatever the case of its name: Spark hands names over in lower case."""
    given = {
        **BASE,
        "slot": "logs", "subscriber": "lake", "columns": "id, text", "leaveOut": "odd",
        "pushdown": "true", "metadata": "_offset,_shard", "filter": "id > 1",
        "sources": "web,db", "startingOffset": '{"0": 5, "1": 0}', "endingOffset": '{"0": 9}',
        "maxBytesPerTrigger": "10MB", "maxRowsPerTrigger": "500", "minBytesPerTrigger": "1KB", "maxTriggerDelay": "2m",
        "partitionBytes": "3MB", "failOnDataLoss": "FALSE", "stateful": "true", "floor": '{"0": 3}', "epoch": "7",
        "durability": "fsync", "source": "copy",
    }  # fmt: skip
    wanted = Options(
        path="/data", topic="prod/logs", slot="logs", subscriber="lake", columns=("id", "text"),
        leave_out=("odd",), pushdown=True,
        metadata=("_offset", "_shard"), filter="id > 1", sources=("web", "db"), start={0: 5, 1: 0}, end={0: 9},
        max_bytes=10_000_000, max_rows=500, min_bytes=1000, max_delay=120.0, partition_bytes=3_000_000,
        fail_on_data_loss=False, stateful=True, floor={0: 3}, epoch=7, durability="fsync", source="copy",
    )  # fmt: skip

    assert set(given) == set(OPTIONS)
    assert Options.of(given) == wanted
    assert Options.of({name.lower(): value for name, value in given.items()}) == wanted


@pytest.mark.parametrize(
    ("changed", "kind", "text"),
    [
        ({"subscribr": "x"}, InvalidSettings, "holdfast has no option 'subscribr'; did you mean subscriber?"),
        ({"MAXBYTES": "1"}, InvalidSettings, "holdfast has no option 'MAXBYTES'; did you mean maxBytesPerTrigger?"),
        ({"zzz": "1"}, InvalidSettings, f"holdfast has no option 'zzz'; there are {', '.join(OPTIONS)}"),
        ({"path": ""}, InvalidSettings, 'option path is missing: .option("path", ...)'),
        ({"topic": ""}, InvalidSettings, 'option topic is missing: .option("topic", ...)'),
        ({"columns": '["a", 1]'}, InvalidSettings, """'["a", 1]': every name in a list is a text"""),
        (
            {"metadata": "_offset,_nope"},
            InvalidSettings,
            "metadata: there is no '_nope'; there are _shard, _offset, _ingestion_time, _source",
        ),
        ({"startingOffset": "soon"}, InvalidPosition, f"option startingOffset is 'soon'; {POSITION}"),
        ({"startingOffset": "-1"}, InvalidPosition, f"option startingOffset is '-1'; {POSITION}"),
        ({"startingOffset": "true"}, InvalidPosition, f"option startingOffset is 'true'; {POSITION}"),
        ({"startingOffset": "1.5"}, InvalidPosition, f"option startingOffset is '1.5'; {POSITION}"),
        ({"startingOffset": "null"}, InvalidPosition, f"option startingOffset is 'null'; {POSITION}"),
        ({"startingOffset": "[1]"}, InvalidPosition, f"option startingOffset is '[1]'; {POSITION}"),
        ({"startingOffset": '{"a": 1}'}, InvalidPosition, f"option startingOffset is '{{\"a\": 1}}'; {POSITION}"),
        ({"startingOffset": '{"0": "1"}'}, InvalidPosition, f'option startingOffset is \'{{"0": "1"}}\'; {POSITION}'),
        ({"maxBytesPerTrigger": "0"}, InvalidSettings, "option maxBytesPerTrigger is 0; it must be 1 or more"),
        ({"partitionBytes": "0"}, InvalidSettings, "option partitionBytes is 0; it must be 1 or more"),
        (
            {"maxRowsPerTrigger": "0"},
            InvalidSettings,
            "option maxRowsPerTrigger is '0'; it must be a whole number, 1 or more",
        ),
        (
            {"maxRowsPerTrigger": "ten"},
            InvalidSettings,
            "option maxRowsPerTrigger is 'ten'; it must be a whole number, 1 or more",
        ),
        ({"failOnDataLoss": "no"}, InvalidSettings, "option failOnDataLoss is 'no'; use true or false"),
        ({"stateful": ""}, InvalidSettings, "option stateful is ''; use true or false"),
    ],
)
def test_mistakes(changed: dict[str, str], kind: type[Exception], text: str) -> None:
    """Every mistake is named with its option, what was found, and what would do."""
    with pytest.raises(kind) as caught:
        Options.of({**BASE, **changed})

    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("changed", "beginning"),
    [
        ({"columns": "[a"}, "'[a' is no list of names in JSON: "),
        ({"maxBytesPerTrigger": "lots"}, "option maxBytesPerTrigger: "),
        ({"minBytesPerTrigger": "-1", "maxTriggerDelay": "1s"}, "option minBytesPerTrigger"),
        ({"maxTriggerDelay": "later"}, "option maxTriggerDelay: "),
        ({"floor": "x"}, "option floor is 'x'; "),
        ({"endingOffset": "x"}, "option endingOffset is 'x'; "),
    ],
)
def test_mistakes_that_others_explain(changed: dict[str, str], beginning: str) -> None:
    """What is wrong inside a value is explained behind the option's name."""
    with pytest.raises((InvalidSettings, InvalidPosition)) as caught:
        Options.of({**BASE, **changed})

    assert str(caught.value).startswith(beginning)


@pytest.mark.parametrize("changed", [{"topic": "Prod Logs"}, {"topic": "logs"}, {"subscriber": "no/slash"}])
def test_names(changed: dict[str, str]) -> None:
    """Topic and subscriber are checked as names before anything is looked for."""
    with pytest.raises(InvalidName):
        Options.of({**BASE, **changed})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        (" a , ,b, ", ("a", "b")),
        ('["a,b", "c"]', ("a,b", "c")),
        ('  ["x"]', ("x",)),
        ("", ()),
    ],
)
def test_lists_of_names(text: str, names: tuple[str, ...]) -> None:
    """Names stand between commas, or in JSON if they have commas themselves."""
    assert Options.of({**BASE, "columns": text}).columns == names


@pytest.mark.parametrize(
    ("text", "names"),
    [("true", METADATA), (" TRUE ", METADATA), ("false", ()), ("_source", ("_source",)), ('["_shard"]', ("_shard",))],
)
def test_metadata(text: str, names: tuple[str, ...]) -> None:
    """Metadata columns are asked for all at once or by name."""
    assert Options.of({**BASE, "metadata": text}).metadata == names


def test_what_is_sparks_own() -> None:
    """Spark hands the place of a streaming write's checkpoint over with the options; it is no mistake."""
    assert Options.of({**BASE, "checkpointLocation": "/c"}) == Options.of(BASE)


@pytest.mark.parametrize("text", ["latest", "LATEST"])
def test_latest(text: str) -> None:
    """`latest` is understood in any case, at both ends."""
    options = Options.of({**BASE, "startingOffset": text, "endingOffset": text})

    assert (options.start, options.end) == ("latest", None)


def test_waiting_needs_an_end() -> None:
    """Without a longest delay, a smallest batch could wait for ever, or not at all: it is refused."""
    with pytest.raises(InvalidSettings, match="minBytesPerTrigger needs maxTriggerDelay"):
        Options.of({**BASE, "minBytesPerTrigger": "1MB"})
