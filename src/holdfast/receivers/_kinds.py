"""Every type of source. A receiver's own module, and what it needs, is loaded when the first one is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from holdfast.receivers._receiver import Context, Receiver
from holdfast.receivers._settings import DemoSettings, SourceSettings, TopicSettings


@dataclass(frozen=True, slots=True)
class SourceKind:
    """The settings of a type of source, and how to make its receiver; `None`: somebody else appends to the topic."""

    settings: type[SourceSettings]
    make: Callable[[Any, Context], Receiver] | None


def _demo(settings: DemoSettings, context: Context) -> Receiver:
    from holdfast.receivers.demo import DemoReceiver

    return DemoReceiver(settings, context)


SOURCES: Final[Mapping[str, SourceKind]] = MappingProxyType(
    {"demo": SourceKind(DemoSettings, _demo), "topic": SourceKind(TopicSettings, None)}
)
