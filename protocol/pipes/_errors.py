"""Errors of pipes; they join the tree of `onward.protocol`.

```
OnwardError
├── ProtocolError
│   └── PipeFrameError    bytes that are no frame of a pipe
└── DeliveryError
    ├── NotDelivered
    │   ├── PipeFull      the pipe's queue is at its limit
    │   ├── PipeClosed    the pipe was ended, or broke before it sent the message
    │   └── PipeMissed    the other end went on without the message
    └── InDoubt
        └── PipeBroken    sent, and nobody said whether it was handed on
```
"""

from __future__ import annotations

from .._errors import InDoubt, NotDelivered, ProtocolError

__all__ = ["PipeBroken", "PipeClosed", "PipeFrameError", "PipeFull", "PipeMissed"]


class PipeFrameError(ProtocolError):
    """Bytes that are no frame of a pipe.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no frame of a pipe: {self.reason}"


class PipeFull(NotDelivered):
    """The queue in front of a pipe is at its limit."""

    reason = "pipe full"


class PipeClosed(NotDelivered):
    """The pipe was ended, or broke before it sent the message."""

    reason = "pipe closed"


class PipeMissed(NotDelivered):
    """The other end of the pipe went on without the message and will not hand it on.

    It came too late, or after a newer one where only newer ones count, or its worker did not
    take it.
    """

    reason = "missed by the pipe"


class PipeBroken(InDoubt):
    """The message was sent into the pipe, and whether it was handed on is unknown."""

    reason = "pipe broken"
