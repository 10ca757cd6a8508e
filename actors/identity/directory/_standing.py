"""The standing of identities with a node: which it bans, and how it carries messages to others.

The directory remembers both, beside the adverts. When it changes, the router follows: what is
banned is refused from then on, and what waited, or was remembered, is resolved anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    TRUST_BANNED,
    AtNode,
    Destination,
    DestinationKind,
    Identity,
    IdentityUpdated,
    Target,
)
from ._service import DirectoryService

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["Standing"]


class Standing:
    """The standing of identities with the node of a router.

    Args:
        router: The router. What the directory says is banned is so in its table from the start.
        directory: The directory.
    """

    __slots__ = ("_banned", "_directory", "_router", "_wished")

    def __init__(self, router: Router, directory: DirectoryService) -> None:
        self._router: Final = router
        self._directory: Final = directory
        # What the directory says is banned. Others may be banned here alone.
        self._banned: Final = set(directory.directory.banned())
        # The identities of which the directory says how messages to them are carried.
        self._wished: Final = set[Identity]()
        for identity in self._banned:
            router.table.update(Destination(DestinationKind.NODE, identity), None, TRUST_BANNED)
        directory.on_update.append(self._updated)
        directory.on_lost.append(self._updates_lost)

    def with_wishes(self, target: Target) -> Target:
        """Return a target with what the directory says of its carriage, if it says nothing.

        Behind a relay the destination says it.
        """
        if target.tprefs is None and target.destination.kind is not DestinationKind.RELAY:
            record = self._directory.peek(target.destination.identity)
            if record is not None and record.local.tprefs is not None:
                self._wished.add(record.identity)
                return replace(target, tprefs=record.local.tprefs)
        return target

    def ban(self, identity: Identity) -> None:
        """Refuse all of an identity, and end its session and the requests to it."""
        router, kind = self._router, DestinationKind.NODE
        if isinstance(router.table.route(Destination(DestinationKind.ENGINE, identity)), AtNode):
            kind = DestinationKind.ENGINE
        # First the session: its end finds the engines at the node by the routes that are purged.
        router.peers.disconnect(identity, "it is banned")
        router.table.update(Destination(kind, identity), None, TRUST_BANNED)
        router.links.way_lost(identity, "the identity is banned")
        for part in router.parts:
            part.banned(identity)

    def unban(self, identity: Identity) -> None:
        """Accept messages of an identity again; a node has to join anew."""
        router = self._router
        router.table.update(Destination(DestinationKind.NODE, identity), None)
        router.own_adverts.banned_no_longer(identity)
        router.awaited.found(identity)
        router.lookups.ask(identity)  # what was told of it meanwhile was refused

    def _updated(self, update: IdentityUpdated) -> None:
        """Ban what has no trust any more, and no longer what has some again; follow adverts."""
        router, identity = self._router, update.identity
        if update.record is not None and update.record.is_banned:
            self._banned.add(identity)
            if not router.table.is_banned(identity):
                self.ban(identity)
        elif identity in self._banned:
            # One that was banned here alone stays so, whatever adverts of it are put.
            self._banned.remove(identity)
            if router.table.is_banned(identity):
                self.unban(identity)
        router.heard_adverts.follow(update)
        wishes = update.record is not None and update.record.local.tprefs is not None
        if wishes or identity in self._wished:
            self._wished.discard(identity)
            router.links.forget(identity)  # it is carried otherwise now
        if update.record is not None:
            router.dialling.advert_changed(identity)
            router.awaited.found(identity)

    def _updates_lost(self, _: int) -> None:
        """Look up all routes anew, and all that waits."""
        router = self._router
        router.heard_adverts.follow_all()
        for identity in router.links.identities():
            router.links.forget(identity)
        for identity in router.awaited:
            router.awaited.found(identity)
