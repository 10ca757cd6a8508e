"""The ends of producers and consumers that give and take credit by calls.

A transport with credit of its own, such as AMQP, has an object for each of its links. The
dispatcher calls it, and it calls the dispatcher: in plain calls on the node's loop, with no turn in
between. A call may be answered before it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from ...protocol import OnwardError
from ...protocol.dispatch import DeliveryState

__all__ = ["ConsumerEnd", "ConsumerLink", "OutcomeCallback", "ProducerEnd", "ProducerLink"]

OutcomeCallback: TypeAlias = Callable[[DeliveryState], object]
"""A function that is told the states of a delivery; its outcome is the last of them."""


class ProducerEnd(Protocol):
    """The end of a producer, as the dispatcher knows it."""

    def credit(self, messages: int) -> None:
        """Give the producer the credit of as many messages more."""
        ...

    def drain(self) -> None:
        """Ask for the credit that the producer does not use now; see `ProducerLink.drained`."""
        ...

    def end(self, reason: OnwardError) -> None:
        """End the producer, which has been detached."""
        ...


class ProducerLink(Protocol):
    """A producer at the dispatcher, as its end knows it."""

    def send(
        self, name: str | None, message: bytes, ttl: float | None, told: OutcomeCallback | None
    ) -> None:
        """Dispatch a message, for which the producer had credit.

        What is wrong with it is told as its outcome. A message beyond the credit, which may have
        been taken back in the meantime, is released.

        Args:
            name: The name of a message of an anonymous producer; `None` for that of the producer.
            message: The payload.
            ttl: Its time to live in seconds; `None` without one.
            told: It is told the outcome; `None` if the message is pre-settled.
        """
        ...

    def drained(self, messages: int) -> None:
        """Record that the producer has given back the credit of as many messages."""
        ...

    def close(self) -> None:
        """Detach the producer. What it has sent goes on without it. Idempotent."""
        ...


class ConsumerEnd(Protocol):
    """The end of a consumer, as the dispatcher knows it."""

    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        """Hand a message over, for which the consumer has given credit.

        Args:
            message: The payload.
            told: It is told the states; `None` if the message is pre-settled.
        """
        ...

    def drained(self) -> None:
        """Record that there is no message for the rest of the credit, which is gone."""
        ...

    def end(self, reason: OnwardError) -> None:
        """End the consumer, which has been detached."""
        ...


class ConsumerLink(Protocol):
    """A consumer at the dispatcher, as its end knows it."""

    def credit(self, messages: int) -> None:
        """Ask for as many messages more."""
        ...

    def drain(self) -> None:
        """Ask for what waits here now, and give up the other credit; see `ConsumerEnd.drained`.

        What waits at other nodes of the network is not asked for.
        """
        ...

    def close(self) -> None:
        """Detach the consumer: what it has and has not settled is in doubt. Idempotent."""
        ...
