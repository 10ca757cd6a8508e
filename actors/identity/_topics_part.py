"""The topics of a node, as a part of its router: they are created, published and subscribed to.

Each topic of this node has a worker, to which its address is resolved. Requests come as records to
the worker of the router, or by `Identities`; the requester is an engine of this node, as the node
knows it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from ...protocol import Address, Message, OnwardError
from ...protocol.identity import (
    SCOPE_LOCAL,
    SEED_SIZE,
    AdvertEnvelope,
    AdvertKind,
    AdvertSource,
    BadRecord,
    ControlRecord,
    DestinationKind,
    EngineMessage,
    FanOut,
    Identity,
    IdentityUpdated,
    PutOutcome,
    Refuse,
    Result,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    SigningKey,
    Target,
    TopicAdvert,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleted,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicEvent,
    TopicLimits,
    TopicSubRequest,
    TopicSubResponse,
    TopicTable,
    TopicUnsubRequest,
    TopicUnsubResponse,
    open_advert,
    serialize_control,
)
from .._errors import Unresolved
from .._worker import Worker
from ..routing._pending import Pending
from ._carriage import Carriage, carriage_at
from ._engines import Engine
from ._local_requests import Answer, LocalRequests
from ._options import IdentityOptions
from ._router_part import RouterPart
from ._topic_reports import SubscriberHooks, TopicReport
from ._topic_worker import TopicWorker

if TYPE_CHECKING:
    from ._router import Router

__all__ = ["Topics"]

T = TypeVar("T")
Done: TypeAlias = Callable[[ResultCode], object]
"""Receives the result of a subscription, at once or later."""

_logger = logging.getLogger("onward.actors.identity")
_GOOD: Final = {PutOutcome.STORED, PutOutcome.REPLACED, PutOutcome.KNOWN}
_NO_HOOKS: Final = SubscriberHooks()
_STAYS: Final = Carriage(DestinationKind.TOPIC, rprefs=RoutingPrefs(SCOPE_LOCAL))


class Topics(RouterPart):
    """The topics of a node. All of it on the node's loop.

    Args:
        router: The router.
        worker: Its worker.
        requests: What the workers of the node ask the router for.
        options: The options.

    Attributes:
        table: The topics that are created or followed here.
        updates: The topic of the router itself: its subscribers receive each `IdentityUpdated` of
            the directory, as the bytes of the record. The router alone publishes to it.
    """

    kinds: ClassVar[tuple[DestinationKind, ...]] = (DestinationKind.TOPIC,)

    def __init__(
        self, router: Router, worker: Worker, requests: LocalRequests, options: IdentityOptions
    ) -> None:
        self._router: Final = router
        self._worker: Final = worker
        # One more for the topic of the router.
        limits = TopicLimits(topics=options.max_topics + 1, subscribers=options.max_subscribers)
        self.table: Final = TopicTable(limits, options.creator_end)
        self._workers: Final[dict[Identity, Address]] = {}
        # By the engine, then by the topic.
        self._hooks: Final[dict[Identity, dict[Identity, SubscriberHooks]]] = {}
        self._numbers: Final = count(1)
        # Nothing is ever signed by it.
        self.updates: Final = SigningKey(secrets.token_bytes(SEED_SIZE)).identity
        self.table.create(self.updates, router.own, publishers=frozenset({router.own}))
        router.directory.on_update.append(self._updated)
        requests.serve(TopicCreateRequest, self._create_asked)
        requests.serve(TopicDeleteRequest, self._delete_asked)
        requests.serve(TopicSubRequest, self._subscribe_asked)
        requests.serve(TopicUnsubRequest, self._unsubscribe_asked)

    # --- to publish ---------------------------------------------------------------------------

    def resolve(self, message: Message, target: Target) -> Message | Pending | None:
        """Resolve the address of a topic: to its worker.

        Raises:
            Unresolved: There is no such topic, or the sender may not publish to it, or not with
                this scope.
        """
        to, sender = message[0][0], message[3]
        topic = target.destination.identity
        if topic == self.updates:
            raise Unresolved(to, "the router alone publishes to it")
        own = self._router.own_of(sender)
        match self._router.decide(target.destination, target.scope, own):
            case FanOut(_, scope):
                if not self.table.may_publish(topic, own):
                    raise Unresolved(to, "the sender may not publish to it")
                route = self._route_to_worker(to, topic, scope)
                return message.redirect(*self._router.links.remember(topic, sender, to[1], *route))
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise Unresolved(to, "no topic of this node")

    def _route_to_worker(
        self, to: Address, topic: Identity, scope: RoutingScope
    ) -> tuple[Address, ...]:
        worker = self._workers[topic]
        if scope == self.table.scope(topic):
            return (worker,)
        if scope.kind is not ScopeKind.LOCAL:
            # All other nodes see each number, or none.
            raise Unresolved(to, "a publication goes as far as its topic, or stays in its node")
        return worker, _STAYS.address

    def _publish(self, worker: TopicWorker, message: Message) -> None:
        """Publish what has come to the worker of a topic."""
        source, topic = self._router.own_of(message[3]), worker.topic
        rest = message[0][1:]
        try:
            if carriage_at(rest) is not None:
                rest = rest[1:]
            copies = self.table.publish(topic, source, next(self._numbers), source)
            if copies.result is not ResultCode.OK:
                raise Unresolved(message[0][0], f"it is not published: {copies.result.name}")
            worker.spread(self._addresses(copies.subscribers), rest, message)
        except OnwardError as error:
            self._router.counts["publications that were refused"] += 1
            worker.node.lose(message, error)

    def receive_message(self, message: EngineMessage, inner: Message, node: Identity) -> None:
        """Refuse what another node publishes: a topic serves its own node so far."""
        self._router.counts["messages of a kind that is not served"] += 1

    def _addresses(self, engines: tuple[Identity, ...]) -> list[Address]:
        of = self._router.engines.of
        return [engine.address for each in engines if (engine := of(each)) is not None]

    def _copy_refused(self) -> None:
        self._router.counts["copies that a subscriber did not take"] += 1

    # --- the topic of the router --------------------------------------------------------------

    def _updated(self, update: IdentityUpdated) -> None:
        """Publish a change of the directory."""
        copies = self.table.publish(self.updates, self._router.own, next(self._numbers))
        if not copies.subscribers:
            return
        payload = serialize_control(update)
        for address in self._addresses(copies.subscribers):
            try:
                self._worker.send((address,), payload, return_route=())
            except OnwardError as error:
                self._copy_refused()
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
            advert = self._read_advert(topic, scope, envelope)
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
        self._router.found(topic)
        return Result(ResultCode.OK)

    def _read_advert(self, topic: Identity, scope: RoutingScope, data: bytes) -> TopicAdvert | str:
        """Return the advert of a topic, or why it is not one for here."""
        try:
            advert = open_advert(AdvertEnvelope(AdvertKind.TOPIC, data), self._router.verifiers)
        except BadRecord:
            return "the advert cannot be read"
        if not isinstance(advert, TopicAdvert) or advert.identity != topic:
            return "the advert is not signed by the topic"
        if advert.scope != scope:
            return "the advert has another scope"
        if scope.kind is ScopeKind.LOCAL:
            return advert
        first = None if not advert.publishers else advert.publishers[0]
        if first is None or (first != self._router.own and not self._is_engine(first)):
            return "the first publisher of the advert is no engine of this node"
        return advert

    def _is_engine(self, identity: Identity) -> bool:
        return self._router.engines.of(identity) is not None

    def _open(self, topic: Identity, scope: RoutingScope, envelope: bytes) -> Result | None:
        """Start the worker of a topic, and put its advert; return why not, if so."""
        router = self._router
        if envelope:
            advert = AdvertEnvelope(AdvertKind.TOPIC, envelope)
            outcome = router.directory.put(advert, AdvertSource.LOCAL)
            if outcome not in _GOOD:
                return Result(ResultCode.BAD_ADVERT, f"the directory: {outcome.value}")
        router.table.add_topic(topic, scope)  # its limit is that of the topics here
        self._workers[topic] = self._worker.spawn(
            lambda: TopicWorker(topic, self._publish, self._copy_refused)
        )
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
        address = self._workers.pop(topic, None)
        if address is not None:
            cell = self._worker.node.parts.table.cell_at(address)
            if cell is not None:
                cell.worker.stop()
        for engine in subscribers:
            self._call(self._take_hooks(engine, topic).on_end, reason)

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
            self._hooks.setdefault(engine, {})[topic] = hooks
        done(code)

    def unsubscribe(self, topic: Identity, requester: Engine | None) -> ResultCode:
        """End the subscription of an engine."""
        engine = None if requester is None else requester.identity
        code, events = self.table.unsubscribe(topic, engine)
        if code is ResultCode.OK and engine is not None:
            self._take_hooks(engine, topic)
        self._act(events)
        return code

    def engine_ended(self, engine: Engine) -> None:
        """End the subscriptions of an engine, and what becomes of its topics."""
        self._act(self.table.end_engine(engine.identity))
        self._hooks.pop(engine.identity, None)

    def banned(self, identity: Identity) -> None:
        """End a topic that has no trust any more. What is an engine here cannot be banned."""
        known = self.table.topic(identity)
        if known is not None and known.creator is not None and identity != self.updates:
            self.table.delete(identity, known.creator)
            self._ended(identity, known.subscribers, ResultCode.DENIED)

    def _act(self, events: list[TopicEvent]) -> None:
        for event in events:
            if isinstance(event, TopicDeleted):
                self._ended(event.topic, event.subscribers, ResultCode.UNKNOWN)

    def _take_hooks(self, engine: Identity, topic: Identity) -> SubscriberHooks:
        of_engine = self._hooks.get(engine, {})
        hooks = of_engine.pop(topic, _NO_HOOKS)
        if not of_engine:
            self._hooks.pop(engine, None)
        return hooks

    def _call(self, hook: Callable[[T], object] | None, value: T) -> None:
        if hook is None:
            return
        try:
            hook(value)
        except Exception:
            _logger.exception(
                "what is called for a subscriber of a topic failed",
                extra={"event": "identity.subscriber_failed"},
            )

    def reports(self) -> tuple[TopicReport, ...]:
        """Return the topics of this node, as they are now."""
        reports: list[TopicReport] = []
        for topic in self.table:
            known = self.table.topic(topic)
            if known is not None:
                subscribers = len(known.subscribers)
                reports.append(
                    TopicReport(topic, known.creator, known.scope, None, subscribers, (), 0, 0)
                )
        return tuple(reports)

    # --- requests by message ------------------------------------------------------------------

    def _create_asked(
        self, engine: Engine | None, record: TopicCreateRequest, answer: Answer
    ) -> None:
        result = self.create(record.topic, engine, record.scope, record.advert or b"")
        answer(TopicCreateResponse(record.topic, result))

    def _delete_asked(
        self, engine: Engine | None, record: TopicDeleteRequest, answer: Answer
    ) -> None:
        answer(TopicDeleteResponse(record.topic, Result(self.delete(record.topic, engine))))

    def _subscribe_asked(
        self, engine: Engine | None, record: TopicSubRequest, answer: Answer
    ) -> None:
        topic = record.topic

        def ended(code: ResultCode) -> None:
            gone: ControlRecord = TopicUnsubResponse(topic, Result(code, "the topic is gone"))
            answer(gone)

        self.subscribe(
            topic,
            engine,
            record.scope,
            SubscriberHooks(on_end=ended),
            lambda code: answer(TopicSubResponse(topic, Result(code))),
        )

    def _unsubscribe_asked(
        self, engine: Engine | None, record: TopicUnsubRequest, answer: Answer
    ) -> None:
        answer(TopicUnsubResponse(record.topic, Result(self.unsubscribe(record.topic, engine))))
