"""Variables of the environment inside values: `${NAME}`, `${NAME:-default}`; `$$` is a dollar sign.

As in a shell, the default also stands for a variable that is set and empty. A `$` before anything else is itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_PART: Final = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")


class Expanded(NamedTuple):
    """A value after its variables were put in.

    shown       how it may be printed: the names of the variables, nothing of their content and nothing around them;
                `None` if there were none
    problems    what is wrong with it
    """

    text: str
    shown: str | None
    problems: tuple[str, ...]


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Put the variables in."""
    names: list[str] = []
    problems: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match[1] is None:
            problems.append("`${` begins a variable that is not written like ${NAME} or ${NAME:-default}; "
                            "for the characters themselves write `$${`")  # fmt: skip
            return ""
        names.append(match[1])
        found, default = environ.get(match[1]), match[2]
        if found is None and default is None:
            problems.append(f"the environment has no variable {match[1]}; set it, or write ${{{match[1]}:-default}}")
        return found or default or ""

    expanded = _PART.sub(value, text)
    return Expanded(expanded, _shown(text, names) if names else None, tuple(problems))


def _shown(text: str, names: list[str]) -> str:
    variables = "...".join(f"${{{name}}}" for name in names)
    whole = _PART.fullmatch(text)
    return variables if whole else f"...{variables}..."
