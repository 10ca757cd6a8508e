"""Where Spark finds the data source `onward` by its name, without being told.

It looks for packages whose names begin with `pyspark_`, on the driver and in each worker.
"""

from ._source import DefaultSource

__all__ = ["DefaultSource"]
