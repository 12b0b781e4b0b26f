"""Receivers: where rows come in.

_receiver.py        what every receiver is, and where it works
_settings.py        the settings of every source; _types.py for declared schemas
_kinds.py           SOURCES: every type of source, with its settings and how to make its receiver
demo.py             rows with sequence numbers; _demo_rows.py, _demo_progress.py, _demo_group.py
_pace.py            so many rows a second
"""

from holdfast.receivers._kinds import SOURCES, SourceKind
from holdfast.receivers._receiver import Context, Receiver, ReceiverStatistics
from holdfast.receivers._settings import DemoSettings, SourceSettings, TopicSettings

__all__ = [
    "SOURCES",
    "Context",
    "DemoSettings",
    "Receiver",
    "ReceiverStatistics",
    "SourceKind",
    "SourceSettings",
    "TopicSettings",
]
