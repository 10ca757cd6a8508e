"""Errors of a dispatcher.

```
OnwardError
├── ConsumerRefused       the name takes no consumer like this one
├── ProducerClosed        the producer, its owner or the dispatcher has ended
├── HoldStoreInUse        another process has the file of messages on hold
└── HoldStoreFailed       that file cannot be opened, read or written
```
"""

from __future__ import annotations

from ...protocol import OnwardError
from ...protocol.dispatch import Refusal

__all__ = ["ConsumerRefused", "HoldStoreFailed", "HoldStoreInUse", "ProducerClosed"]


class ConsumerRefused(OnwardError):
    """A name takes no further consumer, or none at all.

    Attributes:
        name: The name.
        reason: The reason, which is text as well.
    """

    def __init__(self, name: str, reason: Refusal) -> None:
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
        reason: The reason, in a few words; empty if its program has closed it, or has ended.
    """

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        closed = f"the producer of {self.name} was closed"
        return f"{closed}: {self.reason}" if self.reason else closed


class HoldStoreInUse(OnwardError):
    """Another process has the file of messages on hold open.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"another process holds messages in {self.path}: stop it, or name another file"


class HoldStoreFailed(OnwardError):
    """The file of messages on hold cannot be opened, read or written.

    Attributes:
        path: The file.
        reason: The reason, in a few words.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"messages cannot be held in {self.path}: {self.reason}"
