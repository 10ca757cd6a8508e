"""The links between identities of a node and identities elsewhere, and what is resolved to them.

A link is made for what is sent here, or for what has come from another node. That node could make
idle links of others end, by messages of ever new engines; so it has a share of them, and beyond it
its own link that was used longest ago makes room.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol as Interface, TypeAlias

from ...protocol import Address, Message, Route
from ...protocol.identity import Identity

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Correspondence", "Correspondences"]

Pair: TypeAlias = tuple[Identity, Identity]
"""An identity of this node and one elsewhere."""

_MAX_VALUES: Final = 64
"""Most addresses that are remembered of one identity, for all engines that send to it. Others are
resolved each time."""


class Correspondence(Interface):
    """The link between an identity of this node and one elsewhere, as the router sees it."""

    def receive(self, message: Message) -> None:
        """Deliver a message that the router has verified."""

    def receive_answer(self, message: Message) -> None:
        """Deliver the one answer of a domain to what was sent there by this link."""

    def receive_copy(self, message: Message) -> bool:
        """Deliver a copy of a publication; return false if its mailbox has no room."""
        ...

    def is_waiting(self) -> bool:
        """Whether a request that was sent to the other end waits for its answer."""
        ...

    def way_lost(self, detail: str) -> None:
        """End the requests that were sent to the other end, as the way to it is lost."""


class Correspondences:
    """The links between identities of a node and others, by both.

    Args:
        node: The node.
        limit: Most links. Beyond: the one that was used longest ago ends, and is counted.
        share: Most links for what one node has sent. Beyond: the one of these that was used longest
            ago ends, and is counted.
        counts: The counts of the router.

    Attributes:
        open: Starts the link of a pair, and returns it and its address.
    """

    __slots__ = (
        "_counts",
        "_limit",
        "_links",
        "_links_of",
        "_node",
        "_of",
        "_owners",
        "_routes",
        "_routes_of",
        "_share",
        "_sources",
        "_values",
        "open",
    )

    def __init__(self, node: Node, limit: int, share: int, counts: Counter[str]) -> None:
        self.open: Callable[[Identity, Identity], tuple[Correspondence, Address]]
        self._node: Final = node
        self._limit: Final = limit
        self._share: Final = share
        self._counts: Final = counts
        self._links: Final[OrderedDict[Pair, tuple[Correspondence, Address]]] = OrderedDict()
        # The pairs that an identity is in, at either end.
        self._of: Final[dict[Identity, dict[Pair, None]]] = {}
        # The links for what a node has sent, the one used longest ago first, and that node.
        self._links_of: Final[dict[Identity, OrderedDict[Pair, None]]] = {}
        self._sources: Final[dict[Pair, Identity]] = {}
        # What an address is replaced by, for what the node sends and for each engine, and the
        # addresses of each identity.
        self._routes: Final[dict[bytes, Route]] = {}
        self._routes_of: Final[dict[Address, dict[bytes, Route]]] = {}
        self._values: Final[dict[Identity, dict[tuple[Address | None, bytes], None]]] = {}
        self._owners: Final[dict[tuple[Address | None, bytes], Identity]] = {}

    # --- what is resolved -------------------------------------------------------------------

    def add_engine(self, worker: Address) -> None:
        """Resolve for a worker by itself from now on, as it signs what it sends."""
        self._routes_of[worker] = {}

    def remove_engine(self, worker: Address) -> None:
        """Resolve for a worker as for the node."""
        for value in self._routes_of.pop(worker, ()):
            identity = self._owners.pop((worker, value))
            values = self._values[identity]
            del values[worker, value]
            if not values:
                del self._values[identity]

    def find(self, sender: Address | None, value: bytes) -> Route | None:
        """Return what replaces an address in a message of a worker. Safe from any thread."""
        routes = self._routes if sender is None else self._routes_of.get(sender, self._routes)
        return routes.get(value)

    def remember(
        self, identity: Identity, sender: Address | None, value: bytes, *route: Address
    ) -> Route:
        """Remember what replaces an address in messages of a worker, and return it."""
        worker = sender if sender in self._routes_of else None
        values = self._values.setdefault(identity, {})
        # Upper case and spaces are other values of one destination; those in use are few.
        if len(values) < _MAX_VALUES:
            values[worker, value] = None
            self._owners[worker, value] = identity
            routes = self._routes if worker is None else self._routes_of[worker]
            routes[value] = route
        return route

    def forget(self, identity: Identity) -> None:
        """Forget what the addresses of an identity are replaced by."""
        for worker, value in self._values.pop(identity, ()):
            del self._owners[worker, value]
            routes = self._routes if worker is None else self._routes_of[worker]
            del routes[value]

    # --- links ------------------------------------------------------------------------------

    def identities(self) -> Iterable[Identity]:
        """Return the identities elsewhere that there are links to."""
        return {identity for _, identity in self._links}

    def get(self, pair: Pair, source: Identity | None = None) -> tuple[Correspondence, Address]:
        """Return the link of a pair, and its address; start it if there is none.

        Args:
            pair: The two identities.
            source: The node that has sent what it is for; `None` for what is sent from here.
        """
        found = self._links.get(pair)
        if found is not None and self._node.has(found[1]):
            self.use(pair)
            return found
        if found is not None:
            self._end(pair)  # it has been stopped by its address
        self._make_room(source)
        found = self._links[pair] = self.open(*pair)
        for each in {*pair}:
            self._of.setdefault(each, {})[pair] = None
        if source is not None:
            self._sources[pair] = source
            self._links_of.setdefault(source, OrderedDict())[pair] = None
        return found

    def use(self, pair: Pair) -> None:
        """Count the link of a pair as used now, if there is one."""
        if pair in self._links:
            self._links.move_to_end(pair)
            made_for = self._sources.get(pair)
            if made_for is not None:
                self._links_of[made_for].move_to_end(pair)

    def _make_room(self, source: Identity | None) -> None:
        of_source = None if source is None else self._links_of.get(source)
        if of_source is not None and len(of_source) >= self._share:
            self._end(next(iter(of_source)))
            self._counts["links of identities that made room for others of their node"] += 1
        elif len(self._links) >= self._limit:
            self._end(next(iter(self._links)))
            self._counts["links of identities that made room for others"] += 1

    def end(self, identity: Identity) -> None:
        """End all links of an identity, at either end."""
        self.forget(identity)
        for pair in tuple(self._of.get(identity, ())):
            self._end(pair)

    def end_of(self, own: Identity) -> None:
        """End the links that have an identity at this end."""
        for pair in tuple(self._of.get(own, ())):
            if pair[0] == own:
                self._end(pair)

    def _end(self, pair: Pair) -> None:
        _, address = self._links.pop(pair)
        for each in {*pair}:
            self._of[each].pop(pair, None)
            if not self._of[each]:
                del self._of[each]
        source = self._sources.pop(pair, None)
        if source is not None:
            of_source = self._links_of[source]
            del of_source[pair]
            if not of_source:
                del self._links_of[source]
        self.forget(pair[1])
        cell = self._node.parts.table.cell_at(address)
        if cell is not None:
            cell.worker.stop()

    def is_waiting(self, identity: Identity) -> bool:
        """Whether a request that was sent to an identity waits for its answer."""
        of = self._of.get(identity, ())
        return any(self._links[pair][0].is_waiting() for pair in of if pair[1] == identity)

    def way_lost(self, identity: Identity, detail: str) -> None:
        """End the requests to an identity, and resolve its addresses anew."""
        self.forget(identity)
        for pair in tuple(self._of.get(identity, ())):
            if pair[1] == identity and pair in self._links:
                self._links[pair][0].way_lost(detail)
