"""The identity of a node, with what all its uses are built on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...actors.identity import DirectoryService, Engine, Relays, RouterWorker
from ...protocol import IDENTITY, Address, AddressLike, address as as_address
from ...protocol.identity import (
    Destination,
    DestinationKind,
    Identity,
    SigningKey,
    destination_text,
)

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["OwnIdentity"]


class OwnIdentity:
    """The identity of a node and of its engines; see `Identities`."""

    def __init__(self, worker: RouterWorker) -> None:
        self._worker: Final = worker
        self._router: Final = worker.router
        self._domains: Final = worker.domains
        self._topics: Final = worker.topics
        self._relays: Relays

    @property
    def own(self) -> Identity:
        """The identity of the node."""
        return self._router.own

    @property
    def node(self) -> Node:
        """The node."""
        return self._worker.node

    @property
    def directory(self) -> DirectoryService:
        """The directory: all that the node knows of identities."""
        return self._router.directory

    def engine(self, worker: AddressLike, key: SigningKey | None = None) -> Identity:
        """Make a worker of the node an engine, until it ends, and return its identity.

        Other identities may send to it from now on.

        Args:
            worker: Its address.
            key: A key of its own; without, the node signs for it.

        Raises:
            UnknownAddress: There is no such worker.
            EngineInUse: It is an engine already, or another one has this key.
            LimitReached: There are `IdentityOptions.max_engines`.
        """
        return self._router.add_engine(as_address(worker), key).identity

    def address_of(self, identity: Identity) -> Address:
        """Return the address of an identity: `36#node:…` for this node, or `36#engine:…`."""
        node = identity == self.own
        kind = DestinationKind.NODE if node else DestinationKind.ENGINE
        return Address(IDENTITY, destination_text(Destination(kind, identity)).encode())

    def _engine_at(self, worker: AddressLike) -> Engine:
        address = as_address(worker)
        found = self._router.engines.at(address)
        return self._router.add_engine(address, None) if found is None else found
