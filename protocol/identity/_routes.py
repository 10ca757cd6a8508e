"""The routes that a node knows, and the decisions about a message: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..options import Count, check_options
from ._identities import Destination, Identity
from ._preferences import RoutingScope

__all__ = [
    "AtNode",
    "DeliverLocally",
    "Dialable",
    "Disconnect",
    "FanOut",
    "HasMembers",
    "LookUp",
    "RefusalReason",
    "Refuse",
    "RemoteRoute",
    "RouteChanged",
    "RoutingDecision",
    "RoutingEvent",
    "RoutingLimits",
    "ToDomain",
    "ToPeer",
    "ViaNode",
    "ViaRelay",
]


@dataclass(frozen=True, slots=True)
class RoutingLimits:
    """Limits of a routing table.

    Attributes:
        engines: Identities of engines of this node. One more is refused.
        topics: Topics of this node. One more is refused.
        links: Nodes that a link joins. The link of one more is refused.
        remote: Routes to what is elsewhere. Beyond: the one that was used longest ago is let go,
            and counted; the next message there asks the directory again.
        banned: Identities that are remembered as banned. Beyond: the oldest is let go, and
            counted; the directory still says that it is banned.
    """

    engines: Count = 65_536
    topics: Count = 4096
    links: Count = 4096
    remote: Count = 65_536
    banned: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)


class AtNode(NamedTuple):
    """The route to an engine that is at another node, or to a topic that another node publishes.

    Attributes:
        node: The node.
    """

    node: Identity


class Dialable(NamedTuple):
    """The route to a node that a link can be opened to."""


class ViaNode(NamedTuple):
    """The route to a node through a relay.

    Attributes:
        relay: The node that relays.
    """

    relay: Identity


class HasMembers(NamedTuple):
    """The route to a domain.

    Attributes:
        nodes: Its nodes, as its advert says.
    """

    nodes: frozenset[Identity]


RemoteRoute = AtNode | Dialable | ViaNode | HasMembers
"""A route to what is elsewhere."""


class RefusalReason(Enum):
    """The reason why a message goes nowhere."""

    BANNED = "banned"
    """Its source, its destination, the peer or a node on the way has no trust."""
    CONTROL = "control"
    """It comes from the network, and is a request that only engines of this node may make."""
    LOOP = "loop"
    """Its relay would be this node, or is itself reached by a relay."""
    NOT_HERE = "not-here"
    """It comes from the network, for what is not at this node. It is not passed on."""
    SCOPE = "scope"
    """Its destination is beyond its scope, or it comes from the network with that of one node."""
    UNKNOWN = "unknown"
    """There is no such topic or engine, though it would have to be here."""


class DeliverLocally(NamedTuple):
    """A decision for an engine of this node.

    Attributes:
        worker: The name of its worker; `None` for the node itself: the rest of the route says more.
    """

    worker: bytes | None


class ToPeer(NamedTuple):
    """A decision for another node.

    Attributes:
        node: The node.
        link: The number of the link to it; `None` if one has to be opened.
    """

    node: Identity
    link: int | None


class FanOut(NamedTuple):
    """A decision for the subscribers of a topic.

    Attributes:
        topic: The topic.
        scope: The nodes that copies may go to; `SCOPE_LOCAL` for this one alone.
    """

    topic: Identity
    scope: RoutingScope


class ViaRelay(NamedTuple):
    """A decision for a relay.

    Attributes:
        relay: The node that relays.
        link: The number of the link to it; `None` if one has to be opened.
        node: The node behind it; `None` if the rest of the route says that.
    """

    relay: Identity
    link: int | None
    node: Identity | None


class ToDomain(NamedTuple):
    """A decision for one of the members of a domain.

    Attributes:
        domain: The domain.
    """

    domain: Identity


class LookUp(NamedTuple):
    """A decision to ask the directory and to decide again with its answer.

    Attributes:
        destination: What is not known: the destination of the message, or a node or a domain that
            the way there depends on.
    """

    destination: Destination


class Refuse(NamedTuple):
    """A decision to drop a message.

    Attributes:
        reason: Why.
    """

    reason: RefusalReason


RoutingDecision = DeliverLocally | ToPeer | FanOut | ViaRelay | ToDomain | LookUp | Refuse
"""The decision about one message."""


class Disconnect(NamedTuple):
    """A link has to be closed, as its node has no trust.

    Attributes:
        node: The node.
        link: The number of the link.
    """

    node: Identity
    link: int


class RouteChanged(NamedTuple):
    """A route is another than before, or gone: messages that wait for it are decided again.

    Attributes:
        destination: What it is to.
    """

    destination: Destination


RoutingEvent = Disconnect | RouteChanged
"""An effect of a change of a routing table."""
