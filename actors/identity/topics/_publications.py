"""The topics of a node that go beyond it: their events, and the nodes that are subscribed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    AdvertResponse,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    DomainAdvert,
    Event,
    FanOut,
    HasMembers,
    Identity,
    Publication,
    PublicationLimits,
    ResendEvents,
    ResultCode,
    RoutingScope,
    SigningKey,
    SubscribeTopic,
    TopicRecord,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
    read_advert,
    serialize_control,
    serialize_topic_record,
    sign_event,
)
from .._options import IdentityOptions
from .._outgoing import ONWARD
from ..links._session import MAX_WAITING
from ._reports import sent

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["NOT_TAKEN_BY_NODES", "Publications", "tell_record"]

NOT_TAKEN_BY_NODES: Final = "records of topics that a node did not take"
"""The reason for which a record to another node is counted as dropped."""


def tell_record(router: Router, node: Identity, record: TopicRecord | bytes) -> None:
    """Send a record of topics to another node, which may have no room for it.

    Then it is counted, and lost: the node that misses it asks again.
    """
    data = record if isinstance(record, bytes) else serialize_topic_record(record)
    session = router.peers.sessions.get(node)
    if session is None or len(session.waiting) >= MAX_WAITING:
        _not_taken(router)
        return
    router.outgoing.tell(node, ControlContent(data), lambda _: _not_taken(router))


def _not_taken(router: Router) -> None:
    router.counts[NOT_TAKEN_BY_NODES] += 1


class Publications:
    """The topics of a node that go beyond it.

    Args:
        router: The router.
        key: The key of the node, which signs the events.
        options: The options.
    """

    def __init__(self, router: Router, key: SigningKey, options: IdentityOptions) -> None:
        self._router: Final = router
        self._seal: Final[Callable[[Event], bytes]] = lambda event: sign_event(event, key)
        self._limits: Final = PublicationLimits(
            ring_bytes=options.topic_bytes, subscribers=options.max_peers
        )
        self._of: Final[dict[Identity, Publication]] = {}
        self._scopes: Final[dict[Identity, RoutingScope]] = {}
        # Those that a node has ever subscribed to. Before, no event has a number.
        self._active: Final[set[Identity]] = set()
        self._told: Final[dict[Identity, int]] = {}
        self._instance = 0
        self._ended: Final = Counter[str]()

    def open(self, topic: Identity, scope: RoutingScope) -> None:
        """Send other nodes the advert of a topic, and accept their subscriptions from now on."""
        router = self._router
        self._instance = max(self._instance + 1, router.milliseconds())
        self._of[topic] = Publication(topic, router.own, self._instance, self._seal, self._limits)
        self._scopes[topic] = scope
        self._learn_members(scope)
        response = AdvertResponse(topic, router.directory.adverts_for(topic))
        content = ControlContent(serialize_control(response))
        for session in tuple(router.peers.sessions.values()):
            if session.is_greeted:
                router.outgoing.tell(session.node, content, lambda _: None)

    def close(self, topic: Identity) -> None:
        """End a topic, and tell the nodes that are subscribed."""
        publication = self._of.pop(topic, None)
        if publication is None:
            return
        for node, record in publication.end():
            tell_record(self._router, node, record)
        self._ended.update(sent(publication.counters))
        del self._scopes[topic]
        self._active.discard(topic)
        self._told.pop(topic, None)

    def find(self, topic: Identity) -> Publication | None:
        """Return the publisher's end of a topic."""
        return self._of.get(topic)

    @property
    def nodes(self) -> int:
        """The other nodes that are subscribed, once for each topic."""
        return sum(len(each.nodes) for each in self._of.values())

    def events(self) -> Counter[str]:
        """Return what became of events since the start; see `TopicStatistics`."""
        found = Counter(self._ended)
        for each in self._of.values():
            found.update(sent(each.counters))
        return found

    def is_active(self, topic: Identity) -> bool:
        """Whether events of a topic are to be made."""
        return topic in self._active

    def publish(self, topic: Identity, envelope: bytes) -> None:
        """Send the signed message of its source to the nodes that are subscribed."""
        if topic not in self._active:
            return
        try:
            copies = self._of[topic].publish(envelope)
        except BadRecord:
            self._router.counts["publications that are too big for an event"] += 1
            return
        record = serialize_topic_record(copies.record)
        for node in copies.nodes:
            tell_record(self._router, node, record)

    # --- subscribers --------------------------------------------------------------------------

    def receive(
        self, node: Identity, record: SubscribeTopic | UnsubscribeTopic | ResendEvents
    ) -> None:
        """Receive what a node asks about a topic of this node."""
        router, topic = self._router, record.topic
        publication = self._of.get(topic)
        if publication is None:
            self._refuse(node, record)
            return
        refusal = ResultCode.OK
        if isinstance(record, SubscribeTopic):
            refusal = self._refusal(topic, node)
        answers = publication.receive(node, record, router.loop_time(), refusal=refusal)
        if node in publication.nodes:
            self._active.add(topic)
        for answer in answers:
            tell_record(router, node, answer)

    def _refuse(
        self, node: Identity, record: SubscribeTopic | UnsubscribeTopic | ResendEvents
    ) -> None:
        answer: TopicRecord
        match record:
            case SubscribeTopic(topic, request):
                answer = TopicSubscribed(topic, request, ResultCode.UNKNOWN)
            case UnsubscribeTopic(topic, request):
                answer = TopicUnsubscribed(topic, request, ResultCode.NOT_SUBSCRIBED)
            case _:
                self._router.counts["records of topics that are not here"] += 1
                return
        tell_record(self._router, node, answer)

    def _refusal(self, topic: Identity, node: Identity) -> ResultCode:
        """Return why a node may not subscribe; `OK` if it may."""
        destination = Destination(DestinationKind.TOPIC, topic)
        # The scope that a node says of itself gives no right: that of the topic counts.
        decision = self._router.table.decide(destination, node, ONWARD, peer=node)
        return ResultCode.OK if isinstance(decision, FanOut) else ResultCode.SCOPE

    def is_subscribed(self, node: Identity) -> bool:
        """Whether a node is subscribed to a topic of this one."""
        return any(node in publication.nodes for publication in self._of.values())

    def drop(self, node: Identity) -> None:
        """Remove a node, as the link to it has ended. It subscribes again when it is back."""
        for publication in self._of.values():
            publication.drop(node)

    def tell_progress(self) -> None:
        """Send the nodes word of which events there are, if there was one since before."""
        for topic, publication in self._of.items():
            published = publication.counters.published
            if published != self._told.get(topic, 0):
                self._told[topic] = published
                for node in publication.nodes:
                    tell_record(self._router, node, publication.progress)

    # --- domains ------------------------------------------------------------------------------

    def domain_changed(self, domain: Identity) -> None:
        """Remove the nodes that are in the domain of a topic no more, and tell them."""
        for topic, scope in self._scopes.items():
            if scope.domain != domain:
                continue
            self._learn_members(scope)
            publication = self._of[topic]
            for node in publication.nodes:
                if self._refusal(topic, node) is not ResultCode.OK:
                    publication.drop(node)
                    gone = TopicUnsubscribed(topic, 0, ResultCode.SCOPE)
                    tell_record(self._router, node, gone)

    def _learn_members(self, scope: RoutingScope) -> None:
        """Learn the members of the domain that a topic is for, by the directory."""
        if scope.domain is None:
            return
        record = self._router.directory.lookup(scope.domain)
        route = None
        if record is not None and record.advert is not None and not record.is_banned:
            advert = read_advert(record.advert).advert
            route = (
                HasMembers(frozenset(advert.nodes)) if isinstance(advert, DomainAdvert) else None
            )
        if not self._router.table.is_banned(scope.domain):
            self._router.table.update(Destination(DestinationKind.DOMAIN, scope.domain), route)
