"""The data source: the classes that Spark calls for `format("onward")`."""

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
from ._reading import SegmentPaths, pack, read_partition
from ._stream import EventLogStream

__all__ = ["EventLogReader", "EventLogSource", "register"]


class EventLogSource(DataSource):
    """Event logs as tables: `spark.read.format("onward").option("table", "flows").load(LOG)`.

    Spark does not pass the selected columns to a source in Python: name them in the option
    `columns`. The same format writes rows as messages: see `onward.pipeline.sink`.

    Args:
        options: The options by name; case is ignored.
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
        """Return the reader of a batch."""
        return EventLogReader(self._options())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return the reader of a stream."""
        return EventLogStream(self._options())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of rows as messages."""
        from ..sink import BatchWriter

        return BatchWriter(schema, overwrite, self.options)

    def _options(self) -> Options:
        return read_options(self.options)


class EventLogReader(DataSourceReader):
    """A reader of the segments that are sealed when partitions are made.

    Args:
        options: The options.
    """

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the segments to read, as partitions: see `pack`.

        Raises:
            LogError: There is no log, or a segment is damaged or misnamed.
        """
        found = [(info.path, info.size) for info in self._infos()]
        ends_only = self._options.table == "segments" and not self._options.check
        return list[InputPartition](pack(found, ends_only=ends_only)) or [SegmentPaths(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
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
    """Register the format `onward` in a session where Spark does not find it.

    Spark finds it if Onward is installed from a wheel or is in a zip of `--py-files`, but not in
    an editable install.
    """
    if any(module.name == "pyspark_onward" for module in iter_modules()):
        return
    try:
        spark.dataSource.register(EventLogSource)
    except PySparkException as error:
        # The error of a Spark Connect server that has found it.
        if "ALREADY_EXISTS" not in str(error):
            raise
