"""Rows as messages: `df.write.format("onward")`.

[`BatchWriter`][onward.pipeline.sink.BatchWriter] sends each row of a data frame as a message, to a
route from a node on or to a tag query of a broker, in batches: at least once, and once where a
`BatchWorker` (`onward.actors.batches`) takes them.
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
