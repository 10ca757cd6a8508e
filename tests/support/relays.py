"""Nodes with identities that know each other's adverts, and what their relays see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from onward.actors import Node
from onward.actors.identity import IdentityOptions, Relays
from onward.actors.identity.links._session import Session
from onward.protocol.identity import (
    AdvertAddress,
    AdvertEnvelope,
    AdvertSource,
    EngineAdvert,
    Identity,
    IdentityError,
    NodeAdvert,
    P2PMessage,
    RelayLoadLimits,
    RelayPolicy,
    ReservationLimits,
    SigningKey,
    identity_text,
    parse_p2p_message,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import NOW, joined, key_of

__all__ = [
    "OPEN",
    "Member",
    "Tap",
    "advert_of",
    "chain",
    "introduce",
    "member",
    "relay_text",
    "tell_engine",
]

OPEN = RelayPolicy(from_any=True)
"""The policy of an open relay."""


@dataclass(eq=False)
class Tap:
    """What a router has received from other nodes, in the clear of its links.

    Attributes:
        seen: The node that each record came from, the record, and what it says.
        change: Returns the records to give to the router in place of one; by default itself.
    """

    seen: list[tuple[Identity, bytes, P2PMessage]] = field(default_factory=list)
    change: Callable[[Identity, bytes], list[bytes]] = lambda _, record: [record]


@dataclass(eq=False)
class Member:
    """A node with an identity.

    Attributes:
        node: The node.
        identities: Its identities.
        tap: What its router has received.
    """

    node: Node
    identities: Identities
    tap: Tap

    @property
    def own(self) -> Identity:
        return self.identities.own

    @property
    def relays(self) -> Relays:
        return self.identities._relays

    @property
    def key(self) -> SigningKey:
        return key_of(self.node.name)


async def member(
    node: Node,
    *expose: str,
    relay: RelayPolicy | None = None,
    relay_limits: RelayLoadLimits | None = None,
    reservation_limits: ReservationLimits | None = None,
    ahead: float = 0.0,
    **options: float | tuple[str, ...],
) -> Member:
    """Give a node an identity, with a tap at its router.

    Its clock is `ahead` of those of others, in seconds.
    """
    loop = node.loop
    identities = await Identities.attach(
        node,
        key_of(node.name),
        IdentityOptions(**options),  # type: ignore[arg-type]
        expose=expose,
        clock=lambda: NOW + ahead + loop.time(),
        relay=relay,
        relay_limits=relay_limits,
        reservation_limits=reservation_limits,
    )
    made = Member(node, identities, Tap())
    router = identities._router
    receive = router.received

    def received(session: Session, record: bytes) -> None:
        for each in made.tap.change(session.node, record):
            with suppress(IdentityError):
                made.tap.seen.append((session.node, each, parse_p2p_message(each)))
            receive(session, each)

    router.received = received  # type: ignore[method-assign]
    return made


def advert_of(of: Member, *addresses: str, version: int = 1) -> AdvertEnvelope:
    """Return the advert of a node, with the key that is sealed to."""
    given = tuple(AdvertAddress(each, 1) for each in addresses)
    created = of.identities._router.milliseconds()
    advert = NodeAdvert(of.own, given, of.identities.sealing_key, version, created)
    return sign_advert(advert, of.key)


def introduce(*members: Member) -> None:
    """Put the advert of each node into the directories of the others."""
    for one in members:
        for other in members:
            if one is not other:
                one.identities.directory.put(advert_of(other), AdvertSource.LOCAL)


def tell_engine(to: Member, engine: Identity, at: Member, name: str, version: int = 1) -> None:
    """Put the advert of an engine without a key into a directory."""
    created = to.identities._router.milliseconds()
    advert = EngineAdvert(engine, at.own, name.encode(), version, created)
    to.identities.directory.put(sign_advert(advert, at.key), AdvertSource.LOCAL)


async def chain(*members: Member) -> None:
    """Join each node to the next one."""
    for one, following in pairwise(members):
        await joined((one.node, one.identities), following.node)


def relay_text(*relays: Member) -> str:
    """Return the addresses of relays, as text."""
    return " => ".join(f"36#relay:{identity_text(each.own)}" for each in relays)
