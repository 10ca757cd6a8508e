"""The topics of a node: the engines here that create, publish to and subscribe to them.

A topic is created by an engine of this node, or is *followed* here: its publisher is another node,
and the events that come from there go to the subscribers here. All changes are requested by an
engine of this node. The table takes the requester as an argument: the engine that the mailbox a
request came from belongs to, `None` for a sender of the network. A body that names another engine
changes nothing.

A publication goes to the subscribers of that moment, in the order in which they subscribed, and
never back to the engine that handed it in. So what the network brings is not published again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ..options import Count, check_options
from ._identities import Identity
from ._preferences import SCOPE_LOCAL, RoutingScope, ScopeKind
from ._results import ResultCode

__all__ = [
    "CreatorEnd",
    "FanOutCopies",
    "Topic",
    "TopicCounters",
    "TopicDeleted",
    "TopicEvent",
    "TopicHandedOver",
    "TopicIdle",
    "TopicLimits",
    "TopicTable",
]


class CreatorEnd(Enum):
    """The fate of a topic after the end of its creator."""

    DELETE = "delete"
    """It is deleted."""

    HAND_OVER = "hand-over"
    """Its first subscriber is the creator from then on; without subscribers it is deleted."""


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Limits of the topics of a node.

    Attributes:
        topics: Topics that are created or followed here. One more: `OVERFLOW`.
        subscribers: Subscribers of one topic. One more: `OVERFLOW`.
        topics_of_engine: Topics that one engine has created, and, counted apart, those that it is
            subscribed to. One more: `OVERFLOW`.
        remembered: Publications that are remembered by source, topic and id, to drop those that
            come again. Beyond: the oldest is forgotten, and counted.
    """

    topics: Count = 4096
    subscribers: Count = 10_000
    topics_of_engine: Count = 256
    remembered: Count = 65_536

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is at one moment.

    Attributes:
        identity: The topic.
        creator: The engine that created it; `None` if it is followed.
        scope: How far publications go and subscriptions come from.
        publishers: The sources that may publish to it; `None` for all.
        advert: The envelope of its advert; empty for one that stays in this node.
        subscribers: The engines here that are subscribed, in the order of their subscriptions.
    """

    identity: Identity
    creator: Identity | None
    scope: RoutingScope
    publishers: frozenset[Identity] | None
    advert: bytes
    subscribers: tuple[Identity, ...]


class FanOutCopies(NamedTuple):
    """The answer to a publication.

    Attributes:
        result: `OK`, `UNKNOWN` without such a topic, or `DENIED` for a source that may not publish.
        subscribers: The engines that get a copy, in this order.
        duplicate: Whether it was published before; then there are no copies.
    """

    result: ResultCode
    subscribers: tuple[Identity, ...] = ()
    duplicate: bool = False


class TopicDeleted(NamedTuple):
    """A topic is gone, as its creator has ended or its publisher has deleted it.

    Attributes:
        topic: The topic.
        subscribers: The engines that were subscribed.
    """

    topic: Identity
    subscribers: tuple[Identity, ...]


class TopicHandedOver(NamedTuple):
    """A topic has another creator, as the one before has ended.

    Attributes:
        topic: The topic.
        creator: The new creator.
    """

    topic: Identity
    creator: Identity


class TopicIdle(NamedTuple):
    """A followed topic has no subscriber here any more and is gone: its publisher is to know.

    Attributes:
        topic: The topic.
    """

    topic: Identity


TopicEvent = TopicDeleted | TopicHandedOver | TopicIdle
"""A change of topics that is not an answer to a request for it."""


@dataclass(slots=True)
class TopicCounters:
    """Counts of the topics of a node.

    Attributes:
        duplicates: Publications that were dropped, as they came before.
        denied: Publications that were refused, as their source may not publish.
        unknown: Publications to no topic of this node.
        forgotten: Publications that were forgotten at the limit `remembered`.
    """

    duplicates: int = 0
    denied: int = 0
    unknown: int = 0
    forgotten: int = 0


@dataclass(slots=True)
class _Entry:
    creator: Identity | None
    scope: RoutingScope
    publishers: frozenset[Identity] | None
    advert: bytes
    # A dictionary has the order of subscriptions.
    subscribers: dict[Identity, None]


_NO_TOPICS: Final[dict[Identity, None]] = {}


class TopicTable:
    """The topics of a node.

    Args:
        limits: Its limits.
        creator_end: What becomes of a topic when its creator ends.
    """

    __slots__ = (
        "_by_creator",
        "_by_subscriber",
        "_creator_end",
        "_limits",
        "_remembered",
        "_topics",
        "counters",
    )

    def __init__(
        self, limits: TopicLimits | None = None, creator_end: CreatorEnd = CreatorEnd.DELETE
    ) -> None:
        self._limits = TopicLimits() if limits is None else limits
        self._creator_end = creator_end
        self._topics: dict[Identity, _Entry] = {}
        self._by_creator: dict[Identity, dict[Identity, None]] = {}
        self._by_subscriber: dict[Identity, dict[Identity, None]] = {}
        self._remembered: OrderedDict[tuple[Identity, Identity, int], None] = OrderedDict()
        self.counters = TopicCounters()

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Identity]:
        return iter(tuple(self._topics))

    def scope(self, topic: Identity) -> RoutingScope | None:
        """Return how far a topic goes; `None` without it."""
        entry = self._topics.get(topic)
        return None if entry is None else entry.scope

    def subscribers(self, topic: Identity) -> tuple[Identity, ...]:
        """Return the engines here that are subscribed to a topic; none without it."""
        entry = self._topics.get(topic)
        return () if entry is None else tuple(entry.subscribers)

    def may_publish(self, topic: Identity, source: Identity) -> bool:
        """Whether a source may publish to a topic that is here."""
        entry = self._topics.get(topic)
        return entry is not None and (entry.publishers is None or source in entry.publishers)

    def topic(self, topic: Identity) -> Topic | None:
        """Return a topic as it is now; `None` without one."""
        entry = self._topics.get(topic)
        if entry is None:
            return None
        return Topic(
            topic,
            entry.creator,
            entry.scope,
            entry.publishers,
            entry.advert,
            tuple(entry.subscribers),
        )

    def create(
        self,
        topic: Identity,
        requester: Identity | None,
        scope: RoutingScope = SCOPE_LOCAL,
        advert: bytes = b"",
        publishers: frozenset[Identity] | None = None,
    ) -> ResultCode:
        """Create a topic.

        Args:
            topic: The topic.
            requester: The engine of this node that wants it; `None` for a sender of the network.
            scope: How far it reaches.
            advert: The envelope of its advert, which the caller has verified: it is signed by the
                topic and names this scope. One that leaves the node needs it.
            publishers: The sources that may publish; `None` for all.

        Returns:
            `OK`, or `DENIED`, `EXISTS`, `BAD_ADVERT`, `OVERFLOW`, after which nothing has changed.
        """
        if requester is None:
            return ResultCode.DENIED
        if topic in self._topics:
            return ResultCode.EXISTS
        if scope.kind is not ScopeKind.LOCAL and not advert:
            return ResultCode.BAD_ADVERT
        created = self._by_creator.get(requester, _NO_TOPICS)
        if self._is_full() or len(created) >= self._limits.topics_of_engine:
            return ResultCode.OVERFLOW
        self._topics[topic] = _Entry(requester, scope, publishers, advert, {})
        self._by_creator.setdefault(requester, {})[topic] = None
        return ResultCode.OK

    def delete(self, topic: Identity, requester: Identity | None) -> ResultCode:
        """Delete a topic with its subscriptions.

        Returns:
            `OK`, or `DENIED`, `UNKNOWN`, and `NOT_OWNER` if another engine created it.
        """
        if requester is None:
            return ResultCode.DENIED
        entry = self._topics.get(topic)
        if entry is None:
            return ResultCode.UNKNOWN
        if entry.creator != requester:
            return ResultCode.NOT_OWNER
        self._remove(topic, entry, requester)
        return ResultCode.OK

    def follow(
        self, topic: Identity, scope: RoutingScope, publishers: frozenset[Identity] | None = None
    ) -> ResultCode:
        """Add a topic of another node, which has taken the subscription of this one.

        Returns:
            `OK`, or `EXISTS`, `OVERFLOW`, and `SCOPE` for a topic that never leaves its node.
        """
        if scope.kind is ScopeKind.LOCAL:
            return ResultCode.SCOPE
        if topic in self._topics:
            return ResultCode.EXISTS
        if self._is_full():
            return ResultCode.OVERFLOW
        self._topics[topic] = _Entry(None, scope, publishers, b"", {})
        return ResultCode.OK

    def restrict(self, topic: Identity, publishers: frozenset[Identity] | None) -> None:
        """Set the sources that may publish to a topic that is here; `None` for all."""
        entry = self._topics.get(topic)
        if entry is not None:
            entry.publishers = publishers

    def unfollow(self, topic: Identity) -> TopicDeleted | None:
        """Remove a topic of another node, as it is gone there; `None` if it is not followed."""
        entry = self._topics.get(topic)
        if entry is None or entry.creator is not None:
            return None
        self._forget_subscribers(topic, entry)
        del self._topics[topic]
        return TopicDeleted(topic, tuple(entry.subscribers))

    def subscribe(
        self, topic: Identity, requester: Identity | None, scope: RoutingScope = SCOPE_LOCAL
    ) -> ResultCode:
        """Subscribe an engine of this node.

        Returns:
            `OK`, or `DENIED`, `ALREADY_SUBSCRIBED`, `OVERFLOW`; `UNKNOWN` if there is no such topic
            here: with a scope beyond the node the caller then asks the network, follows the topic,
            and subscribes again; `SCOPE` if the topic reaches no further than another domain.
        """
        if requester is None:
            return ResultCode.DENIED
        entry = self._topics.get(topic)
        if entry is None:
            return ResultCode.UNKNOWN
        if requester in entry.subscribers:
            return ResultCode.ALREADY_SUBSCRIBED
        if (
            scope.kind is ScopeKind.DOMAIN is entry.scope.kind
            and scope.domain != entry.scope.domain
        ):
            return ResultCode.SCOPE
        subscribed = self._by_subscriber.get(requester, _NO_TOPICS)
        if (
            len(entry.subscribers) >= self._limits.subscribers
            or len(subscribed) >= self._limits.topics_of_engine
        ):
            return ResultCode.OVERFLOW
        entry.subscribers[requester] = None
        self._by_subscriber.setdefault(requester, {})[topic] = None
        return ResultCode.OK

    def unsubscribe(
        self, topic: Identity, requester: Identity | None
    ) -> tuple[ResultCode, list[TopicEvent]]:
        """Unsubscribe an engine of this node.

        Returns:
            `OK`, or `DENIED`, `UNKNOWN`, `NOT_SUBSCRIBED`; and `TopicIdle` if a followed topic had
            no other subscriber.
        """
        if requester is None:
            return ResultCode.DENIED, []
        entry = self._topics.get(topic)
        if entry is None:
            return ResultCode.UNKNOWN, []
        if requester not in entry.subscribers:
            return ResultCode.NOT_SUBSCRIBED, []
        return ResultCode.OK, self._unsubscribe(topic, entry, requester)

    def publish(
        self,
        topic: Identity,
        source: Identity,
        number: int | None,
        injector: Identity | None = None,
    ) -> FanOutCopies:
        """Return the engines that get a copy of a publication.

        Args:
            topic: The topic.
            source: The engine that the message is from.
            number: The id of the message, which is unique for its source and topic; `None` for one
                of this node, which cannot come again.
            injector: The engine that handed it to this node, which gets no copy: the source, or
                the one that brings the events of the network.
        """
        entry = self._topics.get(topic)
        if entry is None:
            self.counters.unknown += 1
            return FanOutCopies(ResultCode.UNKNOWN)
        if entry.publishers is not None and source not in entry.publishers:
            self.counters.denied += 1
            return FanOutCopies(ResultCode.DENIED)
        if number is not None and not self._remember((source, topic, number)):
            return FanOutCopies(ResultCode.OK, duplicate=True)
        copies = tuple(each for each in entry.subscribers if each != injector)
        return FanOutCopies(ResultCode.OK, copies)

    def _remember(self, key: tuple[Identity, Identity, int]) -> bool:
        """Remember a publication; false if it is remembered already."""
        if key in self._remembered:
            self.counters.duplicates += 1
            return False
        self._remembered[key] = None
        if len(self._remembered) > self._limits.remembered:
            self._remembered.popitem(last=False)
            self.counters.forgotten += 1
        return True

    def end_engine(self, engine: Identity) -> list[TopicEvent]:
        """Remove an engine that has ended: its subscriptions, and the topics that it created.

        What it costs grows with the topics of this engine, not with those of the node.
        """
        events: list[TopicEvent] = []
        for topic in tuple(self._by_subscriber.get(engine, _NO_TOPICS)):
            events += self._unsubscribe(topic, self._topics[topic], engine)
        for topic in tuple(self._by_creator.get(engine, _NO_TOPICS)):
            events.append(self._end_creator(topic, self._topics[topic], engine))
        return events

    def _end_creator(self, topic: Identity, entry: _Entry, creator: Identity) -> TopicEvent:
        subscribers = tuple(entry.subscribers)
        if self._creator_end is CreatorEnd.HAND_OVER:
            for heir in subscribers:
                # One engine cannot come to own more topics than it could create.
                owned = self._by_creator.setdefault(heir, {})
                if len(owned) < self._limits.topics_of_engine:
                    _discard(self._by_creator, creator, topic)
                    owned[topic] = None
                    entry.creator = heir
                    return TopicHandedOver(topic, heir)
        self._remove(topic, entry, creator)
        return TopicDeleted(topic, subscribers)

    def _unsubscribe(self, topic: Identity, entry: _Entry, engine: Identity) -> list[TopicEvent]:
        del entry.subscribers[engine]
        _discard(self._by_subscriber, engine, topic)
        if entry.creator is not None or entry.subscribers:
            return []
        del self._topics[topic]
        return [TopicIdle(topic)]

    def _remove(self, topic: Identity, entry: _Entry, creator: Identity) -> None:
        self._forget_subscribers(topic, entry)
        _discard(self._by_creator, creator, topic)
        del self._topics[topic]

    def _forget_subscribers(self, topic: Identity, entry: _Entry) -> None:
        for engine in entry.subscribers:
            _discard(self._by_subscriber, engine, topic)

    def _is_full(self) -> bool:
        return len(self._topics) >= self._limits.topics


def _discard(
    index: dict[Identity, dict[Identity, None]], engine: Identity, topic: Identity
) -> None:
    topics = index[engine]
    del topics[topic]
    if not topics:
        del index[engine]
