"""A pipeline's file: validate, graph, config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from cyclopts import Parameter
from rich.console import RenderableType
from rich.text import Text

from holdfast.cli._output import Output, quiet, show
from holdfast.errors import InvalidPipeline, Problem

if TYPE_CHECKING:
    from holdfast.pipeline import Topology

BAD_CONFIG = 78  # sysexits.h
# Settings that say how SQL is understood; others may need what is not here: a cluster, a catalog.
_MEANING = tuple(f"spark.sql.{part}" for part in ("ansi.", "caseSensitive", "session.", "parser.", "legacy."))


def validate(
    file: Path, /, *, spark: Annotated[bool, Parameter(negative="--no-spark")] = True, output: Output = "text"
) -> int:
    """Check a pipeline's file and print every mistake in it; ends with 78 if there are any.

    Parameters
    ----------
    file
        The pipeline's YAML file.
    spark
        Also try conditions and queries in a local Spark, over the columns that sources declare or have brought.
    """
    from holdfast.pipeline import load

    quiet()
    problems: list[Problem] = []
    stateful: dict[str, bool | None] = {}
    tried = False
    try:
        topology = load(file, os.environ)
        stateful = dict.fromkeys(topology.sinks)
        if spark:
            problems, stateful = _try_in_spark(topology)
            tried = True
    except InvalidPipeline as error:
        problems = error.problems
    document = {
        "file": str(file),
        "valid": not problems,
        "checked_in_spark": tried,
        "problems": [problem._asdict() for problem in problems],
        "sinks": [{"name": name, "stateful": each} for name, each in stateful.items()],
    }
    show(document, output, _report)
    return BAD_CONFIG if problems else 0


def graph(file: Path, /, *, output: Output = "text") -> int:
    """Draw what flows where.

    Parameters
    ----------
    file
        The pipeline's YAML file.
    """
    from holdfast.pipeline import load
    from holdfast.pipeline._drawing import draw, to_document

    topology = load(file, os.environ)
    show(to_document(topology), output, lambda _: map(Text, draw(topology)))
    return 0


def config(file: Path, /, *, output: Output = "text") -> int:
    """Print all settings of a pipeline, defaults included. Secrets, and what came from the environment, are not shown.

    Parameters
    ----------
    file
        The pipeline's YAML file.
    """
    from holdfast.pipeline import load
    from holdfast.pipeline._shown import shown

    show(shown(load(file, os.environ)), output, _as_yaml)
    return 0


def _try_in_spark(topology: Topology) -> tuple[list[Problem], dict[str, bool | None]]:
    from holdfast.pipeline._known import known_schemas
    from holdfast.spark import session

    known = known_schemas(topology)
    conf = {key: value for key, value in topology.spark.conf.items() if key.startswith(_MEANING)}
    started = session("holdfast validate", "local[1]", conf)
    try:
        from holdfast.pipeline._check_sql import examine

        checked = examine(topology, started, known)
    finally:
        started.stop()
    return checked.problems, dict(checked.stateful)


def _report(document: dict[str, Any]) -> list[RenderableType]:
    file, problems = document["file"], document["problems"]
    lines = [f"{file}:{problem['line']}: {_told(problem)}" for problem in problems]
    count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    lines.append(f"{file}: {count if problems else 'no mistakes'}")
    kept = [sink["name"] for sink in document["sinks"] if sink["stateful"]]
    if kept and not problems:
        lines.append(f"keeps state: {', '.join(kept)}")
    return [Text(line) for line in lines]


def _told(problem: dict[str, Any]) -> str:
    return f"{problem['path']}: {problem['text']}" if problem["path"] else str(problem["text"])


def _as_yaml(document: dict[str, Any]) -> list[RenderableType]:
    return [Text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120).rstrip())]
