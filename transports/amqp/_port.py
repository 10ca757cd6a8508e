"""What the edge asks of a dispatcher, and how it says in the words of AMQP that it was refused."""

from __future__ import annotations

from typing import Final, Protocol

from ...actors.dispatch import (
    ConsumerEnd,
    ConsumerLink,
    ConsumerRefused,
    ProducerClosed,
    ProducerEnd,
    ProducerLink,
)
from ...protocol import OnwardError
from ...protocol.dispatch import BadName
from ...protocol.security import Principal

__all__ = ["DispatchPort", "Refused", "refused"]


class Refused(Exception):
    """A link is refused, or ends.

    It does not leave the edge, so it is none of the package's errors.

    Attributes:
        condition: The condition, as AMQP has it.
        description: The reason in words that the client may see.
    """

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description


class DispatchPort(Protocol):
    """A dispatcher, as far as the edge needs it: see `Dispatcher`."""

    def open_producer(
        self, name: str | None, end: ProducerEnd, principal: Principal | None = None
    ) -> ProducerLink:
        """Attach a producer of a name, or an anonymous one.

        Raises:
            OnwardError: The name is none, or not for it.
        """
        ...

    def open_consumer(
        self, name: str, end: ConsumerEnd, principal: Principal | None = None
    ) -> ConsumerLink:
        """Attach a consumer of a name.

        Raises:
            OnwardError: The name is none, or not for it.
        """
        ...

    def temporary_name(self) -> str:
        """Return a new name for one client."""
        ...


_REASONS: Final = {
    "unavailable": Refused("amqp:not-found", "there is no such name"),
    "it is one of another node": Refused("amqp:not-found", "the name is one of another node"),
    "it is for other roles": Refused("amqp:unauthorized-access", "the name is for other roles"),
    "it is direct and has a consumer": Refused("amqp:resource-locked", "it has a consumer"),
    "another consumer has taken its place": Refused(
        "amqp:link:stolen", "another consumer has taken its place"
    ),
}
_LIMIT: Final = Refused("amqp:resource-limit-exceeded", "there are too many")
_ENDED: Final = Refused("amqp:resource-deleted", "the dispatcher has ended")


def refused(error: OnwardError) -> Refused:
    """Return the condition and the words for an error of the dispatcher.

    What is said is fixed: an error may have more in it than a client is to see.
    """
    match error:
        case BadName():
            return Refused("amqp:invalid-field", "the address is no name")
        case ProducerClosed():
            return _ENDED
        case ConsumerRefused(reason=reason):
            return _REASONS.get(reason, _ENDED if "stopped" in reason else _LIMIT)
        case _:
            return Refused("amqp:internal-error")
