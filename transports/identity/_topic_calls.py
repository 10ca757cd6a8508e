"""The topics of a node, as a program creates, follows and uses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ...actors.identity import SubscriberHooks, TopicRefused, TopicReport
from ...protocol import (
    IDENTITY,
    Address,
    AddressLike,
    Message,
    address as as_address,
    check_bytes,
)
from ...protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    AdvertEnvelope,
    Destination,
    DestinationKind,
    Identity,
    ResultCode,
    RoutingScope,
    SigningKey,
    TopicAdvert,
    destination_text,
    read_advert,
    sign_advert,
)
from ._own_identity import OwnIdentity
from ._topic import Topic

__all__ = ["TopicCalls"]


class TopicCalls(OwnIdentity):
    """A node with topics; see `Identities`."""

    @property
    def updates(self) -> Identity:
        """The topic of the router, to which it alone publishes: each change of the directory.

        Its publications are `IdentityUpdated`, as `parse_control` reads them.
        """
        return self._topics.updates

    def create_topic(
        self,
        topic: SigningKey | Identity,
        *,
        engine: AddressLike,
        scope: RoutingScope = SCOPE_LOCAL,
        advert: AdvertEnvelope | None = None,
        publishers: Iterable[Identity] = (),
    ) -> Identity:
        """Create a topic, which an engine of this node owns: it alone may delete it.

        Args:
            topic: Its key, by which its advert is signed; or its identity.
            engine: The address of the worker that owns it, which becomes an engine if it is none.
            scope: How far it goes.
            advert: Its advert, which a scope beyond the node needs. It has the same scope, and its
                first publisher is an engine of this node, or the node. With the key of the topic,
                one is made.
            publishers: The identities that may publish besides the engine, in the advert that is
                made; others may not.

        Returns:
            The identity of the topic.

        Raises:
            TopicRefused: It is not created.
            UnknownAddress: There is no such worker.
        """
        owner = self._engine_at(engine)
        identity = topic.identity if isinstance(topic, SigningKey) else topic
        if advert is None and isinstance(topic, SigningKey) and scope != SCOPE_LOCAL:
            now = self._router.milliseconds()
            who = tuple(dict.fromkeys((owner.identity, *publishers)))
            # The version is the time in seconds, above that of any advert before.
            version = max(now // 1000, self._version_of(identity) + 1)
            advert = sign_advert(TopicAdvert(identity, (), who, scope, version, now), topic)
        envelope = b"" if advert is None else advert.envelope
        result = self._topics.create(identity, owner, scope, envelope)
        if result.code is not ResultCode.OK:
            raise TopicRefused(identity, result.code, result.detail or "")
        return identity

    def _version_of(self, identity: Identity) -> int:
        record = self.directory.peek(identity)
        if record is None or record.advert is None:
            return -1
        return read_advert(record.advert).advert.version

    def delete_topic(self, topic: Identity, *, engine: AddressLike) -> None:
        """Delete a topic, with all its subscriptions.

        Args:
            topic: The topic.
            engine: The address of the worker that owns it.

        Raises:
            TopicRefused: There is no such topic, or another engine owns it.
        """
        _check(topic, self._topics.delete(topic, self._router.engines.at(as_address(engine))))

    async def subscribe(
        self,
        topic: Identity,
        worker: AddressLike,
        *,
        scope: RoutingScope = SCOPE_ANY,
        on_lost: Callable[[int | None], object] | None = None,
        on_end: Callable[[ResultCode], object] | None = None,
    ) -> None:
        """Subscribe a worker to a topic, until it ends.

        Args:
            topic: The topic.
            worker: The address of the worker, which becomes an engine if it is none.
            scope: How far the topic may be.
            on_lost: Receives the number of events that were missed for good; `None` as the number
                if it is not known, as the node that publishes has started anew.
            on_end: Receives the reason when the topic is gone.

        Raises:
            TopicRefused: The worker is not subscribed.
            UnknownAddress: There is no such worker.
        """
        result: asyncio.Future[ResultCode] = self.node.loop.create_future()

        def done(code: ResultCode) -> None:
            if not result.done():
                result.set_result(code)

        hooks = SubscriberHooks(on_lost, on_end)
        engine = self._engine_at(worker)
        self._topics.subscribe(topic, engine, scope, hooks, done)
        try:
            code = await result
        except asyncio.CancelledError:
            self._topics.cancel(topic, engine)
            raise
        _check(topic, code)

    def unsubscribe(self, topic: Identity, worker: AddressLike) -> None:
        """End the subscription of a worker.

        Raises:
            TopicRefused: It is not subscribed.
        """
        _check(topic, self._topics.unsubscribe(topic, self._router.engines.at(as_address(worker))))

    def publish(
        self, topic: Identity, payload: bytes, *, source: AddressLike | None = None
    ) -> None:
        """Publish to a topic, as `36#topic:…` in a route does.

        Args:
            topic: The topic.
            payload: The payload.
            source: The address of the worker that it is of, which receives answers; by default the
                node is the source.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            DeliveryError: As `Node.route`.
        """
        to = Address(IDENTITY, destination_text(Destination(DestinationKind.TOPIC, topic)).encode())
        if source is None:
            self.node.send((to,), payload)
            return
        check_bytes(payload)
        own = self._engine_at(source).address
        self.node.parts.router.dispatch(Message((to,), (own,), payload, own))

    def topic(self, topic: Identity, *, scope: RoutingScope = SCOPE_ANY) -> Topic:
        """Return a topic, for functions that subscribe to it."""
        return Topic(self, topic, scope)

    def topics(self) -> tuple[TopicReport, ...]:
        """Return the topics that are created here, and those of other nodes that are followed."""
        return self._topics.reports()


def _check(topic: Identity, code: ResultCode) -> None:
    if code is not ResultCode.OK:
        raise TopicRefused(topic, code)
