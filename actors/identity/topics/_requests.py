"""Requests about topics: as messages with their responses, and the adverts in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.identity import (
    AdvertEnvelope,
    AdvertKind,
    BadRecord,
    Identity,
    Result,
    ResultCode,
    RoutingScope,
    ScopeKind,
    TopicAdvert,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicSubRequest,
    TopicSubResponse,
    TopicUnsubRequest,
    TopicUnsubResponse,
    open_advert,
)
from .._engines import Engine
from .._local_requests import Answer, LocalRequests
from ._subscriber_hooks import SubscriberHooks

if TYPE_CHECKING:
    from .._router import Router
    from ._part import Topics

__all__ = ["read_topic_advert", "serve_topic_requests"]


def serve_topic_requests(topics: Topics, requests: LocalRequests) -> None:
    """Serve the requests about topics."""

    def create(engine: Engine | None, record: TopicCreateRequest, answer: Answer) -> None:
        result = topics.create(record.topic, engine, record.scope, record.advert or b"")
        answer(TopicCreateResponse(record.topic, result))

    def delete(engine: Engine | None, record: TopicDeleteRequest, answer: Answer) -> None:
        answer(TopicDeleteResponse(record.topic, Result(topics.delete(record.topic, engine))))

    def subscribe(engine: Engine | None, record: TopicSubRequest, answer: Answer) -> None:
        topic = record.topic

        def ended(code: ResultCode) -> None:
            answer(TopicUnsubResponse(topic, Result(code, "the topic is gone")))

        def done(code: ResultCode) -> None:
            answer(TopicSubResponse(topic, Result(code)))

        topics.subscribe(topic, engine, record.scope, SubscriberHooks(on_end=ended), done)

    def unsubscribe(engine: Engine | None, record: TopicUnsubRequest, answer: Answer) -> None:
        answer(TopicUnsubResponse(record.topic, Result(topics.unsubscribe(record.topic, engine))))

    requests.serve(TopicCreateRequest, create)
    requests.serve(TopicDeleteRequest, delete)
    requests.serve(TopicSubRequest, subscribe)
    requests.serve(TopicUnsubRequest, unsubscribe)


def read_topic_advert(
    router: Router, topic: Identity, scope: RoutingScope, envelope: bytes
) -> TopicAdvert | str:
    """Return the advert of a topic, or why it is not one for a topic of this node.

    Args:
        router: The router.
        topic: The topic, which has to sign it.
        scope: Its scope, which the advert names as well. Beyond the node the first publisher says
            where the topic is: an engine of this node, or the node.
        envelope: The signed advert.
    """
    try:
        advert = open_advert(AdvertEnvelope(AdvertKind.TOPIC, envelope), router.verifiers)
    except BadRecord:
        return "the advert cannot be read"
    if not isinstance(advert, TopicAdvert) or advert.identity != topic:
        return "the advert is not signed by the topic"
    if advert.scope != scope:
        return "the advert has another scope"
    if scope.kind is ScopeKind.LOCAL:
        return advert
    first = advert.publishers[0] if advert.publishers else None
    if first is None or (first != router.own and router.engines.of(first) is None):
        return "the first publisher of the advert is no engine of this node"
    return advert
