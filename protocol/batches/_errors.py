"""Errors of batches; they join the tree of `onward.protocol`.

```
OnwardError
└── ProtocolError
    └── BatchFrameError    bytes that are no batch, or no answer to one
        └── BatchTooBig    more rows or bytes than a batch may have
```
"""

from __future__ import annotations

from .._errors import ProtocolError

__all__ = ["BatchFrameError", "BatchTooBig"]


class BatchFrameError(ProtocolError):
    """Bytes that are no batch, or no answer to one.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no batch: {self.reason}"


class BatchTooBig(BatchFrameError):
    """A batch has more rows or bytes than it may.

    Attributes:
        size: How many it has.
        limit: How many it may have.
        what: Of what: `rows` or `bytes`.
    """

    def __init__(self, size: int, limit: int, what: str) -> None:
        super().__init__(f"{size} {what}, over {limit}")
        self.args = (size, limit, what)
        self.size = size
        self.limit = limit
        self.what = what
