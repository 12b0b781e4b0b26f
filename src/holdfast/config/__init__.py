"""Settings: frozen data, checked when made, resolved topic first, then namespace, then store.

settings.py    every setting of a store, its default and its bounds
node.py        what all settings of a pipeline's file have in common
yaml.py        a YAML file as plain values with their lines; _compose.py, _environment.py
_explain.py    what pydantic finds wrong, with line, key path and nearest name
_buffer.py     the sections `buffer`, `namespaces` and `topics`
"""

from holdfast.config.settings import (
    BufferSettings,
    Cap,
    IdempotencySettings,
    RetentionSettings,
    SegmentSettings,
    StoreSettings,
    SubscriberSettings,
    WalSettings,
)

__all__ = [
    "BufferSettings",
    "Cap",
    "IdempotencySettings",
    "RetentionSettings",
    "SegmentSettings",
    "StoreSettings",
    "SubscriberSettings",
    "WalSettings",
]
