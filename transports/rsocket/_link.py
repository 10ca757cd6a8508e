"""One connection of the broker: accepted by a listener, or opened by this side.

The first frame of a stream becomes a message and is routed to a destination. From then on the
stream has a `peer`, and each further frame is relayed to the other connection with its stream
id replaced. That path is `data_received` and `_on_stream_frame`; nothing else belongs on it.

Flow control is described on the architecture page. In short: a slow destination is given no new
requests; a requester that keeps sending on streams to it is not read; and a destination has
credit for at most a window ahead of the requester's socket. No stream has a queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from ...actors.broker.table._leaving import closed_for
from ...actors.cluster import PeerRefused
from ...protocol import NotDelivered
from ...protocol.cluster import LinkRole
from ...protocol.rsocket import (
    CLOSED,
    FOLLOWS,
    UNEXPECTED_PROXY_HEADER,
    Closed,
    ConnectionState,
    ErrorCode,
    Frame,
    FrameType,
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    PeerError,
    RejectedResume,
    RejectedSetup,
    Resume,
    ResumeTimeout,
    Role,
    RSocketError,
    Setup,
    SetupTimeout,
    Stream,
    StreamFailed,
    UnsupportedSetup,
)
from .._log import SeldomLogger, shown
from ._connection import FrameReceiver
from ._draining import DrainingSession
from ._errors import BROKE_PROTOCOL
from ._exchange import StreamExchange
from ._flow import Flow
from ._held_back import HeldBack
from ._java_peer import NO_CONTROL, ControlSession, JavaLink, ProxySession
from ._leg import Leg
from ._leg_counts import LegCounts
from ._local import LocalRequest
from ._multicast import MulticastRequest
from ._options import LinkOptions
from ._peer_link import AskedAnswer, AskedStream
from ._peer_session import Greeting, PeerSession
from ._request import DestinationSlow, DestinationUnleased
from ._served import ServedStream
from ._session import Session
from ._shared import Shared

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ...protocol.broker import BrokerInfo
    from ._metadata import Form
    from ._worker import ConnectionWorker

__all__ = ["Link"]

_logger = logging.getLogger("onward.transports.rsocket")

Answered: TypeAlias = StreamExchange | Leg | LocalRequest | AskedAnswer | AskedStream
"""The `peer` of a stream opened by the broker: the receiver of its responses."""
Asked: TypeAlias = StreamExchange | MulticastRequest | ServedStream
"""The `peer` of a stream opened by this peer: the receiver of its further frames."""

FIRST_WINDOW: Final = 32
"""Most elements of the first credit for a destination, while their size is unknown."""
WINDOW_MARKS: Final = 4
"""The bytes of one stream that may be under way to a requester, in units of `high_water`."""
REFUSAL_MARKS: Final = 4
"""The backlog of a destination above which it is given no more requests, in units of `high_water`.

Above `high_water` others are preferred. Were the only destination refused there, a burst of large
requests would be, though the destination reads and could take them a few milliseconds later.
"""
FRAGMENTS: Final = 64
"""Fragments that a fragmented element is assumed to have."""

MOST_STREAMS: Final = 1024
"""Streams of a destination that are searched before it is held back or passed over."""
OVERDUE: Final = 2
"""Keepalive intervals of silence after which a destination is passed over."""

MEASURE_EVERY: Final = 10.0
"""Seconds after which the side of a peer link that has not dialled measures the round trip again;
the other one does so with each KEEPALIVE."""

_NO_LEGS: Final = LegCounts()
_GONE: Final = (ConnectionState.CLOSED, ConnectionState.SUSPENDED)
_CONNECTION_OPEN: Final = ConnectionState.OPEN
_FNF: Final = int(FrameType.REQUEST_FNF)
_REASONS: Final[dict[type[RSocketError], str]] = {
    InvalidSetup: "setup refused",
    UnsupportedSetup: "setup refused",
    RejectedSetup: "setup refused",
    RejectedResume: "resume refused",
    ResumeTimeout: "not resumed",
    SetupTimeout: "no setup",
    KeepaliveTimeout: "silent",
    PeerError: "error of the peer",
}
"""The counter for each error that ends a connection; others count as a broken frame."""


class Link(Flow):
    """A connection of the broker: its frames, its joined streams and their credit.

    Attributes:
        worker: The connection's worker.
        broker: The broker.
        index: The routing table of the broker.
        tally: The counts of the requests of all connections of the broker.
        session: The broker's session with the peer.
        form: The peer's form of broker frames, if it is a destination.
        window: Elements in the first credit of a stream to this destination.
        multicast_held: Bytes held for multicasts of this requester.
        retry_room: Bytes of requests that may still be kept until this peer broker answers them.
        legs: The counts of the requests that are forwarded over this link of brokers; for a client
            they are of no meaning.
        to_broker: Whether the peer is a broker of the cluster, or claims to be one.
        role: What the link to that broker is for; of no other connection.

    Args:
        worker: The connection's worker.
        broker: The broker.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        shared: What all connections of the listener hold.
        on_closed: Called when the socket is closed.
        setup: The SETUP to send on a connection that this side opens; `None` on an accepted one.
    """

    def __init__(
        self,
        worker: ConnectionWorker,
        broker: Broker,
        options: LinkOptions,
        seldom: SeldomLogger,
        shared: Shared,
        on_closed: Callable[[Link], None],
        setup: Setup | None = None,
    ) -> None:
        role = Role.SERVER if setup is None else Role.CLIENT
        super().__init__(worker.node.loop, role, options, seldom, shared)
        self._setup = setup
        self.worker = worker
        self.node = worker.node
        self.broker = broker
        self.index = broker.index
        self.tally = broker.tally
        self.return_route = (worker.address,)
        self._on_closed = on_closed
        self.multicast_held = 0
        self.retry_room = 0
        self.legs: LegCounts = _NO_LEGS
        self.to_broker = False
        self.role = LinkRole.MESH
        self.window = min(FIRST_WINDOW, options.flow.credit_window)
        self._back: HeldBack | None = None
        # Requests to give up, and the backlog in bytes above which that happens.
        self._gives_up = 1
        self._gave_up_at = options.flow.max_pending_total
        self._owed: Stream | None = None  # a stream with an overdue response, if one was found
        self._quiet = options.silent_after / 2
        self._asked_at = -inf  # time of the last KEEPALIVE with the R flag
        self._element = 1  # bytes of this destination's elements, estimated
        self.form: Form | None = None
        if setup is None and shared.authentication is not None:
            self.core.holds = True
        self.session: Session = Session(self)
        self._receiver = self.session

    @property
    def name(self) -> str:
        """The name of the peer for the log, with its principal."""
        principal = self.session.principal
        peer = self.identity.peer
        return peer if principal is None else f"{peer} as {shown(str(principal))}"

    def greet(self, info: BrokerInfo) -> None:
        """Replace the session by one with a broker: the peer is no client from now on.

        Raises:
            PeerRefused: There is no cluster, or it refuses the broker.
        """
        peers = self.shared.peers
        if peers is None:
            raise PeerRefused("this broker has no cluster")
        peers.greet(info)
        self.join(PeerSession(self, peers, self.session, info))

    def greet_java(self, info: BrokerInfo, *, proxy: bool) -> None:
        """Replace the session by one of the two with a Java broker.

        Args:
            info: Its BROKER_INFO.
            proxy: Whether this is the connection for forwarded requests.

        Raises:
            PeerRefused: There is no cluster, or it refuses the broker; or the other connection is
                not there.
        """
        peers, waiting = self.shared.peers, self.shared.java
        if peers is None:
            raise PeerRefused("this broker has no cluster")
        key = info.broker_id
        pair = waiting.get(key)
        if proxy:
            if pair is None:
                raise PeerRefused(NO_CONTROL)
            session: ControlSession | ProxySession = ProxySession(self, peers, self.session, pair)
        else:
            peers.greet(info)
            if pair is not None:
                raise PeerRefused("it has such a connection already")
            pair = JavaLink(peers, dialled=False, forget=lambda: waiting.pop(key, None))
            waiting[key] = pair
            session = ControlSession(self, peers, self.session, pair, info)
        self.join_java(session, pair)
        if proxy:
            pair.join()

    def join_java(self, session: ControlSession | ProxySession, pair: JavaLink) -> None:
        """Set the session with a Java broker; its requests are read at once."""
        pair.add(session)
        self.join(session)
        self.receive_by(session)

    def join(self, session: PeerSession) -> None:
        """Set the session with a broker."""
        self.to_broker = True
        self.core.measure_every = MEASURE_EVERY
        self.retry_room = self.gathering.max_forwarded
        self.legs = LegCounts()
        self.tally = self.broker.forwarded
        self.session = session
        self._receiver = Greeting(session)

    def receive_by(self, receiver: FrameReceiver) -> None:
        """Set the receiver of frames that are for no stream with a user."""
        self._receiver = receiver

    def begin_session(self, token: bytes) -> None:
        """Begin a session that can be resumed; see `ResumableLink`.

        Raises:
            RejectedSetup: The token is too short or in use, or there are too many sessions.
        """
        raise AssertionError("without sessions the state machine refuses a token")

    def receive_resume(self, resume: Resume) -> None:
        """Resume a session over the socket of this connection; see `ResumableLink`."""
        raise AssertionError("without sessions the state machine refuses RESUME")

    # --- frames -------------------------------------------------------------------------------

    def _on_stream_frame(self, stream: Stream, frame: Frame) -> None:
        if stream.requester:
            answered: Answered = stream.peer
            answered.on_answer(self, stream, frame)
        else:
            asked: Asked = stream.peer
            asked.on_request(self, stream, frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket and its limits, start the timer, and send SETUP as the client."""
        super().connection_made(transport)
        setup = self._setup
        if setup is not None:
            self.session.begin(setup)
            at = self.shared.next_tick(self.time(), setup.keepalive / 1000)
            self._open_core(setup, self.options.lease, keepalive_at=at)

    def resume_writing(self) -> None:
        """Resume the senders blocked on this socket, and pass on the credit held back."""
        super().resume_writing()
        self._gave_up_at = self.flow.max_pending_total
        if self._back is not None:
            self._back.end()
            self._back = None
        self._replenish()

    def _stops_others(self) -> bool:
        # Those held back answer this peer only.
        held = self._back.links if self._back is not None else ()
        return any(flow is not self and flow not in held for flow in self._blocking)

    def _hold_back(self) -> None:
        if self._back is None:
            self._back = HeldBack(self)
        self._back.look()

    def only_requests(self) -> bool:
        """Return whether this peer may be left unread: it has no request to answer.

        A peer broker has many requesters, and is always read.
        """
        return not self.to_broker and super().only_requests()

    def bytes_read(self) -> int:
        """Return the bytes that the peer has read since its backlog passed `high_water`."""
        self._note_read()
        return self._read

    def answers_only(self, requester: Link) -> bool:
        """Whether all streams of this peer are responses to one requester."""
        streams = self.core.streams
        if self.to_broker:
            return False  # the next one may answer another
        return 0 < len(streams) <= MOST_STREAMS and all(
            stream.requester
            and isinstance(stream.peer, StreamExchange)
            and stream.peer.link is requester
            for stream in streams.values()
        )

    def _give_up_requests(self) -> None:
        waiting = self.waiting
        if waiting < self._gave_up_at:
            self._gave_up_at = waiting
            self._gives_up = 1
            return
        if waiting < self._gave_up_at + self._much:
            return  # the growth may be the errors of requests given up before
            # The bytes due for a request are unknown. Each step gives up twice as many as the one
            # before, as long as the backlog grows: the last request is a few steps away.
        newest = tuple(islice(filter(_asks, reversed(self.core.streams.values())), self._gives_up))
        self._gave_up_at = waiting
        self._gives_up *= 2
        for stream in newest:
            if stream.peer is not None:  # else it ended with one before
                asked: Asked = stream.peer
                asked.give_up("too much waits for the requester")
                self.core.counters["given_up"] += 1

    # --- requests to this peer ----------------------------------------------------------------

    def open(self, kind: int, now: float) -> Stream:
        """Open a stream to this peer for a request of another peer.

        Args:
            kind: The frame type of the request.
            now: The time, which the caller has at hand: a reading of the clock for each request
                is dear.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        core = self.core
        # On a closed connection `core.open` refuses as `_check_free` does.
        if self.write_paused or core.pending > self.flow.high_water or self._transport is None:
            self._check_free()
        leases = self.leases
        if leases is not None and not leases.taken.available(now):
            # Lease Semantics: "The Requester MUST NOT send more than Number of Requests specified
            # in the LEASE frame within the Time-To-Live value in the LEASE."
            raise DestinationUnleased("the destination")
        if self._asked_at <= self.now < now - self._quiet:
            self._ask_whether_alive()
        try:
            stream = core.open(kind)
        except LocalProtocolError as error:
            self._check_free()
            raise NotDelivered("the destination", str(error)) from None
        if leases is not None:
            leases.taken.take(now)
        if self._blocked_by:
            self.read_again()  # for its response
        return stream

    def push(self, frame: Frame) -> None:
        """Relay a metadata push of another peer.

        Raises:
            NotDelivered: The peer does not keep up, or the connection has gone.
        """
        self._check_free(1)  # it has no answer, so its sender learns of no backlog
        try:
            self.core.relay_metadata_push(frame)
        except LocalProtocolError as error:
            raise NotDelivered("the destination", str(error)) from None
        self.flush_soon()

    def learn(self, frame: Frame, most: int) -> int:
        """Return the window of a stream by the size of an element.

        Args:
            frame: A frame of the element.
            most: The largest window.

        Returns:
            The window in elements: two or more, unless `most` is one. The next stream to this
            destination begins with it, or with `FIRST_WINDOW` if that is less.
        """
        size = frame.end - frame.start
        if frame.word & FOLLOWS:
            size *= FRAGMENTS
        # The estimate decays slowly after larger elements.
        self._element = size = max(size, self._element - (self._element >> 3))
        window = min(most, max(2, WINDOW_MARKS * self.flow.high_water // size))
        self.window = min(FIRST_WINDOW, window)
        return window

    @property
    def busy(self) -> bool:
        """Whether another destination should be preferred now."""
        leases = self.leases
        if self.write_paused or (leases is not None and not leases.taken.available(self.time())):
            return True
        now = self._now()
        return now - self.now > self.options.silent_after and self._silent(now)

    def _silent(self, now: float) -> bool:
        """Whether the peer may be dead: a response or a KEEPALIVE of it is overdue.

        That is certain only after its lifetime. Until then other destinations are preferred.
        """
        asked_at = self._asked_at
        if asked_at > self.now and not self._blocked_by and now - asked_at > self._quiet:
            return True
        setup = self.session.setup
        # SETUP Frame: "Time (in milliseconds) between KEEPALIVE frames that the client will send."
        if setup is not None and now - self.now > OVERDUE * setup.keepalive / 1000:
            return True
        owed = self._owed
        if owed is None or owed.state == CLOSED:
            streams = islice(self.core.streams.values(), MOST_STREAMS)
            owed = self._owed = next((each for each in streams if _owes(each)), None)
        if owed is None:
            return False
        exchange: StreamExchange | Leg = owed.peer
        return now - exchange.began > self.options.silent_after

    def requests(self) -> Iterator[tuple[int, float]]:
        """Yield the frame type of each open request of the peer, and the time of its start."""
        for stream in tuple(self.core.streams.values()):
            if not stream.requester and stream.peer is not None:
                asked: Asked = stream.peer
                yield stream.kind, asked.began

    def _ask_whether_alive(self) -> None:
        """Send one KEEPALIVE to a quiet peer, as most frames need no prompt response.

        "KEEPALIVE frames MAY be initiated by the server and sent upon application request with
        the (R)espond flag set." "Reception of a KEEPALIVE frame with the (R)espond flag set MUST
        cause a client or server to send back a KEEPALIVE with the (R)espond flag NOT set."
        """
        core = self.core
        if self._blocked_by or core.state is not _CONNECTION_OPEN:
            return  # its answer would not be read
        self._asked_at = self._now()
        core.send_keepalive()
        self.flush_soon()

    def _check_free(self, marks: int = REFUSAL_MARKS) -> None:
        """Refuse a request if the backlog is above a number of times `high_water`."""
        core = self.core
        if self._transport is None or core.state in _GONE:
            raise NotDelivered("the destination", "it has just left")
        if core.pending + self.waiting > marks * self.flow.high_water:
            # Error Codes, REJECTED: "Despite being a valid request, the Responder decided to reject
            # it. The Responder guarantees that it didn't process the request."
            raise DestinationSlow("the destination")

    # --- the end ------------------------------------------------------------------------------

    def begin_to_end(self) -> None:
        """Refuse new requests of the peer, and prefer other destinations."""
        self._receiver = DrainingSession(self, self.session)
        registration = self.session.registration
        if registration is not None:
            registration.pass_over()

    def end_requests(self, text: str) -> None:
        """End all requests of the peer, as REJECTED if they were not handed over."""
        for stream in tuple(self.core.streams.values()):
            if stream.requester or stream.peer is None:
                continue
            asked: Asked = stream.peer
            if isinstance(asked, StreamExchange) and asked.kept and asked.handed is None:
                # Error Codes, REJECTED: "The Responder guarantees that it didn't process the
                # request."
                asked.refuse(ErrorCode.REJECTED, text)
            else:
                asked.give_up(text)

    def _on_stream_failed(self, event: StreamFailed) -> None:
        """End the stream joined to one that this peer has broken."""
        stream = event.stream
        if stream.peer is not None:
            stream.peer.on_gone(stream, BROKE_PROTOCOL)

    def _on_core_closed(self, event: Closed) -> None:
        """End the streams joined to those of a closed connection."""
        if event.error is not None:
            reason = _REASONS.get(type(event.error), "broken frame")
            self.closed_reason = self.closed_reason or reason
            if event.error.text == UNEXPECTED_PROXY_HEADER:
                # Its clients would all have the address of the proxy.
                self.warn("PROXY header", UNEXPECTED_PROXY_HEADER)
            _logger.info(
                "%s: closing: %s",
                self.name,
                shown(str(event.error)),
                extra={"event": "connection.error", "peer": self.name},
            )
        if self._keeps:
            self._note_unfinished()
        # At once: a peer that does not read may keep the socket open for a while.
        self.session.leave(closed_for(self.closed_reason))
        for stream in event.streams:
            if stream.peer is not None:
                stream.peer.on_gone(stream, "the connection to the destination was lost")
        self.session.withdraw()

    def _end(self) -> None:
        super()._end()
        if self._back is not None:
            self._back.end()
        self._on_closed(self)
        self.session.end()
        self.worker.detach()


def _asks(stream: Stream) -> bool:
    """Whether the peer waits for a response on a stream."""
    return not stream.requester and stream.kind != _FNF and stream.peer is not None


def _owes(stream: Stream) -> bool:
    """Whether the peer owes the response of a request/response."""
    return (
        stream.requester
        and stream.kind == FrameType.REQUEST_RESPONSE
        and isinstance(stream.peer, StreamExchange | Leg)
    )
