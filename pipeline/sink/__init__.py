"""Rows as messages: `df.write.format("onward")`.

[`BatchWriter`][onward.pipeline.sink.BatchWriter] sends the rows of a data frame in batches, to a
route from a node or to a tag query of a broker. Delivery is at least once, and exactly once to a
`BatchWorker` (`onward.actors.batches`).
"""

from ._errors import RowRefused, RowsInDoubt, RowsNotDelivered, SinkError
from ._options import SinkOptions, read_options
from ._writer import BatchWriter, SentRows

__all__ = [
    "BatchWriter",
    "RowRefused",
    "RowsInDoubt",
    "RowsNotDelivered",
    "SentRows",
    "SinkError",
    "SinkOptions",
    "read_options",
]
