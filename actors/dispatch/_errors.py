"""Errors of a dispatcher.

```
OnwardError
├── ConsumerRefused       the name takes no consumer like this one
├── CircuitClosed         there is no circuit, or not any more
├── ProducerClosed        the producer, its owner or the dispatcher has ended
├── HoldStoreInUse        another process has the file of messages on hold
└── HoldStoreFailed       that file cannot be opened, read or written
```
"""

from __future__ import annotations

from ...protocol import OnwardError
from ...protocol.dispatch import DetachKind, Refusal

__all__ = [
    "CircuitClosed",
    "ConsumerRefused",
    "HoldStoreFailed",
    "HoldStoreInUse",
    "ProducerClosed",
]


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


class CircuitClosed(OnwardError):
    """There is no circuit, or there is none any more.

    Attributes:
        name: The name.
        how: How it has ended; `None`: it was refused.
        condition: The reason as a word: a `CircuitCondition`, or one of the other end; or empty.
        description: The reason as a text, or empty.
    """

    def __init__(
        self, name: str, how: DetachKind | None, condition: str, description: str = ""
    ) -> None:
        super().__init__(name, how, condition, description)
        self.name = name
        self.how = how
        self.condition = condition
        self.description = description

    def __str__(self) -> str:
        told = ": ".join(each for each in (self.condition, self.description) if each)
        if self.how is None:
            return f"there is no circuit to {self.name}: {told}"
        ended = f"the circuit to {self.name} is {self.how.name.lower()}"
        return f"{ended}: {told}" if told else ended


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
