"""The topics of a node, as a part of its router: they are created, published and subscribed to.

Each topic of this node has a worker, to which its address is resolved. Requests come as records to
the worker of the router, or by `Identities`; the requester is an engine of this node, as the node
knows it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from ....protocol import Address, Message, NotExposed, OnwardError, Route
from ....protocol.identity import (
    SCOPE_LOCAL,
    SEED_SIZE,
    AdvertEnvelope,
    AdvertKind,
    AdvertSource,
    DestinationKind,
    EngineMessage,
    FanOut,
    Identity,
    IdentityUpdated,
    LookUp,
    P2PContent,
    PutOutcome,
    Refuse,
    Result,
    ResultCode,
    RoutingScope,
    ScopeKind,
    SigningKey,
    Target,
    ToPeer,
    TopicDeleted,
    TopicEvent,
    TopicIdle,
    TopicLimits,
    TopicTable,
    serialize_control,
)
from ..._errors import Unresolved
from ..._worker import Worker
from ...routing._pending import Pending
from ...runtime._run_queue import Phase
from .._carriage import ENGINE, Carriage, reply_address
from .._engines import Engine
from .._local_requests import LocalRequests
from .._options import IdentityOptions
from .._outgoing import Undelivered
from .._router_part import RouterPart
from ..links._session import Session
from ._network import TopicNetwork
from ._publications import NOT_TAKEN_BY_NODES
from ._reports import TopicReport, TopicStatistics
from ._requests import read_topic_advert, serve_topic_requests
from ._subscriber_hooks import HookTable, SubscriberHooks
from ._subscriptions import WaitingSubscription
from ._worker import TopicWorkers

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["Topics"]

Done: TypeAlias = Callable[[ResultCode], object]
"""Receives the result of a subscription, at once or later."""

COPIES_NOT_TAKEN: Final = "copies that a subscriber did not take"
"""The reason for which a copy is counted as dropped."""
_GOOD: Final = {PutOutcome.STORED, PutOutcome.REPLACED, PutOutcome.KNOWN}


class Topics(RouterPart):
    """The topics of a node. All of it on the node's loop.

    Args:
        router: The router.
        worker: Its worker.
        requests: What the workers of the node ask the router for.
        key: The key of the node.
        options: The options.

    Attributes:
        table: The topics that are created or followed here.
        network: The topics between nodes.
        counts: Publications to topics here, and copies of these and of events for engines here.
        updates: The topic of the router itself: its subscribers receive each `IdentityUpdated` of
            the directory, as the bytes of the record. The router alone publishes to it.
    """

    kinds: ClassVar[tuple[DestinationKind, ...]] = (DestinationKind.TOPIC,)
    controls: ClassVar[range] = range(32, 48)

    def __init__(
        self,
        router: Router,
        worker: Worker,
        requests: LocalRequests,
        key: SigningKey,
        options: IdentityOptions,
    ) -> None:
        self._router: Final = router
        self._worker: Final = worker
        # One more for the topic of the router.
        limits = TopicLimits(topics=options.max_topics + 1, subscribers=options.max_subscribers)
        self.table: Final = TopicTable(limits, options.creator_end)
        self._workers: Final = TopicWorkers(router, worker, self)
        self._hooks: Final = HookTable()
        self.counts: Final = Counter[str]()
        # Nothing is ever signed by it.
        self.updates: Final = SigningKey(secrets.token_bytes(SEED_SIZE)).identity
        self.table.create(self.updates, router.own, publishers=frozenset({router.own}))
        self.network: Final = TopicNetwork(router, worker, self, key, options)
        router.directory.on_update.append(self._updated)
        router.directory.on_lost.append(lambda _: self.network.followings.known())
        serve_topic_requests(self, requests)

    # --- to publish ---------------------------------------------------------------------------

    def resolve(self, message: Message, target: Target) -> Message | Pending | None:
        """Resolve the address of a topic: to its worker, or to the node that publishes it.

        Raises:
            Unresolved: There is no such topic, or the sender may not publish to it, or not with
                this scope.
            NotExposed: It is reached by a relay alone.
        """
        to, sender = message[0][0], message[3]
        topic = target.destination.identity
        if topic == self.updates:
            raise Unresolved(to, "the router alone publishes to it")
        router = self._router
        own = router.own_of(sender)
        decision = router.decide(target.destination, target.scope, own)
        if decision == LookUp(target.destination) and self.network.followings.learn(topic):
            decision = router.decide(target.destination, target.scope, own)
        match decision:
            case FanOut(_, scope):
                if not self.table.may_publish(topic, own):
                    raise Unresolved(to, "the sender may not publish to it")
                route = self._workers.route_to(to, topic, scope)
                return message.redirect(*router.links.remember(topic, sender, to[1], *route))
            case ToPeer(node, int()):
                return message.redirect(*self._route_to_node(node, target, sender, to))
            case ToPeer(node):
                return router.awaited.park(node, message, target)
            case LookUp(wanted):
                if wanted.identity == topic:
                    self.network.followings.seek(topic)
                return router.awaited.park(wanted.identity, message, target)
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise NotExposed(to)

    def _route_to_node(
        self, node: Identity, target: Target, sender: Address | None, to: Address
    ) -> Route:
        """Return what replaces the address of a topic that another node publishes."""
        links, own = self._router.links, self._router.own_of(sender)
        _, link = links.get((own, node))
        topic = target.destination.identity
        carriage = Carriage(DestinationKind.NODE, (), target.rprefs, target.tprefs, topic)
        # It is forgotten with what else leads to the node.
        return links.remember(node, sender, to[1], link, carriage.address, ENGINE)

    def carry(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        """Refuse a message: one to a topic elsewhere is carried to its node."""
        undelivered(message, NotExposed(carriage.address))
        return None

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Refuse an answer: a topic has no way of its own for any."""
        undelivered(message, NotExposed(reply_address(DestinationKind.TOPIC, token)))
        return None

    def receive_signed(
        self, message: EngineMessage, inner: Message, node: Identity, envelope: bytes
    ) -> None:
        """Receive what an engine elsewhere publishes to a topic of this node."""
        self.network.receive_publication(message, inner, node, envelope)

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive a control record about topics."""
        self.network.receive(session, content)

    def addresses(self, engines: tuple[Identity, ...]) -> list[Address]:
        """Return the addresses of the workers that engines are."""
        of = self._router.engines.of
        return [engine.address for each in engines if (engine := of(each)) is not None]

    def copy_refused(self) -> None:
        """Count a copy that a subscriber did not take."""
        self._router.counts[COPIES_NOT_TAKEN] += 1

    # --- the topic of the router --------------------------------------------------------------

    def _updated(self, update: IdentityUpdated) -> None:
        """Publish a change of the directory, and go on with what waits for it."""
        self.network.followings.places.moved(update.identity)
        self.network.followings.known(update.identity)
        self.network.publications.domain_changed(update.identity)
        subscribers = self.table.subscribers(self.updates)
        if not subscribers:
            return
        payload = serialize_control(update)
        for address in self.addresses(subscribers):
            try:
                self._worker.send((address,), payload, return_route=())
            except OnwardError as error:
                self.copy_refused()
                own = self._worker.address
                self._worker.node.dead_letter(Message((address,), (), payload, own), error)

    # --- to create and delete -----------------------------------------------------------------

    def create(
        self,
        topic: Identity,
        requester: Engine | None,
        scope: RoutingScope = SCOPE_LOCAL,
        envelope: bytes = b"",
    ) -> Result:
        """Create a topic.

        Args:
            topic: The topic.
            requester: The engine that wants it; `None` for what is no engine of this node.
            scope: How far it goes.
            envelope: The signed advert of the topic, which a scope beyond the node needs.
        """
        if requester is None or self._router.table.is_banned(topic):
            return Result(ResultCode.DENIED)
        publishers: frozenset[Identity] | None = None
        if envelope:
            advert = read_topic_advert(self._router, topic, scope, envelope)
            if isinstance(advert, str):
                return Result(ResultCode.BAD_ADVERT, advert)
            publishers = None if advert.publishers is None else frozenset(advert.publishers)
        code = self.table.create(topic, requester.identity, scope, envelope, publishers)
        if code is not ResultCode.OK:
            return Result(code)
        refused = self._open(topic, scope, envelope)
        if refused is not None:
            self.table.delete(topic, requester.identity)
            return refused
        self._router.links.forget(topic)
        self._router.awaited.found(topic)
        return Result(ResultCode.OK)

    def _open(self, topic: Identity, scope: RoutingScope, envelope: bytes) -> Result | None:
        """Start the worker of a topic, and put its advert; return why not, if so."""
        router = self._router
        if envelope:
            advert = AdvertEnvelope(AdvertKind.TOPIC, envelope)
            outcome = router.directory.put(advert, AdvertSource.LOCAL)
            if outcome not in _GOOD:
                return Result(ResultCode.BAD_ADVERT, f"the directory: {outcome.value}")
        router.table.add_topic(topic, scope)  # its limit is that of the topics here
        if scope.kind is not ScopeKind.LOCAL:
            self.network.publications.open(topic, scope)
        self._workers.start(topic)
        return None

    def delete(self, topic: Identity, requester: Engine | None) -> ResultCode:
        """Delete a topic, which the engine that created it may do alone."""
        subscribers = self.table.subscribers(topic)
        code = self.table.delete(topic, None if requester is None else requester.identity)
        if code is ResultCode.OK:
            self._ended(topic, subscribers, ResultCode.UNKNOWN)
        return code

    def _ended(
        self, topic: Identity, subscribers: tuple[Identity, ...], reason: ResultCode
    ) -> None:
        """End what belongs to a topic that is gone, and tell its subscribers."""
        self._router.table.remove_topic(topic)
        self._router.links.forget(topic)
        self.network.publications.close(topic)
        self._workers.stop(topic)
        self._hooks.end(subscribers, topic, reason)

    # --- to subscribe -------------------------------------------------------------------------

    def subscribe(
        self,
        topic: Identity,
        requester: Engine | None,
        scope: RoutingScope,
        hooks: SubscriberHooks,
        done: Done,
    ) -> None:
        """Subscribe an engine.

        Args:
            topic: The topic.
            requester: The engine; `None` for what is no engine of this node.
            scope: How far the topic may be.
            hooks: What is called for the subscriber.
            done: Receives the result.
        """
        engine = None if requester is None else requester.identity
        code = self.table.subscribe(topic, engine, scope)
        if code is ResultCode.OK and engine is not None:
            self._hooks.add(engine, topic, hooks)
        beyond = scope.kind is not ScopeKind.LOCAL
        if code is ResultCode.UNKNOWN and beyond and requester is not None:
            followings = self.network.followings
            until = followings.patience()
            followings.ask(topic, WaitingSubscription(requester, scope, hooks, done, until))
            return
        done(code)

    def cancel(self, topic: Identity, engine: Engine) -> None:
        """End the wait of an engine for a topic."""
        self.network.followings.cancel(topic, engine)

    def subscribe_here(self, topic: Identity, waiting: WaitingSubscription) -> None:
        """Subscribe an engine that has waited, as the topic is here now."""
        engine = waiting.engine.identity
        code = self.table.subscribe(topic, engine, waiting.scope)
        if code is ResultCode.OK:
            self._hooks.add(engine, topic, waiting.hooks)
        waiting.done(code)

    def unsubscribe(self, topic: Identity, requester: Engine | None) -> ResultCode:
        """End the subscription of an engine."""
        engine = None if requester is None else requester.identity
        code, events = self.table.unsubscribe(topic, engine)
        if code is ResultCode.OK and engine is not None:
            self._hooks.remove(engine, topic)
        self._act(events)
        return code

    def engine_ended(self, engine: Engine) -> None:
        """End the subscriptions of an engine, and what becomes of its topics.

        When the node stops nothing becomes of them: other nodes wait until it is back.
        """
        if self._worker.node.parts.run_queue.phase is Phase.CLOSING:
            return
        self._act(self.table.end_engine(engine.identity))
        self._hooks.remove_engine(engine.identity)
        self.network.followings.engine_ended(engine)

    def banned(self, identity: Identity) -> None:
        """End what has no trust any more: a topic, or those of a node or by a publisher.

        What is an engine here cannot be banned.
        """
        known = self.table.topic(identity)
        if known is not None and known.creator is not None and identity != self.updates:
            self.table.delete(identity, known.creator)
            self._ended(identity, known.subscribers, ResultCode.DENIED)
        self.network.publications.drop(identity)
        self.network.followings.banned(identity)

    def node_joined(self, node: Identity) -> None:
        """Subscribe at a node again."""
        self.network.followings.node_joined(node)

    def node_began(self, node: Identity) -> None:
        """Subscribe at a node again."""
        self.network.followings.node_began(node)

    def needs(self, node: Identity) -> bool:
        """Whether a node is subscribed here, or this one there."""
        network = self.network
        return network.followings.topics.is_any_at(node) or network.publications.is_subscribed(node)

    def node_lost(self, node: Identity) -> None:
        """Remove a node until it subscribes anew, and wait for its own topics."""
        self.network.publications.drop(node)
        self.network.followings.node_lost(node)

    def close(self) -> None:
        """End the timer."""
        self.network.followings.close()

    def unfollowed(self, topic: Identity, reason: ResultCode) -> None:
        """End a topic of another node, and tell the subscribers here."""
        gone = self.table.unfollow(topic)
        if gone is not None:
            self._hooks.end(gone.subscribers, topic, reason)

    def lost(self, topic: Identity, number: int | None) -> None:
        """Report events that were missed for good to the subscribers here."""
        self._hooks.lose(self.table.subscribers(topic), topic, number)

    def _act(self, events: list[TopicEvent]) -> None:
        for event in events:
            match event:
                case TopicDeleted(topic, subscribers):
                    self._ended(topic, subscribers, ResultCode.UNKNOWN)
                case TopicIdle(topic):
                    self.network.followings.leave(topic)
                case _:
                    pass  # the new owner is in the table

    def reports(self) -> tuple[TopicReport, ...]:
        """Return the topics of this node, as they are now."""
        known = map(self.table.topic, self.table)
        return tuple(self.network.report(each) for each in known if each is not None)

    def statistics(self) -> TopicStatistics:
        """Return the topics of this node at this moment, all together."""
        network, counts = self.network, self._router.counts
        known = [each for each in map(self.table.topic, self.table) if each is not None]
        created = sum(each.creator is not None for each in known)
        events = self.counts + network.publications.events() + network.followings.topics.events()
        events["not_taken_by_engines"] = counts[COPIES_NOT_TAKEN]
        events["not_taken_by_nodes"] = counts[NOT_TAKEN_BY_NODES]
        return TopicStatistics(
            created=created,
            followed=len(known) - created,
            subscribers=sum(len(each.subscribers) for each in known),
            nodes=network.publications.nodes,
            waiting=len(network.followings.waiting),
            events=events,
        )
