"""What a node knows of identities, what it tells of itself, and which it refuses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from ...actors import LimitReached
from ...actors.identity import ADDRESS_WEIGHT, LookupStep
from ...protocol.identity import (
    TRUST_BANNED,
    TRUST_DEFAULT,
    AdvertEnvelope,
    AdvertSource,
    DirectoryLimits,
    Identity,
    IdentityRecord,
    PutOutcome,
    ResultCode,
)
from ._own_identity import OwnIdentity

__all__ = ["DirectoryCalls"]


class DirectoryCalls(OwnIdentity):
    """A node that knows, advertises and bans identities; see `Identities`."""

    def advertise(self, address: str, weight: int = ADDRESS_WEIGHT) -> None:
        """Add an address of the node, which other nodes are told, and tell on to those that ask.

        Args:
            address: The URI of a listener that exposes `ROUTER`, as others reach it.
            weight: From 0 to 255; the address with the greatest is tried first.

        Raises:
            ValueError: It is empty or too long, or there is no such weight.
            LimitReached: There are `MAX_ADVERT_ADDRESSES`.
        """
        self._router.own_adverts.advertise(address, weight)

    def withdraw(self, address: str) -> bool:
        """Remove an address of the node; return whether there was such."""
        return self._router.own_adverts.withdraw(address)

    async def lookup(self, identity: Identity) -> IdentityRecord | None:
        """Return what is known of an identity; if this node has no advert of it, others are asked.

        Args:
            identity: The identity.

        Returns:
            Its record; without an advert or `None` if no node has one, or none has answered within
            five seconds, or a moment ago none had.
        """
        record = self.directory.lookup(identity)
        if record is None or record.advert is None:
            ended = self._router.lookups.lookup(identity)
            if ended is not None:
                await asyncio.shield(ended)
            record = self.directory.lookup(identity)
        return record

    def watch_lookups(self, on_step: Callable[[LookupStep], object]) -> Callable[[], None]:
        """Call a function for each node that is asked in a look-up, and for each answer of use.

        A node that is asked learns that this one looks for the identity.

        Args:
            on_step: Receives each. It neither waits nor raises.

        Returns:
            A function that ends it.
        """
        watchers = self._router.lookups.on_step
        watchers.append(on_step)
        return lambda: watchers.remove(on_step)

    def put_advert(self, envelope: AdvertEnvelope) -> PutOutcome:
        """Put an advert into the directory, which counts as used by this node.

        Args:
            envelope: The advert; it is verified here.
        """
        return self.directory.put(envelope, AdvertSource.LOCAL)

    def ban(self, identity: Identity) -> None:
        """Refuse all messages from an identity and to it, and end the link to it, if it is a node.

        Requests that wait for it raise `LinkLost`. It says nothing to the other node. The directory
        remembers it, as a trust of 0.

        Raises:
            LimitReached: It is banned until the node ends, as the directory has no place for it.
        """
        self._router.standing.ban(identity)
        if self.directory.set_trust(identity, TRUST_BANNED) is not ResultCode.OK:
            raise LimitReached("identities that the directory holds", DirectoryLimits().max_known)

    def unban(self, identity: Identity) -> None:
        """Accept messages of an identity again, with the trust of any. A node has to join anew."""
        self.directory.set_trust(identity, TRUST_DEFAULT)
        self._router.standing.unban(identity)

    def refused(self) -> dict[str, int]:
        """Return what was refused or dropped since the start, by its reason."""
        forgotten = self._topics.table.counters.forgotten
        counts = Counter({"publications that were forgotten, so they may come again": forgotten})
        return dict(self._router.counts + self._router.peers.counts + counts)
