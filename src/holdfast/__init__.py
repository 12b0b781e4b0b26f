"""Holdfast: a durable, Arrow-native buffer with end-to-end acknowledgements."""

from holdfast import errors
from holdfast.bundle import RecordBundle
from holdfast.config import StoreSettings
from holdfast.durability import Durability
from holdfast.store import Receipt, Store, Topic

__all__ = ["Durability", "Receipt", "RecordBundle", "Store", "StoreSettings", "Topic", "errors"]
