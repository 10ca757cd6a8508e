"""Requests about topics as messages: the records, and the responses to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.identity import (
    Result,
    ResultCode,
    TopicCreateRequest,
    TopicCreateResponse,
    TopicDeleteRequest,
    TopicDeleteResponse,
    TopicSubRequest,
    TopicSubResponse,
    TopicUnsubRequest,
    TopicUnsubResponse,
)
from .._engines import Engine
from .._local_requests import Answer, LocalRequests
from ._subscriber_hooks import SubscriberHooks

if TYPE_CHECKING:
    from ._part import Topics

__all__ = ["serve_topic_requests"]


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
