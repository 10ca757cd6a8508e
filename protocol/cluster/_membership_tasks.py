"""What a membership asks for, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ._info import PeerInfo
from ._links import LinkRefusal, LinkRole

__all__ = [
    "Compare",
    "Dial",
    "KnownBroker",
    "Linked",
    "MembershipStatistics",
    "MembershipTask",
    "Tell",
]


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to an address; `Membership.connected` or `failed` has to be called at the end.

    Attributes:
        uri: The address.
    """

    uri: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Send a BROKER_INFO to a peer broker, by `REMOTE_BROKER_INFO_ROUTE`.

    Attributes:
        to: The peer broker's id.
        info: The broker to tell of.
    """

    to: bytes
    info: PeerInfo


@dataclass(frozen=True, slots=True)
class Compare:
    """Ask a peer broker by `BROKERS_ROUTE`, and give the answer to `Membership.compared`.

    Attributes:
        to: The peer broker's id.
        digest: The data of the request.
    """

    to: bytes
    digest: bytes


MembershipTask: TypeAlias = Dial | Tell | Compare
"""What a broker has to do for its cluster."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A link that is kept.

    Attributes:
        replaces: The link that it replaces, and that has to be closed. It is to the same broker, or
            of two links to another zone the one to the broker that is less suited.
        role: What it is for.
    """

    replaces: Any | None = None
    role: LinkRole = LinkRole.MESH


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """A broker that is known, as an operator is shown it.

    Attributes:
        info: The facts.
        linked: Whether there is a link.
        dialled: Whether this broker has dialled it.
        reported_by: Id of the peer broker that named it last; `None` if none did.
        failures: Number of attempts that have failed since the last success.
        cause: The reason of the last failure; empty if there was none.
        dials_at: When it is dialled next; `None` if that is not to be.
    """

    info: PeerInfo
    linked: bool
    dialled: bool
    reported_by: bytes | None
    failures: int
    cause: str
    dials_at: float | None


@dataclass(frozen=True, slots=True)
class MembershipStatistics:
    """A membership at one moment.

    Attributes:
        links: Number of links with brokers of its zone.
        to_zones: Number of links with brokers of other zones that it has dialled.
        from_zones: Number of links with brokers of other zones that those have dialled.
        known: Number of brokers that are known, this one not included.
        dialling: Number of attempts under way.
        told: Number of BROKER_INFO frames to tell since the start.
        ignored: Number of unknown brokers that were not remembered, because of `max_known`.
        refused: Number of links that were refused, by the reason.
    """

    links: int
    to_zones: int
    from_zones: int
    known: int
    dialling: int
    told: int
    ignored: int
    refused: Mapping[LinkRefusal, int]
