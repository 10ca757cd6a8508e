"""What becomes of rows that are not taken, as errors; each message says what to do.

```
PipelineError
└── SinkError
    ├── RowsNotDelivered   nobody has taken them: the way, or who is to take them, is not there
    ├── RowsInDoubt        they may have been taken: no answer, or the receiver has forgotten
    └── RowRefused         they cannot be sent, or will never be taken, however often they are sent
```

All of them fail the task. Spark runs it again as often as `spark.task.maxFailures` says; rows that
were taken are known again.
"""

from __future__ import annotations

from .._errors import PipelineError

__all__ = ["RowRefused", "RowsInDoubt", "RowsNotDelivered", "SinkError"]


class SinkError(PipelineError):
    """Rows were not taken."""


class RowsNotDelivered(SinkError):
    """Nobody has taken them: the way, or who is to take them, is not there or is too busy."""


class RowsInDoubt(SinkError):
    """They may have been taken: no answer came, or who took those before has forgotten them."""


class RowRefused(SinkError):
    """They cannot be sent, or will never be taken, however often they are sent."""
