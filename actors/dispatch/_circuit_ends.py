"""The end of a circuit as a dispatcher knows it, for a transport with links of its own.

As with `ProducerEnd`, the dispatcher calls the end and the end calls the dispatcher, in plain calls
on the node's loop, with no turn in between. What an end is told comes in order, and never while it
is being told something else; it may come before the call that has caused it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...protocol.dispatch import (
    CircuitAttach,
    CircuitAttached,
    CircuitDisposition,
    CircuitDown,
    CircuitDrained,
    CircuitEvent,
    CircuitFlow,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
)

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink

__all__ = ["AcceptCircuit", "CircuitLinkEnd"]


class CircuitLinkEnd(Protocol):
    """One end of a circuit. It calls a `CircuitLink`."""

    def attached(self, properties: bytes) -> None:
        """Record that the circuit is there, also when it is so again; there is no credit yet.

        Args:
            properties: What the other end has told; of an end that accepts, that of the attach.
        """
        ...

    def refused(self, condition: str, description: str) -> None:
        """Record that there is no circuit, for good.

        Args:
            condition: The reason as a word: a `CircuitCondition`, or one of the other end.
            description: The reason as a text.
        """
        ...

    def flow(self, credit: int, drain: bool) -> None:
        """Receive credit as a producer.

        Args:
            credit: How many deliveries more may be begun.
            drain: Whether all credit is to be used now, or given back by `CircuitLink.drained`.
        """
        ...

    def drained(self, credit: int) -> None:
        """Receive word that the producer has given credit back, which is gone."""
        ...

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Receive a delivery as a consumer, or a part of one; see `CircuitLink.send`."""
        ...

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Receive the state of an unsettled delivery, and whether the other end has settled it."""
        ...

    def unresolved(self, tag: bytes) -> None:
        """Receive word that the consumer of a resumed circuit does not know a delivery.

        It has not arrived, or was settled by a frame that was lost. It may be sent again.
        """
        ...

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is no circuit any more, and no credit.

        Args:
            how: Whether the other end has detached or closed it, or a part of it is gone.
            condition: The reason as a word; empty for none.
            description: The reason as a text.
            again: Whether it may come back, as its name has it: `attached`, `refused` or `down`
                follows. Otherwise it is over, and what is unsettled is in doubt.
        """
        ...

    def ready(self) -> None:
        """Receive word that no frame waits for a slow link any more; see `CircuitLink.waiting`."""
        ...


AcceptCircuit: TypeAlias = "Callable[[CircuitAttach, CircuitLink], CircuitLinkEnd]"
"""Function that gives an end to a circuit that is to be accepted or refused, at once or later, by
`CircuitLink.accept` or `CircuitLink.refuse`."""


def tell_end(end: CircuitLinkEnd, event: CircuitEvent, *, again: bool) -> None:
    """Call an end with an event; `again`: whether the circuit may come back after a loss."""
    match event:
        case CircuitAttached(properties=properties):
            end.attached(properties)
        case CircuitRefused(condition, description):
            end.refused(condition, description)
        case CircuitFlow(credit, drain):
            end.flow(credit, drain)
        case CircuitDrained(credit):
            end.drained(credit)
        case CircuitTransfer(tag, payload, more, aborted, settled):
            end.transfer(tag, payload, more, aborted, settled)
        case CircuitDisposition(tag, state, settled):
            end.disposition(tag, state, settled)
        case CircuitDown(how, condition, description):
            end.down(how, condition, description, again)
        case _:
            end.unresolved(event.tag)
