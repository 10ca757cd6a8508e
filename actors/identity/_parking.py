"""The messages that wait until it is known where an identity is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...protocol import IDENTITY, Address, Message, counted
from ...protocol.identity import (
    Destination,
    DestinationKind,
    Identity,
    Reliability,
    Target,
    ToPeer,
)
from .._errors import Unresolved
from ..routing._pending import Pending

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["Awaited", "Parking"]


class Parking:
    """The messages that wait, by the identity that they wait for and the one that sends them.

    Args:
        limit: Most messages that wait for one identity.
    """

    __slots__ = ("_limit", "_parked")

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._parked: Final[dict[Identity, dict[Identity, Pending]]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def __iter__(self) -> Iterator[Identity]:
        return iter(tuple(self._parked))

    def __contains__(self, identity: object) -> bool:
        return identity in self._parked

    def count(self, identity: Identity) -> int:
        """Return how many messages wait for an identity."""
        return sum(map(len, self._parked.get(identity, {}).values()))

    def park(self, identity: Identity, own: Identity) -> Pending | None:
        """Return what a message waits for; `None` if as many wait as may.

        Args:
            identity: The identity that more has to be known of.
            own: The identity that the message is of.
        """
        if identity not in self._parked:
            # Those without a message are left behind by messages that have been given up.
            for each in self:
                if not self.count(each):
                    del self._parked[each]
        elif self.count(identity) >= self._limit:
            return None
        return self._parked.setdefault(identity, {}).setdefault(own, Pending())

    def resume(self, identity: Identity) -> None:
        """Resolve again what waits for an identity."""
        for pending in self._parked.pop(identity, {}).values():
            pending.resume()

    def refuse(self, identity: Identity, reason: str) -> None:
        """Refuse what waits for an identity."""
        for pending in self._parked.pop(identity, {}).values():
            pending.refuse(reason)

    def end(self, own: Identity) -> None:
        """Refuse what an identity of this node has sent, as it is no more."""
        for of in self._parked.values():
            pending = of.pop(own, None)
            if pending is not None:
                pending.refuse("the engine that has sent it has ended")

    def close(self) -> None:
        """Refuse all that waits."""
        for identity in self:
            self.refuse(identity, "the node ends")


class Awaited:
    """The identities that messages wait for, until more is known of them.

    Each is dialled or looked up meanwhile. What waits is resolved again once more is known.

    Args:
        router: The router.
        limit: Most messages that wait for one identity.
    """

    __slots__ = ("_limit", "_parked", "_router")

    def __init__(self, router: Router, limit: int) -> None:
        self._router: Final = router
        self._limit: Final = limit
        self._parked: Final = Parking(limit)

    def __iter__(self) -> Iterator[Identity]:
        return iter(self._parked)

    def __contains__(self, identity: object) -> bool:
        return identity in self._parked

    @property
    def messages(self) -> int:
        """The number of messages that wait."""
        return sum(map(self._parked.count, self._parked))

    def park(self, identity: Identity, message: Message, target: Target) -> Pending:
        """Return what a message waits for, until more is known of an identity.

        Raises:
            Unresolved: As many wait for it as may, the message does not wait, or it is for another
                kind of identity than that one is known to be.
        """
        to = message[0][0]
        self._check_kind(to, identity, target.destination)
        if target.tprefs is not None and target.tprefs.reliability is Reliability.UNRELIABLE:
            raise Unresolved(to, "no way to it is known, and the message is not to wait")
        pending = self._parked.park(identity, self._router.own_of(message[3]))
        if pending is None:
            raise Unresolved(to, f"{counted(self._limit, 'message')} wait for it already")
        reason = self.want(identity)
        if reason is not None:
            raise Unresolved(to, reason)
        return pending

    def _check_kind(self, to: Address, identity: Identity, destination: Destination) -> None:
        """Check that an identity, if it is that of a destination, is not known as another kind.

        Raises:
            Unresolved: It is, so there is nothing to wait for.
        """
        if identity != destination.identity:
            return
        router = self._router
        kind, record = None, router.directory.peek(identity)
        if identity == router.own:
            kind = DestinationKind.NODE
        elif router.engines.of(identity) is not None:
            kind = DestinationKind.ENGINE
        elif record is not None and record.advert is not None:
            kind = DestinationKind(record.advert.kind)
        asked = destination.kind
        if asked is DestinationKind.RELAY:
            asked = DestinationKind.NODE
        if kind is not None and kind is not asked:
            word = kind.name.lower()
            article = "an" if kind is DestinationKind.ENGINE else "a"
            raise Unresolved(to, f"it is {article} {word}: write {IDENTITY}#{word}:…")

    def want(self, identity: Identity) -> str | None:
        """Dial a node that messages wait for, or look up an identity; return why not."""
        router = self._router
        if router.dialling.is_dialable(identity):
            return router.dialling.dial(identity)
        return router.lookups.wanted(identity)

    def want_all(self) -> None:
        """Dial or look up all that messages wait for, as there is one more node to ask."""
        for identity in self:
            self.want(identity)

    def found(self, identity: Identity) -> None:
        """Resolve again what waits for an identity, as more is known of it."""
        self._router.lookups.found(identity)
        self._parked.resume(identity)

    def found_at(self, node: Identity) -> None:
        """Resolve again what waits for a node, and for engines at it."""
        for identity in self:
            decision = self._router.decide(Destination(DestinationKind.ENGINE, identity))
            if identity == node or isinstance(decision, ToPeer):
                self.found(identity)

    def not_found(self, identity: Identity, reason: str) -> None:
        """Refuse what waits for an identity."""
        self._parked.refuse(identity, reason)

    def end(self, own: Identity) -> None:
        """Refuse what an identity of this node has sent, as it is no more."""
        self._parked.end(own)

    def close(self) -> None:
        """Refuse all that waits."""
        self._parked.close()
