"""What docs/pipeline.md says of a pipeline's file is what the models and commands say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.documents import DOCUMENTS, block, blocks, code_in, table, text_of
from docs.models import allowed, fields, value_at
from holdfast.cli._app import run
from holdfast.cli._run import run as run_command
from holdfast.config._compose import MAX_BYTES
from holdfast.config.settings import MAX_BUNDLE_BYTES
from holdfast.config.yaml import read
from holdfast.pipeline import _child, driver, load, supervisor
from holdfast.pipeline._query import SinkHealth, State
from holdfast.pipeline._sections import MAX_NAME
from holdfast.pipeline._settings import PipelineSettings
from holdfast.pipeline.transforms import TRANSFORMS, FilterSettings, RouteSettings, SqlSettings, TransformSettings
from holdfast.receivers import SOURCES, DemoSettings, SourceSettings, TopicSettings
from holdfast.sinks import SINK_SETTINGS, ConsoleSettings, HoldfastSinkSettings, SinkSettings
from holdfast.sinks._settings import FileSinkSettings

PIPELINE = "docs/pipeline.md"
WITHOUT = {"none", "the pipeline's", "the store's path and `.pipeline`"}  # how the absence of a default is told

# The heading of a table, the model that it shows, and the model whose settings another table shows.
TABLES: list[tuple[str, type[BaseModel], type[BaseModel] | None]] = [
    ("key", PipelineSettings, None),
    ("key of every source", SourceSettings, None),
    ("key of a topic source", TopicSettings, SourceSettings),
    ("key of a demo source", DemoSettings, SourceSettings),
    ("key of every transform", TransformSettings, None),
    ("key of a filter", FilterSettings, TransformSettings),
    ("key of a route", RouteSettings, TransformSettings),
    ("key of a sql", SqlSettings, TransformSettings),
    ("key of every sink", SinkSettings, None),
    ("key of a delta or parquet sink", FileSinkSettings, SinkSettings),
    ("key of a console sink", ConsoleSettings, SinkSettings),
    ("key of a holdfast sink", HoldfastSinkSettings, SinkSettings),
]
HEADINGS = [heading for heading, _, _ in TABLES]


def _own(model: type[BaseModel], parent: type[BaseModel] | None) -> dict[str, FieldInfo]:
    known = {} if parent is None else dict(fields(parent))
    return {key: field for key, field in fields(model) if key not in known}


@pytest.mark.parametrize(("heading", "model", "parent"), TABLES, ids=HEADINGS)
def test_every_setting_is_listed_once(heading: str, model: type[BaseModel], parent: type[BaseModel] | None) -> None:
    """A table has the keys of its model, no others, in their order."""
    assert [code_in(row[0])[0] for row in table(PIPELINE, heading)] == list(_own(model, parent))


@pytest.mark.parametrize(("heading", "model", "parent"), TABLES, ids=HEADINGS)
def test_defaults_and_bounds_are_the_models(
    heading: str, model: type[BaseModel], parent: type[BaseModel] | None
) -> None:
    """A default can be written as it stands and means the model's; `required` has none; bounds are the model's."""
    for row in table(PIPELINE, heading):
        (key, *_), default = code_in(row[0]), row[1]
        field = _own(model, parent)[key]
        if default == "required":
            assert field.is_required(), key
        elif default in WITHOUT:
            assert field.default is None, key
        else:
            assert _given(model, key, code_in(default)[0]) == _default(model, key, field), key
        if len(row) > 3 and row[2]:
            assert row[2] == allowed(field), key
        assert row[-1], key


def _default(model: type[BaseModel], key: str, field: FieldInfo) -> Any:
    found = field.default
    assert found is not PydanticUndefined, key
    return {} if found is None and model is PipelineSettings else found


def _given(model: type[BaseModel], key: str, text: str) -> Any:
    """What the model makes of a value as YAML has it, all other settings as they may be."""
    value = read(f"value: {text}", "table", {}).values["value"]
    given: Any = value
    for part in reversed(key.split(".")[1:]):
        given = {part: given}
    first = key.split(".", maxsplit=1)[0]
    needed = {"type": "", "inputs": ["a"], "topic": "a/b", "path": "/p", "slot": "s"}
    if model is PipelineSettings:
        needed["store"] = {"path": "/p"}
    literal = model.model_fields.get("type")
    if literal is not None and literal.annotation is not str:
        needed["type"] = allowed(literal).strip("`")
    extra = {"condition": "a", "outputs": {"a": "b"}, "query": "select 1"}
    document = {name: each for name, each in {**needed, **extra}.items() if name in model.model_fields} | {first: given}
    return value_at(model.model_validate(document), key)


def test_every_type_is_named() -> None:
    """The tables of all sources, transforms and sinks name each type."""
    for heading, kinds in (("source", SOURCES), ("transform", TRANSFORMS), ("sink", SINK_SETTINGS)):
        row = table(PIPELINE, f"key of every {heading}")[0]
        assert code_in(row[0]) == ["type"]
        assert code_in(row[-1]) == sorted(kinds)


def test_every_state_of_a_sink_is_listed() -> None:
    """The table has each state, in order, and says which of them are healthy."""
    listed = [(code_in(row[0])[0], row[1] == "yes") for row in table(PIPELINE, "state of a sink")]
    assert listed == [(str(state), SinkHealth(state, 0, 0).healthy) for state in State]


def test_every_option_of_run_is_listed() -> None:
    """The table has each option of the command, no others, in order."""
    listed = [code_in(row[0])[0] for row in table(PIPELINE, "option of `run`")]
    names = list(run_command.__kwdefaults__)
    assert listed == [f"--{name.replace('_', '-')}" for name in names]


def test_exit_codes_are_those_of_the_supervisor() -> None:
    """The table has what the supervisor ends with."""
    listed = [int(row[0]) for row in table(PIPELINE, "exit code")]
    codes = {supervisor.OK, supervisor.USAGE, supervisor.GAVE_UP, supervisor.BAD_CONFIG, supervisor.INTERRUPTED}
    assert listed == sorted({*codes, 65, 69})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_yaml_blocks_load(document: str, tmp_path: Path) -> None:
    """Every YAML block of a document is a pipeline without mistakes."""
    for found in blocks(document, "yaml"):
        topology = load(found.text, {}, folder=tmp_path)
        assert topology.sinks


def test_validate_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mistakes of the example are reported as shown."""
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text(block(PIPELINE, "text", "broken.yaml"), encoding="utf-8")
    _expect_output("validate", 78, capsys)


def test_graph_prints_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The graph is that of the page's first example."""
    monkeypatch.chdir(tmp_path)
    Path("pipeline.yaml").write_text(blocks(PIPELINE, "yaml")[0].text, encoding="utf-8")
    _expect_output("graph", 0, capsys)


def _expect_output(label: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    command, _, shown = block(PIPELINE, "console", label).partition("\n")
    assert run(command.removeprefix("$ holdfast ").split()) == code
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("at most 256 KiB", MAX_BYTES == 256 << 10),
        ("are 1 to 64 of `a-z`", MAX_NAME == 64),
        ("stay below 1 GiB", MAX_BUNDLE_BYTES == 1 << 30),
        ("after 0.5 s or less, doubling up to 30 s", supervisor.Patience().first_retry == 0.5),
        ("30 s, and from the beginning once it ran well for 30 s", supervisor.Patience().last_retry == 30.0),
        ("once it ran well for 30 s", supervisor.Patience().steady == 30.0),
        ("given up after 5 attempts", supervisor.FIRST_STARTS == 5),
        ("for 2 minutes is killed", supervisor.Patience().silence == 120.0),
        ("60% of what is left", driver.DRAIN_SHARE == 0.6),
        ("end by themselves within seconds", _child.GONE_SECONDS == 5.0),
    ],
)
def test_figures_are_those_of_the_code(text: str, figure: bool) -> None:
    """A figure in the document is the constant in the code."""
    assert text in " ".join(text_of(PIPELINE).split())
    assert figure
