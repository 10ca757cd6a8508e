"""Whether a node relays a message, and how the answer is called on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ._identities import Identity

__all__ = ["RelayPolicy", "RelayStatus"]


class RelayStatus(IntEnum):
    """The answer of a relay; the numbers and names are those of circuit relay v2 of libp2p.

    As text, its name.
    """

    def __str__(self) -> str:
        return self.name

    OK = 100
    """It relays, or has reserved."""
    RESERVATION_REFUSED = 200
    """It makes no reservation, as it has as many as it may, or the node asks too often."""
    RESOURCE_LIMIT_EXCEEDED = 201
    """A limit is used up: of the reservation, of a source, or of all that the relay holds."""
    PERMISSION_DENIED = 202
    """Its policy does not allow it."""
    CONNECTION_FAILED = 203
    """It has no link to the next node."""
    NO_RESERVATION = 204
    """The next node has made no reservation, or it is over."""
    MALFORMED_MESSAGE = 400
    """The request is no record of its kind."""
    UNEXPECTED_MESSAGE = 401
    """The request is none of the state, or a message asks for a carriage that there is not."""


@dataclass(frozen=True, slots=True)
class RelayPolicy:
    """The messages that a node relays. By default it relays none.

    A message is relayed if its source *or* its next node is allowed. A node that is banned is not
    asked for here: nothing of it comes so far.

    Attributes:
        sources: The nodes of which messages are relayed to any node.
        destinations: The nodes to which messages of any node are relayed.
        from_any: Whether messages of all nodes are relayed to any node: an open relay.
        to_reserved: Whether messages of any node are relayed to those with a reservation.
        exits: Whether the message of an engine may leave the layers here for another node, or an
            engine of it, if its sender asks for that and the rest allows it. Messages for this
            node and its engines need no permission.
    """

    sources: frozenset[Identity] = frozenset()
    destinations: frozenset[Identity] = frozenset()
    from_any: bool = False
    to_reserved: bool = False
    exits: bool = False

    def relays(self, source: Identity, following: Identity, *, is_reserved: bool) -> RelayStatus:
        """Return whether a message is relayed, as `OK` or the reason why not.

        Args:
            source: The node that has sent the layer; a key for one use in the anonymous profile.
            following: The next node.
            is_reserved: Whether the next node has a reservation.
        """
        if self.from_any or source in self.sources or following in self.destinations:
            return RelayStatus.OK
        if not self.to_reserved:
            return RelayStatus.PERMISSION_DENIED
        return RelayStatus.OK if is_reserved else RelayStatus.NO_RESERVATION

    def reserves(self, node: Identity) -> RelayStatus:
        """Return whether a node may make a reservation: if any message may be relayed to it.

        Args:
            node: The node that asks.
        """
        allowed = self.to_reserved or self.from_any or node in self.destinations
        return RelayStatus.OK if allowed else RelayStatus.PERMISSION_DENIED
