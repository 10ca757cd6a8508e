"""What the edge asks of a dispatcher, and how it says in the words of AMQP that it was refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from ...actors.dispatch import (
    AcceptCircuit,
    CircuitContainer,
    CircuitLink,
    CircuitLinkEnd,
    ConsumerEnd,
    ConsumerLink,
    ConsumerRefused,
    ProducerClosed,
    ProducerEnd,
    ProducerLink,
)
from ...protocol import OnwardError
from ...protocol.dispatch import BadName, CircuitPool, Refusal
from ...protocol.security import Principal

__all__ = ["REFUSALS", "DispatchPort", "Refused", "refused"]


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
        self,
        name: str | None,
        end: ProducerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> ProducerLink:
        """Attach a producer of a name, or an anonymous one.

        Raises:
            OnwardError: The name is none, or not for it.
        """
        ...

    def open_consumer(
        self,
        name: str,
        end: ConsumerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> ConsumerLink:
        """Attach a consumer of a name.

        Raises:
            OnwardError: The name is none, or not for it.
        """
        ...

    def temporary_name(self) -> str:
        """Return a new name for one client."""
        ...

    def is_circuit(self, name: str) -> bool:
        """Whether links to a name are tied to circuits."""
        ...

    def open_circuit(
        self,
        name: str,
        end: CircuitLinkEnd,
        *,
        producer: bool,
        properties: bytes = b"",
        principal: Principal | None = None,
        client: str = "",
    ) -> CircuitLink:
        """Attach to a container of a name.

        Raises:
            OnwardError: The name is none, or not for it.
        """
        ...

    def serve_circuits(
        self,
        name: str,
        accept: AcceptCircuit,
        *,
        principal: Principal | None = None,
        ended: Callable[[ConsumerRefused], object] | None = None,
        pool: CircuitPool | None = None,
    ) -> CircuitContainer:
        """Be a container of a name.

        Raises:
            OnwardError: The name is none, or takes no container.
        """
        ...


_NO_NAME: Final = ("amqp:invalid-field", "the address is no name")
_OTHERS: Final = ("amqp:not-found", "the name is one of another node")
_LIMIT: Final = ("amqp:resource-limit-exceeded", "there are too many")
_ENDED: Final = ("amqp:resource-deleted", "the dispatcher has ended")
_INTERNAL: Final = ("amqp:internal-error", "")

REFUSALS: Final[Mapping[Refusal, tuple[str, str]]] = MappingProxyType(
    {
        Refusal.UNAVAILABLE: ("amqp:not-found", "there is no such name"),
        Refusal.CIRCUITS: ("amqp:not-allowed", "the name takes no messages, but routed links"),
        Refusal.MESSAGES: ("amqp:not-allowed", "the name takes messages, and no routed links"),
        Refusal.TAKEN: ("amqp:resource-locked", "it has a consumer"),
        Refusal.DISPLACED: ("amqp:link:stolen", "another consumer has taken its place"),
        Refusal.CONSUMERS: _LIMIT,
        Refusal.PRODUCERS: _LIMIT,
        Refusal.SHARE: _LIMIT,
        Refusal.NAMES: _LIMIT,
        Refusal.ROLES: ("amqp:unauthorized-access", "the name is for other roles"),
        Refusal.ELSEWHERE: _OTHERS,
        Refusal.TOPOLOGICAL: _OTHERS,
        Refusal.TEMPORARY: ("amqp:not-allowed", "temporary names are made by the node"),
        Refusal.CONSUMED: ("amqp:not-allowed", "a temporary name is consumed once"),
        Refusal.TAGS: ("amqp:not-allowed", "the name has the consumers of a query"),
        Refusal.SETTLE_TIME: (
            "amqp:precondition-failed",
            "a message was not settled in the time that the node allows",
        ),
        Refusal.CLOSED: _ENDED,
        Refusal.GONE: _ENDED,
        Refusal.STOPPED: _ENDED,
    }
)
"""The condition and the words that a client is told for each reason of the dispatcher."""


def refused(error: OnwardError) -> Refused:
    """Return the condition and the words for an error of the dispatcher.

    What is said is fixed: an error may have more in it than a client is to see.
    """
    match error:
        case BadName():
            return Refused(*_NO_NAME)
        case ProducerClosed():
            return Refused(*_ENDED)
        case ConsumerRefused(reason=reason):
            return Refused(*REFUSALS[reason])
        case _:
            return Refused(*_INTERNAL)
