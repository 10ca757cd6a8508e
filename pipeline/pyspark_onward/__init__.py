"""The registration of the data source `onward`.

Spark looks for packages named `pyspark_*`, on the driver and in each worker.
"""

from ._source import DefaultSource

__all__ = ["DefaultSource"]
