"""Settings as the tables of the documents show them: keys, defaults and bounds, taken from the models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import NoneType
from typing import Any, get_args, get_origin

import annotated_types as bounds
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from holdfast.durability import Durability


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Each setting by the key that users write; those of a section are `section.key`."""
    for name, field in model.model_fields.items():
        if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            yield from fields(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + (field.alias or name), field


def allowed(field: FieldInfo) -> str:
    """What a field allows, in the words of a table; nothing if that is only a matter of its type."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    if field.annotation is bool or bool in kinds:
        return "`true`, `false`"
    choices: tuple[Any, ...] = get_args(field.annotation) if get_origin(field.annotation) is not None else ()
    if field.annotation is Durability:
        choices = tuple(str(level) for level in Durability if level is not Durability.OBJECT)
    texts = [choice for choice in choices if isinstance(choice, str)]
    return ", ".join(f"`{choice}`" for choice in texts) or limits(field)


def limits(field: FieldInfo) -> str:
    """The numbers that a field lies between; nothing if there are none."""
    found = {type(each): each for each in _constraints(field)}
    low = found[bounds.Ge].ge if bounds.Ge in found else None
    if bounds.Le in found:
        return f"{low} to {found[bounds.Le].le}"
    if bounds.Lt in found:
        return f"{low} to below {found[bounds.Lt].lt}"
    if bounds.Gt in found:
        return f"above {found[bounds.Gt].gt}"
    return "" if low is None else f"at least {low}"


def _constraints(field: FieldInfo) -> Iterator[Any]:
    yield from (each for each in field.metadata if isinstance(each, bounds.BaseMetadata))


def value_at(settings: BaseModel, key: str) -> Any:
    """The value of a key: `section.key` is that of a section's key."""
    value: Any = settings
    for part in key.split("."):
        value = getattr(value, part)
    return value
