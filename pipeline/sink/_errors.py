"""Errors of the sink; each message gives a remedy.

```
PipelineError
└── SinkError
    ├── RowsNotDelivered   rows were not taken: the receiver is missing, unreachable or too busy
    ├── RowsInDoubt        rows may have been taken: no answer, or the receiver has forgotten
    └── RowRefused         rows cannot be sent, or will never be taken
```

All of them fail the task. Spark repeats it up to `spark.task.maxFailures` times; the receiver
recognises rows that it has taken.
"""

from __future__ import annotations

from .._errors import PipelineError

__all__ = ["RowRefused", "RowsInDoubt", "RowsNotDelivered", "SinkError"]


class SinkError(PipelineError):
    """A failure to deliver rows."""


class RowsNotDelivered(SinkError):
    """Rows were not taken: the receiver is missing, unreachable or too busy."""


class RowsInDoubt(SinkError):
    """Rows may have been taken: no answer came, or the receiver has forgotten earlier ones."""


class RowRefused(SinkError):
    """Rows cannot be sent, or will never be taken, however often they are sent."""
