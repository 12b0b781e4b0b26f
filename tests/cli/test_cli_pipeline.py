"""validate, graph and config: what they print and end with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import holdfast.spark
from cli.conftest import Run
from sparkkit import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = """store: {path: data}
sources:
  demo: {type: demo, topic: demo/rows}
  logs: {type: topic, topic: prod/logs, slot: logs, schema: {id: int64}}
transforms:
  by_level: {type: route, inputs: [demo], outputs: {errors: level = 'ERROR'}, other: true}
  ids: {type: sql, inputs: [logs, by_level.errors], query: select id from logs}
sinks:
  lake: {type: delta, inputs: [by_level.errors, by_level.other], path: "${LAKE:-lake}"}
  ids_out: {type: console, inputs: [ids]}
"""
BAD = GOOD.replace("type: delta", "type: delt").replace("[ids]", "[id]").replace("store:", "stor:")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(GOOD)
    return path


def test_a_good_file(call: Run, file: Path) -> None:
    """One line, and 0."""
    done = call("validate", file, "--no-spark")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{file}: no mistakes\n", "")


def test_a_good_file_for_programs(call: Run, file: Path) -> None:
    """One document; what was not looked at is null."""
    done = call("validate", file, "--no-spark", "--output", "json")
    assert json.loads(done.stdout) == {
        "file": str(file),
        "valid": True,
        "checked_in_spark": False,
        "problems": [],
        "sinks": [{"name": "lake", "stateful": None}, {"name": "ids_out", "stateful": None}],
    }


def test_a_bad_file(call: Run, file: Path) -> None:
    """Every mistake on a line of its own, as compilers do, and 78; Spark is not started for it."""
    file.write_text(BAD)
    done = call("validate", file)
    assert (done.returncode, done.stderr) == (78, "")
    assert done.stdout == (
        f"{file}:1: stor: unknown key; did you mean `store`?\n"
        f"{file}:1: store: missing; it must be given\n"
        f"{file}:4: sources.logs: no sink draws from this source; name it in the inputs of one\n"
        f"{file}:7: transforms.ids: no sink draws from this transform; name it in the inputs of one\n"
        f"{file}:9: sinks.lake.type: `delt` is unknown; did you mean `delta`? "
        "sinks are of the types console, delta, holdfast, parquet\n"
        f"{file}:10: sinks.ids_out.inputs[0]: there is no source or transform `id`; did you mean `ids`?\n"
        f"{file}: 6 mistakes\n"
    )


def test_a_bad_file_for_programs(call: Run, file: Path) -> None:
    """Line, path and text of each."""
    file.write_text("a: [\n")
    done = call("validate", file, "--output", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["valid"], document["checked_in_spark"]) == (78, False, False)
    assert document["problems"] == [
        {"line": 2, "path": "", "text": "not YAML: expected the node content, but found '<stream end>'"}
    ]


class Lent:
    """A session that is not stopped by whoever is done with it."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def newSession(self) -> SparkSession:  # noqa: N802  Spark's name
        return self._session.newSession()

    def stop(self) -> None: ...


def test_validate_in_spark(call: Run, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions and queries are tried over the declared columns, on this machine, with settings of SQL only."""
    asked: list[object] = []

    def lend(*arguments: object) -> Lent:
        asked.extend(arguments)
        return Lent(spark)

    monkeypatch.setattr(holdfast.spark, "session", lend)
    conf = "spark: {master: yarn, conf: {spark.sql.ansi.enabled: false, spark.executor.memory: 9g}}\n"
    file.write_text(GOOD + conf)
    done = call("validate", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{file}: no mistakes\n", "")
    assert asked == ["holdfast validate", "local[1]", {"spark.sql.ansi.enabled": "false"}]
    file.write_text(GOOD.replace("level =", "levle ="))
    done = call("validate", file, "--output", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr, document["checked_in_spark"]) == (78, "", True)
    assert [(each["line"], each["path"]) for each in document["problems"]] == [
        (6, "transforms.by_level.outputs.errors")
    ]


def test_a_pipeline_that_keeps_state(
    call: Run, file: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, since its checkpoint must be looked after."""
    monkeypatch.setattr(holdfast.spark, "session", lambda *_: Lent(spark))
    query = "select distinct ts from by_level_errors, watermark: {by_level.errors: {column: ts, delay: 1m}}"
    file.write_text(GOOD.replace("select id from logs", query))
    done = call("validate", file)
    assert (done.returncode, done.stdout) == (0, f"{file}: no mistakes\nkeeps state: ids_out\n")


@pytest.mark.long
def test_validate_from_end_to_end(run: Run, file: Path) -> None:
    """As a process of its own that starts its own Spark: mistakes on stdout, and no frames anywhere."""
    file.write_text(GOOD.replace("level =", "levle ="))
    done = run("validate", file, **environment())
    assert done.returncode == 78
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{file}:6: transforms.by_level.outputs.errors: [UNRESOLVED_COLUMN.WITH_SUGGESTION] ")
    assert lines[1:] == [f"{file}: 1 mistake"]
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


@pytest.mark.parametrize("command", ["validate", "graph", "config"])
def test_a_missing_file(call: Run, tmp_path: Path, command: str) -> None:
    """No traceback, and the name of what is missing."""
    done = call(command, tmp_path / "none.yaml")
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr == f"holdfast: {tmp_path}/none.yaml: no such file or directory\n"


@pytest.mark.parametrize("command", ["graph", "config"])
def test_other_commands_with_a_bad_file(call: Run, file: Path, command: str) -> None:
    """The mistakes on stderr, one line each, and 78."""
    file.write_text("a: 1\nb: 2\n")
    done = call(command, file)
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.splitlines()[:3] == [
        f"holdfast: {file}: 5 mistakes",
        "holdfast: line 1, a: unknown key",
        "holdfast: line 1, sinks: there are none; a pipeline needs one at least, like {type: console, inputs: [...]}",
    ]
    assert len(done.stderr.splitlines()) == 6


def test_graph(call: Run, file: Path) -> None:
    """From sources to sinks; a node that was drawn with all below it is not drawn again."""
    done = call("graph", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "demo (demo, topic demo/rows, slot events)\n"
        "└── by_level (route)\n"
        "    ├── by_level.errors\n"
        "    │   ├── ids (sql)\n"
        "    │   │   └── ids_out (console)\n"
        "    │   └── lake (delta)\n"
        "    └── by_level.other\n"
        "        └── lake (delta)\n"
        "logs (topic, topic prod/logs, slot logs)\n"
        "└── ids (sql) (see above)\n"
    )


def test_graph_for_programs(call: Run, file: Path) -> None:
    """Nodes and edges; a route's outputs are the names that others have as inputs."""
    document = json.loads(call("graph", file, "--output", "json").stdout)
    assert [(node["name"], node["kind"], node["type"]) for node in document["nodes"]] == [
        ("demo", "source", "demo"),
        ("logs", "source", "topic"),
        ("by_level", "transform", "route"),
        ("ids", "transform", "sql"),
        ("lake", "sink", "delta"),
        ("ids_out", "sink", "console"),
    ]
    assert {"from": "by_level.errors", "to": "ids"} in document["edges"]
    assert len(document["edges"]) == 6
    assert document["topics"] == ["demo/rows", "prod/logs"]


def test_config(call: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML for people, JSON for programs: the same, and nothing of the environment in either."""
    monkeypatch.setenv("LAKE", "/srv/opensesame")
    text, document = call("config", file).stdout, call("config", file, "--output", "json").stdout
    assert yaml.safe_load(text) == json.loads(document)
    assert json.loads(document)["sinks"]["lake"]["path"] == "${LAKE}"
    assert json.loads(document)["store"] == {"path": str(file.parent / "data")}
    assert json.loads(document)["buffer"]["durability"] == "fsync"
    assert "opensesame" not in text + document
