"""The client of brokers, which makes requests and serves them with handlers."""

from __future__ import annotations

import uuid
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from ...actors._values import reader, writer
from ...actors.broker import Answer, Handlers
from ...actors.broker.local._service import as_bytes
from ...protocol.broker import Dialect
from ...protocol.options import Count, check_timeout, check_value
from ...protocol.payloads import CBOR, Codec
from ...protocol.rsocket import FrameType
from ._calls import Calls, Tries
from ._credentials import ClientCredentials, CredentialsSource
from ._dial import BrokerEndpoint, parse_place
from ._elements import Patience, channel_elements, stream_elements
from ._link import ClientLink
from ._metadata import Destination, Entries, address_metadata, says_no_route
from ._options import ClientOptions
from ._pending_response import PendingResponse
from ._pool import Pool
from ._resumable_link import ResumableClientLink
from ._service import ClientService

if TYPE_CHECKING:
    from ._background import BackgroundClient

__all__ = ["UNSET", "Client", "ClientStatistics", "Timeout", "connect"]

T = TypeVar("T")


class _Unset(Enum):
    """The marker of a timeout that was not given, as `None` means no limit."""

    UNSET = "the option"


UNSET: Final = _Unset.UNSET
_OPTIONS: Final = ClientOptions()
Timeout: TypeAlias = float | _Unset | None


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """The figures of a client at one moment.

    Attributes:
        connected: Open connections.
        connects: Connections made.
        failures: Attempts to connect that failed.
        moves: Moves of a connection to another broker.
        brokers: Brokers that the client knows.
        brokers_refused: Brokers that it was told of and must not use, in each list again.
        in_flight: Requests in flight.
        waiting: Requests that wait for one of those to end.
        requests: Requests made.
        retried: Tries after the first of a request.
        timeouts: Requests, or elements of one, that timed out.
    """

    connected: int
    connects: int
    failures: int
    moves: int
    brokers: int
    brokers_refused: int
    in_flight: int
    waiting: int
    requests: int
    retried: int
    timeouts: int


def connect(
    brokers: str | Sequence[str],
    *,
    service: str | None = None,
    tags: Mapping[str, str | None] | None = None,
    handlers: Handlers | None = None,
    connections: int = 1,
    route_ids: Sequence[UUID] | None = None,
    credentials: CredentialsSource | None = None,
    options: ClientOptions = _OPTIONS,
) -> Client:
    """Return a client; `async with` connects it, and closes it at the end.

        async with connect("rsocket+tcp://127.0.0.1:7000") as client:
            answer = await client.request("service=echo", b"hi")

    Args:
        brokers: The URIs of the brokers: `rsocket+tcp://host:port`, `rsocket+ws://host:port/path`
            or `rsocket+unix:///path`; `rsocket+tls` and `rsocket+wss` with TLS. When one fails, the
            next is tried.
        service: The service name to register; without it the client is a requester only.
        tags: More tags of the service.
        handlers: The handlers of its requests; with a service.
        connections: The number of connections to keep. Each has its own route id, so each is a
            destination of the service.
        route_ids: The route ids, one for each connection; random ones by default. A connection
            keeps its id when it connects again.
        credentials: The credentials for brokers that ask for them: `UserPassword`, `BearerToken` or
            `CustomCredentials`; or an asynchronous function without arguments that returns them. It
            is called for each new connection, within `connect_timeout`.
        options: Limits and times.

    Raises:
        BadCredentials: The credentials are too long, or empty.
        OSError: A certificate cannot be read.
        ValueError: A URI cannot be parsed, a certificate is wrong, or the arguments contradict each
            other.
        AddressError: A key of a tag cannot be parsed.
        BrokerFrameError: The service name or a tag is too long.
    """
    check_value("connections", connections, Count)
    check_value("handlers", handlers, Handlers | None)
    check_value("options", options, ClientOptions)
    uris = [brokers] if isinstance(brokers, str) else brokers
    places = [parse_place(each, options) for each in uris]
    if not places:
        raise ValueError("brokers= needs at least one")
    if service is None and (tags or handlers is not None):
        raise ValueError("tags= and handlers= go with service=")
    ids = [uuid.uuid4() for _ in range(connections)] if route_ids is None else list(route_ids)
    if len(ids) != connections or len(set(ids)) != connections:
        raise ValueError(f"route_ids= needs {connections} different ids")
    if UUID(int=0) in ids:
        raise ValueError("route_ids= must not hold the id of zeros, which stands for none")
    destination = ClientService(service, tags or {}, handlers or Handlers())
    return Client(places, destination, ids, ClientCredentials(credentials), options)


class Client:
    """A client with connections to brokers. Made by `connect`.

    It belongs to the loop on which it was entered. A destination is tags as text, such as
    `service=orders region=eu`; an `AddressFrame`, in which an origin of zeros is replaced by the
    route id of this client; or a route to workers, such as `route("1#10.0.0.7:4000 => echo")`, for
    request/response, fire-and-forget and metadata push, where the broker's listener exposes its
    first address.

    A request without an answer raises one of these errors:

    - `DestinationError`: the destination answered with an error, which has code and text;
    - `NotDelivered`: no destination has processed it, so it is safe to repeat: `RequestRejected`,
      `LinkDown`, `CredentialsRefused` and others. The client has tried `max_tries` times, unless
      the broker has already waited for a destination;
    - `InDoubt`: a destination may have processed it: `LinkLost`, `RequestCanceled`,
      `RequestTimeout`. The client does not repeat it; the caller may, if repetition does no harm.

    Cancelling a request, or a timeout, cancels it at the destination.
    """

    def __init__(
        self,
        places: Sequence[BrokerEndpoint],
        service: ClientService,
        route_ids: Sequence[UUID],
        credentials: ClientCredentials,
        options: ClientOptions,
    ) -> None:
        self._places = places
        self._credentials = credentials
        self._service = service
        self._route_ids = tuple(route_ids)
        self._options = options
        # Serialized now, so that wrong values are refused at once.
        self._setups = [service.metadata(each, options) for each in route_ids]
        self._pool: Pool | None = None
        self._made: Calls | None = None

    def in_background(
        self, *, loop_factory: Callable[[], AbstractEventLoop] | None = None
    ) -> BackgroundClient:
        """Return the client with blocking calls, on a thread of its own; instead of `async with`.

        Args:
            loop_factory: Function that makes the event loop; uvloop's where it is installed.
        """
        from ._background import BackgroundClient

        return BackgroundClient(self, loop_factory=loop_factory)

    @property
    def route_ids(self) -> tuple[UUID, ...]:
        """The route ids of the connections; the first is the origin of requests."""
        return self._route_ids

    @property
    def dialect(self) -> Dialect:
        """The dialect of broker frames."""
        return self._options.dialect

    async def __aenter__(self) -> Self:
        """Connect to a broker.

        Raises:
            CredentialsRefused: All brokers have refused the credentials.
            LinkDown: No broker accepted the client in `connect_timeout`, or all have refused it.
            RuntimeError: The client was entered before.
        """
        if self._pool is not None:
            raise RuntimeError("a client is entered once; make another")
        makers = [self._maker(metadata) for metadata in self._setups]
        fixed = self._credentials.fixed
        self._pool = Pool(self._places, makers, self._options, fixed_credentials=fixed)
        self._made = Calls(self._pool, self._options)
        await self._pool.open()
        return self

    def _maker(self, metadata: bytes | None) -> Callable[[str, Callable[[], None]], ClientLink]:
        handlers, credentials, options = self._service.handlers, self._credentials, self._options
        resume = options.resume
        if resume is None:
            return lambda name, news: ClientLink(
                name, metadata, handlers, credentials, options, news
            )
        return lambda name, news: ResumableClientLink(
            name, metadata, handlers, credentials, options, resume, news
        )

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the client. Requests in flight and handlers have `drain_timeout` to end.

        New requests are refused at once. Streams and channels with no element awaited are
        cancelled; elements received before can still be taken. Idempotent.
        """
        if self._pool is not None:
            await self._pool.close()

    @property
    def _calls(self) -> Calls:
        if self._made is None:
            raise RuntimeError("the client is not connected: use `async with`")
        return self._made

    def statistics(self) -> ClientStatistics:
        """Return the client's figures at this moment."""
        calls = self._calls
        pool = cast(Pool, self._pool)
        return ClientStatistics(
            connected=len(pool.alive()),
            connects=sum(keeper.connects for keeper in pool.keepers),
            failures=sum(keeper.failures for keeper in pool.keepers),
            moves=sum(keeper.moves for keeper in pool.keepers),
            brokers=len(pool.brokers),
            brokers_refused=sum(pool.brokers.learned.refused.values()),
            in_flight=calls.admission.inside,
            waiting=calls.admission.waiting,
            requests=calls.requests,
            retried=calls.retried,
            timeouts=calls.timeouts,
        )

    def peer_certificate(self) -> bytes | None:
        """Return the certificate of a connected broker in DER; `None` if there is none."""
        pool = self._pool
        links = [] if pool is None else pool.alive()
        return links[0].peer_certificate() if links else None

    # --- requests -------------------------------------------------------------------------------

    async def request(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> Answer:
        """Send a request, and return its one answer (request/response).

        Args:
            destination: The destination.
            data: The data.
            metadata: Metadata for the destination, wrapped in the ADDRESS; not in the
                reference dialect.
            route: The route name for the destination's `Handlers`; at most 255 bytes.
            entries: More entries of metadata, as (MIME type, content).
            timeout: Seconds for the request; `None`: no limit; by default `request_timeout`.

        Raises:
            OnwardError: The request failed; see `Client`.
            AddressError: The destination cannot be parsed.
            PayloadTooBig: It is over `max_request`, or the answer is over `max_answer`.
            PayloadNotBytes: Data, metadata or an entry are no `bytes`.
            ValueError: The route is no text, or over 255 bytes.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)

        async def outcome(asked: PendingResponse) -> Answer:
            try:
                return await asked.answer
            finally:
                asked.cancel()

        answer = await self._calls.ask(
            _tries(destination),
            self._timeout(timeout),
            lambda link: link.request(data, wrapped),
            outcome,
        )
        return cast(Answer, answer)

    @overload
    async def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: type[T],
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> T: ...
    @overload
    async def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any: ...
    async def request_value(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
    ) -> Any:
        """Send a value, and return the value of the answer, as the client of `TypedHandlers`.

        Args:
            destination: As for `request`, and so are route and timeout.
            value: The value; any that `msgspec` or the codec can encode.
            kind: The type of the answer, which is checked.
            codec: The codec of both.
            route: The route name for the destination.
            timeout: Seconds for the request.

        Raises:
            PayloadError: The value cannot be encoded, and was not sent. Or the answer is not of
                the type; then the request has been handled.
            MissingExtra: `msgspec` is not installed.
            OnwardError: As `request`. `DestinationError` with the code INVALID: the value is not
                of the type that the destination takes.
        """
        read = reader(kind, codec)
        data = writer(codec)(value)
        return read((await self.request(destination, data, route=route, timeout=timeout)).data)

    async def send(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> None:
        """Send a request without an answer (fire-and-forget).

        Returns when it has been handed to a socket. It is not known whether a destination takes it.
        See `request`.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)
        kind = FrameType.REQUEST_FNF
        await self._calls.ask(
            _tries(destination),
            self._timeout(timeout),
            lambda link: link.ask(kind, data, wrapped),
        )

    async def push(
        self,
        destination: Destination,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
    ) -> None:
        """Send a metadata push, which has neither data nor an answer. See `send`."""
        wrapped = self._metadata(destination, metadata, route, entries)
        await self._calls.ask(
            _tries(destination), self._timeout(timeout), lambda link: link.push(wrapped)
        )

    def stream(
        self,
        destination: Destination,
        data: bytes,
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Answer]:
        """Return the elements of a request/stream as an asynchronous generator.

        The request is sent when the first element is awaited. At most `stream_window` elements are
        ahead of the consumer. Closing the generator cancels the stream; leaving a loop early does
        not, as long as the generator is referred to:

            async with aclosing(client.stream("service=log", b"")) as lines:
                async for line in lines:
                    if line.data == b"end":
                        break

        Args:
            destination: As for `request`, and so are the others.
            data: The data.
            metadata: Metadata for the destination.
            route: The route name for the destination.
            entries: More entries of metadata.
            timeout: Seconds until the first element; as for `request`.
            element_timeout: Seconds from one element to the next; `None`: no limit; by default the
                option of that name.
        """
        data = as_bytes(data, "data")
        wrapped = self._metadata(destination, metadata, route, entries)
        patience = self._patience(timeout, element_timeout)
        return stream_elements(self._calls, _tries(destination), data, wrapped, patience)

    @overload
    def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: type[T],
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[T]: ...
    @overload
    def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Any]: ...
    async def stream_values(
        self,
        destination: Destination,
        value: Any,
        kind: Any,
        *,
        codec: Codec = CBOR,
        route: str = "",
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Any]:
        """Send a value, and yield the values of a request/stream.

        See `stream` and `request_value`. An element that is not of the type ends the stream with
        `PayloadError`.
        """
        read = reader(kind, codec)
        elements = self.stream(
            destination,
            writer(codec)(value),
            route=route,
            timeout=timeout,
            element_timeout=element_timeout,
        )
        async with aclosing(elements):
            async for element in elements:
                yield read(element.data)

    def channel(
        self,
        destination: Destination,
        source: AsyncIterable[bytes | Answer],
        metadata: bytes | None = None,
        *,
        route: str = "",
        entries: Entries = (),
        timeout: Timeout = UNSET,
        element_timeout: Timeout = UNSET,
    ) -> AsyncGenerator[Answer]:
        """Send the elements of `source`, and return those of the destination (request/channel).

        The first element is sent with the request; without one, nothing is sent and no element is
        returned. The others are taken from `source` within the destination's credit. An error of
        `source` is raised here, and the destination is sent an ERROR. `timeout` limits the wait for
        the first element of `source` too, which is `NotDelivered`; time in which another one is
        awaited does not count. See `stream`.

        Args:
            destination: As for `request`.
            source: The elements. Metadata of the first one replace `metadata`.
            metadata: Metadata for the destination, wrapped in the ADDRESS.
            route: The route name for the destination.
            entries: More entries of metadata.
            timeout: Seconds until the first element; as for `request`.
            element_timeout: Seconds from one element to the next; `None`: no limit; by default
                the option of that name.
        """

        def wrap(first: bytes | None) -> bytes:
            return self._metadata(destination, metadata if first is None else first, route, entries)

        wrap(None)  # refuses wrong values at once
        patience = self._patience(timeout, element_timeout)
        return channel_elements(self._calls, _tries(destination), source, wrap, patience)

    def _metadata(
        self, destination: Destination, metadata: bytes | None, route: str, entries: Entries
    ) -> bytes:
        origin = self._route_ids[0].bytes
        return address_metadata(destination, origin, metadata, route, entries, self._options)

    def _timeout(self, timeout: Timeout) -> float | None:
        if isinstance(timeout, _Unset):
            return self._options.request_timeout
        return None if timeout is None else check_timeout(timeout)

    def _patience(self, first: Timeout, other: Timeout) -> Patience:
        between = self._options.element_timeout if isinstance(other, _Unset) else other
        if between is not None:
            check_timeout(between, "element_timeout")
        return Patience(self._timeout(first), between)


def _tries(destination: Destination) -> Tries:
    return Tries(once=says_no_route(destination))
