"""What nodes tell each other first: their starts and clocks, and the engines that they have."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    MAX_GREETED,
    AdvertEnvelope,
    BadRecord,
    ControlContent,
    Destination,
    Greeting,
    Identity,
    MessageIds,
    RateLimiter,
    RelayLoadLimits,
    RelayStatus,
    first_id_time,
    parse_greeting,
    serialize_greeting,
    told_time,
)
from .._engines import Engine
from .._options import IdentityOptions
from ._reached_nodes import ReachedNodes

if TYPE_CHECKING:
    from .._router import Router
    from ._session import Session

__all__ = ["GREETING_BURST", "GREETING_RATE", "START_BURST", "START_SECONDS", "Greetings"]

GREETING_RATE: Final = 200
"""Greetings of one node in each second, in the long run. More are dropped, and counted."""
GREETING_BURST: Final = 20_000
"""Greetings of one node at once: one for each engine that it has, and more. Beyond: as above."""
START_SECONDS: Final = 10
"""Seconds in which one node is believed once that it was started anew, in the long run. All that
was asked of it ends then. Beyond: the greeting is dropped, and counted."""
START_BURST: Final = 16
"""Starts of one node, with the first one, that are believed at once. Beyond: as above."""


class Greetings:
    """The greetings of a node, and what it has heard in those of others.

    Args:
        router: The router.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
    """

    def __init__(
        self, router: Router, options: IdentityOptions, milliseconds: Callable[[], int]
    ) -> None:
        self._router: Final = router
        self._options: Final = options
        self._milliseconds: Final = milliseconds
        self._told = 0
        self._clocks: Final[OrderedDict[Identity, _Clock]] = OrderedDict()
        self._reached: Final = ReachedNodes(router, options.max_peers)
        self._rates: Final = RateLimiter(RelayLoadLimits(rate=GREETING_RATE, burst=GREETING_BURST))
        # By a clock of its own, as a rate is a whole number.
        self._starts: Final = RateLimiter(RelayLoadLimits(rate=1, burst=START_BURST))

    # --- to tell ------------------------------------------------------------------------------

    def greet(self, session: Session) -> None:
        """Greet a node with the advert of this one, and those of all engines that there are."""
        router = self._router
        self._told = told_time(router.started, self._milliseconds(), self._told)
        adverts = [router.own_adverts.of_node()]
        adverts += map(router.own_adverts.of_engine, router.engines)
        for first in range(0, len(adverts), MAX_GREETED):
            self._tell((session,), adverts[first : first + MAX_GREETED], self._told)

    def tell(self, engines: Sequence[Engine] = ()) -> None:
        """Send all other nodes the adverts of some engines; without, a sign of life."""
        adverts = [self._router.own_adverts.of_engine(each) for each in engines]
        self._tell(tuple(self._router.peers.sessions.values()), adverts, self._milliseconds())

    def _tell(
        self, sessions: Iterable[Session], adverts: Sequence[AdvertEnvelope], now: int
    ) -> None:
        router = self._router
        greeting = Greeting(router.started, now, tuple(adverts))
        content = ControlContent(serialize_greeting(greeting))
        for session in sessions:
            # If it is not handed over, the session has ended, and the next one begins with another.
            router.outgoing.tell(session.node, content, lambda _: None)

    def clock_set_back(self) -> None:
        """Begin the ids of messages anew that begin by the clock of this node."""
        self._reached.forget_all()

    # --- to hear ------------------------------------------------------------------------------

    def receive(self, session: Session, record: bytes) -> Greeting | None:
        """Receive a greeting, and return it; `None` if nothing is taken of it."""
        router, now = self._router, self._router.loop_time()
        if self._rates.spend(session.node, now) is not RelayStatus.OK:
            router.counts["greetings beyond those that a node may send"] += 1
            return None
        try:
            greeting = parse_greeting(record)
        except BadRecord:
            router.counts["records that cannot be read"] += 1
            return None
        clock = self._clocks.get(session.node)
        # A session outlives the node at its other end, if the route to it does.
        is_start = clock is None or clock.started != greeting.started
        if is_start and self._starts.spend(session.node, now / START_SECONDS) is not RelayStatus.OK:
            router.counts["starts beyond those that a node may tell"] += 1
            return None
        if not session.is_greeted or is_start:
            self._keep_clock(session.node, greeting)
        ahead = greeting.now - self._milliseconds()
        router.heard_adverts.hear(session.node, greeting.adverts, ahead)
        return greeting

    def _keep_clock(self, node: Identity, greeting: Greeting) -> None:
        clock = self._clocks.get(node)
        if clock is None or clock.started != greeting.started:
            # It has forgotten which ids it has seen, and accepts those alone that begin now.
            clock = self._clocks[node] = _Clock(greeting.started)
        clock.begins = first_id_time(greeting.started, greeting.now)
        clock.heard = greeting.now
        clock.ids = self._reached.adopt(node, greeting.started, greeting.now) or clock.ids
        self._clocks.move_to_end(node)
        if len(self._clocks) > self._options.max_peers:
            sessions = self._router.peers.sessions
            left = next((each for each in self._clocks if each not in sessions), None)
            if left is not None:
                del self._clocks[left]

    def started(self, node: Identity) -> int | None:
        """Return when another node was started, as it has said; `None` if it is not known."""
        clock = self._clocks.get(node)
        return None if clock is None else clock.started

    def take_id(self, node: Identity | None, own: Identity, to: Destination) -> int:
        """Take the id of a message to a node, or to an engine at it; `None` if it is let out."""
        if node is None:
            ids = self._clocks.values()
            return self._reached.take_blind_id(
                own, to, lambda time: any(each.ids.is_of(own, to, time) for each in ids)
            )
        clock, reached = self._clocks.get(node), self._reached
        if node not in self._router.peers.sessions:
            reached.look_again(node, to)
            if clock is not None and reached.created(node) > clock.heard:
                # It may have been started again since it has greeted.
                return reached.take_id(node, own, to, clock.begins)
        if clock is None:
            return reached.take_id(node, own, to, 0)
        # Those that an exit lets out may have begun with the same time, and be under way.
        is_begun = reached.begins(to.identity) == clock.begins
        return clock.ids.take(own, to, clock.begins + 1 if is_begun else clock.begins)

    def has_sent(self, node: Identity, own: Identity, to: Destination, number: int) -> bool:
        """Whether a message to a node, or to an engine at it, had an id; see `MessageIds`."""
        clock = self._clocks.get(node)
        return clock is not None and clock.ids.has_taken(own, to, number)


class _Clock:
    """The clock of another node, and the ids of the messages to it and its engines.

    Attributes:
        started: When the node was started, in Unix milliseconds of its own.
        begins: The time that ids begin with, as the session has said.
        heard: The time there when it greeted, in Unix milliseconds.
        ids: The ids.
    """

    __slots__ = ("begins", "heard", "ids", "started")

    def __init__(self, started: int) -> None:
        self.started: Final = started
        self.begins = 0
        self.heard = 0
        self.ids = MessageIds()
