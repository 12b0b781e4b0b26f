"""Schemas: told apart, checked before they are stored, and widened to one that covers many.

_fingerprint.py   16 bytes that stand for a schema, the same on every machine and in every version
_storable.py      does this schema come back from Arrow IPC as it went in?
_widest.py        the representative schema of many
_types.py         the common type of two plain types
"""

from holdfast.schema._fingerprint import FINGERPRINT_BYTES, fingerprint
from holdfast.schema._storable import check_storable, empty_batch
from holdfast.schema._widest import CONFLICTING_TYPES, widest

__all__ = ["CONFLICTING_TYPES", "FINGERPRINT_BYTES", "check_storable", "empty_batch", "fingerprint", "widest"]
