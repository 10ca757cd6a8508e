"""Links between two brokers: why one is refused, and which of two stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final

from ..broker import format_id
from ._info import PeerInfo

__all__ = ["LinkRefusal", "LinkRefused", "LinkRole"]


class LinkRole(StrEnum):
    """The role of a link, as one of its two brokers sees it. As a value, the text for people."""

    MESH = "mesh"
    """Between brokers of one zone, which know each other's routes."""
    TO_ZONE = "to zone"
    """A gateway link that this broker has dialled: it learns the groups of the other zone by it,
    and sends requests over it."""
    FROM_ZONE = "from zone"
    """A gateway link that the other broker has dialled: requests of its zone come by it."""


class LinkRefusal(Enum):
    """The reason for which a link is refused. As a value, the text for the other broker."""

    SELF = "this is a link of a broker to itself"
    OWN_ID = "both brokers have the same id"
    TWIN = "another broker with the same id has a link"
    DUPLICATE = "there is another link between the two brokers"
    VERSION = "the protocol between brokers has another version here"
    ZONE = "the brokers are of different zones"
    GATEWAY = "this broker has another link to that zone"
    PAUSED = "a bad frame came before, and the pause is not over"
    FULL = "this broker has as many links as it may"

    @property
    def is_mistake(self) -> bool:
        """Whether an operator has to change something."""
        return self in (self.OWN_ID, self.TWIN, self.VERSION, self.ZONE)

    @property
    def is_lasting(self) -> bool:
        """Whether the next attempt is refused as well, until another broker is at the address."""
        return self in (self.OWN_ID, self.VERSION, self.ZONE)


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """A link that is refused.

    Attributes:
        reason: Why.
        info: The facts of the other broker.
    """

    reason: LinkRefusal
    info: PeerInfo

    def __str__(self) -> str:
        return f"broker {format_id(self.info.broker_id)}: {self.reason.value}"


NOTHING_HEARD: Final = bytes(32)
"""In place of a hash: no list was answered yet."""


@dataclass(slots=True)
class PeerLink:
    """A link as the membership keeps it.

    Attributes:
        link: Whatever the caller knows it by.
        info: The facts of the other broker.
        dialled: The address that this broker has dialled; `None` if the other one has.
        made_at: When it was made, in seconds of the caller's clock.
        compare_at: When the lists of brokers are compared next.
        role: What it is for.
        heard: Of a link to another zone: the hash of the list of brokers that was answered last.
        listed: The ids in that list.
        told: The timestamp up to which the other broker knows of each broker.
    """

    link: Any
    info: PeerInfo
    dialled: str | None
    made_at: float
    compare_at: float
    role: LinkRole = LinkRole.MESH
    heard: bytes = NOTHING_HEARD
    listed: tuple[bytes, ...] = ()
    told: dict[bytes, int] = field(default_factory=dict[bytes, int])


def role_of(info: PeerInfo, own: PeerInfo, *, dialled: bool) -> LinkRole | None:
    """Return the role of a link; `None` if the zones of its brokers are not to be joined.

    Zones are joined by their names: a broker without a zone has links with such brokers only.
    Another implementation knows no zones.
    """
    if not info.version or info.zone == own.zone:
        return LinkRole.MESH
    if not info.zone or not own.zone:
        return None
    return LinkRole.TO_ZONE if dialled else LinkRole.FROM_ZONE


def preferred(new: PeerLink, old: PeerLink, own_id: bytes) -> bool:
    """Whether a new link to the same broker replaces the old one.

    Both brokers decide alike: the link stays that the smaller id has dialled, and of two that one
    broker has dialled the newer, since it only dials if it takes the old one for lost. Another
    implementation does not decide so: the link that is there stays.
    """
    if not new.info.version:
        return False
    if (new.dialled is None) is (old.dialled is None):
        return True
    this_is_smaller = own_id < new.info.broker_id
    return this_is_smaller is (new.dialled is not None)
