"""Holdfast: a durable, Arrow-native buffer with end-to-end acknowledgements."""

from holdfast import errors
from holdfast.acks import BatchStatus
from holdfast.bundle import RecordBundle
from holdfast.config import StoreSettings
from holdfast.durability import Durability
from holdfast.store import Batch, Delivery, Receipt, Store, Subscriber, Topic

__all__ = [
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
