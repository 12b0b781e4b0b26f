"""YAML text as nodes with their lines. Bounded in size and depth, without aliases: a file cannot blow up in memory."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Final

import yaml

from holdfast.errors import Problem

MAX_BYTES: Final = 256 * 1024  # a pipeline has a few hundred lines
MAX_DEPTH: Final = 32
_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset((None, "!", _TAG + "str", _TAG + "map", _TAG + "seq"))


@dataclass(slots=True)
class Scalar:
    """A text; `plain` ones may stand for a number, a truth value or nothing."""

    line: int
    text: str
    plain: bool


@dataclass(slots=True)
class Entries:
    """A mapping as it is written: keys may be doubled."""

    line: int
    pairs: list[tuple[Node, Node]] = field(default_factory=list)


@dataclass(slots=True)
class Items:
    """A list."""

    line: int
    nodes: list[Node] = field(default_factory=list)


Node = Scalar | Entries | Items


class NotYaml(Exception):
    """The text has no structure that could be checked any further."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(line, "", text)


def decode(content: bytes) -> str:
    """The text of a file."""
    if len(content) > MAX_BYTES:
        raise NotYaml(1, f"the file is larger than {MAX_BYTES // 1024} KiB, the most that a pipeline may have")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotYaml(content.count(b"\n", 0, error.start) + 1, "not UTF-8") from None


def compose(text: str) -> Node | None:
    """The only document in `text`; `None` if there is nothing in it. Raises `NotYaml`."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise NotYaml(1, f"the file is larger than {MAX_BYTES // 1024} KiB, the most that a pipeline may have")
    try:
        return _compose(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise NotYaml(line, f"the character U+{ord(text[error.position]):04X} may not stand in YAML") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise NotYaml(line, f"not YAML: {error.problem or error.context}{_hint(text, line)}") from None


def _compose(text: str) -> Node | None:
    root: Node | None = None
    open_nodes: list[Entries | Items] = []
    keys: list[Node | None] = []  # of each open mapping: the key that waits for its value
    documents = itertools.count(1)
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1
        node: Node
        match event:
            case yaml.DocumentStartEvent():
                if next(documents) > 1:
                    raise NotYaml(line, "a second document begins here; a pipeline is one document")
                continue
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                open_nodes.pop()
                keys.pop()
                continue
            case yaml.AliasEvent():
                raise NotYaml(line, f"`*{event.anchor}`: aliases are not understood here; write the value out")
            case yaml.ScalarEvent():
                _check_tag(event.tag, line)
                node = Scalar(line, event.value, plain=event.implicit[0])
            case yaml.MappingStartEvent():
                _check_tag(event.tag, line)
                node = Entries(line)
            case yaml.SequenceStartEvent():
                _check_tag(event.tag, line)
                node = Items(line)
            case _:
                continue
        match open_nodes[-1] if open_nodes else None:
            case None:
                root = node
            case Items(nodes=nodes):
                nodes.append(node)
            case Entries(pairs=pairs):
                key = keys[-1]
                keys[-1] = node if key is None else None
                if key is not None:
                    pairs.append((key, node))
        if not isinstance(node, Scalar):
            open_nodes.append(node)
            keys.append(None)
            if len(open_nodes) > MAX_DEPTH:
                raise NotYaml(line, f"nested deeper than {MAX_DEPTH} levels")
    return root


def _check_tag(tag: str | None, line: int) -> None:
    if tag not in _PLAIN_TAGS:
        shown = tag.replace(_TAG, "!!") if tag else tag
        raise NotYaml(line, f"`{shown}`: tags are not understood here; write a plain value")


def _hint(text: str, line: int) -> str:
    """What is meant most often by a line that is no YAML."""
    lines = text.splitlines()
    found = lines[line - 1] if line <= len(lines) else ""
    if found[: len(found) - len(found.lstrip())].count("\t"):
        return "; indent with spaces, not with tabs"
    if "${" in found:
        return '; inside { } or [ ] a value with ${...} needs quotes: "${NAME}"'
    return ""
