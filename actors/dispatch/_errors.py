"""Errors of a dispatcher.

```
OnwardError
├── ConsumerRefused       the name takes no consumer like this one
└── ProducerClosed        the producer, its owner or the dispatcher has ended
```
"""

from __future__ import annotations

from ...protocol import OnwardError

__all__ = ["ConsumerRefused", "ProducerClosed"]


class ConsumerRefused(OnwardError):
    """A name takes no further consumer, or none at all.

    Attributes:
        name: The name.
        reason: The reason, in a few words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name} takes no such consumer or producer: {self.reason}"


class ProducerClosed(OnwardError):
    """A producer has been closed, so that no outcome is told to it any more.

    A message that it has sent goes on, and its outcome is unknown.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"the producer of {self.name} was closed"
