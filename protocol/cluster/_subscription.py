"""The copy of another broker's routes: the receiver's state machine.

It holds no route. It checks what comes against the number that has to follow, and returns what has
to be done to the routing table, in order. Nothing of a bad element is returned.

What has to be done is what makes a copy: a snapshot is a *round* (`RoundBegan`, the routes,
`RoundEnded`), after which the routes that were not named in it are removed. There are no
tombstones: the stream has one writer and one order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from ..broker import BrokerFrameError, Dialect, RouteAdd, RouteRemove, parse_frame
from ._elements import Element, ElementKind, Position
from ._errors import ClusterFrameError
from ._limits import ClusterLimits
from ._subscription_states import SUBSCRIPTION, SubscriptionInput, SubscriptionState

__all__ = [
    "CaughtUp",
    "RoundBegan",
    "RoundEnded",
    "RouteAdded",
    "RouteRefused",
    "RouteRemoved",
    "RouteSubscription",
    "RouteSubscriptionStatistics",
    "SubscribeAgain",
    "SubscriptionEvent",
]

_S, _I = SubscriptionState, SubscriptionInput


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """A snapshot begins: the routes that are named until `RoundEnded` are all that there are.

    Attributes:
        instance: The instance of the home broker.
    """

    instance: int


@dataclass(frozen=True, slots=True)
class RouteAdded:
    """A route of the home broker is there, or is replaced by this registration.

    Attributes:
        route: The registration.
    """

    route: RouteAdd


@dataclass(frozen=True, slots=True)
class RouteRemoved:
    """A route of the home broker is gone.

    Attributes:
        route: The removal. It concerns the entry of this home broker and no other.
    """

    route: RouteRemove


@dataclass(frozen=True, slots=True)
class RouteRefused:
    """A route with a timestamp that is too far ahead; an earlier entry of it has to be removed.

    Attributes:
        route: The registration.
        ahead: Time by which it is ahead of this broker's clock, in milliseconds.
    """

    route: RouteAdd
    ahead: int


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """The snapshot is whole: routes that were not named since `RoundBegan` have to be removed."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The copy is what the home broker had: routes that were hidden may be used again."""


@dataclass(frozen=True, slots=True)
class SubscribeAgain:
    """Something is missing: the stream has to be cancelled, and another one asked for.

    Attributes:
        reason: What was found.
    """

    reason: str


SubscriptionEvent: TypeAlias = (
    RoundBegan | RouteAdded | RouteRemoved | RouteRefused | RoundEnded | CaughtUp | SubscribeAgain
)
"""What has to be done after an element."""


@dataclass(frozen=True, slots=True)
class RouteSubscriptionStatistics:
    """A subscription at one moment.

    Attributes:
        state: Its state.
        position: Its position in the log of the home broker.
        elements: Number of elements that were received and not ignored.
        added: Number of registrations among them.
        removed: Number of removals.
        refused: Number of registrations that were refused because of their timestamps.
        rounds: Number of snapshots that have begun.
        gaps: Number of elements after which another stream was asked for.
    """

    state: SubscriptionState
    position: Position
    elements: int
    added: int
    removed: int
    refused: int
    rounds: int
    gaps: int


class RouteSubscription:
    """The subscription to the routes of one home broker, over all streams.

    It has to be made anew when the copy is dropped.

    Args:
        home: 16 bytes: the home broker's id.
        limits: `max_ahead` and `mark` are used.

    Attributes:
        state: The state.
    """

    def __init__(self, home: bytes, limits: ClusterLimits | None = None) -> None:
        self.home: Final = home
        self.state = SubscriptionState.IDLE
        self._limits = limits or ClusterLimits()
        self._position = Position()
        # Of the snapshot under way: what the position will be.
        self._round: Position | None = None
        self._heard_at = 0.0
        self._out_of_step_since: float | None = None
        self._elements = self._added = self._removed = 0
        self._refused = self._rounds = self._gaps = 0

    @property
    def position(self) -> Position:
        """The position from which a stream would be asked for."""
        return self._position

    def _move(self, given: SubscriptionInput) -> bool:
        after = SUBSCRIPTION.get((self.state, given))
        if after is None:
            return False
        self.state = after
        return True

    def request(self, now: float) -> bytes:
        """Ask for a stream: return the data of the request.

        Args:
            now: The time, in seconds of the caller's clock.

        Raises:
            AssertionError: There is a stream.
        """
        if not self._move(_I.REQUEST):
            raise AssertionError(f"unexpected request in {self.state}")
        self._heard_at = self._out_of_step_since = now
        return self._position.serialize()

    def lost(self, now: float) -> None:
        """Receive the end of the stream, or of the link; without a stream nothing happens."""
        if self._move(_I.LOST):
            self._out_of_step_since = now
            self._round = None

    def forget(self) -> None:
        """Forget the position: the next stream begins with all routes.

        Raises:
            AssertionError: There is a stream.
        """
        if self.state is not _S.IDLE:
            raise AssertionError(f"unexpected forgetting in {self.state}")
        self._position = Position()

    def receive(self, element: Element, now: float, clock: int) -> tuple[SubscriptionEvent, ...]:
        """Receive an element; return what has to be done, in order.

        Args:
            element: The element.
            now: The time, in seconds of the caller's clock.
            clock: The time, in milliseconds since the Unix epoch.

        Raises:
            ClusterFrameError: It is of another home broker, may not come here, or has a frame that
                cannot be read or is about another broker's route. The subscription is as it was.
        """
        if element.home != self.home:
            raise ClusterFrameError("an element of another broker's routes")
        if self.state in (_S.IDLE, _S.STALE):
            return ()
        given = _input(element)
        if (self.state, given) not in SUBSCRIPTION:
            raise ClusterFrameError(
                f"{given.value} while the subscription is {self.state}".replace("_", " ")
            )
        routes = self._read(element)
        self._elements += 1
        self._heard_at = now
        if gap := self._gap(element):
            self._move(_I.GAP)
            self._position, self._round = Position(), None
            self._gaps += 1
            self._out_of_step_since = now
            return (SubscribeAgain(gap),)
        return self._take(element, given, routes, now, clock)

    def _read(self, element: Element) -> list[RouteAdd | RouteRemove]:
        """Read all frames, before any of them has an effect."""
        routes: list[RouteAdd | RouteRemove] = []
        snapshot = element.kind is ElementKind.SNAPSHOT
        for data in element.frames:
            try:
                frame = parse_frame(data, Dialect.SPECIFICATION)
            except BrokerFrameError as error:
                raise ClusterFrameError(f"a frame in an element: {error}") from None
            if not isinstance(frame, RouteAdd | RouteRemove) or (
                snapshot and isinstance(frame, RouteRemove)
            ):
                raise ClusterFrameError(
                    f"{type(frame).__name__} in an element of {element.kind.name}"
                )
            # ROUTE_JOIN: "This is used to distinguish which broker to route to when creating
            # routing tables." A broker tells of its own routes alone.
            if frame.broker_id != self.home:
                raise ClusterFrameError("a frame about another broker's route")
            routes.append(frame)
        return routes

    def _gap(self, element: Element) -> str:
        """Return what is missing before an element; nothing if it is the one that has to follow."""
        position, came = self._position, Position(element.instance, element.sequence)
        if element.kind is ElementKind.SNAPSHOT:
            follows = self._round is None or self._round == came
            return "" if follows else "parts of two snapshots"
        if element.instance != position.instance:
            return "an element of another instance"
        missing = element.sequence - len(element.frames) - position.sequence
        return f"number {element.sequence} is not the one that follows" if missing else ""

    def _take(
        self,
        element: Element,
        given: SubscriptionInput,
        routes: list[RouteAdd | RouteRemove],
        now: float,
        clock: int,
    ) -> tuple[SubscriptionEvent, ...]:
        events: list[SubscriptionEvent] = []
        was_in_step = self.state is _S.IN_STEP
        self._move(given)
        came = Position(element.instance, element.sequence)
        if element.kind is ElementKind.SNAPSHOT and self._round is None:
            # What is here before the last part comes is no position to go on from.
            self._position, self._round = Position(), came
            self._rounds += 1
            events.append(RoundBegan(element.instance))
        events += [self._event(route, clock) for route in routes]
        if given is _I.LAST_PART:
            self._round = None
            events += (RoundEnded(), CaughtUp())
        elif self.state is _S.IN_STEP and not was_in_step:
            events.append(CaughtUp())
        if self._round is None:
            self._position = came
        if was_in_step and self.state is not _S.IN_STEP:
            self._out_of_step_since = now
        return tuple(events)

    def _event(self, route: RouteAdd | RouteRemove, clock: int) -> SubscriptionEvent:
        if isinstance(route, RouteRemove):
            self._removed += 1
            return RouteRemoved(route)
        ahead = route.timestamp - clock
        if ahead > self._limits.max_ahead * 1000:
            self._refused += 1
            return RouteRefused(route, ahead)
        self._added += 1
        return RouteAdded(route)

    def lag(self, now: float) -> float:
        """Return for how long the copy may have been behind, in seconds.

        In step that is 0 until a mark is overdue.
        """
        if self.state is _S.IN_STEP:
            return max(0.0, now - self._heard_at - self._limits.mark)
        since = self._out_of_step_since
        return 0.0 if since is None else now - since

    def statistics(self) -> RouteSubscriptionStatistics:
        """Return the subscription's figures at this moment."""
        return RouteSubscriptionStatistics(
            state=self.state,
            position=self._position,
            elements=self._elements,
            added=self._added,
            removed=self._removed,
            refused=self._refused,
            rounds=self._rounds,
            gaps=self._gaps,
        )


def _input(element: Element) -> SubscriptionInput:
    if element.kind is ElementKind.SNAPSHOT:
        return _I.LAST_PART if element.last else _I.PART
    if element.kind is ElementKind.CHANGES:
        return _I.CHANGES
    if element.kind is ElementKind.MARK:
        return _I.MARK
    raise ClusterFrameError(f"an element of {element.kind.name} in a stream of routes")
