"""One connection of the RSocket listener: frames in, routed messages out, frames relayed.

The first frame of a stream becomes a message and finds its destination by the route; from
then on the stream has a `peer`, and each further frame goes straight to the other
connection with nothing but its stream id replaced. That path is `data_received`, and it is
kept free of everything else.

Flow control is described on the architecture page. In short: a slow destination is given no
new requests, a requester that goes on sending on streams to it is not read, and a destination
is given no more credit than a window ahead of what the requester's socket takes. Nothing is
queued for a stream.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from ...actors.broker.table._leaving import closed_for
from ...protocol import NotDelivered
from ...protocol.rsocket import (
    CLOSED,
    FOLLOWS,
    Closed,
    ConnectionState,
    Event,
    Frame,
    FrameType,
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    PeerError,
    RejectedResume,
    RejectedSetup,
    RSocketError,
    SetupTimeout,
    Stream,
    StreamFailed,
    UnsupportedSetup,
)
from .._log import SeldomLogger, shown
from ._exchange import StreamExchange
from ._flow import TURN, Flow
from ._held_back import HeldBack
from ._leg import Leg
from ._local import LocalRequest
from ._multicast import MulticastRequest
from ._options import LinkOptions
from ._request import DestinationSlow, DestinationUnleased
from ._served import ServedStream
from ._session import REQUESTS, Session
from ._shared import Shared

if TYPE_CHECKING:
    from ...actors.broker import Broker
    from ._leases import Leases
    from ._metadata import Form
    from ._worker import ConnectionWorker

__all__ = ["Link"]

_logger = logging.getLogger("onward.transports.rsocket")

Answered: TypeAlias = StreamExchange | Leg | LocalRequest
"""The `peer` of a stream on which we request: what the answers are for."""
Asked: TypeAlias = StreamExchange | MulticastRequest | ServedStream
"""The `peer` of a stream that asks us: what goes on asking is for."""

FIRST_WINDOW: Final = 32
"""Most elements that a destination is asked for at first, as nobody knows how large they are."""
WINDOW_MARKS: Final = 4
"""How many times `high_water` bytes of one stream may be under way to a requester."""
FRAGMENTS: Final = 64
"""Fragments that an element is taken to have which comes in fragments."""

MOST_STREAMS: Final = 1024
"""Streams of a destination that are looked through before it is held back, or passed over."""
OVERDUE: Final = 2
"""Keepalive intervals of silence after which a destination is passed over."""

_CONNECTION_CLOSED: Final = ConnectionState.CLOSED
_CONNECTION_OPEN: Final = ConnectionState.OPEN
_FNF: Final = int(FrameType.REQUEST_FNF)
_SETUP: Final = int(FrameType.SETUP)
_REASONS: Final[dict[type[RSocketError], str]] = {
    InvalidSetup: "setup refused",
    UnsupportedSetup: "setup refused",
    RejectedSetup: "setup refused",
    RejectedResume: "setup refused",
    SetupTimeout: "no setup",
    KeepaliveTimeout: "silent",
    PeerError: "error of the peer",
}
"""Why a state machine ended, in words for counting; all else is a broken frame."""


class BlockedOnWrite(Protocol):
    """What waits until a socket takes more."""

    def replenish(self) -> None:
        """Pass on what was held back while the socket was full: credit, or elements."""


class Link(Flow):
    """A connection: its frames, its joined streams and their credit.

    Attributes:
        worker: The worker that stands for the connection.
        broker: Where destinations join and requests are routed.
        index: The routing table of the broker.
        session: What the peer asks of the broker.
        form: How the peer wraps broker frames, if it is a destination.
        leases: What either side allows the other; `None` if the peer uses no leases.
        starved: What waits until this socket takes more: those that answer this requester, for
            credit held back; and what is kept of multicasts.
        window: Elements that a stream is asked for first of this destination.
        multicast_held: Bytes held for multicasts that this peer has asked for.

    Args:
        worker: The worker that stands for the connection.
        broker: Where destinations join and requests are routed.
        options: The limits.
        seldom: Logs the warnings of all connections of the listener.
        shared: What all connections of the listener hold.
        on_closed: Called once the socket has gone.
    """

    def __init__(
        self,
        worker: ConnectionWorker,
        broker: Broker,
        options: LinkOptions,
        seldom: SeldomLogger,
        shared: Shared,
        on_closed: Callable[[Link], None],
    ) -> None:
        super().__init__(worker.node.loop, options, seldom, shared)
        self.worker = worker
        self.node = worker.node
        self.broker = broker
        self.index = broker.index
        self.return_route = (worker.address,)
        self._on_closed = on_closed
        self.blocked_on_write: set[BlockedOnWrite] = set()
        self.multicast_held = 0
        self.window = min(FIRST_WINDOW, options.credit_window)
        self._back: HeldBack | None = None
        self._gives_up = 1  # requests, once more waits than
        self._gave_up_at = options.max_pending_total
        self._owed: Stream | None = None  # an answer that is due, as far as one was looked for
        self._quiet = options.silent_after / 2
        self._asked_at = -inf  # when it was sent the last KEEPALIVE that it is to answer
        self._element = 1  # bytes of what this destination answers with, as far as it was seen
        self.form: Form | None = None
        self.leases: Leases | None = None
        self.session = Session(self)

    # --- frames -------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Let the state machine read, and relay or handle what it lets through."""
        core = self.core
        if len(data) > TURN and not self.in_turns:
            data = self.first_turn(data, core.reach, self.data_received)
        now = self.now = self._now()
        for event in core.receive_data(data, now):
            if type(event) is not Frame:
                self._on_event(event)
                continue
            stream = event.stream
            peer = stream.peer
            if peer is None:
                if event.type in REQUESTS:
                    self.session.on_request(event)
                else:
                    self._on_frame(event)
            elif stream.requester:
                answered: Answered = peer
                answered.on_answer(self, stream, event)
            else:
                asked: Asked = peer
                asked.on_request(self, stream, event)
        if core.unfinished or self._keeps:
            self._note_unfinished()
        if core.pending and not self.flushing:
            self.flush_soon()
        if core.close_expected():
            self._close_when_flushed()

    def _on_event(self, event: Event) -> None:
        if type(event) is StreamFailed:
            self._on_stream_failed(event.stream)
        elif type(event) is Closed:
            self._on_core_closed(event)

    def _on_frame(self, frame: Frame) -> None:
        """Take a frame of the connection, or of a stream that is over."""
        self.session.on_frame(frame)
        if frame.type == _SETUP:
            self._arm()

    def resume_writing(self) -> None:
        """Let those go on who waited for this socket, and pass on the credit held back."""
        super().resume_writing()
        self._gave_up_at = self.options.max_pending_total
        if self._back is not None:
            self._back.end()
            self._back = None
        blocked_on_write, self.blocked_on_write = self.blocked_on_write, set()
        for each in blocked_on_write:
            each.replenish()

    def _stops_others(self) -> bool:
        # Those held back have nothing in hand but answers to this peer.
        held = self._back.links if self._back is not None else ()
        return any(flow is not self and flow not in held for flow in self._blocking)

    def _hold_back(self) -> None:
        if self._back is None:
            self._back = HeldBack(self)
        self._back.look()

    def bytes_read(self) -> int:
        """Return how many bytes the peer has read since more than `high_water` waited for it."""
        self._note_read()
        return self._read

    def answers_only(self, requester: Link) -> bool:
        """Whether all that this peer has in hand are answers to one other."""
        streams = self.core.streams
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
            return  # The errors that tell it of those before are no reason for more.
        # How much comes for a request cannot be known. Twice as many as before, as long as it reads
        # less than comes: then it is a few steps from the first to the last.
        newest = tuple(islice(filter(_asks, reversed(self.core.streams.values())), self._gives_up))
        self._gave_up_at = waiting
        self._gives_up *= 2
        for stream in newest:
            if stream.peer is not None:  # else the end of one before was its end too
                asked: Asked = stream.peer
                asked.give_up("too much waits for the requester")
                self.core.counters["given_up"] += 1

    # --- requests handed over -----------------------------------------------------------------

    def open(self, kind: int) -> Stream:
        """Open a stream to this peer for a request of another.

        Raises:
            NotDelivered: The peer does not keep up, the connection takes no more streams,
                or it has gone.
        """
        core = self.core
        # `core.open` refuses what `_check_free` would on a connection that is closed.
        if self.write_paused or core.pending > self.options.high_water or self._transport is None:
            self._check_free()
        leases = self.leases
        if leases is not None and not leases.taken.available(self.time()):
            raise DestinationUnleased("the destination")
        if self._asked_at <= self.now < self._now() - self._quiet:
            self._ask_whether_alive()
        try:
            stream = core.open(kind)
        except LocalProtocolError as error:
            self._check_free()
            raise NotDelivered("the destination", str(error)) from None
        if leases is not None:
            leases.taken.take(self.time())
        if self._blocked_by:
            self.read_again()  # it is to answer now
        return stream

    def push(self, frame: Frame) -> None:
        """Relay a metadata push of another peer.

        Raises:
            NotDelivered: The peer does not keep up, or the connection has gone.
        """
        self._check_free()
        try:
            self.core.relay_metadata_push(frame)
        except LocalProtocolError as error:
            raise NotDelivered("the destination", str(error)) from None
        self.flush_soon()

    def learn(self, frame: Frame, most: int) -> int:
        """Learn from an element how many of its size a stream may have under way.

        Args:
            frame: One of many; it is what it costs for a requester that reads slowly.
            most: The largest window.

        Returns:
            That many elements, two or more unless `most` is one. The next stream to this
            destination begins with as many, but with no more than `FIRST_WINDOW`.
        """
        size = frame.end - frame.start
        if frame.word & FOLLOWS:
            size *= FRAGMENTS
        # It forgets slowly that there were larger ones.
        self._element = size = max(size, self._element - (self._element >> 3))
        window = min(most, max(2, WINDOW_MARKS * self.options.high_water // size))
        self.window = min(FIRST_WINDOW, window)
        return window

    @property
    def busy(self) -> bool:
        """Whether another destination should be chosen just now."""
        leases = self.leases
        if self.write_paused or (leases is not None and not leases.taken.available(self.time())):
            return True
        now = self._now()
        return now - self.now > self.options.silent_after and self._silent(now)

    def _silent(self, now: float) -> bool:
        """Whether the peer may be dead, or its machine: it owes an answer, or a KEEPALIVE.

        It is not known to be before its lifetime is over. Until then others are preferred.
        """
        asked_at = self._asked_at
        if asked_at > self.now and not self._blocked_by and now - asked_at > self._quiet:
            return True
        setup = self.session.setup
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

    def _ask_whether_alive(self) -> None:
        """Send a KEEPALIVE to a quiet peer, as most of what it is sent needs no answer in time.

        "KEEPALIVE frames MAY be initiated by the server and sent upon application request with
        the (R)espond flag set", and one with that flag has to be answered. It is the only one
        until the peer says something.
        """
        core = self.core
        if self._blocked_by or core.state is not _CONNECTION_OPEN:
            return  # what it answers would not be read
        self._asked_at = self._now()
        core.send_keepalive()
        self.flush_soon()

    def _check_free(self) -> None:
        core = self.core
        if self._transport is None or core.state is _CONNECTION_CLOSED:
            raise NotDelivered("the destination", "it has just left")
        if self.write_paused or core.pending > self.options.high_water:
            raise DestinationSlow("the destination")

    def time(self) -> float:
        """Return the time on the loop's clock, in seconds."""
        return self._now()

    # --- the end of things --------------------------------------------------------------------

    def _on_stream_failed(self, stream: Stream) -> None:
        """End the other side of a stream that this peer has broken."""
        if stream.peer is not None:
            stream.peer.on_gone(stream, "the destination broke the protocol")

    def _on_core_closed(self, event: Closed) -> None:
        """End the far sides of all streams: those that answer here are lost."""
        if event.error is not None:
            reason = _REASONS.get(type(event.error), "broken frame")
            self.closed_reason = self.closed_reason or reason
            _logger.info("%s: closing: %s", self.peer_name, shown(str(event.error)))
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
        self.blocked_on_write.clear()
        if self._back is not None:
            self._back.end()
        self._on_closed(self)
        self.session.end()
        self.worker.detach()


def _asks(stream: Stream) -> bool:
    """Whether the peer waits for an answer on a stream."""
    return not stream.requester and stream.kind != _FNF and stream.peer is not None


def _owes(stream: Stream) -> bool:
    """Whether the peer is to give the one answer of a request/response."""
    return (
        stream.requester
        and stream.kind == FrameType.REQUEST_RESPONSE
        and isinstance(stream.peer, StreamExchange | Leg)
    )
