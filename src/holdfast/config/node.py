"""What all settings of a pipeline's file have in common: frozen, no unknown keys, and the kinds of values in them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, PrivateAttr, ValidationInfo

from holdfast.config.settings import Seconds, Size
from holdfast.names import validate_slot, validate_topic

FOLDER: Final = "folder"  # the key of the validation context that says what relative paths are relative to
MASK: Final = "**********"


class NodeSettings(BaseModel):
    """Settings that were read from a file; values that came from the environment do not show in `repr`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_by_name=True, validate_by_alias=True
    )

    _masked: frozenset[str] = PrivateAttr(default=frozenset())

    def mask(self, field: str) -> None:
        """From now on `repr` hides this field, named by its attribute."""
        self._masked |= {field}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, MASK if name in self._masked else value


def _topic(name: str) -> str:
    validate_topic(name)
    return name


def _absolute(path: Path, info: ValidationInfo) -> Path:
    """As written if it is absolute, else below the folder of the file it was written in."""
    text = str(path)
    if ":/" in text:
        raise ValueError(f"{text!r} is an address; only folders of a filesystem can be written to")
    if text.startswith("~"):
        raise ValueError(f"{text!r}: '~' has no meaning here; write ${{HOME}}")
    if "\0" in text:
        raise ValueError("a path has no zero bytes in it")
    folder = (info.context or {}).get(FOLDER)
    return path if folder is None else Path(os.path.abspath(Path(folder) / path))


Folder = Annotated[Path, AfterValidator(_absolute)]
TopicName = Annotated[str, AfterValidator(_topic)]
SlotName = Annotated[str, AfterValidator(validate_slot)]

__all__ = ["FOLDER", "MASK", "Folder", "NodeSettings", "Seconds", "Size", "SlotName", "TopicName"]
