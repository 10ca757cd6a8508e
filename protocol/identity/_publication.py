"""The publisher's end of a topic between nodes: its subscribers, and the last events.

There is one publisher, and each subscriber is joined to it by a link. It keeps the last events in a
ring, and sends those again that a subscriber asks for; of others it says where the ring begins. How
many events it sends again for one subscriber has a limit, as a request is small and its answer is
not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, TypeAlias

from ..options import Count, Range, Seconds, check_options
from ._events import Event, EventId, first_number
from ._identities import Identity
from ._results import ResultCode
from ._topic_records import (
    RING_EVENTS,
    EventRecord,
    ResendEvents,
    SubscribeTopic,
    TopicProgress,
    TopicRecord,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
)

__all__ = [
    "MAX_RING_BYTES",
    "EventCopies",
    "Publication",
    "PublicationCounters",
    "PublicationLimits",
]

MAX_RING_BYTES: Final = 4 * 1024 * 1024
"""Bytes of events of one topic that its publisher keeps, unless told otherwise."""

Ring: TypeAlias = Annotated[int, Range(least=1, most=RING_EVENTS)]
"""The size of a ring, in events."""


@dataclass(frozen=True, slots=True)
class PublicationLimits:
    """Limits of the publisher's end of a topic.

    Attributes:
        ring_events: Events that are kept to be sent again, at most `RING_EVENTS`. The oldest goes.
        ring_bytes: Bytes of them; the oldest goes, but the last one is always kept.
        subscribers: Nodes that are subscribed. One more: `OVERFLOW`.
        resends: Events that are sent again for one subscriber in `resend_time`. The others are not
            sent, and counted; the subscriber asks again.
        resend_time: That time, in seconds.
    """

    ring_events: Ring = RING_EVENTS
    ring_bytes: Count = MAX_RING_BYTES
    subscribers: Count = 1000
    resends: Count = 2 * RING_EVENTS
    resend_time: Seconds = 1.0

    def __post_init__(self) -> None:
        check_options(self)


class EventCopies(NamedTuple):
    """An event, and the nodes that it goes to.

    Attributes:
        number: Its number.
        record: What is sent.
        nodes: The subscribers of this moment, in the order of their subscriptions.
    """

    number: int
    record: EventRecord
    nodes: tuple[Identity, ...]


@dataclass(slots=True)
class PublicationCounters:
    """Counts of the publisher's end of a topic.

    Attributes:
        published: Events.
        resent: Events that were sent again.
        withheld: Events that were asked for, and not sent at the limit `resends`.
        passed: Events that were asked for, and not in the ring any more.
        strangers: Requests to send again of nodes that are not subscribed.
    """

    published: int = 0
    resent: int = 0
    withheld: int = 0
    passed: int = 0
    strangers: int = 0


@dataclass(slots=True)
class _Subscriber:
    since: float = 0.0
    resent: int = 0


class Publication:
    """The publisher's end of a topic.

    Args:
        topic: The topic.
        publisher: The identity that signs the events.
        instance: When the publisher started, in Unix milliseconds; later than any time before.
        seal: Returns the envelope of an event, as `sign_event` does.
        limits: Its limits.
    """

    __slots__ = (
        "_limits",
        "_next",
        "_publisher",
        "_ring",
        "_ring_bytes",
        "_seal",
        "_subscribers",
        "_topic",
        "counters",
    )

    def __init__(
        self,
        topic: Identity,
        publisher: Identity,
        instance: int,
        seal: Callable[[Event], bytes],
        limits: PublicationLimits | None = None,
    ) -> None:
        self._topic = topic
        self._publisher = publisher
        self._seal = seal
        self._limits = PublicationLimits() if limits is None else limits
        self._next = first_number(instance)
        self._ring: deque[EventRecord] = deque()
        self._ring_bytes = 0
        self._subscribers: dict[Identity, _Subscriber] = {}
        self.counters = PublicationCounters()

    @property
    def nodes(self) -> tuple[Identity, ...]:
        """The subscribers, in the order of their subscriptions."""
        return tuple(self._subscribers)

    @property
    def progress(self) -> TopicProgress:
        """The events that are kept; sent from time to time, it shows the loss of the last one."""
        return TopicProgress(self._topic, self._next - len(self._ring), self._next)

    def publish(
        self, body: bytes, deps: tuple[EventId, ...] = (), seen: tuple[EventId, ...] = ()
    ) -> EventCopies:
        """Make the next event.

        Raises:
            BadRecord: A part of it is over its limit; nothing has changed.
        """
        event = Event(self._topic, self._publisher, self._next, body, deps, seen)
        record = EventRecord(self._seal(event))
        self._next += 1
        self._ring.append(record)
        self._ring_bytes += len(record.envelope)
        limits = self._limits
        while len(self._ring) > 1 and (
            len(self._ring) > limits.ring_events or self._ring_bytes > limits.ring_bytes
        ):
            self._ring_bytes -= len(self._ring.popleft().envelope)
        self.counters.published += 1
        return EventCopies(event.number, record, self.nodes)

    def receive(
        self,
        node: Identity,
        record: SubscribeTopic | UnsubscribeTopic | ResendEvents,
        now: float,
        *,
        refusal: ResultCode = ResultCode.OK,
    ) -> list[TopicRecord]:
        """Receive a record of a subscriber and return the records for it.

        Args:
            node: The node at the other end of the link.
            record: The record, of this topic.
            now: Seconds of a monotonic clock.
            refusal: Why the node may not subscribe, such as `SCOPE`; `OK` if it may.
        """
        match record:
            case SubscribeTopic(_, request):
                return [self._subscribe(node, request, refusal)]
            case UnsubscribeTopic(_, request):
                known = self._subscribers.pop(node, None) is not None
                result = ResultCode.OK if known else ResultCode.NOT_SUBSCRIBED
                return [TopicUnsubscribed(self._topic, request, result)]
            case _:
                return self._resend(node, record.first, record.count, now)

    def drop(self, node: Identity) -> None:
        """Remove a node, as its link has ended. It subscribes again when it is back."""
        self._subscribers.pop(node, None)

    def end(self) -> list[tuple[Identity, TopicUnsubscribed]]:
        """End the topic and return the record for each subscriber."""
        nodes = self.nodes
        self._subscribers.clear()
        gone = TopicUnsubscribed(self._topic, 0, ResultCode.UNKNOWN)
        return [(node, gone) for node in nodes]

    def _subscribe(self, node: Identity, request: int, refusal: ResultCode) -> TopicSubscribed:
        if refusal is not ResultCode.OK:
            self.drop(node)
        elif node not in self._subscribers:
            if len(self._subscribers) < self._limits.subscribers:
                self._subscribers[node] = _Subscriber()
            else:
                refusal = ResultCode.OVERFLOW
        # A node that is subscribed asks again when the answer was lost: it is no error.
        if refusal is ResultCode.OK:
            return TopicSubscribed(self._topic, request, refusal, self._next)
        return TopicSubscribed(self._topic, request, refusal)

    def _resend(self, node: Identity, first: int, count: int, now: float) -> list[TopicRecord]:
        subscriber = self._subscribers.get(node)
        if subscriber is None:
            self.counters.strangers += 1
            return []
        answer: list[TopicRecord] = []
        oldest = self._next - len(self._ring)
        start, end = max(first, oldest), min(first + count, self._next)
        if start > first or end < first + count:
            # Other events than those that are there: where they begin and end comes first.
            answer.append(self.progress)
            self.counters.passed += min(start - first, count)
        if now - subscriber.since >= self._limits.resend_time:
            subscriber.since, subscriber.resent = now, 0
        wanted = max(0, end - start)
        sent = min(wanted, self._limits.resends - subscriber.resent)
        subscriber.resent += sent
        self.counters.resent += sent
        self.counters.withheld += wanted - sent
        answer += (self._ring[number - oldest] for number in range(start, start + sent))
        return answer
