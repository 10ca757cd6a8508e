"""The RSocket listener, which accepts connections for a broker."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from ...actors import MailboxOptions, Node, Worker
from ...actors.access._exposed import Exposed
from ...actors.broker import Broker, DrainPart, LimitUse, ReportedListener
from ...actors.broker.table._leaving import BROKER_DRAINS
from ...actors.runtime._slices import Slices, whole
from ...actors.security import Authentication, AuthenticationStatistics
from ...protocol import Address, NodeStopped, counted
from ...protocol.security import NOT_AUTHENTICATED, PeerIdentity
from .._base import Listener
from .._log import SeldomLogger
from ..streams._acceptor import StreamAcceptor
from ..streams._endpoint import Endpoint
from ..streams._tls import TlsOptions
from ..streams._tls_context import TlsContext, TlsStatistics
from ..streams._ws_endpoint import WebSocketEndpoint
from ._draining import DRAINED, DrainingConnections
from ._link import Link
from ._options import LinkOptions, WebSocketOptions
from ._resumable_link import ResumableLink
from ._resumable_sessions import ResumableSessions
from ._shared import Shared
from ._unused import UnusedConnections
from ._worker import ConnectionWorker

if TYPE_CHECKING:
    from ...actors.cluster import PeerHandlers

__all__ = ["RSocketListener", "RSocketListenerStatistics", "number_connections"]

_logger = logging.getLogger("onward.transports.rsocket")

_NOTHING: Final = Exposed()
_MAILBOX: Final = MailboxOptions(limit=20_000)

MAX_CLOSED: Final = 1000
"""The maximum number of ended connections that a listener remembers; the oldest is forgotten."""

SLICE: Final = 500
"""Connections that are looked at before the loop does other things."""

_numbers: Final = [count(1)]
"""The numbers of connections, unique in the process."""


@dataclass(frozen=True, slots=True)
class RSocketListenerStatistics:
    """The figures of an RSocket listener at one moment.

    Attributes:
        connections: Connections now.
        accepted: Connections accepted since the start.
        turned_away: Connections closed at once because there were too many connections, too many
            of their source or too many workers, or because the node was stopping.
        requests: Requests read since the start.
        refused: Those of them that could not be parsed or routed at once.
        dropped: Frames ignored by the connections' state machines since the start, by reason.
        closed: Connections that have ended since the start, by reason.
        handshakes: TLS and WebSocket handshakes under way now; `max_connections` counts them as
            connections.
        refused_handshakes: Handshakes that failed since the start, by reason. Of WebSockets:
            `too late`, `too long`, `not understood`, `not a WebSocket`, `path`, `origin`,
            `no room`, `stopped`, or `given up` by the peer; of TLS: the text of the error.
        streams: Open streams now, of all connections and opened by either side.
        tls: The TLS handshakes and the certificate; `None` without TLS.
        authentication: The figures of its authentication; `None` without one.
        received_bytes: Bytes of frames read since the start, without those of TLS and WebSockets.
        sent_bytes: Bytes of frames written since the start, likewise.
        received_frames: Frames read and accepted since the start, without KEEPALIVE.
        sent_frames: Frames written since the start, without KEEPALIVE.
        pending_bytes: Bytes that wait for the sockets now.
        above_high_water: Connections with more than `FlowOptions.high_water` bytes waiting now.
        sessions: Sessions that can be resumed now, open and suspended.
        suspended: Suspended sessions now; they count as connections.
        kept_bytes: Bytes of sent frames that are kept for sessions now.
        resumes: Results of RESUME since the start: `resumed`, or the reason for a refusal; and
            `dropped`, the sessions that dropped frames their peer may not have received.
    """

    connections: int
    accepted: int
    turned_away: int
    requests: int
    refused: int
    dropped: dict[str, int]
    closed: dict[str, int]
    handshakes: int = 0
    refused_handshakes: dict[str, int] = field(default_factory=dict[str, int])
    streams: int = 0
    tls: TlsStatistics | None = None
    authentication: AuthenticationStatistics | None = None
    received_bytes: int = 0
    sent_bytes: int = 0
    received_frames: int = 0
    sent_frames: int = 0
    pending_bytes: int = 0
    above_high_water: int = 0
    sessions: int = 0
    suspended: int = 0
    kept_bytes: int = 0
    resumes: dict[str, int] = field(default_factory=dict[str, int])


class _ListenerWorker(Worker):
    """The parent of the connections' workers."""


class RSocketListener(Listener, DrainPart, ReportedListener):
    """A listening socket and its connections.

    Args:
        node: The node of its workers.
        broker: The broker of the connections.
        options: The limits.
        scheme: The scheme of its URI.
        endpoint: The endpoint to listen at.
        context: The TLS context, or `None` for no TLS.
        exposed: The addresses that requests may name instead of tags.
        authentication: The authentication of peers; `None` admits each of them.
        peers: The cluster, of which other brokers may connect; `None` for none.
        siblings: Whether a broker of the same user may be one without a rule, at a Unix socket.
    """

    def __init__(
        self,
        node: Node,
        broker: Broker,
        options: LinkOptions,
        scheme: str,
        endpoint: Endpoint,
        context: TlsContext | None = None,
        exposed: Exposed = _NOTHING,
        authentication: Authentication | None = None,
        peers: PeerHandlers | None = None,
        *,
        siblings: bool = False,
    ) -> None:
        self._authentication = authentication
        self._node = node
        self._endpoint = endpoint
        self._broker = broker
        self._options = options
        self._worker = _ListenerWorker()
        self._address: Address | None = None
        self._seldom = SeldomLogger(_logger, node.loop.time)
        self._acceptor = StreamAcceptor(
            node, scheme, endpoint, context, options, self, self._seldom
        )
        if authentication is not None:
            self._acceptor.admits = authentication.admits
        self._unused = UnusedConnections(self._acceptor.places, options, node.loop.time)
        self._shared = Shared(node.loop, options, exposed, authentication, peers, siblings=siblings)
        self._shared.by_several = endpoint.shared
        resume = options.resume
        self._sessions = None if resume is None else ResumableSessions(resume, self, node.loop.time)
        # With the number of each connection, and the time at which it was accepted.
        self._links: dict[Link, tuple[int, float]] = {}
        # As JSON: a dict and its values take four times the memory.
        self._ended: deque[bytes] = deque(maxlen=MAX_CLOSED)
        self._open = False
        self._requests = 0
        self._refused = 0
        self._received_bytes = 0
        self._sent_bytes = 0
        self._received_frames = 0
        self._sent_frames = 0
        self._dropped: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()
        self._gone: asyncio.Event = asyncio.Event()
        self._withdraw: list[Callable[[], None]] = []
        self._draining: DrainingConnections | None = None

    async def open(self) -> None:
        """Start listening.

        Raises:
            OSError: The socket cannot be bound.
            NodeStopped: The node stopped meanwhile, or the broker drains.
            LimitReached: The broker has too many listeners.
        """
        # The worker first: it is the parent of the connections' workers.
        self._address = await self._node.start(lambda: self._worker)
        self._shared.listener = (self._address,)
        try:
            await self._acceptor.bind()
            if not self._node.has(self._address):
                raise NodeStopped(self._node.name)
            self._withdraw.append(self._broker.report(self.uri, self._report, self))
            self._withdraw.append(self._broker.add_part(self))
            if self._authentication is not None:
                self._withdraw.append(self._authentication.on_reload(self._readmit))
            await self._acceptor.serve()
            self._open = True
        except BaseException:
            self._acceptor.abandon()
            self._report_no_more()
            await self._stop_worker()
            raise

    def _report_no_more(self) -> None:
        while self._withdraw:
            self._withdraw.pop()()

    async def _stop_worker(self) -> None:
        if self._address is not None and self._node.has(self._address):
            await self._node.stop_worker(self._address)

    @property
    def open_now(self) -> bool:
        """Whether the listener accepts connections."""
        return self._open

    @property
    def options(self) -> LinkOptions:
        """The limits in force for new connections."""
        return self._options

    @property
    def uri(self) -> str:
        """The URI of the listener, with the real port."""
        return self._acceptor.uri

    @property
    def address(self) -> Address:
        """The address of the listener's worker."""
        if self._address is None:
            raise AssertionError("the listener is not open")
        return self._address

    def connect(self, identity: PeerIdentity) -> Link:
        """Return a new connection, with its worker.

        Raises:
            OnwardError: The node is stopping, or has too many addresses.
        """
        worker = ConnectionWorker()
        self._worker.spawn(lambda: worker, mailbox=_MAILBOX)
        common = (
            worker,
            self._broker,
            self._options,
            self._seldom,
            self._shared,
            self._on_closed,
        )
        sessions = self._sessions
        link = Link(*common) if sessions is None else ResumableLink(*common, sessions)
        link.identity, link.source = identity, identity.source
        worker.attach(link)
        self._links[link] = next(_numbers[0]), time.time()
        self._unused.add(link)
        return link

    def make_room(self, source: str) -> bool:
        """Close an unused connection in favour of a new one; return whether there was one."""
        spare = self._unused.spare(source)
        if spare is None:
            return False
        spare.close("unused", "the connection is unused, and another needs its place")
        return True

    def _on_closed(self, link: Link) -> None:
        row = self._row(link, pending=0)  # its socket is closed
        ended = {**row, "closed": time.time(), "reason": link.closed_reason}
        del self._links[link]
        self._ended.append(json.dumps(ended, separators=(",", ":")).encode())
        if self._draining is not None:
            self._draining.forget(link)
        self._unused.discard(link)
        if not _is_suspended(link):
            self._acceptor.release(link.identity.source)
        self._requests += link.session.requests
        self._refused += link.session.refused
        self._received_bytes += link.received_bytes
        self._sent_bytes += link.sent_bytes
        self._received_frames += link.received_frames
        self._sent_frames += link.core.sent
        self._dropped += link.core.counters
        self._closed[link.closed_reason] += 1
        _logger.info(
            "%s: closed: %s",
            row["peer"],
            link.closed_reason,
            extra={
                "event": "connection.closed",
                "connection": row["id"],
                "peer": row["peer"],
                "principal": row["principal"],
                "listener": self.uri,
                "route": row["route"],
                "reason": link.closed_reason,
            },
        )
        link.worker.stop()
        if not self._links:
            self._gone.set()

    # --- sessions -----------------------------------------------------------------------------

    def on_suspended(self, link: Link) -> None:
        """Give up the place of a connection that was lost, and has a session."""
        self._unused.discard(link)
        self._acceptor.release(link.identity.source)

    def on_resumed(self, link: Link) -> None:
        """Add the place of a session that goes on over another connection."""
        self._acceptor.places.take(link.identity.source)

    # --- reload -------------------------------------------------------------------------------

    def prepare_reload(self, tls: TlsOptions | None = None) -> Callable[[], object]:
        """Read the files of the certificates again; see `Listener.prepare_reload`."""
        return self._acceptor.prepare_reload(tls)

    def adjust(self, options: LinkOptions, websocket: WebSocketOptions | None = None) -> None:
        """Change the limits of the listener while it is open.

        `max_connections`, `max_connections_per_source` and the origins hold at once for further
        connections, `lease` and `flow.credit_window` for the connections accepted from then on.
        Connections that are open stay, also above a lower limit.

        Args:
            options: The limits. Other fields must be as they were.
            websocket: The origins that may connect; `None`: as they were.

        Raises:
            ValueError: A field is changed that has to stay.
        """
        old = self._options
        flow = replace(old.flow, credit_window=options.flow.credit_window)
        adjusted = replace(
            old,
            max_connections=options.max_connections,
            max_connections_per_source=options.max_connections_per_source,
            lease=options.lease,
            flow=flow,
        )
        if adjusted != options:
            raise ValueError("only connections, leases and credit change while it is open")
        self._options = adjusted
        self._acceptor.places.resize(adjusted.max_connections, adjusted.max_connections_per_source)
        if websocket is not None and isinstance(self._endpoint, WebSocketEndpoint):
            self._endpoint.web = websocket

    def _readmit(self) -> None:
        """Close the connections of peers that are refused since a reload, and renew the others."""
        authentication = self._authentication
        for link in tuple(self._links):
            principal = link.session.principal
            if authentication is None or principal is None or link not in self._links:
                continue
            now = authentication.readmit(principal, link.identity)
            if now is None or not now.is_same(principal) or now.tags != principal.tags:
                # Its registrations and open requests have the tags of before.
                link.close("no longer admitted", NOT_AUTHENTICATED)
            elif now != principal or now.entry != principal.entry:
                link.session.renew(now)

    # --- drain --------------------------------------------------------------------------------

    @property
    def connections_left(self) -> int:
        """The connections that have not ended, without links to peer brokers: these end last."""
        return sum(not link.to_broker for link in self._links)

    async def stop_accepting(self) -> None:
        """Close the listening socket; the connections stay, suspended ones cannot come back."""
        await self._acceptor.close()
        if self._sessions is not None:
            self._sessions.stop(DRAINED, BROKER_DRAINS)

    def begin_to_drain(self, random: Callable[[], float]) -> None:
        """Draw for each connection the moment at which it begins to end.

        Links to peer brokers stay to the end: destinations of other brokers answer by them.
        """
        clients = [link for link in self._links if not link.to_broker]
        self._draining = DrainingConnections(clients, random)

    def drain_to(self, progress: float) -> None:
        """Begin to end connections, and close those without an open stream."""
        if self._draining is not None:
            self._draining.drain_to(progress)

    def cut(self) -> None:
        """End all streams as REJECTED or CANCELED, and close all connections."""
        if self._draining is not None:
            self._draining.cut(self._links)

    # --- the end ------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop listening, and close the connections with an ERROR. Idempotent.

        Connections that are open a second after `drain_timeout` are cut.
        """
        if not self._open:
            return
        self._open = False
        self._gone.clear()
        if self._sessions is not None:
            self._sessions.accepting = False
        try:
            await self._acceptor.close()
            for link in list(self._links):
                link.close("stopped", "the broker stops")
            if self._links:
                async with asyncio.timeout(self._options.drain_timeout + 1):
                    await self._gone.wait()
        except TimeoutError:
            _logger.warning(
                "%s: cut %s",
                self.uri,
                counted(len(self._links), "connection"),
                extra={"event": "connection.cut", "listener": self.uri},
            )
        finally:
            for link in list(self._links):
                link.abort()
            self._report_no_more()
            await self._stop_worker()

    def statistics(self) -> RSocketListenerStatistics:
        """Return the listener's figures at this moment. It looks at each connection."""
        return whole(self._figures())

    def _figures(self) -> Slices[RSocketListenerStatistics]:
        """Return the figures in slices, of the connections that there are at the first one."""
        links = tuple(self._links)
        acceptor, dropped = self._acceptor, self._dropped.copy()
        authentication = self._authentication
        requests, refused = self._requests, self._refused
        received, sent = self._received_bytes, self._sent_bytes
        read, written = self._received_frames, self._sent_frames
        streams = pending = above = suspended = 0
        sessions = self._sessions
        for number, link in enumerate(links, 1):  # once, as there may be ten thousand
            if number % SLICE == 0:
                yield
            session, core, waiting = link.session, link.core, link.waiting
            requests += session.requests
            refused += session.refused
            received += link.received_bytes
            sent += link.sent_bytes
            read += link.received_frames
            written += core.sent
            streams += len(core.streams)
            pending += waiting
            above += link.write_paused
            suspended += _is_suspended(link)
            if core.counters:
                dropped.update(core.counters)
        return RSocketListenerStatistics(
            connections=len(links),
            accepted=acceptor.accepted,
            turned_away=acceptor.turned_away,
            requests=requests,
            refused=refused,
            dropped=dict(dropped),
            closed=dict(self._closed),
            handshakes=acceptor.handshakes,
            refused_handshakes=dict(acceptor.refused),
            streams=streams,
            tls=acceptor.tls_statistics(),
            authentication=None if authentication is None else authentication.statistics(),
            received_bytes=received,
            sent_bytes=sent,
            received_frames=read,
            sent_frames=written,
            pending_bytes=pending,
            above_high_water=above,
            sessions=0 if sessions is None else len(sessions),
            suspended=suspended,
            kept_bytes=0 if sessions is None else sessions.kept.total,
            resumes={} if sessions is None else dict(sessions.results),
        )

    def _report(self) -> Slices[Mapping[str, Any]]:
        return asdict((yield from self._figures()))

    # --- for operators ------------------------------------------------------------------------

    @property
    def accepting(self) -> bool:
        """Whether the listener accepts connections."""
        return self._open

    def connections(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each open connection, oldest first."""
        for link in tuple(self._links):
            if link in self._links:
                yield self._row(link, link.waiting)

    def closed_connections(self) -> Iterator[Mapping[str, Any]]:
        """Yield a row for each of the last `MAX_CLOSED` connections that have ended, last first."""
        yield from map(json.loads, reversed(tuple(self._ended)))

    def close_connection(self, number: int, text: str) -> bool:
        """Close a connection by its number, with an ERROR."""
        found = next((link for link, (each, _) in self._links.items() if each == number), None)
        if found is None:
            return False
        found.close("by an operator", text)
        return True

    def requests(self) -> Iterator[tuple[int, float]]:
        """Yield the frame type of each open request, and its age in seconds."""
        time = self._node.loop.time
        for link in tuple(self._links):
            for kind, began in link.requests():
                yield kind, time() - began

    def limits(self) -> Iterator[LimitUse]:
        """Yield the limits that the connections share."""
        options, shared, places = self._options, self._shared, self._acceptor.places
        turned_away = self._acceptor.turned_away
        yield LimitUse("max_connections", places.taken, options.max_connections, turned_away)
        waiting, gathered = shared.waiting.total, shared.gathered.total
        most, reached = options.flow.max_pending_total, shared.waiting.reached
        yield LimitUse("flow.max_pending_total", waiting, most, reached)
        most, reached = options.gathering.max_gathered_total, shared.gathered.reached
        yield LimitUse("gathering.max_gathered_total", gathered, most, reached)
        unfinished, cut = shared.unfinished.total, self._closed["unfinished frames"]
        yield LimitUse("max_unfinished", unfinished, options.max_unfinished, cut)
        sessions = self._sessions
        if sessions is not None:
            limits, kept = sessions.options, sessions.kept
            refused = sessions.refused
            yield LimitUse("resume.max_sessions", len(sessions), limits.max_sessions, refused)
            yield LimitUse("resume.max_kept_total", kept.total, limits.max_kept_total, kept.reached)

    def _row(self, link: Link, pending: int) -> dict[str, Any]:
        """Return the row of a connection, with the bytes that wait for its socket."""
        number, opened = self._links[link]
        session, setup = link.session, link.session.setup
        registration = session.registration
        return {
            "id": number,
            "listener": self.uri,
            "peer": link.identity.peer,
            "source": link.identity.source,
            "principal": None if session.principal is None else session.principal.name,
            "opened": opened,
            "idle": max(0.0, link.time() - link.now),
            "service": session.service,
            "route": None if registration is None else str(registration.route_id),
            "streams": len(link.core.streams),
            "requests": session.requests,
            "refused": session.refused,
            "received_bytes": link.received_bytes,
            "sent_bytes": link.sent_bytes,
            "pending_bytes": pending,
            "keepalive_ms": None if setup is None else setup.keepalive,
            "tls": _tls_of(link),
            "suspended": _suspended_for(link),
        }


def number_connections(first: int, step: int) -> None:
    """Set the numbers of the later connections of this process.

    Processes that are one broker have different ones, so that a number is that of one connection.
    """
    _numbers[0] = count(first, step)


def _is_suspended(link: Link) -> bool:
    """Whether a connection has lost its socket, and has a session that may be resumed."""
    return isinstance(link, ResumableLink) and link.suspended


def _suspended_for(link: Link) -> float | None:
    """Return the seconds for which a connection has been suspended; `None` if it is not."""
    if not isinstance(link, ResumableLink) or not link.suspended:
        return None
    return link.time() - link.suspended_at


def _tls_of(link: Link) -> str | None:
    """Return the version and the cipher of TLS, if there is TLS."""
    transport = link._transport
    found = None if transport is None else transport.get_extra_info("cipher")
    return None if found is None else f"{found[1]} {found[0]}"
