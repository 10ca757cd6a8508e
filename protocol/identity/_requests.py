"""Requests to the router and to the directory, and their responses.

Topics are created, deleted, subscribed to and unsubscribed from by engines of the node itself, and
so are records looked up and updated. Nodes ask each other for adverts alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from ._advert_envelopes import MAX_ADVERT_ENVELOPE, AdvertEnvelope
from ._checks import check_key, check_number, check_size
from ._errors import BadRecord
from ._identities import Identity
from ._identity_records import IdentityRecord, LocalMetadata
from ._preferences import RoutingScope
from ._results import Result

__all__ = [
    "MAX_ADVERTS_SENT",
    "AdvertRequest",
    "AdvertResponse",
    "ControlRecord",
    "IdentityUpdated",
    "LookupIdentityRequest",
    "LookupIdentityResponse",
    "TopicCreateRequest",
    "TopicCreateResponse",
    "TopicDeleteRequest",
    "TopicDeleteResponse",
    "TopicSubRequest",
    "TopicSubResponse",
    "TopicUnsubRequest",
    "TopicUnsubResponse",
    "UpdateIdentityRequest",
    "UpdateIdentityResponse",
]

MAX_ADVERTS_SENT: Final = 4
"""Most adverts of one response."""


@dataclass(frozen=True, slots=True)
class TopicCreateRequest:
    """A request to create a topic.

    Attributes:
        topic: The topic.
        scope: How far it goes.
        advert: The signed advert of the topic, of 1 to `MAX_ADVERT_ENVELOPE` bytes, which a scope
            beyond the node needs; `None` for none.

    Raises:
        BadRecord: The topic has no key, or the advert another size.
    """

    topic: Identity
    scope: RoutingScope
    advert: bytes | None = None

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)
        if self.advert is not None:
            check_size("the advert", self.advert, MAX_ADVERT_ENVELOPE, 1)


@dataclass(frozen=True, slots=True)
class TopicCreateResponse:
    """A response to the request to create a topic.

    Attributes:
        topic: The topic.
        result: What came of it.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    result: Result

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicDeleteRequest:
    """A request to delete a topic, by the engine that created it.

    Attributes:
        topic: The topic.
        scope: How far it goes.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    scope: RoutingScope

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicDeleteResponse:
    """A response to the request to delete a topic.

    Attributes:
        topic: The topic.
        result: What came of it.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    result: Result

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicSubRequest:
    """A request of an engine to subscribe to a topic.

    Attributes:
        topic: The topic.
        scope: How far it goes.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    scope: RoutingScope

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicSubResponse:
    """A response to the request to subscribe to a topic.

    Attributes:
        topic: The topic.
        result: What came of it.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    result: Result

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicUnsubRequest:
    """A request of an engine to end its subscription to a topic.

    Attributes:
        topic: The topic.
        scope: How far it goes.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    scope: RoutingScope

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class TopicUnsubResponse:
    """A response to the request to end a subscription.

    Attributes:
        topic: The topic.
        result: What came of it.

    Raises:
        BadRecord: The topic has no key.
    """

    topic: Identity
    result: Result

    def __post_init__(self) -> None:
        check_key("the topic", self.topic)


@dataclass(frozen=True, slots=True)
class LookupIdentityRequest:
    """A request for what the directory knows of an identity.

    Attributes:
        identity: The identity.
    """

    identity: Identity


@dataclass(frozen=True, slots=True)
class LookupIdentityResponse:
    """A response with what the directory knows of an identity.

    Attributes:
        identity: The identity.
        record: Its record; `None` if it is not known.

    Raises:
        BadRecord: The record is of another identity.
    """

    identity: Identity
    record: IdentityRecord | None

    def __post_init__(self) -> None:
        _check_record(self.identity, self.record)


@dataclass(frozen=True, slots=True)
class UpdateIdentityRequest:
    """A request to set what the node itself says about an identity.

    Attributes:
        identity: The identity.
        local: What the node says now; it replaces all that it said before.
        advert: An advert of the identity to put as well; `None` for none.
    """

    identity: Identity
    local: LocalMetadata
    advert: AdvertEnvelope | None = None


@dataclass(frozen=True, slots=True)
class UpdateIdentityResponse:
    """A response to the request to update an identity.

    Attributes:
        identity: The identity.
        result: What came of it.
    """

    identity: Identity
    result: Result


@dataclass(frozen=True, slots=True)
class IdentityUpdated:
    """A notice that what the directory knows of an identity has changed.

    Attributes:
        identity: The identity.
        record: Its record now; `None` if it is not known any more.

    Raises:
        BadRecord: The record is of another identity.
    """

    identity: Identity
    record: IdentityRecord | None

    def __post_init__(self) -> None:
        _check_record(self.identity, self.record)


@dataclass(frozen=True, slots=True)
class AdvertRequest:
    """A request of a node for the advert of an identity.

    Attributes:
        identity: The identity.
    """

    identity: Identity


@dataclass(frozen=True, slots=True)
class AdvertResponse:
    """A response with the advert of an identity, which may come without a request.

    Attributes:
        identity: The identity.
        adverts: Its advert, then those that lead on, as that of the node of an engine; at most
            `MAX_ADVERTS_SENT`. None if it is not known.

    Raises:
        BadRecord: There are too many.
    """

    identity: Identity
    adverts: tuple[AdvertEnvelope, ...]

    def __post_init__(self) -> None:
        check_number("the number of adverts", len(self.adverts), MAX_ADVERTS_SENT)


ControlRecord: TypeAlias = (
    TopicCreateRequest
    | TopicCreateResponse
    | TopicDeleteRequest
    | TopicDeleteResponse
    | TopicSubRequest
    | TopicSubResponse
    | TopicUnsubRequest
    | TopicUnsubResponse
    | LookupIdentityRequest
    | LookupIdentityResponse
    | UpdateIdentityRequest
    | UpdateIdentityResponse
    | IdentityUpdated
    | AdvertRequest
    | AdvertResponse
)
"""A request, a response or a notice of any kind."""


def _check_record(identity: Identity, record: IdentityRecord | None) -> None:
    if record is not None and record.identity != identity:
        raise BadRecord("the record is of another identity")
