"""Topics between nodes, as a part of those of a node: what goes to other nodes, and what comes.

One node publishes a topic. What an engine elsewhere publishes comes there as its signed message,
and goes on in an event that this node numbers and signs, with that message in it: so all
subscribers see one order, and each verifies both. An event is never published again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol import Address, Message, OnwardError, Route
from ....protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    SCOPE_ANY,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    EngineMessage,
    Event,
    EventRecord,
    Identity,
    P2PContent,
    ResendEvents,
    ResultCode,
    SigningKey,
    SubscribeTopic,
    Topic,
    UnsubscribeTopic,
    open_engine_message,
    open_event,
    parse_topic_record,
)
from ....protocol.ockam import decode_message
from ..._worker import Worker
from .._carriage import ENGINE, is_reserved
from .._options import IdentityOptions
from .._outgoing import ONWARD
from ..links._session import Session
from ._followings import Followings
from ._publications import Publications
from ._reports import TopicReport
from ._subscriptions import Following, WaitingSubscription

if TYPE_CHECKING:
    from .._router import Router
    from ._part import Topics

__all__ = ["TopicNetwork"]

_PROGRESS: Final = 10.0
"""Time after which a node that publishes says which events there are, in seconds, if there was one:
so the loss of the last one is seen."""


class TopicNetwork:
    """The topics of a node between nodes.

    Args:
        router: The router.
        worker: Its worker.
        topics: The topics of the node.
        key: The key of the node.
        options: The options.

    Attributes:
        publications: The topics of this node that go beyond it.
        followings: The topics of other nodes.
    """

    def __init__(
        self,
        router: Router,
        worker: Worker,
        topics: Topics,
        key: SigningKey,
        options: IdentityOptions,
    ) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._topics: Final = topics
        self.publications: Final = Publications(router, key, options)
        self.followings: Final = Followings(router, worker, self)
        worker.every(_PROGRESS, self.publications.tell_progress)

    # --- what comes ---------------------------------------------------------------------------

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive a control record about topics."""
        node, counts = session.node, self._router.counts
        data = content.record if isinstance(content, ControlContent) else b""
        try:
            record = parse_topic_record(data)
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        match record:
            case SubscribeTopic() | UnsubscribeTopic() | ResendEvents():
                self.publications.receive(node, record)
            case EventRecord(envelope):
                self._receive_event(node, envelope)
            case _:
                self.followings.receive(node, record)

    def _receive_event(self, node: Identity, envelope: bytes) -> None:
        counts = self._router.counts
        if not self.followings.topics.is_any_at(node):
            # No signature of a stranger is looked at.
            counts["records of topics that are not followed there"] += 1
            return
        try:
            event = open_event(envelope, self._router.verifiers)
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        if event is None:
            counts["events with a wrong signature"] += 1
            return
        self.followings.receive_event(node, event)

    def receive_publication(
        self, message: EngineMessage, inner: Message, node: Identity, envelope: bytes
    ) -> None:
        """Receive what an engine elsewhere publishes to a topic of this node."""
        topic, src = message.dst.identity, message.src
        counts = self._router.counts
        if not envelope:
            counts["publications without their signature"] += 1
            return
        scope = SCOPE_ANY if message.rprefs is None else message.rprefs.scope
        if scope not in {SCOPE_ANY, self._topics.table.scope(topic)}:
            # All other nodes see each number, or none.
            counts["publications for a part of their topic"] += 1
            return
        copies = self._topics.table.publish(topic, src, message.id, src)
        if copies.result is not ResultCode.OK:
            counts["publications that were refused"] += 1
            return
        if copies.duplicate:
            counts["publications that came again"] += 1
            return
        self._topics.counts["publications"] += 1
        self._spread(src, inner, copies.subscribers, node)
        self.publications.publish(topic, envelope)

    def _spread(
        self, src: Identity, inner: Message, subscribers: tuple[Identity, ...], node: Identity
    ) -> None:
        """Send copies of a verified message to engines of this node."""
        router = self._router
        onward, back = inner[0], inner[1]
        rest: Route = onward[1:] if onward[:1] == (ENGINE,) else onward
        addresses = self._topics.addresses(subscribers)
        self._topics.counts["copies"] += len(addresses)
        if src == router.own or router.engines.of(src) is not None:
            # It comes back from the node that publishes.
            self._spread_own(addresses, rest, inner)
            return
        link, _ = router.links.get((router.own, src), node)
        for address in addresses:
            # As over any link: it is bound by what is exposed, and an answer finds the way back.
            copy = inner._replace(onward_route=(address, *rest), return_route=back)
            if not link.receive_copy(copy):
                self._topics.copy_refused()

    def _spread_own(self, addresses: list[Address], rest: Route, inner: Message) -> None:
        _, back, payload, _, context = inner
        for address in addresses:
            copy = Message((address, *rest), back, payload, self._worker.address, context)
            try:
                self._worker.send(copy[0], payload, return_route=back, context=context)
            except OnwardError as error:
                self._topics.copy_refused()
                self._worker.node.dead_letter(copy, error)

    # --- events of topics elsewhere -----------------------------------------------------------

    def taken(self, following: Following, waiting: list[WaitingSubscription]) -> bool:
        """Subscribe the engines that wait; return whether there is one."""
        table, topic = self._topics.table, following.topic
        publishers = following.advert.publishers
        code = table.follow(
            topic, following.advert.scope, None if publishers is None else frozenset(publishers)
        )
        for each in waiting:
            if code is not ResultCode.OK:
                each.done(code)
            else:
                self._topics.subscribe_here(topic, each)
        if code is not ResultCode.OK:
            return False
        if not table.subscribers(topic):
            table.unfollow(topic)
            return False
        return True

    def delivered(self, following: Following, event: Event) -> None:
        """Deliver an event to the engines here, if the message in it is verified."""
        router, counts = self._router, self._router.counts
        try:
            message = open_engine_message(event.body, router.verifiers)
            inner = None if message is None else decode_message(message.body)
        except OnwardError:
            counts["events without a message that can be read"] += 1
            return
        if message is None or inner is None:
            counts["events with a wrong signature of their source"] += 1
            return
        reason = self._refusal(following, message, inner)
        if reason is not None:
            counts[reason] += 1
            return
        topic, src = following.topic, message.src
        copies = self._topics.table.publish(topic, src, message.id, src)
        if copies.result is not ResultCode.OK:
            counts["events of sources that may not publish"] += 1
        elif copies.duplicate:
            counts["publications that came again"] += 1
        else:
            self._spread(src, inner, copies.subscribers, following.node)

    def _refusal(self, following: Following, message: EngineMessage, inner: Message) -> str | None:
        """Return the reason to refuse the message of an event, which has the right signature."""
        router = self._router
        if message.dst != Destination(DestinationKind.TOPIC, following.topic):
            return "events with a message to another destination"
        if message.protocol != ONWARD:
            return "messages of another protocol"
        first, back = inner[0][:1], inner[1][:1]
        if (first != (ENGINE,) and any(map(is_reserved, first))) or any(map(is_reserved, back)):
            return "messages with an address of the router"
        node = message.src if message.origin is None else message.origin.node
        if router.table.is_banned(message.src) or router.table.is_banned(node):
            return "events of sources that are banned"
        # An event may come late, after a cut. It has its number, and a message is delivered once.
        expiry = 0 if message.expiry is None else message.expiry
        if expiry + MAX_TTL + MAX_SKEW < router.milliseconds():
            return "events that are too old"
        return None

    def lost(self, following: Following, number: int | None) -> None:
        """Report events that were missed to the subscribers."""
        self._topics.lost(following.topic, number)

    def changed(self, following: Following) -> None:
        """Follow another advert of a topic."""
        publishers = following.advert.publishers
        allowed = None if publishers is None else frozenset(publishers)
        self._topics.table.restrict(following.topic, allowed)

    def gone(self, following: Following, reason: ResultCode) -> None:
        """End a topic that its node has no more, or does not let this one have."""
        self._topics.unfollowed(following.topic, reason)

    def report(self, topic: Topic) -> TopicReport:
        """Return what is known of a topic of the node."""
        publication = self.publications.find(topic.identity)
        following = self.followings.topics.find(topic.identity)
        published, lost = 0, 0
        dropped: dict[str, int] = {}
        if publication is not None:
            sent = publication.counters
            published = sent.published
            dropped = {
                "asked for, beyond those that are sent again at a time": sent.withheld,
                "asked for, and not kept any more": sent.passed,
                "asked for by a node that is not subscribed": sent.strangers,
            }
        elif following is not None:
            came = following.subscription.counters
            published, lost = came.delivered, came.lost
            dropped = {
                "came before, or are older than the next one": came.duplicates,
                "of another topic or publisher": came.foreign,
                "without a subscription": came.unexpected,
                "beyond those that are held back": came.overflowed,
            }
        return TopicReport(
            topic.identity,
            topic.creator,
            topic.scope,
            None if following is None else following.node,
            len(topic.subscribers),
            () if publication is None else publication.nodes,
            published,
            lost,
            {reason: number for reason, number in dropped.items() if number},
        )
