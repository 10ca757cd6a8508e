"""A subscriber's end of a topic between nodes: order, gaps, and what is lost.

Events are delivered in the order of their numbers, each once at most. One that comes too early is
held back, and those before it are asked for, again after a time that doubles. What the publisher
does not keep any more, or does not send after some tries, is reported as lost, and the rest goes
on. It says how many are lost, except those of a publisher that has started anew, which does not
know.

Nothing is held further than a ring of events ahead: what is older cannot be asked for anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Final, NamedTuple, TypeAlias

from ..options import Count, Range, Seconds, check_options
from ._events import Event, first_number, instance_of
from ._identities import Identity
from ._results import ResultCode
from ._topic_records import (
    RING_EVENTS,
    ResendEvents,
    SubscribeTopic,
    TopicProgress,
    TopicSubscribed,
    TopicUnsubscribed,
    UnsubscribeTopic,
)

__all__ = [
    "DeliverEvent",
    "EventsLost",
    "PublisherRestarted",
    "SendTopicRecord",
    "Subscription",
    "SubscriptionAction",
    "SubscriptionCounters",
    "SubscriptionEnded",
    "SubscriptionLimits",
    "SubscriptionState",
]

_MOST_DOUBLED: Final = 100
"""How often the time until the next try doubles at most; it is over its limit long before."""

Tries: TypeAlias = Annotated[int, Range(least=1, most=100)]
"""A number of tries."""


@dataclass(frozen=True, slots=True)
class SubscriptionLimits:
    """Limits of a subscriber's end of a topic.

    Attributes:
        held_bytes: Bytes of events that are held back. One more is dropped, counted, and asked for
            when it is its turn.
        first_wait: How long to wait for an answer, in seconds. It doubles each time.
        max_wait: The longest such time, in seconds.
        tries: How often the same is asked for. Then the events are lost, or the subscription ends
            with `TIMEOUT`.
        absence: Time for which a publisher that says it has no such topic is asked again, in
            seconds: it may have been started anew, and create it soon. Then the subscription ends
            with `UNKNOWN`.
    """

    held_bytes: Count = 4 * 1024 * 1024
    first_wait: Seconds = 0.5
    max_wait: Seconds = 30.0
    tries: Tries = 6
    absence: Seconds = 60.0

    def __post_init__(self) -> None:
        check_options(self)


class SubscriptionState(Enum):
    """The state of a subscription."""

    IDLE = auto()
    """There is no link, or nothing was asked yet."""
    ASKING = auto()
    """The publisher has not answered yet."""
    FOLLOWING = auto()
    """All that is known of was delivered."""
    MISSING = auto()
    """Events are missing, and asked for."""
    ENDED = auto()
    """Nothing comes any more."""


class _Input(Enum):
    JOIN = auto()
    ACCEPTED = auto()
    REFUSED = auto()
    GAP = auto()
    FILLED = auto()
    CUT = auto()
    LEAVE = auto()


_S, _I = SubscriptionState, _Input
_TRANSITIONS: Final = {
    (_S.IDLE, _I.JOIN): _S.ASKING,
    (_S.IDLE, _I.LEAVE): _S.ENDED,
    (_S.ASKING, _I.ACCEPTED): _S.FOLLOWING,
    (_S.ASKING, _I.REFUSED): _S.ENDED,
    (_S.ASKING, _I.CUT): _S.IDLE,
    (_S.ASKING, _I.LEAVE): _S.ENDED,
    (_S.FOLLOWING, _I.GAP): _S.MISSING,
    (_S.FOLLOWING, _I.REFUSED): _S.ENDED,
    (_S.FOLLOWING, _I.CUT): _S.IDLE,
    (_S.FOLLOWING, _I.LEAVE): _S.ENDED,
    (_S.MISSING, _I.FILLED): _S.FOLLOWING,
    (_S.MISSING, _I.REFUSED): _S.ENDED,
    (_S.MISSING, _I.CUT): _S.IDLE,
    (_S.MISSING, _I.LEAVE): _S.ENDED,
}
"""The next state for each state and input; another input is ignored."""


class SendTopicRecord(NamedTuple):
    """A record has to be sent to the publisher.

    Attributes:
        record: The record.
    """

    record: SubscribeTopic | UnsubscribeTopic | ResendEvents


class DeliverEvent(NamedTuple):
    """An event goes to the subscribers of this node.

    Attributes:
        event: The event.
    """

    event: Event


class EventsLost(NamedTuple):
    """Events were missed for good.

    Attributes:
        first: The number of the first one.
        lost: How many.
    """

    first: int
    lost: int


class PublisherRestarted(NamedTuple):
    """The publisher has started anew; how much of before is lost is not known.

    Attributes:
        instance: When it did, in Unix milliseconds by its clock.
    """

    instance: int


class SubscriptionEnded(NamedTuple):
    """The subscription has ended.

    Attributes:
        result: Why: the result of the publisher, or `TIMEOUT`.
    """

    result: ResultCode


SubscriptionAction: TypeAlias = (
    SendTopicRecord | DeliverEvent | EventsLost | PublisherRestarted | SubscriptionEnded
)
"""An effect of an input of a subscription."""


@dataclass(slots=True)
class SubscriptionCounters:
    """Counts of a subscriber's end of a topic.

    Attributes:
        delivered: Events that were delivered.
        duplicates: Events that were dropped, as they came before or are older than the next one.
        foreign: Events that were dropped, as they are of another topic or publisher.
        unexpected: Events that were dropped, as there was no subscription yet or any more.
        overflowed: Events that were dropped at the limit `held_bytes`.
        lost: Events that were missed for good.
        restarts: Starts of the publisher that were seen.
        resends: Requests for missing events.
        absences: Answers of the publisher that it has no such topic.
    """

    delivered: int = 0
    duplicates: int = 0
    foreign: int = 0
    unexpected: int = 0
    overflowed: int = 0
    lost: int = 0
    restarts: int = 0
    resends: int = 0
    absences: int = 0


class Subscription:
    """A subscriber's end of a topic.

    Args:
        topic: The topic.
        publisher: The identity that signs the events.
        limits: Its limits.
    """

    __slots__ = (
        "_absent",
        "_absent_until",
        "_actions",
        "_asked_until",
        "_deadline",
        "_held",
        "_held_bytes",
        "_known",
        "_limits",
        "_next",
        "_placed",
        "_publisher",
        "_request",
        "_topic",
        "_tries",
        "counters",
        "state",
    )

    def __init__(
        self, topic: Identity, publisher: Identity, limits: SubscriptionLimits | None = None
    ) -> None:
        self._topic = topic
        self._publisher = publisher
        self._limits = SubscriptionLimits() if limits is None else limits
        self.state = SubscriptionState.IDLE
        self.counters = SubscriptionCounters()
        self._actions: list[SubscriptionAction] = []
        self._request = 0
        # The next event to deliver, the end of those that are known of, and of those asked for.
        self._placed = False
        self._next = 0
        self._known = 0
        self._asked_until = 0
        self._held: dict[int, Event] = {}
        self._held_bytes = 0
        self._tries = 0
        self._deadline: float | None = None
        # How often the publisher has said that it has no such topic, and until when it is asked.
        self._absent = 0
        self._absent_until: float | None = None

    @property
    def is_absent(self) -> bool:
        """Whether the publisher has said that it has no such topic, and has not taken it since."""
        return self._absent_until is not None

    def get_timer(self) -> float | None:
        """Return when `handle_timer` is due, in seconds of a monotonic clock; `None` for never."""
        return self._deadline

    def join(self, now: float) -> list[SubscriptionAction]:
        """Ask the publisher for the events, as there is a link to it."""
        if self._enter(_I.JOIN):
            self._tries = self._absent = 0
            self._absent_until = None
            self._ask(now)
        return self._flush()

    def cut(self) -> list[SubscriptionAction]:
        """Wait for the next link, as this one has ended; what was delivered stays so."""
        if self._enter(_I.CUT):
            self._deadline = None
        return self._flush()

    def leave(self) -> list[SubscriptionAction]:
        """End the subscription."""
        linked = self.state is not SubscriptionState.IDLE
        if self._enter(_I.LEAVE):
            self._drop_all()
            if linked:
                self._request += 1
                self._actions.append(SendTopicRecord(UnsubscribeTopic(self._topic, self._request)))
        return self._flush()

    def receive(
        self, record: TopicSubscribed | TopicUnsubscribed | TopicProgress, now: float
    ) -> list[SubscriptionAction]:
        """Receive a record of the publisher.

        Args:
            record: The record, of this topic.
            now: Seconds of a monotonic clock.
        """
        match record:
            case TopicSubscribed():
                self._answered(record, now)
            case TopicUnsubscribed(_, request, result):
                if request == 0 and self._enter(_I.REFUSED):
                    self._end(result)
            case _:
                if self._placed and self._is_open() and record.next > self._next:
                    self._observe(record.first, record.next, now)
        return self._flush()

    def receive_event(self, event: Event, now: float) -> list[SubscriptionAction]:
        """Receive an event of which the signature has been verified.

        Args:
            event: The event.
            now: Seconds of a monotonic clock.
        """
        if event.topic != self._topic or event.publisher != self._publisher:
            self.counters.foreign += 1
        elif not (self._placed and self._is_open()):
            self.counters.unexpected += 1
        elif event.number < self._next or event.number in self._held:
            self.counters.duplicates += 1
        else:
            self._move_window(event.number + 1, instance_of(event.number))
            self._hold(event)
            self._go_on(now)
        return self._flush()

    def handle_timer(self, now: float) -> list[SubscriptionAction]:
        """Ask again, or give up, when it is time."""
        if self._deadline is None or now < self._deadline:
            return []
        exhausted = self._tries >= self._limits.tries
        if self.state is SubscriptionState.ASKING:
            if exhausted or (self._absent_until is not None and now >= self._absent_until):
                self._enter(_I.REFUSED)
                self._end(ResultCode.UNKNOWN if self.is_absent else ResultCode.TIMEOUT)
            else:
                self._ask(now)
        elif exhausted:
            self._skip_to(self._asked_until)
            self._go_on(now)
        else:
            self._ask_again(now)
        return self._flush()

    def _answered(self, answer: TopicSubscribed, now: float) -> None:
        if self.state is not SubscriptionState.ASKING or answer.request != self._request:
            return
        if answer.result is ResultCode.UNKNOWN:
            self._wait_for_topic(now)
            return
        if answer.result is not ResultCode.OK:
            self._enter(_I.REFUSED)
            self._end(answer.result)
            return
        self._enter(_I.ACCEPTED)
        self._deadline = self._absent_until = None
        if not self._placed:
            self._placed = True
            self._next = self._known = answer.next
        elif instance_of(answer.next) < instance_of(self._next):
            # Only the answer to a request of this link says so: the publisher's clock went back.
            self._restart(instance_of(answer.next))
        self._observe(self._next, max(answer.next, self._known), now)

    def _wait_for_topic(self, now: float) -> None:
        """Ask again later, as the publisher has no such topic, or not yet."""
        self.counters.absences += 1
        self._request += 1  # the same answer again says nothing new
        if self._absent_until is None:
            self._absent_until = now + self._limits.absence
        self._tries = self._absent
        self._wait(now)
        self._absent, self._tries = self._tries, 0

    def _observe(self, first: int, following: int, now: float) -> None:
        """Add that there are events before `following`, at the publisher those from `first` on."""
        self._move_window(following, instance_of(following))
        self._skip_to(first)
        self._known = max(self._known, following)
        self._go_on(now)

    def _move_window(self, end: int, instance: int) -> None:
        """Give up what is more than a ring before an end, or of an instance before that one."""
        if end - self._next <= RING_EVENTS:
            return
        if instance > instance_of(self._next):
            self._restart(instance)
        self._skip_to(end - RING_EVENTS)

    def _restart(self, instance: int) -> None:
        """Begin with the first event of an instance."""
        self._skip_to(self._known)
        self._next = self._known = first_number(instance)
        self.counters.restarts += 1
        self._actions.append(PublisherRestarted(instance))

    def _hold(self, event: Event) -> None:
        self._known = max(self._known, event.number + 1)
        size = len(event.body)
        if event.number > self._next and self._held_bytes + size > self._limits.held_bytes:
            self.counters.overflowed += 1
            return
        self._held[event.number] = event
        self._held_bytes += size

    def _skip_to(self, number: int) -> None:
        """Deliver what is held before an event, and report the others as lost."""
        if self._next >= number:
            return
        for each in sorted(each for each in self._held if each < number):
            self._lose(each)
            self._deliver(each)
            self._next = each + 1
        self._lose(number)
        self._next = number
        self._known = max(self._known, number)

    def _lose(self, end: int) -> None:
        """Report the events from the next one to an end as lost, if there are any."""
        lost = end - self._next
        if lost:
            self.counters.lost += lost
            self._actions.append(EventsLost(self._next, lost))

    def _go_on(self, now: float) -> None:
        """Deliver what is in order, and ask for what is missing then."""
        following = self._next
        while following in self._held:
            self._deliver(following)
            following += 1
        self._next = following
        if self.state is SubscriptionState.ASKING:
            return
        if following == self._known:
            self._enter(_I.FILLED)
            self._deadline = None
        elif self._enter(_I.GAP) or following >= self._asked_until:
            self._tries = 0
            self._ask_again(now)

    def _deliver(self, number: int) -> None:
        event = self._held.pop(number)
        self._held_bytes -= len(event.body)
        self.counters.delivered += 1
        self._actions.append(DeliverEvent(event))

    def _ask(self, now: float) -> None:
        self._request += 1
        self._actions.append(SendTopicRecord(SubscribeTopic(self._topic, self._request)))
        self._wait(now)

    def _ask_again(self, now: float) -> None:
        following = self._next
        self._asked_until = min(self._held, default=self._known)
        count = self._asked_until - following
        self._actions.append(SendTopicRecord(ResendEvents(self._topic, following, count)))
        self.counters.resends += 1
        self._wait(now)

    def _wait(self, now: float) -> None:
        wait = self._limits.first_wait * 2 ** min(self._tries, _MOST_DOUBLED)
        deadline = now + min(wait, self._limits.max_wait)
        if self._absent_until is not None:
            deadline = min(deadline, self._absent_until)
        self._deadline = deadline
        self._tries += 1

    def _end(self, result: ResultCode) -> None:
        self._drop_all()
        self._actions.append(SubscriptionEnded(result))

    def _drop_all(self) -> None:
        self._deadline = None
        self._held.clear()
        self._held_bytes = 0

    def _is_open(self) -> bool:
        return self.state not in {SubscriptionState.IDLE, SubscriptionState.ENDED}

    def _enter(self, given: _Input) -> bool:
        """Enter the state of the table; false if the input changes nothing."""
        state = _TRANSITIONS.get((self.state, given))
        if state is None:
            return False
        self.state = state
        return True

    def _flush(self) -> list[SubscriptionAction]:
        actions, self._actions = self._actions, []
        return actions
