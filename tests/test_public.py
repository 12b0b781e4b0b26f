"""The public surface: what is exported is what is promised, and importing it is cheap."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import holdfast

PACKAGES = [
    "holdfast",
    *sorted(module.name for module in pkgutil.walk_packages(holdfast.__path__, "holdfast.") if module.ispkg),
]


def test_all_of_holdfast() -> None:
    """`holdfast` exports exactly these names."""
    assert holdfast.__all__ == [
        "Batch",
        "BatchStatus",
        "Delivery",
        "Durability",
        "Receipt",
        "RecordBundle",
        "Store",
        "StoreSettings",
        "Subscriber",
        "Topic",
        "errors",
    ]


def test_nothing_public_is_left_out() -> None:
    """Whatever a user can reach in `holdfast` without an underscore is in `__all__`, or is one of its packages."""
    reachable = {
        name
        for name, value in vars(holdfast).items()
        if not name.startswith("_") and not (inspect.ismodule(value) and name != "errors")
    }
    assert reachable == set(holdfast.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_importable(name: str) -> None:
    """Every package says what it exports, sorted, each name once, and each can be imported."""
    package = importlib.import_module(name)
    if not hasattr(package, "__all__"):
        pytest.fail(f"{name} does not say what it exports")
    exported = package.__all__
    assert exported == sorted(exported, key=_constants_first), "not sorted"
    assert len(set(exported)) == len(exported)
    for each in exported:
        assert hasattr(package, each), each


def _constants_first(name: str) -> tuple[int, str]:
    """The order of isort: CONSTANTS, Classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("name", PACKAGES)
def test_exported_things_are_described(name: str) -> None:
    """Every package, and every class and function that it exports, has a docstring."""
    package = importlib.import_module(name)
    assert package.__doc__, name
    for each in getattr(package, "__all__", ()):
        value = getattr(package, each)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{name}.{each}"


def test_every_error_is_one_of_ours() -> None:
    """All public exceptions have one parent, and an exit code for the command line."""
    found = [
        value for value in vars(holdfast.errors).values() if inspect.isclass(value) and issubclass(value, Exception)
    ]
    assert len(found) > 10
    for error in found:
        assert issubclass(error, holdfast.errors.HoldfastError), error
        assert 64 <= error.exit_code <= 78
        assert error.__doc__
        assert error.__name__ in (holdfast.errors.__doc__ or ""), f"{error.__name__} is not in the tree that is drawn"


def test_import_is_light() -> None:
    """`import holdfast` brings in nothing heavy that it does not need."""
    code = "import holdfast, sys; print(*[name for name in sys.argv[1:] if name in sys.modules])"
    heavy = [
        "pandas",
        "pyspark",
        "numpy",
        "cyclopts",
        "rich",
        "hypothesis",
        "pytest",
        "holdfast.testing",
        "holdfast.cli",
    ]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True, timeout=120)
    assert set(done.stdout.split()) <= _brought_by("pyarrow, pydantic, structlog", heavy)


def _brought_by(modules: str, names: list[str]) -> set[str]:
    """What a dependency itself imports is not ours to avoid."""
    code = f"import {modules}, sys; print(*[name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_typed() -> None:
    """Type checkers of users see our annotations."""
    package: ModuleType = holdfast
    assert package.__file__ is not None
    for function in (holdfast.Store.open, holdfast.Topic.append, holdfast.Receipt.wait):
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty
