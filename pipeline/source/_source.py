"""The data source: what Spark calls for `format("onward")`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pkgutil import iter_modules
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ._listing import SegmentInfo, describe, segments_in
from ._options import Options, read_options
from ._reading import Segments, pack, read_partition
from ._stream import EventLogStream

__all__ = ["EventLogReader", "EventLogSource", "register"]


class EventLogSource(DataSource):
    """Event logs as tables: `spark.read.format("onward").option("table", "flows").load(LOG)`.

    Spark hands no choice of columns to a source in Python: name those that are needed in the
    option `columns`. The same format writes rows as messages: see `onward.pipeline.sink`.

    Args:
        options: What `option` was called with. Cases do not matter.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format: `onward`."""
        return "onward"

    def schema(self) -> str:
        """Return the columns that are read.

        Raises:
            BadOption: There is no such option, or its value cannot be read.
        """
        return self._options().ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads all that is there."""
        return EventLogReader(self._options())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what reads what comes."""
        return EventLogStream(self._options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what sends rows as messages."""
        from ..sink import BatchWriter

        return BatchWriter(schema, overwrite, self.options)

    def _options(self) -> Options:
        return read_options(self.options)


class EventLogReader(DataSourceReader):
    """Reads the segments that are sealed when it is asked.

    Args:
        options: What to read.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return which segments to read, a task each or small ones together.

        Raises:
            LogError: There is no log, or a segment is not what its name says.
        """
        found = [(info.path, info.size) for info in self._infos()]
        ends_only = self._options.table == "segments" and not self._options.check
        return list[InputPartition](pack(found, ends_only=ends_only)) or [Segments(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition, as Arrow."""
        return read_partition(self._options, partition)

    def _infos(self) -> Iterator[SegmentInfo]:
        options = self._options
        named = options.segments
        pairs = (
            segments_in(options.path, options.brokers)
            if named is None
            else (cast("tuple[str, str]", tuple(path.split("/"))) for path in named)
        )
        for broker, name in pairs:
            if options.brokers is None or broker in options.brokers:
                yield describe(options.path, broker, name, skip_damaged=options.skip_damaged)


def register(spark: SparkSession) -> None:
    """Have a session know the format `onward` where Spark does not find it by itself.

    Spark finds it where Onward is installed from a wheel, or lies in a zip of `--py-files`. An
    editable install it does not look into.
    """
    if any(module.name == "pyspark_onward" for module in iter_modules()):
        return
    try:
        spark.dataSource.register(EventLogSource)
    except PySparkException as error:
        # Of a Spark Connect server that has found it.
        if "ALREADY_EXISTS" not in str(error):
            raise
