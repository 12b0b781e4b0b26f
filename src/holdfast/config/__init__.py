"""Settings: frozen data, checked when made, resolved topic first, then namespace, then store.

settings.py    every setting, its default and its bounds
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
