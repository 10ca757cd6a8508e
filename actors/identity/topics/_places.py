"""Where topics of other nodes are: by their adverts, and by where their first publishers are.

The route to a topic follows its publisher: when that is at another node, or nowhere that is known,
so is the topic.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
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
    from .._router import Router

__all__ = ["TopicPlaces"]

_MOST_WATCHED: Final = 16_384
"""Most identities of which a change is waited for. Beyond: what waits is looked at anew at once,
and the others are forgotten."""
_MOST_PLACED: Final = 16_384
"""Most topics with a route by their publisher. Beyond: the route that was learned longest ago is
forgotten, and learned anew when a message needs it."""


class TopicPlaces:
    """The places of topics of other nodes.

    Args:
        router: The router, which learns the route to each topic that is found.

    Attributes:
        watched: The identities that the places depend on, of which a change may matter.
    """

    __slots__ = ("_of_publisher", "_publishers", "_router", "watched")

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        self.watched: Final[set[Identity]] = set()
        # The publishers by which routes were learned, the oldest first, and their topics.
        self._publishers: Final[OrderedDict[Identity, Identity]] = OrderedDict()
        self._of_publisher: Final[dict[Identity, dict[Identity, None]]] = {}

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
        publisher = told.publishers[0] if told.publishers else None
        node = None if publisher is None else self._node_of(publisher)
        if publisher is None or node is None or node == router.own or router.table.is_banned(topic):
            return None
        router.table.update(Destination(DestinationKind.TOPIC, topic), AtNode(node))
        self._remember(topic, publisher)
        return node, told

    def _remember(self, topic: Identity, publisher: Identity) -> None:
        self._drop(topic)
        self._publishers[topic] = publisher
        self._of_publisher.setdefault(publisher, {})[topic] = None
        if len(self._publishers) > _MOST_PLACED:
            self._forget(next(iter(self._publishers)))

    def _drop(self, topic: Identity) -> None:
        publisher = self._publishers.pop(topic, None)
        if publisher is None:
            return
        topics = self._of_publisher[publisher]
        del topics[topic]
        if not topics:
            del self._of_publisher[publisher]

    def _forget(self, topic: Identity) -> None:
        """Forget the route to a topic, and what its addresses are replaced by."""
        self._drop(topic)
        router, destination = self._router, Destination(DestinationKind.TOPIC, topic)
        route = router.table.route(destination)
        if isinstance(route, AtNode):
            router.links.forget(route.node)
            router.table.update(destination, None)

    def moved(self, publisher: Identity) -> None:
        """Move the routes to the topics of a publisher to where it is, as more is known of it."""
        topics = self._of_publisher.get(publisher)
        if topics is None:
            return
        router, node = self._router, self._node_of(publisher)
        for topic in tuple(topics):
            route = router.table.route(Destination(DestinationKind.TOPIC, topic))
            if not isinstance(route, AtNode):
                self._drop(topic)  # it was forgotten for another reason
            elif route.node != node:
                self._forget(topic)
                self.learn(topic)

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
