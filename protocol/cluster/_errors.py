"""Errors in what one broker of a cluster says to another; they join the tree of `onward.protocol`.

```
OnwardError
└── ProtocolError
    └── ClusterFrameError    bytes that are none of the cluster's, or that may not come here
        └── ElementTooBig    more bytes than an element may have
```

Texts name the field and sizes and never repeat the input, so they can be sent to the peer broker.
"""

from __future__ import annotations

from .._errors import ProtocolError

__all__ = ["ClusterFrameError", "ElementTooBig"]


class ClusterFrameError(ProtocolError):
    """Bytes that are no frame of the cluster's, or one that may not come here.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"bad frame of a peer broker: {self.reason}"


class ElementTooBig(ClusterFrameError):
    """An element of a route stream has more bytes than it may, or would have when inflated.

    Attributes:
        limit: Bytes that it may have.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"an element of more than {limit} bytes")
        self.args = (limit,)
        self.limit = limit
