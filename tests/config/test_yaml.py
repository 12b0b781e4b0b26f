"""YAML files: plain values with their lines, variables of the environment, and whatever a file can do wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr, model_validator

from holdfast.config._compose import MAX_BYTES, MAX_DEPTH
from holdfast.config._explain import build, nearest
from holdfast.config.node import MASK, NodeSettings, Seconds
from holdfast.config.yaml import Document, key_path, read
from holdfast.errors import InvalidPipeline, Problem


def document(text: str | bytes, **environ: str) -> Document:
    return read(text, "p.yaml", environ)


def mistakes(text: str | bytes, **environ: str) -> list[str]:
    """What is wrong with a text, whether it ends the reading or not."""
    try:
        return [str(problem) for problem in document(text, **environ).problems]
    except InvalidPipeline as error:
        return [str(problem) for problem in error.problems]


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5), ("-5", -5), ("+5", 5), ("012", 12), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0),
        ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        ("no", "no"), ("on", "on"), ("12:30:00", "12:30:00"), ("2024-01-01", "2024-01-01"), ("0x1f", "0x1f"),
        ("1_000", "1_000"), (".inf", ".inf"), ('"5"', "5"), ("'true'", "true"), ("!!str 5", "5"), ("٣", "٣"),
        ("9" * 31, "9" * 31), ("1e999", "1e999"), ("1.", 1.0),
        ("[1, a]", [1, "a"]), ("{a: {b: 1}}", {"a": {"b": 1}}), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_values(written: str, value: Any) -> None:
    """Numbers, truth values and null are those of YAML 1.2; everything else is text."""
    found = document(f"key: {written}").values["key"]
    assert (found, type(found)) == (value, type(value))


def test_lines() -> None:
    """Every key and list item knows its line; a key that is not there has the line of the nearest one."""
    found = document("a: 1\nb:\n  c:\n    - x\n    - y\n")
    assert [found.line(keys) for keys in [(), ("a",), ("b",), ("b", "c"), ("b", "c", 1)]] == [1, 1, 2, 3, 5]
    assert found.line(("b", "c", 7)) == found.line(("b", "c")) == 3
    assert found.line(("nope", "x")) == 1


def test_unicode_and_byte_order_mark() -> None:
    """Texts of any script, with or without a mark at the start."""
    assert document("\ufeffname: größe\n".encode()).values == {"name": "größe"}


def test_key_paths() -> None:
    """Keys as people write them; one that cannot be printed, or has no end, stays on one short line."""
    assert key_path(("sinks", "lake", "inputs", 0)) == "sinks.lake.inputs[0]"
    assert key_path(("a\nb", "x" * 100)) == r"'a\nb'." + "x" * 64 + "..."


# -- files that are no YAML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: the file is empty"),
        ("# nothing\n", "line 1: the file is empty"),
        ("- a\n- b\n", "line 1: a pipeline is a mapping of keys to values: `store: {path: ./data}`, and so on"),
        ("word", "line 1: a pipeline is a mapping of keys to values: `store: {path: ./data}`, and so on"),
        ("a: 1\n---\nb: 2\n", "line 2: a second document begins here; a pipeline is one document"),
        ("a:\n\tb: 1\n", "line 2: not YAML: found character '\\t' that cannot start any token; "
                         "indent with spaces, not with tabs"),
        ("a: [1, 2\nb: 3\n", "line 2: not YAML: expected ',' or ']', but got ':'"),
        ("a: {b: ${X}}\n", "line 1: not YAML: expected ',' or '}', but got '{'; "
                           'inside { } or [ ] a value with ${...} needs quotes: "${NAME}"'),
        ("a: \x01\n", "line 1: the character U+0001 may not stand in YAML"),
        ("a: &x 1\nb: *x\n", "line 2: `*x`: aliases are not understood here; write the value out"),
        ("a: !!python/object:os.system x\n", "line 1: `!!python/object:os.system`: tags are not understood here; "
                                             "write a plain value"),
        ("a: !secret x\n", "line 1: `!secret`: tags are not understood here; write a plain value"),
        ("a: !!int '5'\n", "line 1: `!!int`: tags are not understood here; write a plain value"),
        ("a: " + "[" * 100_000, f"line 1: nested deeper than {MAX_DEPTH} levels"),
        ("a: " + "{a: " * 10_000, f"line 1: nested deeper than {MAX_DEPTH} levels"),
        ("a: 'open\n", "line 2: not YAML: found unexpected end of stream"),
    ],
)  # fmt: skip
def test_text_that_is_no_pipeline(text: str, told: str) -> None:
    """It says what is wrong, and on which line."""
    assert mistakes(text) == [told]


def test_a_bomb_of_aliases() -> None:
    """A few lines that would unfold to millions of values are refused at the first alias."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert mistakes("\n".join(lines)) == ["line 2: `*a0`: aliases are not understood here; write the value out"]


@pytest.mark.parametrize("kind", [str, bytes])
def test_a_file_without_end(kind: type) -> None:
    """Its size is bounded before it is parsed."""
    text = "a: " + "x" * 10_000_000
    told = [f"line 1: the file is larger than {MAX_BYTES // 1024} KiB, the most that a pipeline may have"]
    assert mistakes(text if kind is str else text.encode()) == told


def test_bytes_that_are_no_text() -> None:
    """Other encodings are named by the line where they cannot be read."""
    assert mistakes("a: 1\nb: größe".encode("latin-1")) == ["line 2: not UTF-8"]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever stands in a file, the answer is a document or `InvalidPipeline`."""
    assert all(line.startswith("line ") for line in mistakes(text))


# -- keys ------------------------------------------------------------------------------------------------------------


def test_doubled_keys() -> None:
    """A key that is given twice is refused, at any depth, and the first value is kept for further checks."""
    found = document("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert list(map(str, found.problems)) == [
        "line 2, b.c: given twice; the first is on line 2",
        "line 3, a: given twice; the first is on line 1",
    ]
    assert found.values == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("5: x", 'line 1: key `5` is not a text; write "5" if it is meant'),
        ("a: {true: x}", 'line 1, a: key `true` is not a text; write "true" if it is meant'),
        ("? [a, b]\n: x", "line 1: a key must be a text, not a list or a mapping"),
        ("? {a: b}\n: x", "line 1: a key must be a text, not a list or a mapping"),
    ],
)
def test_keys_that_are_no_texts(text: str, told: str) -> None:
    """Only texts are names."""
    assert mistakes(text) == [told]


# -- the environment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}", "xoney"),
        ('"${A}"', "one"),
        ("${A:-other}", "one"),
        ("${C:-other}", "other"),
        ("${B:-other}", "other"),  # set and empty: as in a shell
        ("${B}", ""),
        ("${C:-}", ""),
        ("${N}", "5"),
        ("${C:-5}", "5"),
        ("$${A}", "${A}"),
        ("$$$$", "$$"),
        ("$$5", "$5"),
        ("$A ^x$ $.a", "$A ^x$ $.a"),
        ("${C:-a:-b}", "a:-b"),
        ("${C:-${A}", "${A"),
        ("${TREE}", "{a: [1]}"),
        ("${TWICE}", "${A}"),
    ],
)
def test_variables(written: str, value: str) -> None:
    """They are put in after parsing, once, and are always text: they bring no structure and no further variables."""
    environ = {"A": "one", "B": "", "N": "5", "TREE": "{a: [1]}", "TWICE": "${A}"}
    found = document(f"key: {written}", **environ).values["key"]
    assert (found, type(found)) == (value, str)


def test_keys_have_no_variables() -> None:
    """Names are written out."""
    assert document('"${A}": 1', A="x").values == {"${A}": 1}


def test_missing_variables() -> None:
    """Each one that has no value is a mistake at its line; what follows from it is not told too."""
    found = document("a: ${A}\nb: ['${B}', x]\nc: ${D:-x}${C}\n")
    assert list(map(str, found.problems)) == [
        "line 1, a: the environment has no variable A; set it, or write ${A:-default}",
        "line 2, b[0]: the environment has no variable B; set it, or write ${B:-default}",
        "line 3, c: the environment has no variable C; set it, or write ${C:-default}",
    ]
    found.add(("a",), "is wrong")
    found.add(("b", 0, "x"), "is wrong")
    found.add(("b", 1), "is wrong too")
    assert len(found.problems) == 4


@pytest.mark.parametrize("written", ["${", "${A", "${1A}", "${A-b}", "${}", "${A:b}", "${ A }"])
def test_variables_that_are_not_written_right(written: str) -> None:
    """What looks like a variable is not passed over in silence."""
    assert mistakes(f"key: {written}", A="x") == [
        "line 1, key: `${` begins a variable that is not written like ${NAME} or ${NAME:-default}; "
        "for the characters themselves write `$${`"
    ]


# -- settings --------------------------------------------------------------------------------------------------------


class Inner(NodeSettings):
    delay: Seconds = 1.0
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _fits(self) -> Inner:
        if self.low > self.high:
            raise ValueError(f"low ({self.low}) must not exceed high ({self.high})")
        return self


class Outer(NodeSettings):
    path: str
    mode: str = Field("a", pattern="^[a-z]$")
    password: SecretStr | None = None
    inner: Inner = Inner()
    named: Mapping[str, Inner] = Field(default_factory=dict)
    columns: dict[str, int] | None = Field(None, alias="schema")


def made(text: str, **environ: str) -> tuple[Outer | None, list[str]]:
    found = document(text, **environ)
    settings = build(Outer, found.values["x"], found, ("x",))
    return settings, [str(problem) for problem in sorted(found.problems)]


def test_every_mistake_at_once() -> None:
    """Unknown keys with the nearest name, missing ones, wrong values: each at its line."""
    settings, told = made(
        "x:\n  pth: a\n  inner:\n    dely: 1s\n    low: many\n  shema: {}\n"
        "  named: {a: {hihg: 1}}\n  schema: {c: x}\n  zzz: 1\n  mode: 5\n"
    )
    assert settings is None
    assert told == [
        "line 1, x.path: missing; it must be given",
        "line 2, x.pth: unknown key; did you mean `path`?",
        "line 4, x.inner.dely: unknown key; did you mean `delay`?",
        "line 5, x.inner.low: `many` should be a valid integer, unable to parse string as an integer",
        "line 6, x.shema: unknown key; did you mean `schema`?",
        "line 7, x.named.a.hihg: unknown key; did you mean `high`?",
        "line 8, x.schema.c: `x` should be a valid integer, unable to parse string as an integer",
        "line 9, x.zzz: unknown key",
        "line 10, x.mode: `5` should be a valid string",
    ]


def test_settings_that_do_not_fit_together() -> None:
    """A rule over several keys is told at the mapping that holds them."""
    assert made("x:\n  path: a\n  inner: {low: 5, high: 1}\n")[1] == [
        "line 3, x.inner: low (5) must not exceed high (1)"
    ]


def test_values_from_the_environment_become_what_settings_need() -> None:
    """A number is a text in the environment."""
    settings, told = made("x: {path: a, inner: {low: '${LOW}', delay: '${D}'}}", LOW="7", D="5m")
    assert (told, settings and (settings.inner.low, settings.inner.delay)) == ([], (7, 300.0))


SECRET = "hunter2 is 'it'"


@pytest.mark.parametrize(
    "text",
    [
        "x: {path: a, inner: {delay: '${S}'}}",
        "x: {path: a, inner: {low: '${S}'}}",
        "x: {path: a, mode: '${S}'}",
        "x: {path: a, mode: 'pre${S}post'}",
        "x: {path: a, inner: '${S}'}",
        "x: {path: a, schema: {c: '${S}'}}",
        "x: '${S}'",
    ],
)
def test_errors_do_not_show_what_came_from_the_environment(text: str) -> None:
    """Whatever is wrong with such a value, only the name of its variable is told."""
    settings, (told,) = made(text, S=SECRET)
    assert settings is None
    assert "${S}" in told
    assert "hunter2" not in told
    assert "pre" not in told


def test_a_rule_over_hidden_values() -> None:
    """Not even a sum of them is told."""
    _, told = made("x: {path: a, inner: {low: '${LOW}'}}", LOW="4711")
    assert told == ["line 1, x.inner: what came from the environment is not valid here (its content is not shown)"]


def test_repr_does_not_show_what_came_from_the_environment() -> None:
    """Neither in settings nor in those inside them; nor are secrets shown."""
    settings, told = made(
        "x: {path: '${S}', password: open, inner: {delay: '${D}'}, schema: {c: '${N}'}, named: {a: {high: '${N}'}}}",
        S=SECRET, D="4711s", N="815",
    )  # fmt: skip
    assert told == []
    for hidden in ("hunter2", "4711", "815", "open"):
        assert hidden not in repr(settings) + str(settings)
    assert f"path='{MASK}'" in repr(settings)
    assert settings is not None
    assert settings.path == SECRET


def test_repr_of_a_document() -> None:
    """A document shows its mistakes, not its values."""
    assert SECRET not in repr(document("a: ${S}", S=SECRET))


def test_texts_of_others_are_redacted() -> None:
    """What Spark says of a query is told without the content of variables."""
    found = document("a: ${S}\nb: x${T}", S="abcd", T="efgh")
    found.add(("a",), "near 'abcdx' and xefgh")
    assert found.problems == [Problem(1, "a", "near '${S}x' and ...${T}...")]


def test_nearest() -> None:
    """A name that is near enough, and none that is not."""
    assert nearest("pth", ["path", "type"]) == "; did you mean `path`?"
    assert nearest("PATH", ["path"]) == "; did you mean `path`?"
    assert nearest("zzz", ["path"]) == ""
