"""README.md and docs/, taken apart: code blocks by their label, tables by their rows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)[ ]?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: "```language label", and what is in it."""

    language: str
    label: str
    text: str


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str, label: str | None = None) -> list[Block]:
    found = [Block(*match.groups()) for match in _BLOCK.finditer(text_of(document))]
    return [block for block in found if block.language == language and label in {None, block.label}]


def block(document: str, language: str, label: str) -> str:
    """The text of the one block with this label."""
    (found,) = blocks(document, language, label)
    return found.text


def table(document: str, first_heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading; its headings left out."""
    lines = text_of(document).splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def code_in(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]*)`", cell)
