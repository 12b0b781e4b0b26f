"""`format("holdfast")`."""

from __future__ import annotations

from collections.abc import MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from holdfast.errors import InvalidSettings, UnsupportedType
from holdfast.spark._options import METADATA, Options
from holdfast.spark._plan import readable, requested_metadata
from holdfast.spark._readers import StreamReader, batch_reader
from holdfast.spark._stores import open_topic, slot_of
from holdfast.spark._writers import BatchWriter, StreamWriter
from holdfast.spark.causes import plainly
from holdfast.spark.types import struct_of

_METADATA_TYPES = {
    "_shard": IntegerType(),
    "_offset": LongType(),
    "_ingestion_time": TimestampType(),
    "_source": StringType(),
}


class DefaultSource(DataSource):
    """Found by Spark under its name; see `Options` for what it takes."""

    @plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._checked = Options.of(options)

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    @plainly
    def schema(self) -> StructType:
        """The columns that the slot has had so far, or those asked for; then the metadata columns asked for."""
        options = self._checked
        topic = open_topic(options.path, options.topic)
        slot = slot_of(topic, options.slot)
        schema = chosen(topic.schema(slot), options, f"{options.topic} ({slot})")
        struct = struct_of(schema, f"{options.topic} ({slot})")
        for name in requested_metadata(options):
            if name in schema.names:
                raise UnsupportedType(f"{options.topic} has a column {name!r} of its own: leave it out of `metadata`")
            struct.add(StructField(name, _METADATA_TYPES[name], nullable=name == "_source"))
        return StructType([StructField(field.name, field.dataType, nullable=True) for field in struct])

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return batch_reader(self._checked, schema)

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return StreamReader(self._checked, schema)

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        _refuse_overwrite(overwrite)
        return BatchWriter(self._checked, schema)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's name
        _refuse_overwrite(overwrite)
        return StreamWriter(self._checked, schema)


def chosen(schema: pa.Schema, options: Options, where: str) -> pa.Schema:
    """The columns asked for, in that order; all but those left out, if none were named."""
    if options.columns is None:
        return readable(schema, options)
    names = [name for name in options.columns if name not in METADATA]
    for name in names:
        if schema.get_field_index(name) < 0:
            raise InvalidSettings(f"{where} has no column {name!r}; it has {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names])


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidSettings('a topic is appended to, never overwritten: .mode("append")')
