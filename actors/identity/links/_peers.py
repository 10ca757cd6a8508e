"""The links of a node to other nodes, each of which has proved its key.

A link is a route to the router of the other node, and a session over it. The route begins with a
link of a transport: what that one is, and whether it is encrypted, does not matter. Records go
through one queue for each node, as their numbers rise in the order in which they are sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from ....protocol import Address, LinkDown, Message, OnwardError
from ....protocol.identity import (
    LINK_FRAME_OVERHEAD,
    Disconnect,
    Identity,
    LinkChannel,
    LinkFailure,
    LinkRefusalCode,
    RoutingTable,
    SigningKey,
    Verifiers,
    is_link_frame,
    link_replaces,
    refuse_link,
    short_text,
)
from ..._worker import Worker
from .._errors import PeerRefused
from .._options import IdentityOptions
from ._handshakes import HELLO, NO_SESSION, Handshakes
from ._session import Failed, Session
from ._way import Way

__all__ = ["ROUTER", "Peers"]

ROUTER: Final = Address(0, b"identity")
"""The address of the worker of a router: expose it at a listener for other nodes."""

_logger: Final = logging.getLogger("onward.actors.identity")


class PeerEvents:
    """Events of the links, for the router, which overrides these."""

    def session_opened(self, session: Session) -> None:
        """Receive a session that has just been opened."""

    def session_closed(self, session: Session) -> None:
        """Receive the end of a session."""

    def received(self, session: Session, record: bytes) -> None:
        """Receive a record of another node."""


class Peers(Handshakes):
    """The links of a node to other nodes. All of it on the node's loop.

    Args:
        worker: The worker of the router.
        key: The key of the node.
        options: The options.
        table: The routing table, which knows the nodes that are banned.
        verifiers: Public keys that are ready to verify.
        events: Receives what happens.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.

    Attributes:
        counts: What was refused or dropped, by its reason.
        sessions: The session with each node.
    """

    def __init__(
        self,
        worker: Worker,
        key: SigningKey,
        options: IdentityOptions,
        table: RoutingTable,
        verifiers: Verifiers,
        events: PeerEvents,
        milliseconds: Callable[[], int],
    ) -> None:
        super().__init__(worker, key, options, table, verifiers)
        self.sessions: Final[dict[Identity, Session]] = {}
        self._events: Final = events
        self._milliseconds: Final = milliseconds
        self._way_of: Final[dict[Session, Way]] = {}
        self._numbers: Final = count(1)
        self._is_closed = False

    # --- to join ------------------------------------------------------------------------------

    async def join(self, to: str | Address, expected: Identity | None) -> Identity:
        """Join another node; see `Identities.join`."""
        known = isinstance(to, Address) and (to, ROUTER) in self._ways
        if not known and len(self._ways) >= self._options.max_peers:
            raise PeerRefused(to, "this node has as many links as it may")
        if isinstance(to, Address):
            self._node.expose(to, ROUTER)
            return await self._join(to, to, expected)
        link = await self._node.connect(to, expose=[ROUTER])
        try:
            return await self._join(to, link, expected)
        except PeerRefused as error:
            raise PeerRefused(to, error.reason) from None  # it has the name of the link
        finally:
            way = self._ways.get((link, ROUTER))
            if way is None or (way.session is None and not way.dialled):
                # It is of no use: it has failed, or another link has its place.
                self.stop_link(link)

    def stop_link(self, link: Address) -> None:
        """Stop the worker of a link, if it lives."""
        cell = self._node.parts.table.cell_at(link)
        if cell is not None:
            cell.worker.stop()

    async def _join(self, to: str | Address, link: Address, expected: Identity | None) -> Identity:
        if self._is_closed:
            raise PeerRefused(to, "the router has ended")
        way = self._way((link, ROUTER))
        session = way.session
        if session is not None and expected not in {None, session.node}:
            raise PeerRefused(to, LinkFailure.OTHER_IDENTITY.value)
        way.dialled = True
        if session is not None:
            way.expected = expected or way.expected
            return session.node
        joined: asyncio.Future[Identity] = self._node.loop.create_future()
        way.waiting.append(joined)
        if way.handshake is None:
            way.expected = expected
            self._dial(way)
        node = await joined
        if expected not in {None, node}:
            # Another handshake over the link was under way, which expected another node, or any.
            raise PeerRefused(to, LinkFailure.OTHER_IDENTITY.value)
        return node

    # --- what comes ----------------------------------------------------------------------------

    def receive(self, message: Message) -> None:
        """Receive a frame of the router of another node."""
        route, data = message.return_route, message.payload
        if message.source is None or not route or route[0] != message.source:
            self.counts["frames that came over no link"] += 1
            return
        way = self._ways.get(route)
        if is_link_frame(data):
            if way is None or way.session is None:
                self.counts["frames of no session"] += 1
                unknown = way is None or way.handshake is None
                if unknown and len(data) >= LINK_FRAME_OVERHEAD:
                    self._send(route, NO_SESSION)
                return
            way.silent_since = None
            self._open(way.session, data)
            return
        if way is None:
            if data[1:2] != HELLO:
                self.counts["messages of no handshake"] += 1
                return
            if not self._has_room(message.source):
                self.counts["handshakes beyond those that may be under way"] += 1
                self._send(route, refuse_link(LinkRefusalCode.BUSY))
                return
            try:
                way = self._way(route)
            except OnwardError:
                return  # the link has just ended
        self._handshake(way, data)

    def _proved(self, way: Way, node: Identity, channel: LinkChannel, dialled: bool) -> None:
        """Open a session with a node that has proved its key."""
        way.node = node
        old = self.sessions.get(node)
        old_way = None if old is None else self._way_of[old]
        if old is not None and old_way is way:
            # The same node again: what it has sent by the channel before comes first.
            old.renew(channel, began=dialled)
            self._events.session_opened(old)
            return
        if old is not None and old_way is not None:
            own = self._key.identity
            replaces = link_replaces(own, node, began=dialled, old_began=old.began)
            if not replaces and not (old.is_greeted and not dialled and self._gives_way(old_way)):
                old_way.waiting.extend(way.waiting)
                way.waiting.clear()
                if old.is_greeted:
                    self._joined(old_way, node)
                way.dialled = False
                self._forget(way)
                return
        session = Session(
            node,
            self._worker,
            way.route,
            channel,
            dialled,
            next(self._numbers),
            self._sealed,
            self._is_late,
        )
        session.greets_by = self._now() + self._options.handshake_time
        self._way_of[session] = way
        if old is not None and old_way is not None:
            self._close(old)
            way.waiting.extend(old_way.waiting)
            old_way.waiting.clear()
            old_way.session = None
            old_way.dialled = False
            self._forget(old_way)
        if way.session is not None:
            self._close(way.session)  # another node has been there before
        way.session = self.sessions[node] = session
        self._events.session_opened(session)

    def _gives_way(self, way: Way) -> bool:
        """Check a link of which the node dials another one; return whether the latter is taken.

        The node may have lost its link unheard of here, and then nothing comes over it. Or it has
        forgotten it for the other one: a handshake, which is begun, gives it a session again.
        """
        now, time = self._now(), self._options.handshake_time
        # A node without a session over it dials again at once. One that has joined once more has.
        if way.silent_since is None or now - way.dialled_else > time / 4:
            way.silent_since = now
        way.dialled_else = now
        # Less than the time for which the node waits for a greeting over the other link.
        is_lost = now - way.silent_since > time / 2
        if not is_lost:
            self._dial_again(way)
        return is_lost

    def greeted(self, session: Session) -> None:
        """Receive word that the other node takes messages: its greeting has come."""
        if session.is_greeted:
            return
        events = self._table.open_link(session.node, session.number)
        if events is None or any(isinstance(each, Disconnect) for each in events):
            self.counts["nodes beyond those that may be linked"] += 1
            self._disconnect(session, "the node may not be linked")
            return
        session.is_greeted = True
        way = self._way_of[session]
        way.failures = 0
        self._joined(way, session.node)
        self._arm(way)

    def _joined(self, way: Way, node: Identity) -> None:
        waiting, way.waiting[:] = list(way.waiting), ()
        for each in waiting:
            if not each.done():
                each.set_result(node)

    def link_to(self, node: Identity) -> Address | None:
        """Return the link that the session with a node goes over, if there is one."""
        session = self.sessions.get(node)
        return None if session is None else self._way_of[session].route[0]

    def redials(self, node: Identity) -> bool:
        """Whether a link of this node that has led to a node is dialled again after a loss."""
        return any(each.dialled and each.node == node for each in self._ways.values())

    # --- sessions -----------------------------------------------------------------------------

    def send(
        self, node: Identity, record: bytes, failed: Failed, expiry: int | None = None
    ) -> Awaitable[None] | None:
        """Send a record to another node.

        Args:
            node: The node.
            record: The record.
            failed: Receives the reason if it is certainly not handed over.
            expiry: When it is of no use any more, in Unix milliseconds; `None` for never.

        Returns:
            `None`, or what to wait for before the next record, as many wait for room.
        """
        session = self.sessions.get(node)
        if session is None:
            failed(LinkDown(short_text(node), "there is no link to the node"))
            return None
        return session.send(record, failed, expiry)

    def has_room(self, node: Identity) -> bool:
        """Whether nothing waits for room at the link to a node, or there is none."""
        session = self.sessions.get(node)
        return session is None or not session.waiting

    def _is_late(self, expiry: int) -> bool:
        """Whether an expiry is past, and what has waited for room until then is dropped."""
        is_late = expiry < self._milliseconds()
        if is_late:
            self.counts["messages that have expired while they waited for room"] += 1
        return is_late

    def _sealed(self, session: Session, ended: str) -> None:
        """Act on the state of a channel after a record was sealed by it, or could not be."""
        if ended:
            self._disconnect(session, ended)
            return
        self._renew(session)

    def _renew(self, session: Session) -> None:
        """Begin a handshake for new keys, if they are due and this node has dialled."""
        if session.channel.is_due:
            way = self._way_of.get(session)
            if way is not None and way.dialled and way.handshake is None:
                self._dial(way)

    def _open(self, session: Session, frame: bytes) -> None:
        missed = session.channel.missed
        record = session.open(frame)
        if isinstance(record, LinkFailure):
            self.counts[f"frames refused: {record.value}"] += 1
            if session.channel.failure is not None:
                self._disconnect(session, record.value)
            return
        missed = session.channel.missed - missed
        self._events.received(session, record)
        if missed:
            # The greeting of the next session has what was told of engines, if that was lost.
            self.counts["frames that a link has lost"] += missed
            way = self._way_of.get(session)
            if way is not None:
                self._dial_again(way)
        self._renew(session)

    # --- the end ------------------------------------------------------------------------------

    def disconnect(self, node: Identity, reason: str) -> None:
        """Close the session with a node, if there is one, and do not dial it again."""
        session = self.sessions.get(node)
        if session is not None:
            self._way_of[session].dialled = False
            self._disconnect(session, reason)

    def _disconnect(self, session: Session, reason: str) -> None:
        """Close a session because of what the other node does, and dial again if this one did."""
        way = self._way_of.get(session)
        if way is None:
            return
        _logger.warning(
            "the session with %s is closed: %s",
            short_text(session.node),
            reason,
            extra={"event": "identity.disconnected"},
        )
        self._close(session)
        way.session = None
        if way.waiting:
            way.dialled = False  # the caller knows, and may try again
            self._refuse(way, reason)
        self._after_loss(way)

    def _lost(self, way: Way) -> None:
        """Receive the loss of a connection; the link may make another one."""
        way.handshake, way.hello = None, b""
        if way.session is not None:
            self._close(way.session)
            way.session = None
        if way.waiting:
            way.dialled = False  # the caller knows, and may try again
            self._refuse(way, "the connection was lost")
        self._after_loss(way)

    def _after_loss(self, way: Way) -> None:
        if way.dialled and not self._is_closed:
            way.failures += 1
            way.again = self._now() + self._rest(way)
            self._arm(way)
        else:
            self._forget(way)

    def _gone(self, way: Way) -> None:
        """Receive the end of a link."""
        way.dialled = False
        self._refuse(way, "the link has ended")
        self._lost(way)

    def _close(self, session: Session) -> None:
        """Close a session: what waits for it was certainly not handed over."""
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
        self._way_of.pop(session, None)
        self._table.close_link(session.node, session.number)
        session.close()
        self._events.session_closed(session)

    def close(self) -> None:
        """Close all sessions, and end the watches of links."""
        self._is_closed = True
        for way in list(self._ways.values()):
            self._gone(way)
