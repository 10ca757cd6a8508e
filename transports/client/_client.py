"""The client of brokers, which makes requests and serves them with handlers."""

from __future__ import annotations

import uuid
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, cast
from uuid import UUID

from ...actors.broker import Handlers
from ...protocol.broker import Dialect
from ...protocol.options import Count, check_value
from ._calls import Calls
from ._client_requests import ClientRequests
from ._credentials import ClientCredentials, CredentialsSource
from ._dial import BrokerEndpoint, parse_place
from ._link import ClientLink
from ._options import ClientOptions
from ._pool import Pool
from ._resumable_link import ResumableClientLink
from ._service import ClientService

if TYPE_CHECKING:
    from ._background import BackgroundClient

__all__ = ["Client", "ClientStatistics", "connect"]

_OPTIONS: Final = ClientOptions()


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


class Client(ClientRequests):
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
        super().__init__(route_ids, options)
        self._places = places
        self._credentials = credentials
        self._service = service
        # Serialized now, so that wrong values are refused at once.
        self._setups = [service.metadata(each, options) for each in route_ids]
        self._pool: Pool | None = None

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
