"""Names of topics, subscribers and slots: what may become a folder, a file or a label.

A name of a topic or subscriber is part of a path on any system, so whatever means something to a filesystem
is refused here, once: no separators, no "..", no leading dot, nothing that Windows drops (a final dot) or
reserves (`con`, `nul`, ...), and no ending that the store gives to files of its own.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import InvalidName

MAX_NAME_LENGTH: Final = 128

_PATH_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SLOT: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OWN_ENDINGS: Final = (".lock", ".checkpoint", ".tmp")
_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in range(10))]
)
_ALLOWED: Final = (
    f"1 to {MAX_NAME_LENGTH} of the characters A-Z a-z 0-9 . _ -, beginning with a letter or digit, "
    'without "..", not ending in ".", ".lock", ".checkpoint" or ".tmp", and no device name of Windows'
)


def validate_topic(topic: str) -> tuple[str, str]:
    """The namespace and the name in `"namespace/name"`; `InvalidName` if either could not be a folder."""
    if not isinstance(topic, str):
        raise InvalidName(f"a topic is a text like 'prod/logs', not {_article(topic)}")
    parts = topic.split("/")
    if len(parts) != 2:
        raise InvalidName(
            f"topic {_shown(topic)} has {len(parts) - 1} slashes; write 'namespace/name', with exactly one"
        )
    whole = f"in topic {_shown(topic)}"
    return _part(parts[0], f"namespace {whole}"), _part(parts[1], f"name {whole}")


def validate_namespace(name: str) -> str:
    """`name` itself; `InvalidName` if it could not be a folder."""
    return _part(name, "namespace")


def validate_subscriber(name: str) -> str:
    """`name` itself; `InvalidName` if it could not be a file's name."""
    return _part(name, "subscriber")


def validate_slot(name: str) -> str:
    """`name` itself; a slot is never part of a path, so only its characters and length are bound."""
    if not isinstance(name, str):
        raise InvalidName(f"a slot name is a text like 'logs', not {_article(name)}")
    if _SLOT.fullmatch(name) is None:
        raise InvalidName(
            f"slot {_shown(name)} {_why_not(name)}; allowed: 1 to {MAX_NAME_LENGTH} of the characters A-Z a-z 0-9 . _ -"
        )
    return name


def _part(name: str, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidName(f"{what}: a name is a text, not {_article(name)}")
    if _PATH_PART.fullmatch(name) is None:
        found = _why_not(name)
    elif ".." in name:
        found = 'has ".." in it'
    elif name.endswith("."):
        found = "ends in a dot"
    elif name.lower().endswith(_OWN_ENDINGS):
        found = f"ends in {name[name.rindex('.') :]!r}, which the store keeps for its own files"
    elif name.split(".", 1)[0].lower() in _DEVICES:
        found = "is the name of a device on Windows"
    else:
        return name
    raise InvalidName(f"{what}: {_shown(name)} {found}; allowed: {_ALLOWED}")


def _why_not(name: str) -> str:
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_LENGTH:
        return f"has {len(name)} characters"
    bad = re.search(r"[^A-Za-z0-9._-]", name)
    return f"has {bad[0]!r} in it" if bad else f"begins with {name[0]!r}"


def _shown(name: str) -> str:
    """The name as written, cut so that an endless one does not fill the log."""
    return repr(name) if len(name) <= MAX_NAME_LENGTH else f"{name[:32]!r}..."


def _article(value: object) -> str:
    return f"a {type(value).__name__}"
