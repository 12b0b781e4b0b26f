"""Slot tables: which stable number stands for which slot name, in WAL frames and segments.

A topic's own table grows: a new name gets the next number, in order of arrival, for good. The OpenTelemetry
Arrow protocol brings its own numbers (`ArrowPayloadType` in its `arrow_service.proto`); that table is fixed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from holdfast.errors import InvalidBundle, InvalidSettings, UnknownSlot
from holdfast.names import validate_slot

MAX_SLOTS: Final = 65_535  # numbers 0 to 65,534: each fits an unsigned 16-bit field


class SlotTable:
    """An immutable two-way mapping between slot names and numbers; growing one gives another."""

    __slots__ = ("_fixed", "_names", "_numbers")

    def __init__(self, names: Mapping[str, int] = MappingProxyType({}), *, fixed: str | None = None) -> None:
        """`fixed` is the name under which a table that never grows is known; see `FIXED_TABLES`."""
        for name, number in names.items():
            validate_slot(name)
            if type(number) is not int or not 0 <= number < MAX_SLOTS:
                raise InvalidSettings(f"slot {name!r} has number {number!r}; allowed: 0 to {MAX_SLOTS - 1}")
        self._numbers = dict(names)
        self._names = {number: name for name, number in names.items()}
        self._fixed = fixed
        if len(self._names) != len(self._numbers):
            raise InvalidSettings(f"two slots share a number in {self._numbers}")

    @property
    def names(self) -> Mapping[str, int]:
        """Every slot name with its number."""
        return MappingProxyType(self._numbers)

    @property
    def fixed(self) -> str | None:
        """The name of this table if it never grows, else `None`."""
        return self._fixed

    def number(self, name: str) -> int:
        """The number of slot `name`; `UnknownSlot` names those that come near."""
        try:
            return self._numbers[name]
        except KeyError:
            raise UnknownSlot(self._unknown(name)) from None

    def name(self, number: int) -> str:
        """The slot that has this number."""
        try:
            return self._names[number]
        except KeyError:
            raise UnknownSlot(f"no slot has number {number}; there are {self._listed()}") from None

    def with_name(self, name: str) -> SlotTable:
        """A table that holds `name` too: this one if it does already, else one that numbers it."""
        if name in self._numbers:
            return self
        validate_slot(name)
        if self._fixed is not None:
            raise UnknownSlot(self._unknown(name))
        number = max(self._names, default=-1) + 1
        if number >= MAX_SLOTS:
            raise InvalidBundle(
                f"slot {name!r} would get number {number}; a topic has at most {MAX_SLOTS} slots: "
                "a slot is a kind of payload, not a place for ids or dates"
            )
        return SlotTable({**self._numbers, name: number})

    def signal(self, numbers: Iterable[int]) -> str:
        """The signal type of a bundle with these slots.

        In the OpenTelemetry table it is `logs`, `traces` or `metrics`; otherwise, and where a bundle holds
        nothing but shared attributes, the name of the lowest-numbered slot.
        """
        present = sorted(numbers)
        if not present:
            raise InvalidBundle("a bundle without slots has no signal type")
        if self._fixed == _OTAP:
            for number in present:
                if number in _OTAP_SIGNALS:
                    return _OTAP_SIGNALS[number]
        return self.name(present[0])

    def to_document(self) -> dict[str, Any]:
        """This table as plain JSON values."""
        return {"slots": dict(self._numbers)} if self._fixed is None else {"fixed": self._fixed}

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> SlotTable:
        """The table that `to_document` wrote; `InvalidSettings` for anything else."""
        match document:
            case {"fixed": str(name), **rest} if not rest and name in FIXED_TABLES:
                return FIXED_TABLES[name]
            case {"slots": dict(names), **rest} if not rest:
                return SlotTable(names)
        raise InvalidSettings(
            f"not a slot table: {document!r}; expected {{'slots': {{name: number}}}} "
            f"or {{'fixed': one of {', '.join(FIXED_TABLES)}}}"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SlotTable):
            return NotImplemented
        return self._numbers == other._numbers and self._fixed == other._fixed

    def __hash__(self) -> int:
        return hash((self._fixed, frozenset(self._numbers.items())))

    def __repr__(self) -> str:
        return f"SlotTable({self._numbers!r})" if self._fixed is None else f"<SlotTable {self._fixed}>"

    def _unknown(self, name: str) -> str:
        near = difflib.get_close_matches(str(name), self._numbers, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"there are {self._listed()}"
        table = "" if self._fixed is None else f" in the fixed table {self._fixed!r}"
        return f"no slot {name!r}{table}; {hint}"

    def _listed(self) -> str:
        shown = [f"{name} ({number})" for name, number in list(self._numbers.items())[:40]]
        more = len(self._numbers) - len(shown)
        return (", ".join(shown) or "none yet") + (f" and {more} more" if more else "")


_OTAP: Final = "otap"

_SHARED: Final = {"resource_attrs": 1, "scope_attrs": 2}
_METRICS: Final = {
    "univariate_metrics": 10,
    "number_data_points": 11,
    "summary_data_points": 12,
    "histogram_data_points": 13,
    "exp_histogram_data_points": 14,
    "number_dp_attrs": 15,
    "summary_dp_attrs": 16,
    "histogram_dp_attrs": 17,
    "exp_histogram_dp_attrs": 18,
    "number_dp_exemplars": 19,
    "histogram_dp_exemplars": 20,
    "exp_histogram_dp_exemplars": 21,
    "number_dp_exemplar_attrs": 22,
    "histogram_dp_exemplar_attrs": 23,
    "exp_histogram_dp_exemplar_attrs": 24,
    "multivariate_metrics": 25,
    "metric_attrs": 26,
}
_LOGS: Final = {"logs": 30, "log_attrs": 31}
_TRACES: Final = {
    "spans": 40,
    "span_attrs": 41,
    "span_events": 42,
    "span_links": 43,
    "span_event_attrs": 44,
    "span_link_attrs": 45,
}
_OTAP_SIGNALS: Final = {
    number: signal
    for signal, table in (("metrics", _METRICS), ("logs", _LOGS), ("traces", _TRACES))
    for number in table.values()
}

OTAP_SLOTS: Final = SlotTable(_SHARED | _METRICS | _LOGS | _TRACES, fixed=_OTAP)

FIXED_TABLES: Final[Mapping[str, SlotTable]] = MappingProxyType({_OTAP: OTAP_SLOTS})
