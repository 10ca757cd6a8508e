"""Where topics of other nodes are: by their adverts, and by where their first publishers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.identity import (
    AtNode,
    Destination,
    DestinationKind,
    EngineAdvert,
    Identity,
    NodeAdvert,
    TopicAdvert,
    read_advert,
)

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["TopicPlaces"]

_MOST_WATCHED: Final = 16_384
"""Most identities of which a change is waited for. Beyond: what waits is looked at anew at once,
and the others are forgotten."""


class TopicPlaces:
    """The places of topics of other nodes.

    Args:
        router: The router, which learns the route to each topic that is found.

    Attributes:
        watched: The identities that the places depend on, of which a change may matter.
    """

    __slots__ = ("_router", "watched")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        self.watched: Final[set[Identity]] = set()

    @property
    def is_full(self) -> bool:
        """Whether there are as many that are watched as there may be."""
        return len(self.watched) >= _MOST_WATCHED

    def learn(self, topic: Identity) -> tuple[Identity, TopicAdvert] | None:
        """Learn the node of a topic by the directory; `None` if it is not known.

        Returns:
            The node, and the advert of the topic.
        """
        router = self._router
        self.watched.add(topic)
        record = router.directory.lookup(topic)
        advert = None if record is None or record.advert is None else read_advert(record.advert)
        if advert is None or not isinstance(advert.advert, TopicAdvert):
            return None
        told = advert.advert
        node = self._node_of(told.publishers[0]) if told.publishers else None
        if node is None or node == router.own or router.table.is_banned(topic):
            return None
        router.table.update(Destination(DestinationKind.TOPIC, topic), AtNode(node))
        return node, told

    def _node_of(self, publisher: Identity) -> Identity | None:
        router = self._router
        self.watched.add(publisher)
        if publisher in router.peers.sessions:
            return publisher
        route = router.table.route(Destination(DestinationKind.ENGINE, publisher))
        if isinstance(route, AtNode):
            return route.node
        record = router.directory.lookup(publisher)
        if record is None or record.advert is None:
            return None
        match read_advert(record.advert).advert:
            case EngineAdvert(node=node):
                return node
            case NodeAdvert():
                return publisher
            case _:
                return None
