"""What an event log is told of what a node relays: nodes next to it and sizes, and no payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.eventlog import Kind, Outcome
from ....protocol.identity import RelayStatus, identity_text

if TYPE_CHECKING:
    from ..._node import Node
    from ._service import PassedOn

__all__ = ["RelayLog"]

_RELAY: Final = int(Kind.RELAY)
_FORWARD: Final = int(Outcome.FORWARD)
_REJECTED: Final = int(Outcome.REJECTED)


class RelayLog:
    """The record of what a node relays, in the flows of its event log, if it has one.

    Args:
        node: The node.
        anonymous: Whether the nodes that messages come from are left out.
    """

    __slots__ = ("_anonymous", "_node")

    def __init__(self, node: Node, *, anonymous: bool) -> None:
        self._node: Final = node
        self._anonymous: Final = anonymous

    def passed(self, seen: PassedOn) -> None:
        """Count what was passed on."""
        origin = "" if self._anonymous else identity_text(seen.previous)
        self._count(_FORWARD, origin, identity_text(seen.following), seen.size)

    def refused(self, status: RelayStatus) -> None:
        """Count a message that was not relayed."""
        self._count(_REJECTED, "", status.name.lower(), 0)

    def _count(self, outcome: int, origin: str, to: str, size: int) -> None:
        instruments = self._node.instruments
        # The part of an instrument for messages to names counts flows of any kind.
        part: Any = None if instruments is None else instruments.names
        if part is not None:
            part.count(_RELAY, outcome, origin, to, size)
