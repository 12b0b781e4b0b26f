"""Holdfast and Spark: the data source, sessions, acks.

source.py       DefaultSource: `format("holdfast")`
types.py        Arrow types as Spark has them
session.py      a session, or why there is none
listener.py     acks for plain queries
causes.py       what went wrong, without Java's frames
_options.py     what a user may say
_readers.py     the readers that Spark asks for
_plan.py        where a query stands, how far its next batch goes, which tasks read it; _walk.py
_read.py        what a task does
_conform.py     stored batches in the query's schema
_predicate.py   conditions that the source can judge
_writers.py     tasks stage, the driver adopts
_offsets.py     positions as Spark keeps them
_stores.py      the stores that a process has open
"""

try:
    import pyspark as pyspark
except ImportError:
    from holdfast.errors import Missing

    raise Missing("this needs Spark: pip install 'holdfast[spark]'") from None

from holdfast.spark.causes import cause_of
from holdfast.spark.listener import acknowledge
from holdfast.spark.session import check_java, session
from holdfast.spark.source import DefaultSource

__all__ = ["DefaultSource", "acknowledge", "cause_of", "check_java", "session"]
