"""Receivers of batches of rows, which handle each row once however often it is sent.

A [`BatchWorker`][onward.actors.batches.BatchWorker] receives them at an address of a node,
[`serve_batches`][onward.actors.batches.serve_batches] in a service of a broker. They are sent by
the pipeline's sink, `df.write.format("onward")`, or by any sender of the frames of
`onward.protocol.batches`.
"""

from ._taker import MAX_WAITING, MAX_WAITING_BYTES, BatchTaker, HandleRows
from ._worker import BATCHES, BatchWorker, serve_batches

__all__ = [
    "BATCHES",
    "MAX_WAITING",
    "MAX_WAITING_BYTES",
    "BatchTaker",
    "BatchWorker",
    "HandleRows",
    "serve_batches",
]
