"""What nodes tell each other first: their starts and clocks, and the engines that they have."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ...protocol.identity import (
    MAX_GREETED,
    MAX_SKEW,
    AdvertEnvelope,
    BadRecord,
    ControlContent,
    Destination,
    EngineAdvert,
    Greeting,
    Identity,
    MessageIds,
    SigningKey,
    Verifiers,
    first_id_time,
    open_advert,
    parse_greeting,
    serialize_greeting,
    sign_advert,
    told_time,
)
from ._engines import Engine
from ._options import IdentityOptions

if TYPE_CHECKING:
    from ._router import Router
    from ._session import Session

__all__ = ["Greetings"]


class Greetings:
    """The greetings of a node, and what it has heard in those of others.

    Args:
        router: The router.
        key: The key of the node.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        verifiers: Public keys that are ready to verify.
    """

    def __init__(
        self,
        router: Router,
        key: SigningKey,
        options: IdentityOptions,
        milliseconds: Callable[[], int],
        verifiers: Verifiers,
    ) -> None:
        self._router: Final = router
        self._key: Final = key
        self._options: Final = options
        self._milliseconds: Final = milliseconds
        self._verifiers: Final = verifiers
        # Of the engines here, by their identity.
        self._adverts: Final[dict[Identity, AdvertEnvelope]] = {}
        self._told = 0
        self._clocks: Final[OrderedDict[Identity, _Clock]] = OrderedDict()
        self._unknown: Final = MessageIds()  # to nodes that have not greeted
        # Version and node of engines elsewhere; at the limit that heard longest ago is let go.
        self._heard: Final[OrderedDict[Identity, tuple[int, Identity]]] = OrderedDict()

    # --- to tell ------------------------------------------------------------------------------

    def greet(self, session: Session) -> None:
        """Greet a node with all engines that there are."""
        self._told = told_time(self._router.started, self._milliseconds(), self._told)
        engines = list(self._router.engines)
        for first in range(0, max(1, len(engines)), MAX_GREETED):
            self._tell((session,), engines[first : first + MAX_GREETED], self._told)

    def tell(self, engines: Sequence[Engine] = ()) -> None:
        """Send all other nodes the adverts of some engines; without, a sign of life."""
        self._tell(tuple(self._router.peers.sessions.values()), engines, self._milliseconds())

    def _tell(self, sessions: Iterable[Session], engines: Sequence[Engine], now: int) -> None:
        router = self._router
        adverts = tuple(map(self._advert, engines))
        greeting = Greeting(router.started, now, adverts)
        content = ControlContent(serialize_greeting(greeting))
        for session in sessions:
            # If it is not handed over, the session has ended, and the next one begins with another.
            router.outgoing.tell(session.node, content, lambda _: None)

    def _advert(self, engine: Engine) -> AdvertEnvelope:
        """Return the advert of an engine, which is signed once."""
        advert = self._adverts.get(engine.identity)
        if advert is None:
            now = self._milliseconds()
            key, name = engine.key, None
            if key is None:
                key, name = self._key, engine.address.value
            # The version is the time in seconds: that of an engine that has moved is greater.
            told = EngineAdvert(engine.identity, self._router.own, name, now // 1000, now)
            advert = self._adverts[engine.identity] = sign_advert(told, key)
        return advert

    def forget_advert(self, engine: Identity) -> None:
        """Forget the advert of an engine that has ended."""
        self._adverts.pop(engine, None)

    # --- to hear ------------------------------------------------------------------------------

    def receive(self, session: Session, record: bytes) -> bool:
        """Receive a greeting; return whether it is one."""
        counts = self._router.counts
        try:
            greeting = parse_greeting(record)
            adverts = [open_advert(each, self._verifiers) for each in greeting.adverts]
        except BadRecord:
            counts["records that cannot be read"] += 1
            return False
        clock = self._clocks.get(session.node)
        # A session outlives the node at its other end, if the route to it does.
        if not session.is_greeted or (clock is not None and clock.started != greeting.started):
            self._keep_clock(session.node, greeting)
        for advert in adverts:
            if advert is None:
                counts["adverts with a wrong signature"] += 1
            elif isinstance(advert, EngineAdvert):
                self._learn(advert, session.node)
            else:
                counts["adverts that are not served"] += 1
        return True

    def _keep_clock(self, node: Identity, greeting: Greeting) -> None:
        clock = self._clocks.get(node)
        if clock is None or clock.started != greeting.started:
            # It has forgotten which ids it has seen, and accepts those alone that begin now.
            clock = self._clocks[node] = _Clock(greeting.started)
        clock.begins = first_id_time(greeting.started, greeting.now)
        self._clocks.move_to_end(node)
        if len(self._clocks) > self._options.max_peers:
            sessions = self._router.peers.sessions
            left = next((each for each in self._clocks if each not in sessions), None)
            if left is not None:
                del self._clocks[left]

    def _learn(self, advert: EngineAdvert, node: Identity) -> None:
        """Believe an engine about its node, if it is the node that has told it."""
        version, _ = self._heard.get(advert.identity, (-1, node))
        if advert.node != node or advert.version < version:
            self._router.counts["adverts that are old or of another node"] += 1
            return
        self._heard[advert.identity] = advert.version, node
        self._heard.move_to_end(advert.identity)
        if len(self._heard) > _MAX_HEARD:
            self._heard.popitem(last=False)
        if self._router.table.is_banned(advert.identity):
            # To learn a route is to trust it: the ban would be over.
            self._router.counts["adverts of what is banned"] += 1
            return
        self._router.learn(advert.identity, node)

    def believe_again(self, engine: Identity) -> None:
        """Believe the last advert of an engine that was banned, if its node is still there."""
        _, node = self._heard.get(engine, (-1, None))
        if node is not None and node in self._router.peers.sessions:
            self._router.learn(engine, node)
            self._router.found(engine)

    def forget(self, engine: Identity) -> None:
        """Forget what was heard of an engine, as it made room for others of its node."""
        self._heard.pop(engine, None)

    def take_id(self, node: Identity, own: Identity, to: Destination) -> int:
        """Take the id of a message to a node, or to an engine at it.

        One that has not greeted is reached by relays. What it accepts is not known: its clock may
        differ by half of `MAX_SKEW`, and it may have been started before as much.
        """
        clock = self._clocks.get(node)
        if clock is None:
            return self._unknown.take(own, to, self._milliseconds() + MAX_SKEW // 2)
        return clock.ids.take(own, to, clock.begins)


_MAX_HEARD: Final = 65_536
"""Most engines elsewhere of which the last advert is known: as many as routes. One node alone
cannot have all let go."""


class _Clock:
    """The clock of another node, and the ids of the messages to it and its engines.

    Attributes:
        started: When the node was started, in Unix milliseconds of its own.
        begins: The time that ids begin with, as the session has said.
        ids: The ids.
    """

    __slots__ = ("begins", "ids", "started")

    def __init__(self, started: int) -> None:
        self.started: Final = started
        self.begins = 0
        self.ids: Final = MessageIds()
