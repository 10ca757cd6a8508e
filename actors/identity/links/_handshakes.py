"""The routes from a node to the routers of others, and the handshakes over them.

A handshake is begun to join a node, for new keys, after a loss, and because of what the other node
says. Each route has one timer: for the end of the handshake that is under way, for the greeting
after it, or for the next try.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Final

from ....protocol import Address, OnwardError, Route
from ....protocol.identity import (
    SEED_SIZE,
    Identity,
    LinkChannel,
    LinkDialler,
    LinkFailure,
    LinkHandshake,
    LinkLimits,
    LinkListener,
    LinkRefusalCode,
    LinkState,
    RoutingTable,
    SigningKey,
    Verifiers,
    refuse_link,
)
from ..._worker import Worker
from .._errors import PeerRefused
from .._options import IdentityOptions
from ._way import Way

if TYPE_CHECKING:
    from ..._node import Node
    from ._session import Session

__all__ = ["HELLO", "NO_SESSION", "Handshakes"]

HELLO: Final = b"\x01"
"""The second byte of the first message of a handshake."""
NO_SESSION: Final = refuse_link(LinkRefusalCode.NO_SESSION)
"""What a node says for frames of a session that it does not have."""


class Handshakes(ABC):
    """The routes from a node to others, and the handshakes over them. All of it on the node's loop.

    What follows of a handshake is decided by `Peers`, which is the one subclass.

    Args:
        worker: The worker of the router.
        key: The key of the node.
        options: The options.
        table: The routing table, which knows the nodes that are banned.
        verifiers: Public keys that are ready to verify.

    Attributes:
        counts: What was refused or dropped, by its reason.
    """

    def __init__(
        self,
        worker: Worker,
        key: SigningKey,
        options: IdentityOptions,
        table: RoutingTable,
        verifiers: Verifiers,
    ) -> None:
        self.counts: Final = Counter[str]()
        self._worker: Final = worker
        self._node: Final[Node] = worker.node
        self._key: Final = key
        self._options: Final = options
        self._limits: Final = LinkLimits(handshake=options.handshake_time)
        self._table: Final = table
        self._verifiers: Final = verifiers
        self._ways: Final[dict[Route, Way]] = {}

    # --- what follows of them -----------------------------------------------------------------

    @abstractmethod
    def _proved(self, way: Way, node: Identity, channel: LinkChannel, dialled: bool) -> None:
        """Receive a session with a node that has proved its key."""

    @abstractmethod
    def _disconnect(self, session: Session, reason: str) -> None:
        """Close a session because of what the other node does."""

    @abstractmethod
    def _lost(self, way: Way) -> None:
        """Receive the loss of a connection; the link may make another one."""

    @abstractmethod
    def _gone(self, way: Way) -> None:
        """Receive the end of a link."""

    # --- routes -------------------------------------------------------------------------------

    def _way(self, route: Route) -> Way:
        """Return what goes on over a route.

        Raises:
            UnknownAddress: There is no such link.
        """
        way = self._ways.get(route)
        if way is None:
            way = Way(route)
            way.again = self._now() + _SHORTEST  # it may have been forgotten a moment ago
            ended = self._node.watch(route[0], lambda: self._gone(way))
            lost = self._node.parts.workers.watch_losses(
                route[0], lambda: self._lost(way), lambda: self._arm(way)
            )
            way.unwatch = ended, lost
            self._ways[route] = way
        return way

    def _has_room(self, link: Address) -> bool:
        """Whether there may be one more route to a node that has not proved its key."""
        free = self._options.max_peers - len(self._ways)
        of_link = [each for each in self._ways.values() if each.route[0] == link]
        # One link leaves half of the room to others, two leave a third.
        if len(of_link) >= free:
            return False
        unproven = sum(each.session is None for each in self._ways.values())
        unproven_of_link = sum(each.session is None for each in of_link)
        return unproven_of_link < _MAX_UNPROVEN_OF_LINK and unproven < _MAX_UNPROVEN

    def _forget(self, way: Way) -> None:
        """Forget a route that nothing goes on over."""
        if way.handshake is not None or way.session is not None:
            return
        self._ways.pop(way.route, None)
        if way.timer is not None:
            way.timer.cancel()
        for unwatch in way.unwatch:
            unwatch()
        way.unwatch = ()
        self._refuse(way, "the link has ended")

    def _refuse(self, way: Way, reason: str) -> None:
        waiting, way.waiting[:] = list(way.waiting), ()
        for each in waiting:
            if not each.done():
                each.set_exception(PeerRefused(str(way.route[0]), reason))

    # --- to begin -----------------------------------------------------------------------------

    def _dial(self, way: Way) -> None:
        dialler = LinkDialler(
            self._key,
            secrets.token_bytes(SEED_SIZE),
            self._verifiers,
            self._now(),
            expected=way.expected,
            admits=self._admits,
            limits=self._limits,
        )
        way.handshake, way.hello = dialler, dialler.begin(self._now())
        self._send_frame(way, way.hello)
        self._arm(way)

    def _dial_again(self, way: Way) -> None:
        """Begin a handshake because of what the other node says, now and then.

        If it is too early, or the handshake fails, another one is begun later.
        """
        way.repeats = True
        if way.handshake is None and self._now() >= way.again:
            way.again = self._now() + _SHORTEST
            self._dial(way)
        else:
            self._arm(way)

    def _admits(self, node: Identity) -> bool:
        return not self._table.is_banned(node)

    def _now(self) -> float:
        return self._node.loop.time()

    # --- to go on -----------------------------------------------------------------------------

    def _handshake(self, way: Way, data: bytes) -> None:
        if data == NO_SESSION:
            if way.session is None:
                self.counts["messages of no handshake"] += 1
            else:
                self._dial_again(way)  # the session is kept until there is another one
            return
        handshake = way.handshake
        if data[1:2] != _REFUSAL:
            way.silent_since = None
        if data[1:2] == HELLO:
            if way.hello and way.hello <= data:
                # Both have dialled at once: the smaller hello counts. The other node sees it, too.
                return
            # It may begin again: the node that dials has been started anew.
            handshake, way.hello = self._listen(way), b""
        if handshake is None:
            session = way.session
            if data[1:2] == _REFUSAL and session is not None and not session.is_greeted:
                self._disconnect(session, "the other node refuses")
            else:
                self.counts["messages of no handshake"] += 1
            return
        answer = handshake.receive(data, self._now())
        if answer is not None:
            self._send_frame(way, answer)
        self._look_at(way, handshake)

    def _listen(self, way: Way) -> LinkHandshake:
        way.handshake = LinkListener(
            self._key,
            secrets.token_bytes(SEED_SIZE),
            self._verifiers,
            self._now(),
            expected=way.expected,
            admits=self._admits,
            limits=self._limits,
        )
        return way.handshake

    def _look_at(self, way: Way, handshake: LinkHandshake) -> None:
        """Act on the state of a handshake after an input."""
        dialled = bool(way.hello)
        node, channel = handshake.peer, handshake.channel
        if handshake.state is LinkState.UP and node is not None and channel is not None:
            way.handshake, way.hello = None, b""
            way.repeats, way.failures = False, 0 if way.session is not None else way.failures
            self._proved(way, node, channel, dialled)
        elif handshake.state is LinkState.FAILED:
            way.handshake, way.hello = None, b""
            self._failed(way, handshake.failure)
        self._arm(way)

    def _failed(self, way: Way, failure: LinkFailure | None) -> None:
        reason = LinkFailure.UNPROVEN.value if failure is None else failure.value
        self.counts[f"handshakes that have failed: {reason}"] += 1
        way.failures += 1
        way.again = max(way.again, self._now() + self._rest(way))
        if way.waiting:
            way.dialled = False  # the caller knows, and may try again
            self._refuse(way, reason)
        if way.session is None and not way.dialled:
            self._forget(way)

    # --- times --------------------------------------------------------------------------------

    def _arm(self, way: Way) -> None:
        """Set the timer of a route: for the end of a handshake, or for the next one."""
        handshake, session = way.handshake, way.session
        deadlines: list[float] = []
        if handshake is not None and handshake.deadline is not None:
            deadlines.append(handshake.deadline)
        if session is not None and not session.is_greeted:
            deadlines.append(session.greets_by)
        if way.repeats and session is not None and handshake is None:
            deadlines.append(max(way.again, self._now()))
        due: float | None = None
        if deadlines:
            due = min(deadlines)
        elif way.dialled and session is None and way.route in self._ways:
            # What is sent over a link without a connection may get lost unheard of. So the first
            # message is not: it would be waited for until the time of the handshake is over.
            is_down = self._node.parts.workers.is_disconnected(way.route[0])
            due = None if is_down else max(way.again, self._now())
        if way.timer is not None:
            if due == way.due:
                return  # it may have run out, and wait for its turn
            way.timer.cancel()
            way.timer = None
        if due is not None:
            way.due = due
            way.timer = self._worker.after(max(0.0, due - self._now()), lambda: self._due(way))

    def _rest(self, way: Way) -> float:
        """Return the time until the next handshake, in seconds."""
        return min(_LONGEST, _SHORTEST * (1 << min(way.failures, 10)))

    def _due(self, way: Way) -> None:
        way.timer = None
        handshake, session, now = way.handshake, way.session, self._now()
        if session is not None and not session.is_greeted and session.greets_by <= now:
            way.handshake, way.hello = None, b""
            self._disconnect(session, "the other node has not greeted in time")
        elif handshake is not None:
            handshake.late(now)
            self._look_at(way, handshake)
        elif session is None and way.dialled:
            self._dial(way)
        elif session is not None and way.repeats:
            self._dial_again(way)
        else:
            self._arm(way)

    # --- to send ------------------------------------------------------------------------------

    def _send_frame(self, way: Way, frame: bytes) -> None:
        """Send a message of a handshake, before the records of the session that wait."""
        session = way.session
        if session is None:
            self._send(way.route, frame)
        elif not session.put_handshake(frame, self._not_taken):
            self._not_taken()

    def _send(self, route: Route, frame: bytes) -> None:
        try:
            self._worker.send(route, frame)
        except OnwardError as error:
            error.lost = None
            self._not_taken(error)

    def _not_taken(self, _: OnwardError | None = None) -> None:
        self.counts["handshakes that a link did not take"] += 1  # another one begins in time


_REFUSAL: Final = b"\x04"
_MAX_UNPROVEN: Final = 256
_MAX_UNPROVEN_OF_LINK: Final = 8
_SHORTEST: Final = 0.5
_LONGEST: Final = 30.0
