"""The options of a client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ...protocol.broker import MIME_BROKER_FRAME, MIME_FORWARDING, Dialect
from ...protocol.options import Count, Range, Seconds, Size, check_options
from ...protocol.rsocket import MAX_FRAME, MAX_REQUEST_N, ConnectionLimits, FrameSize, ResumeLimits
from ..rsocket._options import LeaseOptions
from ..streams._options import Backoff
from ..streams._tls import TlsOptions

__all__ = [
    "BrokersOptions",
    "ClientOptions",
    "KeepaliveOptions",
    "LoadOptions",
    "PayloadOptions",
    "RetryOptions",
]

_BACKOFF: Final = Backoff()
_RETRY_BACKOFF: Final = Backoff(first=0.05, longest=2.0)
_MIMES: Final = {Dialect.SPECIFICATION: MIME_FORWARDING, Dialect.REFERENCE: MIME_BROKER_FRAME}

Credit: TypeAlias = Annotated[int, Range(least=1, most=MAX_REQUEST_N)]
"""A number of elements that fits in a REQUEST_N frame."""


@dataclass(frozen=True, slots=True)
class BrokersOptions:
    """The brokers that a client learns of, and the spreading of its connections over all it knows.

    Attributes:
        learn: Whether the client asks brokers for the others of their cluster; it also does with
            `allowed`. A broker with rules counts the question as a refused request, unless a rule
            allows it.
        allowed: Patterns of URIs, with `*` for any characters, of brokers that the client connects
            to when it is told of them. Without one, it believes only a broker that it has
            authenticated by TLS, and connects to others only with TLS: at a host that it was given,
            or with a certificate by `TlsOptions.authority` or for `TlsOptions.server_name`.
        refresh: Time between two questions for the other brokers, of which up to half is left out
            at random. A broker is asked as well when a connection to it is made.
        rebalance: Time in which connections move, at a random moment, when brokers have come, come
            back or drain.
        max_brokers: Most brokers that the client knows. Further ones are ignored, unless one that
            has gone can be forgotten for it.
        max_list: Most bytes of a list of brokers; a longer one is ignored.
        forget_after: Time after which a learned broker is forgotten that is in no list any more.

    Raises:
        ValueError: A value is out of its range.
    """

    learn: bool = False
    allowed: tuple[str, ...] = ()
    refresh: Seconds = 60.0
    rebalance: Seconds = 10.0
    max_brokers: Count = 64
    max_list: Count = 64 * 1024
    forget_after: Seconds = 3600.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class KeepaliveOptions:
    """The times by which a client notices that a broker is silent, in seconds.

    Attributes:
        interval: Time between two KEEPALIVE frames.
        lifetime: Time without a byte from the broker after which the connection is closed.
        suspect_after: Time without a byte from a broker with an answer due, after which requests
            prefer other connections, if there are any. The broker is sent a KEEPALIVE then.

    Raises:
        ValueError: A time is out of its range, or `lifetime` is not longer than `interval`.
    """

    interval: Seconds = 20.0
    lifetime: Annotated[float, Range(above=0, most=MAX_REQUEST_N / 1000, unit="seconds")] = 60.0
    suspect_after: Seconds = 1.0

    def __post_init__(self) -> None:
        check_options(self)
        if not self.interval < self.lifetime:
            raise ValueError("lifetime must be longer than interval")


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """The tries of a request.

    Attributes:
        max_tries: Tries of a request that is REJECTED or cannot have been sent.
        within: Time since a try in which a REJECTED request is sent again, in seconds. One REJECTED
            later has waited for a destination already, and is not sent again; nor is one with a
            time to wait for a destination (`@no-route`).
        backoff: The wait between two tries.

    Raises:
        ValueError: A number is out of its range.
    """

    max_tries: Count = 3
    within: Seconds = 1.0
    backoff: Backoff = _RETRY_BACKOFF

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The limits of requests in flight, and of bytes that wait for a broker's socket.

    Attributes:
        max_in_flight: Most requests in flight, over all connections. More wait.
        max_waiting: Most requests that wait for one of those to end. More are `NotDelivered`.
        max_streams: Most open streams of a connection, opened by either side. More are REJECTED.
        max_sources: Most sources of channels that a blocking client reads at a time, each by a
            thread of its own. A further channel is `NotDelivered`.
        max_queued: Backlog of a broker's socket, in bytes, above which requests wait, and handlers
            are granted no more credit.
        max_pending: Backlog in bytes above which the connection is closed as too slow.

    Raises:
        ValueError: A number is out of its range, or `max_pending` is below `max_queued`.
    """

    max_in_flight: Count = 1000
    max_waiting: Size = 10_000
    max_streams: Count = 16_384
    max_sources: Count = 256
    max_queued: Count = 1024 * 1024
    max_pending: Count = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)
        if self.max_pending < self.max_queued:
            raise ValueError("max_pending must be at least max_queued")


@dataclass(frozen=True, slots=True)
class PayloadOptions:
    """The sizes of requests, elements and answers, in bytes.

    Attributes:
        max_request: Most bytes of data and metadata of a request or an element: of a sent one
            (`PayloadTooBig`), or of one for the handlers (INVALID).
        max_answer: Most bytes of data and metadata of an answer or of a received element
            (`PayloadTooBig`).
        max_gathered: Most bytes of all unfinished fragmented payloads of a connection, with the
            cost of their objects. The stream that exceeds it is ended.
        max_frame: Most bytes of a frame, in both directions. A broker that sends a longer one is
            disconnected.
        fragment_size: Bytes of a frame above which a payload is sent in fragments. `None`: never;
            a payload too large for one frame is `PayloadTooBig`.

    Raises:
        ValueError: A size is out of its range.
    """

    max_request: Count = 8 * 1024 * 1024
    max_answer: Count = 16 * 1024 * 1024
    max_gathered: Count = 64 * 1024 * 1024
    max_frame: FrameSize = MAX_FRAME
    fragment_size: FrameSize | None = None

    def __post_init__(self) -> None:
        check_options(self)


_BROKERS: Final = BrokersOptions()
_KEEPALIVE: Final = KeepaliveOptions()
_RETRY: Final = RetryOptions()
_LOAD: Final = LoadOptions()
_PAYLOAD: Final = PayloadOptions()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The limits and times of a client. Sizes are in bytes, times in seconds.

    Attributes:
        dialect: The dialect of broker frames, which determines their MIME type.
        data_mime: MIME type of the data, at most 255 bytes of ASCII.
        connect_timeout: Time for one attempt to connect, with the handshakes and the answer to the
            SETUP; and for `connect` to have the first connection.
        request_timeout: Time for a request, with the wait for a connection, its retries and its
            answer. Of a stream or a channel: until its first element; time in which a channel
            waits for its own source counts up to the first element of that. `None`: no limit.
        element_timeout: Time from one element of a stream or a channel to the next, without
            the time in which a channel waits for its own source. `None`: no limit.
        brokers: The brokers that the client learns of, and the spreading of its connections.
        keepalive: The times by which a silent broker is noticed.
        reconnect: Whether a connection that fails or is lost is made again. If not, each
            broker is tried once, nothing is logged, and `LinkDown` has the reason.
        backoff: The wait before connecting again. It grows with each attempt, until a connection
            has lasted longer than the longest wait before it.
        retry: The tries of a request.
        load: The limits of requests in flight, and of bytes that wait for a broker's socket.
        payload: The sizes of requests, elements and answers.
        stream_window: Elements of a stream that are requested ahead of their consumer.
        lease: The requests granted to the broker; more are REJECTED. With it, requests to the
            broker wait for its leases. `None`: without leases.
        resume: The session that is resumed after the loss of a connection, so that requests in
            flight go on. The broker has to offer it, or refuses the SETUP. `None`: requests in
            flight fail with `LinkLost`, and a new connection is made.
        drain_timeout: Time in which requests in flight and running handlers have to end when the
            client is closed.
        tls: The encryption: `TlsOptions`, or an `ssl.SSLContext` for clients; `None`: none, unless
            the scheme requires it (`rsocket+tls`, `rsocket+wss`), which then means `TlsOptions()`.

    Raises:
        ValueError: A time or `stream_window` is out of its range, or `data_mime` is no such text.
    """

    dialect: Dialect = Dialect.SPECIFICATION
    data_mime: str = "application/octet-stream"
    connect_timeout: Seconds = 10.0
    request_timeout: Seconds | None = 30.0
    element_timeout: Seconds | None = None
    brokers: BrokersOptions = _BROKERS
    keepalive: KeepaliveOptions = _KEEPALIVE
    reconnect: bool = True
    backoff: Backoff = _BACKOFF
    retry: RetryOptions = _RETRY
    load: LoadOptions = _LOAD
    payload: PayloadOptions = _PAYLOAD
    stream_window: Credit = 32
    lease: LeaseOptions | None = None
    resume: ResumeLimits | None = None
    drain_timeout: Seconds = 5.0
    tls: TlsOptions | ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if not self.data_mime.isascii() or len(self.data_mime) > 255:
            raise ValueError("data_mime must be at most 255 characters of ASCII")

    @property
    def mime(self) -> str:
        """The MIME type of the broker's frames."""
        return _MIMES[self.dialect].decode()

    @property
    def limits(self) -> ConnectionLimits:
        """The limits of the connection's state machine."""
        return ConnectionLimits(
            max_frame=self.payload.max_frame,
            max_streams=self.load.max_streams,
            lease=self.lease is not None,
            mtu=self.payload.fragment_size,
        )
