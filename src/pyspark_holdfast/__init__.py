"""Where Spark looks for `format("holdfast")`: a package of this name with a `DefaultSource`."""

from holdfast.spark import DefaultSource

__all__ = ["DefaultSource"]
