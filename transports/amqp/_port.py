"""What the edge asks of a dispatcher: producers, consumers, and names for those that have none.

All calls are made in turns of one loop. A call of the edge may be answered before it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...protocol.dispatch import DeliveryState
from ...protocol.security import Principal

__all__ = [
    "ConsumerEnd",
    "ConsumerHandle",
    "DispatchPort",
    "ProducerEnd",
    "ProducerHandle",
    "Refused",
    "Told",
]

Told: TypeAlias = Callable[[DeliveryState], None]
"""A function that is told the states of a delivery; its outcome is the last of them."""


class Refused(Exception):
    """A dispatcher refuses a link, or ends one.

    It does not leave the edge, so it is none of the package's errors.

    Attributes:
        condition: The condition, as AMQP has it.
        description: The reason in words that the client may see.
    """

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class ProducerEnd(Protocol):
    """The end of a producer, as the dispatcher knows it."""

    def credit(self, messages: int) -> None:
        """Give the producer the credit of as many messages more."""
        ...

    def drain(self) -> None:
        """Ask for the credit that the producer does not use now; see `ProducerHandle.drained`."""
        ...

    def end(self, reason: Refused) -> None:
        """End the producer."""
        ...


class ProducerHandle(Protocol):
    """A producer at the dispatcher."""

    def send(self, name: str | None, message: bytes, ttl: float | None, told: Told | None) -> None:
        """Dispatch a message, for which the producer had credit.

        Args:
            name: The name of a message of an anonymous producer; `None` for that of the producer.
            message: The payload.
            ttl: Its time to live in seconds; `None` without one.
            told: It is told the outcome; `None` if the message is pre-settled.
        """
        ...

    def drained(self) -> None:
        """Record that the producer has no credit any more."""
        ...

    def close(self) -> None:
        """End the producer. What it has sent goes on without it."""
        ...


class ConsumerEnd(Protocol):
    """The end of a consumer, as the dispatcher knows it."""

    def deliver(self, message: bytes, told: Told | None) -> None:
        """Hand a message over, for which the consumer has given credit.

        Args:
            message: The payload.
            told: It is told the states; `None` if the message is pre-settled.
        """
        ...

    def drained(self) -> None:
        """Record that there is no message for the rest of the credit, which is gone."""
        ...

    def end(self, reason: Refused) -> None:
        """End the consumer."""
        ...


class ConsumerHandle(Protocol):
    """A consumer at the dispatcher."""

    def credit(self, messages: int) -> None:
        """Ask for as many messages more."""
        ...

    def drain(self) -> None:
        """Ask for what there is now, and give up the other credit; see `ConsumerEnd.drained`."""
        ...

    def close(self) -> None:
        """End the consumer. The edge tells the outcomes of what was delivered."""
        ...


class DispatchPort(Protocol):
    """A dispatcher, as far as the edge needs it."""

    def produce(
        self, name: str | None, end: ProducerEnd, principal: Principal | None
    ) -> ProducerHandle:
        """Add a producer of a name, or an anonymous one.

        Raises:
            Refused: The name is none, or not for it.
        """
        ...

    def consume(self, name: str, end: ConsumerEnd, principal: Principal | None) -> ConsumerHandle:
        """Add a consumer of a name.

        Raises:
            Refused: The name is none, or not for it.
        """
        ...

    def temporary_name(self) -> str:
        """Return a new name for one client."""
        ...
