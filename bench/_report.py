"""What a benchmark found, as a table for people or as JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa

from _harness import Spread, Target


@dataclass(frozen=True)
class Row:
    """One line: figures by column, and where it has one, the ratio that is judged against a target."""

    name: str
    figures: Mapping[str, float] = field(default_factory=dict)
    ratio: Spread | None = None
    target: Target | None = None

    @property
    def verdict(self) -> str | None:
        if self.ratio is None or self.target is None:
            return None
        return "met" if self.target.met(self.ratio.median) else "missed"


@dataclass(frozen=True)
class Section:
    title: str
    rows: Sequence[Row]
    ratio_heading: str = "ratio"
    notes: Sequence[str] = ()


def parse_options(description: str) -> argparse.Namespace:
    """The options that every benchmark has: `rounds`, `quick`, `output`, `folder`."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything runs")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.add_argument("--folder", type=Path, help="where to write (default: build/bench in the repository)")
    return parser.parse_args()


def machine() -> dict[str, object]:
    """Where the figures come from."""
    return {
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
    }


def as_json(sections: Sequence[Section]) -> str:
    def plain(row: Row) -> dict[str, object]:
        return {**asdict(row), "verdict": row.verdict}

    document = {
        "machine": machine(),
        "sections": [
            {
                "title": part.title,
                "ratio": part.ratio_heading,
                "rows": [plain(row) for row in part.rows],
                "notes": list(part.notes),
            }
            for part in sections
        ],
    }
    return json.dumps(document, indent=2)


def as_text(sections: Sequence[Section]) -> str:
    facts = machine()
    head = f"Python {facts['python']}, pyarrow {facts['pyarrow']}, {facts['system']}, {facts['cores']} cores"
    return "\n\n".join([head, *map(_section_text, sections)])


def _section_text(part: Section) -> str:
    columns = list(dict.fromkeys(column for row in part.rows for column in row.figures))
    judged = any(row.ratio for row in part.rows)
    table = [["", *columns, *([part.ratio_heading, "range", "target", ""] if judged else [])]]
    for row in part.rows:
        cells = [row.name, *(_number(row.figures[name]) if name in row.figures else "" for name in columns)]
        table.append([*cells, *(_judgement(row) if judged else [])])
    widths = [max(len(line[index]) for line in table) for index in range(len(table[0]))]
    lines = [
        "  "
        + "  ".join(
            cell.ljust(width) if index in (0, len(line) - 1) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    return "\n".join([part.title, *lines, *(f"  - {note}" for note in part.notes)])


def _judgement(row: Row) -> list[str]:
    if row.ratio is None:
        return ["", "", "", ""]
    found = [_number(row.ratio.median), f"{_number(row.ratio.low)}..{_number(row.ratio.high)}"]
    if row.target is None:
        return [*found, "", ""]
    bound = "at most" if row.target.at_most else "at least"
    return [*found, f"{bound} {row.target.value:g}", row.verdict or ""]


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
