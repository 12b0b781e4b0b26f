"""Conditions that the source itself can judge: `column op literal`, all of which must hold.

They let whole streams be passed over by their statistics, and rows be left out before they reach Spark. Rows that
they leave out are rows for which Spark would not say "true" either: a null never is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute as pc

from holdfast.errors import InvalidSettings
from holdfast.spark._conform import to_type
from holdfast.store import StreamFacts

COMPARE: Final = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|`(?P<quoted>[^`]+)`|(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|'(?P<text>(?:[^']|'')*)'|(?P<op><=|>=|!=|<>|=|<|>|\(|\)|,))"""
)


@dataclass(frozen=True)
class Predicate:
    """`op` is one of COMPARE, or `in`, `is null`, `is not null`, `starts with`."""

    column: str
    op: str
    value: Any = None

    def rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Which rows of a batch in Spark's types it holds for; null counts as no."""
        column = batch.column(self.column)
        if self.op == "is null":
            return column.is_null()
        if self.op == "is not null":
            return column.is_valid()
        if self.op == "in":
            return pc.is_in(_one_zero(column), value_set=_one_zero(_values(self.value, column.type)))
        if self.op == "starts with":
            return pc.starts_with(column, self.value)
        found = COMPARE[self.op](column, pa.scalar(self.value, column.type))
        if pa.types.is_floating(column.type) and self.op in (">", ">="):
            return pc.or_(found, pc.is_nan(column))  # as Spark has it: NaN is greater than every number
        return found

    def may_hold(self, facts: StreamFacts, kind: pa.DataType) -> bool:
        """Could it hold for any row, by the statistics? `kind` is the column's type in Spark's terms."""
        index = facts.schema.get_field_index(self.column)
        if index < 0:
            return self.op == "is null"
        nulls = facts.null_counts[index]
        if self.op == "is null":
            return bool(nulls != 0)
        if nulls is not None and nulls == facts.rows:
            return False
        if self.op == "is not null" or facts.bounds is None or self.column not in facts.bounds.schema.names:
            return True
        low, high = to_type(facts.bounds.column(self.column), kind)
        if not low.is_valid or not high.is_valid:
            return True
        return self._within(low, high)

    def _within(self, low: pa.Scalar, high: pa.Scalar) -> bool:
        def holds(first: pa.Scalar, op: str, second: pa.Scalar) -> bool:
            return bool(COMPARE[op](first, second).as_py())

        if self.op == "in":
            values = [pa.scalar(value, low.type) for value in self.value if value is not None]
            return any(holds(low, "<=", value) and holds(value, "<=", high) for value in values)
        if self.op == "starts with":
            prefix = self.value
            return bool(low.as_py()[: len(prefix)] <= prefix <= high.as_py()[: len(prefix)])
        value = pa.scalar(self.value, low.type)
        if self.op == "=":
            return holds(low, "<=", value) and holds(value, "<=", high)
        if self.op == "!=":
            return not (holds(low, "=", value) and holds(high, "=", value))
        return holds(low, self.op, value) if self.op in ("<", "<=") else holds(high, self.op, value)


def _values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([value for value in values if value is not None], kind)


def _one_zero(array: pa.Array) -> pa.Array:
    """Arrow looks values up by their bits; to Spark -0.0 is 0.0."""
    return pc.add(array, pa.scalar(0, array.type)) if pa.types.is_floating(array.type) else array


def keeps(predicates: Sequence[Predicate], facts: StreamFacts, target: pa.Schema) -> bool:
    """Could any row of a stream satisfy all?"""
    return all(each.may_hold(facts, target.field(each.column).type) for each in predicates)


def matching(predicates: Sequence[Predicate], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that satisfy all."""
    for predicate in predicates:
        batch = batch.filter(predicate.rows(batch))
    return batch


def usable(predicate: Predicate, target: pa.Schema) -> bool:
    """Is it about a column, and of a type, that can be judged here exactly as Spark would?"""
    if predicate.column not in target.names:
        return False
    kind = target.field(predicate.column).type
    if predicate.op in ("is null", "is not null"):
        return True
    values = predicate.value if predicate.op == "in" else [predicate.value]
    try:
        for value in values:
            if value is not None and pa.scalar(value, kind).as_py() != value:
                return False
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    if predicate.op == "starts with":
        return bool(pa.types.is_string(kind))
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind)
    return bool(plain or pa.types.is_floating(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def parse(text: str, target: pa.Schema) -> list[Predicate]:
    """Option `filter`: `level = 'ERROR' and ms > 100 and code in (1, 2) and host is not null`."""
    tokens = _tokens(text)
    found: list[Predicate] = []
    while True:
        found.append(_one(tokens, text, target))
        if not tokens:
            return found
        if tokens.pop(0) != ("name", "and"):
            raise _wrong(text, "join conditions with AND")


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise _wrong(text, f"nothing is known that begins with {text[position:].strip()[:12]!r}")
        kind, value = next((kind, value) for kind, value in match.groupdict().items() if value is not None)
        lowered = value.lower()
        keyword = kind == "name" and lowered in ("and", "in", "is", "not", "null", "true", "false", "date", "timestamp")
        tokens.append((kind, lowered if keyword else value))
        position = match.end()
    return tokens


def _one(tokens: list[tuple[str, str]], text: str, target: pa.Schema) -> Predicate:
    kind, column = tokens.pop(0) if tokens else ("", "")
    if kind not in ("name", "quoted"):
        raise _wrong(text, "a condition begins with a column")
    if column not in target.names:
        raise InvalidSettings(f"option filter names column {column!r}; there are {', '.join(target.names)}")
    word = tokens.pop(0) if tokens else ("", "")
    if word == ("name", "is"):
        negated = tokens[:1] == [("name", "not")]
        rest = tokens[negated : negated + 1]
        if rest != [("name", "null")]:
            raise _wrong(text, "after IS comes NULL or NOT NULL")
        del tokens[: negated + 1]
        return Predicate(column, "is not null" if negated else "is null")
    if word == ("name", "in"):
        if tokens[:1] != [("op", "(")]:
            raise _wrong(text, "after IN comes a list in parentheses")
        values, joint = [], tokens.pop(0)
        while joint != ("op", ")"):
            values.append(_literal(tokens, text, target.field(column).type))
            joint = tokens.pop(0) if tokens else ("", "")
            if joint not in (("op", ","), ("op", ")")):
                raise _wrong(text, f"{joint[1] or 'nothing'!r} where a comma or a closing parenthesis should be")
        return _checked(Predicate(column, "in", tuple(values)), text, target)
    if word[0] != "op" or word[1] in "(),":
        raise _wrong(text, f"{column} is compared with =, !=, <, <=, >, >=, IN or IS NULL")
    op = "!=" if word[1] == "<>" else word[1]
    return _checked(Predicate(column, op, _literal(tokens, text, target.field(column).type)), text, target)


def _checked(predicate: Predicate, text: str, target: pa.Schema) -> Predicate:
    if not usable(predicate, target):
        kind = target.field(predicate.column).type
        raise _wrong(text, f"{predicate.column} is of type {kind}, and cannot be compared with {predicate.value!r}")
    return predicate


def _literal(tokens: list[tuple[str, str]], text: str, column: pa.DataType) -> Any:
    kind, value = tokens.pop(0) if tokens else ("", "")
    if kind == "number":
        if pa.types.is_floating(column):
            return float(value)
        return int(value) if re.fullmatch(r"[+-]?\d+", value) else Decimal(value)
    if kind == "text":
        return value.replace("''", "'")
    if (kind, value) in (("name", "true"), ("name", "false")):
        return value == "true"
    if kind == "name" and value in ("date", "timestamp") and tokens and tokens[0][0] == "text":
        literal = tokens.pop(0)[1]
        try:
            return date.fromisoformat(literal) if value == "date" else _moment(literal, column)
        except ValueError as problem:
            raise _wrong(text, str(problem)) from None
    raise _wrong(text, f"{value or 'nothing'!r} where a number or a 'text' should be")


def _moment(text: str, column: pa.DataType) -> datetime:
    moment = datetime.fromisoformat(text)
    if pa.types.is_timestamp(column) and column.tz is not None and moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it like '2026-01-31T12:00:00+00:00'")
    return moment


def _wrong(text: str, what: str) -> InvalidSettings:
    return InvalidSettings(f"option filter is {text!r}: {what}")
