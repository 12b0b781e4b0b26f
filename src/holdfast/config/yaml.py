"""A YAML file as plain values, with the line of each, and its mistakes.

Values are those of YAML 1.2: `true` and `false`, numbers, `null`; everything else is text (`no`, `on` and `12:30` are).
A value that came through `${...}` is always text, which settings turn into what they need; it is never printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.config._compose import Entries, Items, Node, NotYaml, Scalar, compose, decode
from holdfast.config._environment import expand
from holdfast.errors import InvalidPipeline, Problem

Keys = tuple[str | int, ...]  # the keys and list indices that lead to a value
MAX_SHOWN: Final = 64
_LEAST_REDACTED: Final = 4  # shorter values are in every text
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUTH: Final = {**dict.fromkeys(("true", "True", "TRUE"), True), **dict.fromkeys(("false", "False", "FALSE"), False)}
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT: Final = re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")


@dataclass(frozen=True)
class Document:
    """What is in a file. `problems` grows while the content is checked further."""

    file: str
    values: dict[str, Any] = field(repr=False)
    lines: Mapping[Keys, int] = field(repr=False)
    hidden: Mapping[Keys, str] = field(repr=False)  # how each value that came through `${...}` may be shown
    broken: frozenset[Keys] = field(repr=False)  # values that are not there, or not what was meant
    contents: Mapping[str, str] = field(repr=False)  # content of variables -> how it may be shown
    problems: list[Problem]

    def line(self, keys: Keys) -> int:
        """The line of these keys, or of the nearest that are there."""
        while keys not in self.lines and keys:
            keys = keys[:-1]
        return self.lines.get(keys, 1)

    def add(self, keys: Keys, text: str) -> None:
        """Note a mistake, unless it only follows from one that was noted before."""
        if not any(keys[:length] in self.broken for length in range(1, len(keys) + 1)):
            problem = Problem(self.line(keys), key_path(keys), self.redact(text))
            if problem not in self.problems:
                self.problems.append(problem)

    def came_from_environment(self, keys: Keys) -> bool:
        """Did this value, or one inside it, come through `${...}`?"""
        return any(hidden[: len(keys)] == keys for hidden in self.hidden)

    def shown(self, keys: Keys, value: object) -> str:
        """A value as a message may show it."""
        hidden = self.hidden.get(keys)
        return f"`{hidden}`" if hidden is not None else quoted(value)

    def redact(self, text: str) -> str:
        """A text of somebody else's without the content of variables."""
        for content in sorted(self.contents, key=len, reverse=True):
            text = text.replace(content, self.contents[content])
        return text

    def refuse(self) -> None:
        """Raise `InvalidPipeline` if there are mistakes."""
        if self.problems:
            raise InvalidPipeline(self.file, self.problems)


def read(content: bytes | str, file: str, environ: Mapping[str, str]) -> Document:
    """The content of a file whose top level is a mapping; raises `InvalidPipeline` if it is not YAML at all."""
    try:
        root = compose(decode(content) if isinstance(content, bytes) else content)
        if root is None:
            raise NotYaml(1, "the file is empty")
        if not isinstance(root, Entries):
            raise NotYaml(root.line, "a pipeline is a mapping of keys to values: `store: {path: ./data}`, and so on")
    except NotYaml as error:
        raise InvalidPipeline(file, [error.problem]) from None
    reader = _Reader(environ)
    values = reader.mapping(root, ())
    return Document(
        file, values, reader.lines, reader.hidden, frozenset(reader.broken), reader.contents, reader.problems
    )  # fmt: skip


def key_path(keys: Iterable[str | int]) -> str:
    """Keys as people write them: `sinks.lake.inputs[0]`."""
    path = ""
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{_plain(key)}" if path else _plain(key)
    return path


def quoted(value: object) -> str:
    """A value in a message: bounded, on one line."""
    return f"`{_plain(value if isinstance(value, str) else repr(value))}`"


def _plain(text: str) -> str:
    text = text if text.isprintable() and text else repr(text)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


class _Reader:
    """Turns nodes into values and notes what is wrong on the way."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.lines: dict[Keys, int] = {}
        self.hidden: dict[Keys, str] = {}
        self.contents: dict[str, str] = {}
        self.broken: set[Keys] = set()
        self.problems: list[Problem] = []

    def mapping(self, node: Entries, keys: Keys) -> dict[str, Any]:
        values: dict[str, Any] = {}
        self.lines.setdefault(keys, node.line)
        for key_node, value_node in node.pairs:
            key = self._key(key_node, keys)
            if key is None:
                continue
            inner = (*keys, key)
            if key in values:
                self._note(key_node.line, inner, f"given twice; the first is on line {self.lines[inner]}")
                continue
            self.lines[inner] = key_node.line
            values[key] = self._value(value_node, inner)
        return values

    def _key(self, node: Node, keys: Keys) -> str | None:
        if not isinstance(node, Scalar):
            self._note(node.line, keys, "a key must be a text, not a list or a mapping")
            return None
        value = _resolve(node.text) if node.plain else node.text
        if isinstance(value, str):
            return value
        self._note(node.line, keys, f'key {quoted(node.text)} is not a text; write "{node.text}" if it is meant')
        return None

    def _value(self, node: Node, keys: Keys) -> Any:
        self.lines.setdefault(keys, node.line)
        match node:
            case Entries():
                return self.mapping(node, keys)
            case Items(nodes=nodes):
                return [self._value(each, (*keys, index)) for index, each in enumerate(nodes)]
            case Scalar():
                return self._scalar(node, keys)

    def _scalar(self, node: Scalar, keys: Keys) -> Any:
        expanded = expand(node.text, self._environ)
        for problem in expanded.problems:
            self._note(node.line, keys, problem)
            self.broken.add(keys)
        if expanded.shown is None:
            return _resolve(expanded.text) if node.plain else expanded.text
        self.hidden[keys] = expanded.shown
        if len(expanded.text) >= _LEAST_REDACTED:
            self.contents[expanded.text] = expanded.shown
        return expanded.text

    def _note(self, line: int, keys: Keys, text: str) -> None:
        self.problems.append(Problem(line, key_path(keys), text))


def _resolve(text: str) -> Any:
    """What a plain scalar stands for."""
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text
