"""The links that a node opens for its messages, to nodes with addresses in their adverts.

An advert is signed by its node, which can name any host in it. So a node dials the schemes alone
that its options say, and by default none. It says nothing there but the first message of a
handshake, and goes on if the node of the advert proves its key.

A link ends once no message has gone over it for a while, unless one end needs it. Of what the other
end needs, this one sees the requests that it has not answered.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol import Address, OnwardError
from ....protocol.identity import (
    ConnectionPrefs,
    ControlContent,
    Destination,
    DestinationKind,
    Dialable,
    Identity,
    NodeAdvert,
    P2PContent,
    RemoteRoute,
    ViaNode,
    read_advert,
)
from ..._worker import Worker
from ...runtime._timer import Timer
from ._joined_nodes import JoinedNodes
from ._node_addresses import by_weight, relay_of
from ._peers import ROUTER

if TYPE_CHECKING:
    from .._router import Router
    from ._session import Session

__all__ = ["ANSWER_TIME", "IDLE_TIME", "Dialling"]

IDLE_TIME: Final = 60.0
"""Time after which a link that was opened for messages ends without any, in seconds."""
ANSWER_TIME: Final = 600.0
"""Longest time for which such a link stays for requests of the other end that are not answered, in
seconds, from the last of them. Then it ends as any, and a request that still waits is lost with
it."""


class Dialling:
    """The links that a node opens for its messages.

    Args:
        router: The router.
        worker: Its worker.
        schemes: The schemes of the addresses that it dials.

    Attributes:
        counts: What came of it, by the outcome.
        joined: The nodes that a program has joined.
    """

    def __init__(self, router: Router, worker: Worker, schemes: Iterable[str]) -> None:
        self.counts: Final = Counter[str]()
        self._router: Final = router
        self._worker: Final = worker
        self._schemes: Final = frozenset(schemes)
        self._dials: Final[dict[Identity, asyncio.Task[None]]] = {}
        # Those of them that are dialled for messages of other nodes.
        self._relayed: Final[set[Identity]] = set()
        # Nodes that could not be reached: how often one after the other, and until when they rest.
        self._failed: Final[OrderedDict[Identity, tuple[int, float]]] = OrderedDict()
        # Those of which another advert has ended the rest: how often they had failed until then,
        # and when that was.
        self._ended: Final[OrderedDict[Identity, tuple[int, float]]] = OrderedDict()
        # Links that were opened for messages, and the time of the last one over each.
        self._links: Final[dict[Identity, Address]] = {}
        self._used: Final[dict[Identity, float]] = {}
        # Requests of the other end that are not answered, and until when they count.
        self._owed: Final[dict[Identity, tuple[int, float]]] = {}
        self._timer: Timer | None = None
        self.joined: Final = JoinedNodes(router, worker, self)

    @property
    def under_way(self) -> int:
        """The nodes that are dialled."""
        return len(self._dials)

    @property
    def places(self) -> int:
        """The number of further nodes that may be dialled now."""
        return _MOST_DIALS - len(self._dials)

    @property
    def unreached(self) -> int:
        """The nodes that could not be reached when they were dialled last."""
        return len(self._failed)

    # --- to dial ------------------------------------------------------------------------------

    def way_to(self, advert: NodeAdvert) -> RemoteRoute | None:
        """Return the route to a node by its advert; `None` if it leads to none."""
        if self._addresses(advert):
            return Dialable()
        relays = [
            relay for each in by_weight(advert) if (relay := relay_of(each.route)) is not None
        ]
        linked = [each for each in relays if each in self._router.peers.sessions]
        return next((ViaNode(each) for each in linked + relays), None)

    def _addresses(self, advert: NodeAdvert) -> list[str]:
        """Return the URIs of an advert that this node dials, the one to try first at first."""
        return [
            each.route
            for each in by_weight(advert)
            if each.route.partition("://")[0] in self._schemes and "://" in each.route
        ]

    def is_dialable(self, node: Identity) -> bool:
        """Whether a node can be dialled, by its advert."""
        if not self._schemes:
            return False
        destination = Destination(DestinationKind.NODE, node)
        route = self._router.table.route(destination)
        if route is None and self._router.heard_adverts.use(destination):
            route = self._router.table.route(destination)
        return isinstance(route, Dialable)

    def is_dialling(self, node: Identity) -> bool:
        """Whether a link to a node is being opened."""
        return node in self._dials

    def dial(self, node: Identity, *, relayed: bool = False) -> str | None:
        """Open a link to a node that messages wait for; return why not, if it is not opened.

        Args:
            node: The node.
            relayed: Whether these are of other nodes, which choose the node that they are for.
        """
        if node in self._dials or node in self._router.peers.sessions:
            return None
        _, until = self._failed.get(node, (0, 0.0))
        if self._router.loop_time() < until:
            return "its node could not be reached a moment ago"
        most = relayed and len(self._relayed) >= _MOST_RELAYED
        if most or len(self._dials) >= _MOST_DIALS:
            self.counts["beyond those that may be under way"] += 1
            return "as many nodes are dialled as may be"
        record = self._router.directory.lookup(node)
        advert = None if record is None or record.advert is None else read_advert(record.advert)
        addresses = list(self.joined.way_to(node))
        if advert is not None and isinstance(advert.advert, NodeAdvert):
            addresses += self._addresses(advert.advert)
        if not addresses:
            return "its node has no address"
        if relayed:
            self._relayed.add(node)
        self._dials[node] = self._worker.node.loop.create_task(self._run(node, addresses))
        return None

    async def _run(self, node: Identity, addresses: Iterable[str | Address]) -> None:
        reason: str | None = None
        try:
            for address in addresses:
                reason = await self._try(node, address)
                if reason is None:
                    break
        finally:
            del self._dials[node]
            self._relayed.discard(node)
        if reason is None:
            self._failed.pop(node, None)
            self._ended.pop(node, None)
            self.counts["opened"] += 1
        else:
            self._fail(node, reason)

    async def _try(self, node: Identity, address: str | Address) -> str | None:
        """Open a link to a node over one of its addresses; return why not, if it failed."""
        try:
            async with asyncio.timeout(_DIAL_TIME):
                await self._open(node, address)
        except TimeoutError:
            return "its node could not be reached in time"
        except (OnwardError, OSError, ValueError) as error:
            return f"its node could not be reached: {error}"
        return None

    async def _open(self, node: Identity, address: str | Address) -> None:
        """Open a link to a node, and keep it while messages go over it."""
        router = self._router
        if isinstance(address, Address):
            await router.peers.join(address, node)  # a link that its program has opened
            return
        link = await self._worker.node.connect(address, expose=[ROUTER])
        try:
            await router.peers.join(link, node)
        except BaseException:
            router.peers.stop_link(link)
            raise
        if router.peers.link_to(node) != link:
            router.peers.stop_link(
                link
            )  # the other node has dialled at once, and its link is the one used
            return
        record = router.directory.peek(node)
        permanent = record is not None and record.local.connection is ConnectionPrefs.PERMANENT
        if not permanent and node not in self.joined:
            self._links[node], self._used[node] = link, router.loop_time()
            self._arm()

    def _fail(self, node: Identity, reason: str) -> None:
        self.counts["failed"] += 1
        times, _ = self._failed.pop(node, self._ended.get(node, (0, 0.0)))
        rest = min(_LONGEST_REST, _SHORTEST_REST * 2 ** min(times, 10))
        self._failed[node] = times + 1, self._router.loop_time() + rest
        if len(self._failed) > _MOST_FAILED:
            self._failed.popitem(last=False)
        self._router.awaited.not_found(node, reason)
        if times + 1 >= _TRIES:
            self._router.lookups.ask(node)  # a newer advert ends its rest

    def is_unreached(self, node: Identity) -> bool:
        """Whether a node was not reached by what is known of it."""
        return node in self._failed or self.joined.is_lost(node)

    def advert_changed(self, node: Identity) -> None:
        """Dial a node again at once, as its advert is another one: once in a while.

        A node can sign one advert after the other, each with an address of another host.
        """
        now = self._router.loop_time()
        if node in self._failed:
            times, at = self._ended.get(node, (0, -_END_AGAIN))
            if now < at + _END_AGAIN:
                self.counts["rests that another advert has not ended"] += 1
                return
            times, _ = self._failed.pop(node)
            self._ended[node] = times, now
            self._ended.move_to_end(node)
            if len(self._ended) > _MOST_FAILED:
                self._ended.popitem(last=False)
        if self.joined.is_lost(node) and not self._router.table.is_banned(node):
            self.dial(node)

    # --- to end -------------------------------------------------------------------------------

    def used(self, node: Identity, content: P2PContent) -> None:
        """Receive word of a message over the link to a node."""
        if node in self._used and not _is_of_nodes(content):
            self._used[node] = self._router.loop_time()

    def asked(self, node: Identity) -> None:
        """Receive word of a request that has come over the link to a node."""
        if node in self._used:
            number, _ = self._owed.get(node, (0, 0.0))
            self._owed[node] = number + 1, self._router.loop_time() + ANSWER_TIME

    def answered(self, node: Identity) -> None:
        """Receive word of the answer to a request that goes over the link to a node."""
        number, until = self._owed.pop(node, (0, 0.0))
        if number > 1:
            self._owed[node] = number - 1, until

    def keep(self, node: Identity, to: str | Address) -> None:
        """Keep the link to a node, as it is joined.

        Args:
            node: The node.
            to: What it was joined at.
        """
        self._forget(node)
        self.joined.add(node, to)

    def node_lost(self, session: Session) -> None:
        """End the link to a node that was opened for messages, as its session has ended."""
        link = self._forget(session.node)
        if link is not None:
            self._router.peers.stop_link(link)
        self.joined.lost(session)

    def _forget(self, node: Identity) -> Address | None:
        self._used.pop(node, None)
        self._owed.pop(node, None)
        return self._links.pop(node, None)

    def close(self) -> None:
        """End all that is under way; the links end with the node."""
        self.joined.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._dials.values():
            task.cancel()

    def _arm(self) -> None:
        if self._timer is None and self._used:
            due = min(self._used.values()) + IDLE_TIME - self._router.loop_time()
            self._timer = self._worker.after(max(_LEAST_LOOK, due), self._end_idle)

    def _end_idle(self) -> None:
        """End the links over which no message has gone for a while."""
        self._timer = None
        before = self._router.loop_time() - IDLE_TIME
        for node, at in tuple(self._used.items()):
            if at > before:
                continue
            if self._router.needs(node) or self._owes(node):
                self._used[node] = self._router.loop_time()
            else:
                self.counts["ended as idle"] += 1
                self._router.peers.disconnect(node, "no message has gone over it for a while")
        self._arm()

    def _owes(self, node: Identity) -> bool:
        """Whether the other end waits for an answer."""
        _, until = self._owed.get(node, (0, 0.0))
        return self._router.loop_time() < until


def _is_of_nodes(content: P2PContent) -> bool:
    """Whether a content is what nodes say to each other by themselves."""
    return isinstance(content, ControlContent) and content.number in _OF_NODES


_OF_NODES: Final = frozenset((*range(32), 64))
"""The numbers of the control records of look-ups and greetings."""
_MOST_DIALS: Final = 16
"""Most nodes that are dialled at a time. Beyond: what waits for a further one is refused."""
_MOST_RELAYED: Final = _MOST_DIALS // 2
"""Most nodes of these that are dialled for messages of other nodes. Beyond: what is relayed to a
further one is held, and not dialled for by that message."""
_DIAL_TIME: Final = 10.0
"""Time in which a node has to be joined over one of its addresses, in seconds. Then the next one is
tried."""
_MOST_FAILED: Final = 1024
"""Most nodes that are remembered as not reached. Beyond: the oldest is let go, and dialled anew."""
_END_AGAIN: Final = 60.0
"""Least time between two adverts of a node that end its rest, in seconds. Sooner: counted, and the
node is dialled by its newest advert once it has rested."""
_TRIES: Final = 2
"""Tries in which a node could not be reached by its addresses, one after the other, after which
other nodes are asked for a newer advert of it, each time."""
_SHORTEST_REST: Final = 1.0
_LONGEST_REST: Final = 60.0
"""Time in which a node that could not be reached is not dialled again, in seconds: twice as long
each time, between these two. What is sent to it is refused."""
_LEAST_LOOK: Final = 1.0
"""Least time between two looks at idle links, in seconds."""
