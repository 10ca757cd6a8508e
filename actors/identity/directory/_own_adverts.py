"""The adverts of a node and of its engines, as the node itself signs and tells them.

They are in its directory as well, so that it answers for itself as for any other identity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    MAX_ADVERT_ADDRESSES,
    MAX_ROUTE_TEXT,
    MAX_SKEW,
    MAX_WEIGHT,
    Advert,
    AdvertAddress,
    AdvertEnvelope,
    AdvertResponse,
    AdvertSource,
    ControlContent,
    Destination,
    DestinationKind,
    EngineAdvert,
    Identity,
    NodeAdvert,
    SigningKey,
    destination_text,
    read_advert,
    serialize_control,
    sign_advert,
)
from ..._errors import LimitReached
from .._engines import Engine

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["ADDRESS_WEIGHT", "RELAY_WEIGHT", "OwnAdverts"]

ADDRESS_WEIGHT: Final = 128
"""The weight of an address of a node, if none is given."""
RELAY_WEIGHT: Final = 64
"""The weight of an address by a relay that holds a place for the node."""


class OwnAdverts:
    """The adverts of a node and of its engines.

    Args:
        router: The router.
        key: The key of the node.

    Attributes:
        reserved: Returns the relays that hold a place for the node, for its addresses.
    """

    def __init__(self, router: Router, key: SigningKey) -> None:
        self.reserved: Callable[[], Iterable[Identity]] = tuple
        self._router: Final = router
        self._key: Final = key
        self._addresses: Final[dict[str, int]] = {}
        self._node: tuple[NodeAdvert, AdvertEnvelope] | None = None
        self._engines: Final[dict[Identity, AdvertEnvelope]] = {}
        # Versions that others know of this node and engines of it, and when one was heard last.
        self._above: Final[dict[Identity, int]] = {}
        self._heard_at = -_BETWEEN
        # How often engines have gone above an advert of theirs that says another node, and since
        # when, in seconds of the loop.
        self._raised: Final[dict[Identity, tuple[int, float]]] = {}
        self._is_stale = False

    def of_node(self) -> AdvertEnvelope:
        """Return the advert of the node, which is signed anew when what it says has changed."""
        addresses, kx = self._all_addresses(), self._router.sealing_keys.public
        if self._node is not None:
            told, envelope = self._node
            if (told.addresses, told.kx) == (addresses, kx) and not self._is_stale:
                return envelope
        self._is_stale = False
        own = self._router.own
        version, _ = self._age(own)
        # To the millisecond, as others tell by it when this node was started, at the latest.
        created = self._router.milliseconds()
        advert = NodeAdvert(own, addresses, kx, version, created)
        envelope = self._sign(advert, self._key)
        self._node = advert, envelope
        return envelope

    def sign_anew(self) -> None:
        """Sign each advert anew for its next use, as they are of a clock that was wrong."""
        self._is_stale = True
        self._engines.clear()

    def of_engine(self, engine: Engine) -> AdvertEnvelope:
        """Return the advert of an engine, which is signed once."""
        envelope = self._engines.get(engine.identity)
        if envelope is None:
            key, name = engine.key, None
            if key is None:
                key, name = self._key, engine.address.value
            age = self._age(engine.identity)
            advert = EngineAdvert(engine.identity, self._router.own, name, *age)
            envelope = self._engines[engine.identity] = self._sign(advert, key)
        return envelope

    def forget_engine(self, engine: Identity) -> None:
        """Forget the advert of an engine that has ended; others keep it until there is another."""
        self._engines.pop(engine, None)
        self._raised.pop(engine, None)

    def advertise(self, address: str, weight: int = ADDRESS_WEIGHT) -> None:
        """Add an address of the node, which others are told.

        Args:
            address: The URI or the route by which other nodes reach it.
            weight: From 0 to 255; the address with the greatest is tried first.

        Raises:
            ValueError: It is empty or too long, or there is no such weight.
            LimitReached: There are `MAX_ADVERT_ADDRESSES`.
        """
        if not 1 <= len(address.encode()) <= MAX_ROUTE_TEXT:
            raise ValueError(f"an address has 1 to {MAX_ROUTE_TEXT} bytes, not {address!r}")
        if not 0 <= weight <= MAX_WEIGHT:
            raise ValueError(f"a weight is from 0 to {MAX_WEIGHT}, not {weight}")
        if address not in self._addresses and len(self._addresses) >= MAX_ADVERT_ADDRESSES:
            raise LimitReached("addresses of a node", MAX_ADVERT_ADDRESSES)
        self._addresses[address] = weight
        self.changed()

    def withdraw(self, address: str) -> bool:
        """Remove an address of the node; return whether there was such."""
        known = self._addresses.pop(address, None) is not None
        if known:
            self.changed()
        return known

    def changed(self) -> None:
        """Send the advert of the node to all that there are links to, if it is another one."""
        before = self._node
        envelope = self.of_node()
        if before is None or envelope == before[1]:
            return  # nothing was told before, or there is nothing new to tell
        router = self._router
        content = ControlContent(serialize_control(AdvertResponse(router.own, (envelope,))))
        for session in tuple(router.peers.sessions.values()):
            router.outgoing.say(session.node, content)

    def heard(self, advert: Advert) -> None:
        """Make a newer advert, as others know one that this node has signed before it was started.

        That is so if it is started again within a second, or its clock has been set back. It does
        so once a second, as another node may have its key, and do the same.

        Args:
            advert: An advert of this node or of an engine of it, which is verified.
        """
        identity, now, router = advert.identity, self._router.loop_time(), self._router
        engine = router.engines.of(identity)
        mine = self.of_node() if engine is None else self.of_engine(engine)
        known = read_advert(mine).advert
        if advert.version < known.version or advert == known:
            return
        if now < self._heard_at + _BETWEEN:
            router.counts["newer adverts of this node, again within a second"] += 1
            return
        self._heard_at = now
        if engine is None:
            self._above[identity] = advert.version
            self._is_stale = True
            self.changed()
        else:
            self._renew(engine, advert.version)

    def heard_elsewhere(self, advert: EngineAdvert) -> None:
        """Make a newer advert of an engine, as others know one that says another node.

        That is so if it has moved here within a second, or the clock here is behind. It does so a
        few times, as the other node may have the engine as well, and do the same.

        Args:
            advert: An advert of an engine that is here, or was; it is verified.
        """
        identity, router = advert.identity, self._router
        engine = router.engines.of(identity)
        if engine is None:
            return
        ahead = advert.version - read_advert(self.of_engine(engine)).advert.version
        if not 0 <= ahead <= MAX_SKEW // 1000:
            return
        now = router.loop_time()
        raised, since = self._raised.get(identity, (0, now))
        if now - since >= _RAISED_TIME:
            raised, since = 0, now
        if raised >= _MOST_RAISED:
            router.counts["newer adverts of an engine here that say another node"] += 1
            return
        self._raised[identity] = raised + 1, since
        self._renew(engine, advert.version)

    def banned_no_longer(self, identity: Identity) -> None:
        """Make a newer advert of an engine here, as meanwhile it was said not to be here."""
        engine = self._router.engines.of(identity)
        if engine is not None:
            self._renew(engine, read_advert(self.of_engine(engine)).advert.version)

    def _renew(self, engine: Engine, above: int) -> None:
        """Make an advert of an engine that is above a version, and send it to all nodes."""
        self._above[engine.identity] = above
        self._engines.pop(engine.identity, None)
        self._router.greetings.tell((engine,))

    def _all_addresses(self) -> tuple[AdvertAddress, ...]:
        addresses = [AdvertAddress(*each) for each in self._addresses.items()]
        for relay in self.reserved():
            route = f"36#{destination_text(Destination(DestinationKind.RELAY, relay))}"
            if route not in self._addresses:
                addresses.append(AdvertAddress(route, RELAY_WEIGHT))
        return _heaviest(addresses)

    def _age(self, identity: Identity) -> tuple[int, int]:
        """Return the version and the time of a new advert.

        The version is the time in seconds: that of an engine that has moved is greater. It is above
        that of any other which is known, too. The time is in whole seconds as well, so that a node
        which is started again at once says the same of an engine.
        """
        now = self._router.milliseconds() // 1000
        record = self._router.directory.peek(identity)
        known = self._above.pop(identity, -1)
        if record is not None and record.advert is not None:
            known = max(known, read_advert(record.advert).advert.version)
        return max(now, known + 1), now * 1000

    def _sign(self, advert: Advert, key: SigningKey) -> AdvertEnvelope:
        envelope = sign_advert(advert, key)
        self._router.directory.put(envelope, AdvertSource.LOCAL)
        return envelope


def _heaviest(addresses: Sequence[AdvertAddress]) -> tuple[AdvertAddress, ...]:
    """Return as many addresses as an advert may have, those first that are tried first."""
    by_weight = sorted(addresses, key=lambda each: each.weight, reverse=True)
    return tuple(by_weight[:MAX_ADVERT_ADDRESSES])


_BETWEEN: Final = 1.0
"""Least time between two adverts that are made as others know a newer one, in seconds."""
_MOST_RAISED: Final = 3
"""Most times that an engine goes above an advert of its own that says another node, at most
`MAX_SKEW` ahead, in `_RAISED_TIME`. Beyond: counted, and the engine is looked for at that node."""
_RAISED_TIME: Final = 600.0
"""Time from the first of these after which they are counted anew, in seconds."""
