"""What went wrong, from an exception that has been through Java: our own error again, or one line of Spark's."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError

from holdfast import errors
from holdfast.errors import HoldfastError, SinkFailed

MAX_LENGTH: Final = 500
MAX_CAUSES: Final = 20
_OURS: Final = re.compile(r"holdfast\.errors\.(\w+): (.+)")
_PYTHON: Final = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception|Interrupt|Exit)): (.*)$", re.MULTILINE)


def cause_of(problem: BaseException) -> tuple[type[HoldfastError] | None, str]:
    """The kind of Holdfast's error behind an exception, if it is one, and what it says in a line."""
    if isinstance(problem, HoldfastError):
        behind = cause_of(problem.__cause__)[0] if type(problem) is SinkFailed and problem.__cause__ else None
        return behind or type(problem), str(problem)
    text = "\n".join([*_java_texts(problem), str(problem)])
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, HoldfastError):
            return kind, _cut(message)
    python = _PYTHON.findall(text)
    if python:
        name, message = python[-1]
        return None, _cut(f"{name.rpartition('.')[2]}: {message}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]  # the innermost first
    return None, _cut(f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__)


def _java_texts(problem: BaseException) -> list[str]:
    """What the causes of an exception say, the innermost first: the outer ones only tell where it surfaced."""
    origin = getattr(problem, "_origin", problem)  # of an exception that PySpark has translated
    java: Any = origin.java_exception if isinstance(origin, Py4JJavaError) else origin
    if not isinstance(java, JavaObject):
        return []
    found: list[str] = []
    with contextlib.suppress(Py4JError):  # Java itself may be gone by now
        while java is not None and len(found) < MAX_CAUSES:
            found.insert(0, java.getMessage() or java.getClass().getSimpleName())
            java = java.getCause()
    return found[:-1]  # the last is the exception's own


_P = ParamSpec("_P")
_R = TypeVar("_R")


def plainly(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """For what Spark calls: an error of ours reaches the user without the frames behind it, as one clear line."""

    @functools.wraps(call)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except HoldfastError as problem:
            raise problem.with_traceback(None) from None

    return called


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
