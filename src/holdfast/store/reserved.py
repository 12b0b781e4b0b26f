"""Attributes that Holdfast itself gives to bundles; users may not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import InvalidBundle

PREFIX: Final = "holdfast."
KEY: Final = "holdfast.key"  # the idempotency key that it was appended with
TO: Final = "holdfast.to"  # the number of the one subscriber that it is meant for
DEAD: Final = "holdfast.dead"  # of a dead letter: who rejected it, where it stood, why


def refuse_reserved(attributes: Mapping[str, Any]) -> None:
    for name in attributes:
        if name.startswith(PREFIX):
            raise InvalidBundle(f"attribute {name!r}: names that begin with {PREFIX!r} are Holdfast's own; use another")
