"""What pydantic finds wrong, as mistakes of the file: with line, key path and the nearest valid name."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from holdfast.config.node import NodeSettings
from holdfast.config.yaml import Document, Keys

_OWN_TEXT: Final = frozenset(("value_error", "assertion_error"))  # kinds whose text may hold the value
Model = TypeVar("Model", bound=BaseModel)


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean ...?` if there is a name near enough, else nothing."""
    found = difflib.get_close_matches(name.lower(), sorted(names), n=1, cutoff=0.6)
    return f"; did you mean `{found[0]}`?" if found else ""


def build(
    model: type[Model], values: Any, document: Document, keys: Keys, context: Mapping[str, Any] | None = None
) -> Model | None:
    """Settings made of the values that stand under `keys`; `None` after noting all that is wrong with them."""
    try:
        made = model.model_validate({} if values is None else values, context=dict(context or {}))
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            explain(problem, model, document, keys)
        return None
    _mask(made, document, keys)
    return made


def explain(problem: ErrorDetails, model: type[BaseModel], document: Document, keys: Keys) -> None:
    """Note one of pydantic's errors."""
    found = (*keys, *_in_document(problem["loc"]))
    match problem["type"]:
        case "extra_forbidden":
            name = str(found[-1])
            document.add(found, f"unknown key{nearest(name, _names(model, problem['loc'][:-1]))}")
        case "missing":
            document.add(found, "missing; it must be given")
        case "too_short":
            if not problem["input"]:  # else an item of it is wrong, which is told by itself
                document.add(found, "empty; there must be one at least")
        case "literal_error":
            choices = str(problem["ctx"]["expected"])
            hint = nearest(str(problem["input"]), _choices(choices)) if found not in document.hidden else ""
            document.add(found, f"{document.shown(found, problem['input'])} is none of {choices}{hint}")
        case kind if kind in _OWN_TEXT and document.came_from_environment(found):
            document.add(found, f"{_where(document, found)} is not valid here (its content is not shown)")
        case kind if kind in _OWN_TEXT:
            document.add(found, problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, "))
        case _:
            text = problem["msg"].replace("Input should be", "should be").replace(" dictionary", " mapping")
            text = text.replace("tuple", "list").replace(", unable to interpret input", "")
            shown = "" if isinstance(problem["input"], dict | list) else f"{document.shown(found, problem['input'])} "
            document.add(found, shown + text)


def _in_document(loc: Iterable[str | int]) -> Keys:
    """Pydantic marks the keys of a mapping, which are no place of their own."""
    return tuple(part for part in loc if part != "[key]")


def _where(document: Document, keys: Keys) -> str:
    return f"`{document.hidden[keys]}`" if keys in document.hidden else "what came from the environment"


def _choices(expected: str) -> list[str]:
    return [word.strip("' ") for part in expected.split(",") for word in part.split(" or ")]


def _names(model: type[BaseModel], loc: Iterable[str | int]) -> list[str]:
    """The keys that may stand at this place."""
    for part in loc:
        inner = next((field for name, field in model.model_fields.items() if part in {name, field.alias}), None)
        found = _model_in(None if inner is None else inner.annotation)
        model = found or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The settings inside `X`, `X | None` or `Mapping[str, X]`."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _mask(made: BaseModel, document: Document, keys: Keys) -> None:
    """Hide from `repr` what came through `${...}`."""
    for hidden in document.hidden:
        if hidden[: len(keys)] == keys and len(hidden) > len(keys):
            _mask_field(made, hidden[len(keys) :])


def _mask_field(made: object, keys: Keys) -> None:
    if not isinstance(made, BaseModel):
        return
    fields = type(made).model_fields
    name = next((name for name, field in fields.items() if keys[0] in {name, field.alias}), None)
    if name is None:
        return
    inner = getattr(made, name)
    if isinstance(inner, NodeSettings) and len(keys) > 1:
        _mask_field(inner, keys[1:])
    elif isinstance(made, NodeSettings):
        made.mask(name)
