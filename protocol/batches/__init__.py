"""Batches of rows that are sent again after a failure and taken once, without I/O.

A sender numbers the rows of a partition in each epoch, and sends them in batches until each is
answered. [`BatchReceiver`][onward.protocol.batches.BatchReceiver] says which rows are new.

```python
receiver = BatchReceiver()
found = receiver.receive(decode_batch(payload))
if isinstance(found, BatchRows):
    ...  # do something with found.rows
    found = receiver.taken(found)
answer = encode_answer(found)
```
"""

from ._errors import BatchFrameError, BatchTooBig
from ._frames import (
    MAX_BATCH,
    MAX_NUMBER,
    MAX_QUERY,
    MAX_ROWS,
    MAX_TO,
    BatchAnswer,
    BatchStatus,
    Reason,
    RowBatch,
    decode_answer,
    decode_batch,
    encode_answer,
    encode_batch,
)
from ._progress import BatchEpoch, BatchProgress
from ._receiver import (
    BatchOptions,
    BatchReceiver,
    BatchReceiverStatistics,
    BatchRows,
)

__all__ = [
    "MAX_BATCH",
    "MAX_NUMBER",
    "MAX_QUERY",
    "MAX_ROWS",
    "MAX_TO",
    "BatchAnswer",
    "BatchEpoch",
    "BatchFrameError",
    "BatchOptions",
    "BatchProgress",
    "BatchReceiver",
    "BatchReceiverStatistics",
    "BatchRows",
    "BatchStatus",
    "BatchTooBig",
    "Reason",
    "RowBatch",
    "decode_answer",
    "decode_batch",
    "encode_answer",
    "encode_batch",
]
