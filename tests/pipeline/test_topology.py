"""A pipeline's file: what it says, and every mistake that can be found without Spark."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.durability import Durability
from holdfast.errors import InputError, InvalidPipeline
from holdfast.pipeline import Topology, load
from holdfast.pipeline._shown import shown
from holdfast.receivers import DemoSettings, TopicSettings
from holdfast.sinks._settings import DeltaSettings

WHOLE = """
store: {path: ./data}
acknowledgements: false
ingest: {workers: 2}
spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: false}}
buffer: {durability: os, acknowledgements: false, wal: {file_size: 1MB}}
namespaces: {prod: {durability: fsync, acknowledgements: true}}
topics: {prod/logs: {append_timeout: 1s}}
sources:
  demo: {type: demo, topic: demo/rows, acknowledgements: true}
  logs:
    type: topic
    topic: prod/logs
    slot: logs
    schema: {id: int64, ts: "timestamp[us, UTC]", tags: list<string>}
transforms:
  late: {type: filter, inputs: [joined], condition: ms > 100}
  joined: {type: sql, inputs: [demo, by_id.low], query: "select * from demo"}
  by_id: {type: route, inputs: [logs], outputs: {low: id < 10}, other: true}
sinks:
  lake: {type: delta, inputs: [late, by_id.other], path: lake, authoritative: true, commit_interval: 1m}
  look: {type: console, inputs: [demo]}
"""

# Everything that a file needs; tests add to it.
STORE = "store: {path: data}\n"
SOURCES = STORE + "sources: {demo: {type: demo, topic: demo/rows}}\n"
SMALL = SOURCES + "sinks: {look: {type: console, inputs: [demo]}}\n"


def mistakes(text: str, folder: Path = Path("/nowhere"), **environ: str) -> list[str]:
    with pytest.raises(InvalidPipeline) as caught:
        load(textwrap.dedent(text), environ, folder=folder)
    return [str(problem) for problem in caught.value.problems]


def good(text: str, folder: Path = Path("/nowhere"), **environ: str) -> Topology:
    return load(textwrap.dedent(text), environ, folder=folder)


# -- what it says ----------------------------------------------------------------------------------------------------


def test_a_whole_file(tmp_path: Path) -> None:
    """Settings of the store, of Spark and of the processes; relative paths are below the file's folder."""
    (tmp_path / "pipeline.yaml").write_text(WHOLE)
    topology = load(tmp_path / "pipeline.yaml", {})
    assert (topology.store, topology.state) == (tmp_path / "data", tmp_path / "data.pipeline")
    assert (topology.ingest.workers, topology.spark.master) == (2, "local[2]")
    assert topology.spark.conf == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"}
    logs = topology.store_settings.resolve("prod/logs")
    assert (logs.durability, logs.append_timeout, logs.wal.file_size) == (Durability.FSYNC, 1.0, 1_000_000)
    assert topology.store_settings.resolve("demo/rows").durability is Durability.OS
    assert topology.topics() == ("demo/rows", "prod/logs")


def test_sources_of_a_whole_file() -> None:
    """Each knows its topic, slot and columns, whether it is answered, and by whom."""
    sources = good(WHOLE).sources
    demo, logs = sources["demo"], sources["logs"]
    assert (demo.topic, demo.slot, demo.origin) == ("demo/rows", "events", "demo")
    assert (demo.acknowledgements, demo.buffer_acknowledges) == (True, False)
    assert (logs.topic, logs.slot, logs.origin) == ("prod/logs", "logs", None)
    assert (logs.acknowledgements, logs.buffer_acknowledges) == (False, True)
    assert logs.declared_schema == pa.schema(
        [("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]
    )
    assert demo.declared_schema is not None
    assert demo.declared_schema.names == ["seq", "ts", "level", "service", "ms", "message"]
    assert isinstance(demo.settings, DemoSettings)
    assert isinstance(logs.settings, TopicSettings)


def test_plans() -> None:
    """The transforms of a sink come in the order in which they can be done, and only those."""
    topology = good(WHOLE)
    assert [node.name for node in topology.plan("lake")] == ["by_id", "joined", "late"]
    assert [source.name for source in topology.sources_of("lake")] == ["demo", "logs"]
    assert topology.plan("look") == []
    assert [source.name for source in topology.sources_of("look")] == ["demo"]
    assert topology.transforms["by_id"].outputs == ("by_id.low", "by_id.other")
    assert topology.transforms["late"].outputs == ("late",)


def test_settings_of_sinks() -> None:
    """Sizes and durations are plain numbers; what is not given has its default."""
    lake = good(WHOLE).sinks["lake"].settings
    assert isinstance(lake, DeltaSettings)
    assert (lake.path, lake.authoritative, lake.on_full) == (Path("/nowhere/lake"), True, "block")
    assert (lake.commit_interval, lake.deadline, lake.max_batch_bytes) == (60.0, 300.0, 256_000_000)
    assert (lake.target_file_size, lake.retry.initial, lake.retry.max) == (128_000_000, 1.0, 60.0)


def test_defaults() -> None:
    """A small file has everything else from here."""
    topology = good(SMALL)
    assert (topology.acknowledgements, topology.ingest.workers) == (True, 1)
    assert (topology.spark.master, topology.spark.conf) == ("local[*]", {})
    assert topology.sources["demo"].buffer_acknowledges
    assert topology.store_settings.buffer.durability is Durability.FSYNC
    assert good("buffer: {durability: memory}\n" + SMALL).store_settings.buffer.durability is Durability.MEMORY


def test_acknowledgements_of_a_topic_go_before_its_namespace() -> None:
    """The nearest level that says something holds."""
    text = SMALL + "buffer: {acknowledgements: false}\nnamespaces: {demo: {acknowledgements: false}}\n"
    assert not good(text).sources["demo"].buffer_acknowledges
    assert good(text + "topics: {demo/rows: {acknowledgements: true}}\n").sources["demo"].buffer_acknowledges


def test_frozen() -> None:
    """A topology does not change once it is made."""
    topology = good(WHOLE)
    with pytest.raises(TypeError):
        topology.sinks["more"] = topology.sinks["lake"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        topology.store = Path()  # type: ignore[misc]


def test_an_unknown_sink() -> None:
    """The names that there are, are told."""
    with pytest.raises(InputError, match="there is no sink 'lak' in pipeline; there are lake, look"):
        good(WHOLE).plan("lak")


def test_a_missing_file(tmp_path: Path) -> None:
    """As the system says it."""
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.yaml", {})


def test_one_error_for_all(tmp_path: Path) -> None:
    """The error names the file, counts the mistakes, and lists them by line."""
    path = tmp_path / "p.yaml"
    path.write_text(SOURCES + "sinks: {look: {type: consol, inputs: [dem]}}\n")
    with pytest.raises(InvalidPipeline) as caught:
        load(path, {})
    assert str(caught.value) == (
        f"{path}: 3 mistakes\n"
        "  line 2, sources.demo: no sink draws from this source; name it in the inputs of one\n"
        "  line 3, sinks.look.inputs[0]: there is no source or transform `dem`; did you mean `demo`?\n"
        "  line 3, sinks.look.type: `consol` is unknown; did you mean `console`? "
        "sinks are of the types console, delta, holdfast, parquet"
    )
    assert caught.value.exit_code == 78


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stor: {}\n" + SMALL, ["line 1, stor: unknown key; did you mean `store`?"]),
        (SMALL.replace("store: {path: data}", "store: {}"), ["line 1, store.path: missing; it must be given"]),
        (SMALL.replace("store: {path: data}", "store: data"),
         ["line 1, store: `data` should be a valid mapping or instance of StorePlace"]),
        (SMALL.removeprefix(STORE), ["line 1, store: missing; it must be given"]),
        (SMALL + "ingest: {workers: 0}\n", ["line 4, ingest.workers: `0` should be greater than or equal to 1"]),
        (SMALL + "acknowledgements: perhaps\n", ["line 4, acknowledgements: `perhaps` should be a valid boolean"]),
        (SMALL + "spark: {conf: {a: [1]}}\n", ["line 4, spark.conf.a: should be a valid string"]),
        (SMALL + "state: s3://bucket/x\n",
         ["line 4, state: 's3:/bucket/x' is an address; only folders of a filesystem can be written to"]),
        (SMALL + "state: ~/x\n", ["line 4, state: '~/x': '~' has no meaning here; write ${HOME}"]),
        (SMALL + "buffer: {durability: sure, wal: {fil_size: 1}, acknowledgements: 7}\n", [
            "line 4, buffer.acknowledgements: `7` should be a valid boolean",
            "line 4, buffer.durability: 'sure' is not a durability; use memory, os or fsync",
            "line 4, buffer.wal.fil_size: unknown key; did you mean `file_size`?",
        ]),
        (SMALL + "buffer: [a]\n", ["line 4, buffer: `['a']` should be a mapping of settings"]),
        (SMALL + "namespaces: {prod: {durabilty: os}, Ä: {}}\ntopics: {x: {}, a/b: {acknowledgements: x}}\n", [
            "line 4, namespaces.prod.durabilty: unknown key; did you mean `durability`?",
            "line 4, namespaces.Ä: namespace: 'Ä' has 'Ä' in it; allowed: 1 to 128 of the characters A-Z a-z 0-9 . _ -"
            ', beginning with a letter or digit, without "..", not ending in ".", ".lock", ".checkpoint" or ".tmp", '
            "and no device name of Windows",
            "line 5, topics.a/b.acknowledgements: `x` should be a valid boolean",
            "line 5, topics.x: topic 'x' has 0 slashes; write 'namespace/name', with exactly one",
        ]),
        (SMALL + "topics: {demo/rows: {wal: {file_size: 2MB, max_size: 1MB}}}\n", [
            "line 4, topics.demo/rows.wal: wal.file_size (2000000) must not exceed wal.max_size (1000000)",
        ]),
        (SMALL + "topics: 5\n", ["line 4, topics: `5` should be a mapping of names to settings"]),
        (SMALL + "transforms: [a]\n", ["line 4, transforms: `['a']` should be a mapping of names to settings"]),
    ],
)  # fmt: skip
def test_mistakes_in_settings(text: str, told: list[str]) -> None:
    """Line, key path, what is wrong."""
    assert mistakes(text) == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{inputs: [demo]}", ["type: missing; sinks are of the types console, delta, holdfast, parquet"]),
        ("{type: 5, inputs: [demo]}",
         ["type: `5` is unknown; sinks are of the types console, delta, holdfast, parquet"]),
        ("{type: console}", ["inputs: missing; it must be given"]),
        ("{type: console, inputs: []}", ["inputs: empty; there must be one at least"]),
        ("{type: console, inputs: demo}", ["inputs: `demo` should be a valid list"]),
        ("{type: console, inputs: [5]}", ["inputs[0]: `5` should be a valid string"]),
        ("{type: delta, inputs: [demo], pth: x}",
         ["path: missing; it must be given", "pth: unknown key; did you mean `path`?"]),
        ("{type: delta, inputs: [demo], path: x, on_full: dorp}",
         ["on_full: `dorp` is none of 'block' or 'drop'; did you mean `drop`?"]),
        ("{type: delta, inputs: [demo], path: x, commit_interval: soon}",
         ["commit_interval: 'soon' is not a duration; write it like 25ms, 60s or 72h"]),
        ("{type: delta, inputs: [demo], path: x, target_file_size: 0}",
         ["target_file_size: `0` should be greater than or equal to 1"]),
        ("{type: delta, inputs: [demo], path: x, partition_by: [a, a]}", [": partition_by names a column twice"]),
        ("{type: delta, inputs: [demo], path: x, retry: {initial: 5s, max: 1s}}",
         ["retry: initial (5 s) must not exceed max (1 s)"]),
        ("{type: holdfast, inputs: [demo], topic: a}",
         ["topic: topic 'a' has 0 slashes; write 'namespace/name', with exactly one"]),
        ("word", [": `word` should be a mapping, like {type: console, ...}"]),
    ],
)  # fmt: skip
def test_mistakes_in_a_sink(entry: str, told: list[str]) -> None:
    """Each is told at its key."""
    text = SMALL.replace("{look: ", f"{{bad: {entry}, look: ")
    expected = [f"line 3, sinks.bad{'' if each.startswith(':') else '.'}{each}" for each in told]
    assert mistakes(text) == expected


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("int65", "'int65' is not an Arrow type; write it like int64, string, timestamp[us, UTC], decimal128(10, 2), "
                  "list<string>, map<string, int64> or struct<name: string, size: int64>"),
        ("list<" * 100 + "int8" + ">" * 100, "is not an Arrow type"),
        ("5", "`5` should be a valid string"),
    ],
)  # fmt: skip
def test_types_that_are_none(kind: str, told: str) -> None:
    """A declared column needs an Arrow type."""
    text = SOURCES.replace("}}", f"}}, t: {{type: topic, topic: a/b, slot: s, schema: {{x: {kind}}}}}}}")
    (found,) = mistakes(text + "sinks: {look: {type: console, inputs: [demo, t]}}")
    assert found.startswith("line 2, sources.t.schema.x: ")
    assert told in found


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.null(), pa.string(),
        pa.large_string(), pa.binary(), pa.binary(16), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("ns"),
        pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"), pa.duration("ms"), pa.decimal128(38, 10),
        pa.decimal256(50, 0), pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        pa.large_list(pa.int8()), pa.map_(pa.string(), pa.decimal128(10, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_types_as_arrow_writes_them(kind: pa.DataType) -> None:
    """What Arrow prints for a type can be written in a file."""
    source = TopicSettings.model_validate({"type": "topic", "topic": "a/b", "slot": "s", "schema": {"x": str(kind)}})
    assert source.declared_schema == pa.schema([("x", kind)])


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("{type: filter, inputs: [demo], condition: ' '}", "condition: the condition is empty"),
        ("{type: sql, inputs: [demo], query: drop table x}",
         "query: the query begins with 'drop'; it must be a SELECT, or a WITH and a SELECT"),
        ("{type: sql, inputs: [demo], query: '-- select'}",
         "query: the query begins with 'nothing'; it must be a SELECT, or a WITH and a SELECT"),
        ("{type: sql, inputs: [demo], query: 'select 1; select 2'}",
         "query: there is more than one statement; a query is a single SELECT"),
        ("{type: sql, inputs: [demo], query: select 1, watermark: {dem: {column: ts, delay: 1s}}}",
         ": watermark: `dem` is not an input of this query"),
        ("{type: sql, inputs: [demo], query: select 1, watermark: {column: ts}}",
         "watermark.demo.delay: missing; it must be given"),
        ("{type: route, inputs: [demo], outputs: {}}",
         "outputs: empty; there must be one at least"),
    ],
)  # fmt: skip
def test_mistakes_in_a_transform(transform: str, told: str) -> None:
    """Each is told at its key."""
    text = SOURCES + f"transforms: {{t: {transform}}}\nsinks: {{look: {{type: console, inputs: [t]}}}}\n"
    if "route" in transform:
        text = text.replace("inputs: [t]", "inputs: [demo]")
    assert f"line 3, transforms.t{'' if told.startswith(':') else '.'}{told}" in mistakes(text)


# -- the graph -------------------------------------------------------------------------------------------------------


def graph(transforms: str, sinks: str, sources: str = "demo: {type: demo, topic: demo/rows}") -> str:
    return f"store: {{path: data}}\nsources: {{{sources}}}\ntransforms: {{{transforms}}}\nsinks: {{{sinks}}}\n"


LOOK = "look: {type: console, inputs: [demo]}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STORE, [
            "line 1, sinks: there are none; a pipeline needs one at least, like {type: console, inputs: [...]}",
            "line 1, sources: there are none; a pipeline needs one at least, like {type: demo, topic: demo/rows}",
        ]),
        (STORE + "sources:\nsinks: {}\n", [
            "line 2, sources: there are none; a pipeline needs one at least, like {type: demo, topic: demo/rows}",
            "line 3, sinks: there are none; a pipeline needs one at least, like {type: console, inputs: [...]}",
        ]),
        (graph("", "look: {type: console, inputs: [demo, dmo, zzz, demo]}"), [
            "line 4, sinks.look.inputs[1]: there is no source or transform `dmo`; did you mean `demo`?",
            "line 4, sinks.look.inputs[2]: there is no source or transform `zzz`",
            "line 4, sinks.look.inputs[3]: `demo` is listed twice: its rows would come twice",
        ]),
        (graph("", LOOK + ", more: {type: console, inputs: [look]}"), [
            "line 4, sinks.more.inputs[0]: `look` is a sink; only sources and transforms can be inputs",
        ]),
        (graph("r: {type: route, inputs: [demo], outputs: {a: x, b: y}}",
               "look: {type: console, inputs: [r, r.a, r.other]}"), [
            "line 3, transforms.r.outputs.b: nothing draws from `r.b`: its rows would be lost",
            "line 4, sinks.look.inputs[0]: `r` is a route; name one of its outputs: `r.a`, `r.b`",
            "line 4, sinks.look.inputs[2]: there is no source or transform `r.other`",
        ]),
        (graph("r: {type: route, inputs: [demo], outputs: {other: x, B: y}}",
               "look: {type: console, inputs: [r.B, r.other]}"), [
            "line 3, transforms.r.outputs: `other` is what no output takes; say `other: true` beside `outputs`",
            "line 3, transforms.r.outputs.B: `B` cannot be the name of an output; names are 1 to 64 of a-z, 0-9 and _, "
            "a letter first",
        ]),
        (graph("r: {type: route, inputs: [demo], outputs: {a: x}, other: true}",
               "look: {type: console, inputs: [r.a]}"), [
            "line 3, transforms.r.other: nothing draws from `r.other`: its rows would be lost",
        ]),
        (graph("a: {type: filter, inputs: [c, demo], condition: x}, b: {type: filter, inputs: [a], condition: x}, "
               "c: {type: filter, inputs: [b], condition: x}, d: {type: filter, inputs: [d], condition: x}",
               "look: {type: console, inputs: [a]}"), [
            "line 3, transforms.a.inputs: data would go round in a circle: `a` -> `b` -> `c` -> `a`",
            "line 3, transforms.d.inputs: data would go round in a circle: `d` -> `d`",
        ]),
        (graph("a: {type: filter, inputs: [two], condition: x}, b: {type: filter, inputs: [a], condition: x}", LOOK,
               "demo: {type: demo, topic: a/b}, two: {type: demo, topic: a/c}"), [
            "line 2, sources.two: no sink draws from this source; name it in the inputs of one",
            "line 3, transforms.a: no sink draws from this transform; name it in the inputs of one",
            "line 3, transforms.b: no sink draws from this transform; name it in the inputs of one",
        ]),
        (graph("demo: {type: filter, inputs: [demo], condition: x}",
               LOOK + ", demo: {type: console, inputs: [demo]}"), [
            "line 3, transforms.demo: the name is taken by sources.demo on line 2; "
            "sources, transforms and sinks all need names of their own",
            "line 4, sinks.demo: the name is taken by sources.demo on line 2; "
            "sources, transforms and sinks all need names of their own",
        ]),
        (graph("", "Lake-1: {type: console, inputs: [demo]}, con: {type: console, inputs: [demo]}"), [
            "line 4, sinks.Lake-1: `Lake-1` cannot be a name in sinks; names are 1 to 64 of a-z, 0-9 and _, "
            "a letter first",
            "line 4, sinks.con: subscriber: 'con' is the name of a device on Windows; allowed: 1 to 128 of the "
            'characters A-Z a-z 0-9 . _ -, beginning with a letter or digit, without "..", not ending in ".", ".lock", '
            '".checkpoint" or ".tmp", and no device name of Windows',
        ]),
        (graph("q: {type: sql, inputs: [a_b, a.b], query: select 1}, a: {type: route, inputs: [demo], outputs: {b: x}}"
               ", a_b: {type: filter, inputs: [demo], condition: x}", "look: {type: console, inputs: [q]}"), [
            "line 3, transforms.q: inputs `a_b` and `a.b` would be the same view",
        ]),
    ],
)  # fmt: skip
def test_mistakes_in_the_graph(text: str, told: list[str]) -> None:
    """Unknown inputs, circles, parts that lead nowhere, doubled names: all of them, at once."""
    assert mistakes(text) == told


def test_wrong_settings_do_not_hide_the_graph() -> None:
    """A node whose settings are wrong keeps its place: nothing is said to be missing or unreachable because of it."""
    text = graph("a: {type: filter, inputs: [demo], conditon: x}", "look: {type: console, inputs: [a], limit: 0}")
    assert [line.split(":")[0] for line in mistakes(text)] == [
        "line 3, transforms.a.condition",
        "line 3, transforms.a.conditon",
        "line 4, sinks.look.limit",
    ]


def test_a_long_chain() -> None:
    """The depth of a graph is not bounded by the depth of calls."""
    chain = ", ".join(f"t{n}: {{type: filter, inputs: [t{n - 1}], condition: x}}" for n in range(1, 2000))
    text = graph(
        f"t0: {{type: filter, inputs: [demo], condition: x}}, {chain}", "look: {type: console, inputs: [t1999]}"
    )
    assert [node.name for node in good(text).plan("look")] == [f"t{n}" for n in range(2000)]


WORDS = st.sampled_from(
    ["store", "path", "sources", "transforms", "sinks", "type", "inputs", "demo", "topic", "delta", "route", "sql",
     "a/b", "outputs", "other", "query", "condition", "select 1", "watermark", "schema", "buffer", "wal", "topics",
     "namespaces", "spark", "conf", "state", "x", "y", "holdfast", "parquet", "filter", "slot", "source", "retry"]
)  # fmt: skip
THINGS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=100)
@given(st.dictionaries(WORDS, THINGS, max_size=6), st.dictionaries(WORDS, THINGS, max_size=4))
def test_any_file_is_read_or_refused(top: dict[str, Any], entry: dict[str, Any]) -> None:
    """Whatever has been put where, the answer is a list of mistakes, each with a line."""
    kinds = ("demo", "topic"), ("filter", "sql", "route"), ("delta", "holdfast", "console")
    for section, types in zip(("sources", "transforms", "sinks"), kinds, strict=True):
        top = {**top, section: {kind: {**entry, "type": kind} for kind in types}}
    assert all(line.startswith("line ") for line in mistakes(json.dumps(top)))


# -- folders, topics, slots ------------------------------------------------------------------------------------------


def sinks(**paths: str) -> str:
    return SOURCES + "sinks:\n" + "".join(
        f"  {name}: {{type: parquet, inputs: [demo], path: {path}}}\n" for name, path in paths.items()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (sinks(a="x", b="./y/../x"),
         ["line 5, sinks.b.path: the same folder as that of sink `a`; each needs a folder of its own"]),
        (sinks(a="x", b="x/y"),
         ["line 5, sinks.b.path: inside the folder of sink `a`; each needs a folder of its own"]),
        (sinks(a="x/y", b="x"),
         ["line 5, sinks.b.path: sink `a` has its folder inside this one; each needs a folder of its own"]),
        (sinks(a="data/x"), ["line 4, sinks.a.path: inside the folder of the store; each needs a folder of its own"]),
        (sinks(a="."),
         ["line 4, sinks.a.path: the store has its folder inside this one; each needs a folder of its own"]),
        (sinks(a="data.pipeline/x"),
         ["line 4, sinks.a.path: inside the folder of the pipeline's state; each needs a folder of its own"]),
        (SMALL + "state: data/x\n", ["line 4, state: inside the folder of the store; each needs a folder of its own"]),
        (SOURCES + "sinks: {a: {type: parquet, inputs: [demo], path: x/y}, b: {type: holdfast, inputs: [demo], "
                   "topic: a/b, store: x}, c: {type: holdfast, inputs: [demo], topic: a/c, store: x}}", [
            "line 3, sinks.b.store: sink `a` has its folder inside this one; each needs a folder of its own",
        ]),
        ("tops: {}\n" + sinks(a="data"), [
            "line 1, tops: unknown key; did you mean `topics`?",
            "line 5, sinks.a.path: the same folder as that of the store; each needs a folder of its own",
        ]),
    ],
)  # fmt: skip
def test_folders_that_are_used_twice(tmp_path: Path, text: str, told: list[str]) -> None:
    """The store, the pipeline's state and each sink need a folder that is nobody else's, in whole or in part."""
    assert mistakes(text, tmp_path) == told


def test_one_folder_under_two_names(tmp_path: Path) -> None:
    """A link does not hide it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert mistakes(sinks(a="real/x", b="link/x"), tmp_path) == [
        "line 5, sinks.b.path: the same folder as that of sink `a`; each needs a folder of its own"
    ]


def two(first: str, second: str, inputs: str = "[one, two]", more: str = "") -> str:
    return graph("", f"look: {{type: console, inputs: {inputs}}}{more}", f"one: {{{first}}}, two: {{{second}}}")


DEMO, TOPIC = "type: demo, topic: a/b", "type: topic, topic: a/b, slot: events"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (two(DEMO, TOPIC), [
            "line 2, sources.two: takes every row in slot `events` of topic `a/b`, also those of `one`; "
            "say whose with `source: <name>`",
        ]),
        (two(DEMO, TOPIC + ", source: one"), [
            "line 2, sources.two.source: takes the same rows in slot `events` of topic `a/b` as `one`",
        ]),
        (two(TOPIC + ", source: x", TOPIC + ", source: x"), [
            "line 2, sources.two.source: takes the same rows in slot `events` of topic `a/b` as `one`",
        ]),
        (two(DEMO, TOPIC.replace("events", "spans")), [
            "line 4, sinks.look.inputs: draws from more than one slot of topic `a/b`: `events` (source `one`), "
            "`spans` (source `two`); a sink reads one slot of a topic: make it a sink for each",
        ]),
        (two(DEMO.replace("a/b", "a/c"), TOPIC, more=", back: {type: holdfast, inputs: [two], topic: a/b}"), [
            "line 2, sources.two.inputs: data would go round in a circle: `two` -> `back` -> `two`",
        ]),
        (two(DEMO.replace("a/b", "a/c"), TOPIC + ", source: back",
             more=", back: {type: holdfast, inputs: [two], topic: a/b, store: data}"), [
            "line 2, sources.two.inputs: data would go round in a circle: `two` -> `back` -> `two`",
        ]),
    ],
)  # fmt: skip
def test_topics_that_are_shared_wrongly(text: str, told: list[str]) -> None:
    """Each row has one source, a sink reads one slot of a topic, and nothing feeds itself through the store."""
    assert mistakes(text) == told


@pytest.mark.parametrize(
    "text",
    [
        two(DEMO, DEMO),
        two(DEMO, TOPIC + ", source: three"),
        two(DEMO, TOPIC.replace("events", "spans"), "[one]", ", more: {type: console, inputs: [two]}"),
        two(DEMO, TOPIC + ", source: back", "[two]", ", back: {type: holdfast, inputs: [one], topic: a/b}"),
        two(DEMO.replace("a/b", "a/c"), TOPIC, more=", back: {type: holdfast, inputs: [two], topic: a/b, store: x}"),
    ],
)
def test_topics_that_are_shared_rightly(text: str) -> None:
    """Several receivers on one topic, slots with a sink each, a second stage behind a sink, a copy elsewhere."""
    assert set(good(text).sources) == {"one", "two"}


# -- secrets ---------------------------------------------------------------------------------------------------------

HIDDEN = """
store: {path: "${ROOT}/data"}
sources: {demo: {type: demo, topic: "${TOPIC}", seed: "${SEED}"}}
transforms: {t: {type: filter, inputs: [demo], condition: "message <> '${WORD}'"}}
sinks: {lake: {type: delta, inputs: [t], path: "${ROOT}/lake"}}
spark: {conf: {spark.x.password: opensesame, spark.y: "${WORD}"}}
topics: {"a/b": {append_timeout: "${SECONDS}"}}
"""
VALUES = {"ROOT": "/srv/hidden", "TOPIC": "cellar/vault", "SEED": "4711", "WORD": "xyzzy", "SECONDS": "815s"}


def test_nothing_hidden_is_shown() -> None:
    """Neither by `repr`, nor in the resolved settings, nor in what a mistake is told by."""
    topology = good(HIDDEN, **VALUES)
    assert topology.sources["demo"].topic == "cellar/vault"
    texts = [repr(topology), repr(topology.sources), repr(topology.sinks), repr(topology.transforms)]
    texts += [repr(topology.spark), repr(shown(topology)), repr(topology.document)]
    texts += mistakes(HIDDEN.replace("[t]", "[demo, t, '${WORD}']").replace("${SECONDS}", "${ROOT}"), **VALUES)
    texts += mistakes(HIDDEN.replace("lake}", "data}").replace("/lake", "/data/lake"), **VALUES)
    texts += mistakes(HIDDEN.replace("type: delta", "type: '${WORD}'").replace("seed:", "sed:"), **VALUES)
    for value in (*VALUES.values(), "opensesame"):
        assert not [text for text in texts if value in text]


def test_resolved_settings() -> None:
    """Defaults included; what came from the environment is shown by the names of its variables."""
    document: dict[str, Any] = shown(good(HIDDEN, **VALUES))
    assert document["store"] == {"path": "...${ROOT}..."}
    assert document["state"] == "...${ROOT}....pipeline"
    assert document["sources"]["demo"]["topic"] == "${TOPIC}"
    assert document["sources"]["demo"]["rows_per_second"] == 1000
    assert document["spark"]["conf"] == {"spark.x.password": "**********", "spark.y": "${WORD}"}
    assert document["topics"] == {"a/b": {"append_timeout": "${SECONDS}"}}
    assert document["buffer"]["acknowledgements"] is True
    assert document["buffer"]["wal"]["file_size"] == 64_000_000
