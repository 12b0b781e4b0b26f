"""Which columns of its sources a query needs. Spark does not tell a streaming source, so we ask its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A column that no query names: if it is needed all the same, the query takes whatever columns there are.
STRANGER: Final = "__holdfast_any_column"


def needed_columns(build: Callable[[str], DataFrame], known: Collection[str]) -> set[str] | None:
    """Those of `known` that the frame `build(STRANGER)` reads; `None` for "all, also those that come later"."""
    plan = build(STRANGER)._jdf.queryExecution().optimizedPlan()
    needed: set[str] = set()
    _collect(plan, _ids(plan.output()), needed)
    return None if STRANGER in needed else needed & set(known)


def _collect(node: Any, required: set[int], needed: set[str]) -> None:
    """Walk down: `required` are the ids of the attributes of this node's output that somebody above reads."""
    children = _items(node.children())
    if not children:
        needed.update(each.name() for each in _items(node.output()) if each.exprId().id() in required)
        return
    used = _ids(node.references())
    kind = node.nodeName()
    for child in children:
        output = _ids(child.output())
        if kind in ("Project", "Aggregate"):
            below = used
        elif kind in ("Filter", "Join", "SubqueryAlias", "EventTimeWatermark", "Sort", "GlobalLimit", "LocalLimit"):
            below = required | used
        else:  # whatever it does, it may do with every column
            below = output
        _collect(child, below & output, needed)


def _ids(attributes: Any) -> set[int]:
    return {int(each.exprId().id()) for each in _items(attributes)}


def _items(collection: Any) -> list[Any]:
    iterator = collection.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
