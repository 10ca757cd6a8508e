"""Handlers of a service, for all interactions, and the requests that they get.

The same handlers can be a destination of the broker's own node (`Broker.serve`) or of a
client that connects to the broker (`onward.transports.client`).

    handlers = Handlers()

    @handlers.response
    async def echo(request: Request) -> bytes:
        return request.data

    @handlers.stream("count")
    async def count(request: Request) -> AsyncGenerator[bytes]:
        for number in range(int(request.data)):
            yield str(number).encode()
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload
from uuid import UUID

from ....protocol import Address, OnwardError
from ....protocol.broker import TagList, WellKnownKey
from ....protocol.rsocket import ErrorCode
from ....protocol.security import Principal
from .._exchange import INVALID, REJECTED

if TYPE_CHECKING:
    from .._ends import RequesterEnd
    from ._service import Handling, Incoming

__all__ = [
    "Answer",
    "ApplicationError",
    "Handlers",
    "HandlersStatistics",
    "Interaction",
    "Request",
    "route_of",
]

ROUTING_MIME: Final = "message/x.rsocket.routing.v0"
"""The MIME type of the metadata with the route of a request (extension "Routing")."""

_STREAM_ERRORS: Final = range(ErrorCode.APPLICATION_ERROR, ErrorCode.INVALID + 1)
_OWN_ERRORS: Final = range(0x301, 0xFFFFFFFF)
_LONGEST_ROUTE: Final = 100
"""Most characters of a route in the text of an error."""


class Interaction(Enum):
    """The five kinds of requests (RSocket, section "Interaction Models")."""

    RESPONSE = "request/response"
    FIRE_AND_FORGET = "fire-and-forget"
    STREAM = "request/stream"
    CHANNEL = "request/channel"
    METADATA_PUSH = "metadata push"

    @property
    def answered(self) -> bool:
        """Whether the requester gets an answer or an error."""
        return self not in (Interaction.FIRE_AND_FORGET, Interaction.METADATA_PUSH)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as its handler sees it.

    Attributes:
        data: The data; of a channel, those of its first element.
        metadata: The metadata that the ADDRESS wraps; of a metadata push, its content. `None` if
            there are none.
        entries: The other entries of composite metadata, as (MIME type, content), in order.
        origin: The requester's route id; `None` if it gave none.
        tags: The tags of the query.
        encrypted: Whether the ADDRESS marks the payload as encrypted.
        route: The route in the metadata `message/x.rsocket.routing.v0`; "" if there is none.
        principal: The principal of the requester at this broker; `None` if it is not authenticated,
            or not known here: a worker, a link of the node, or a peer of another broker.
        shared: Whether it came by a listener at which several processes of one broker listen.
        source: The source of its connection at this broker, as limits are shared by:
            `PeerIdentity.source`. Empty where there is no connection.
    """

    data: bytes
    metadata: bytes | None = None
    entries: tuple[tuple[str, bytes], ...] = ()
    origin: UUID | None = None
    tags: TagList = ()
    encrypted: bool = False
    route: str = ""
    principal: Principal | None = None
    shared: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or an element of one, with metadata.

    Attributes:
        data: The data.
        metadata: The metadata; `None` for none, which is not the same as empty.
    """

    data: bytes
    metadata: bytes | None = None


class ApplicationError(OnwardError):
    """An error that a handler raises as its answer.

    A handler of a channel gets it from its incoming elements when the requester ends them with
    an error.

    Attributes:
        code: The RSocket error code: 0x201 to 0x204, or one of the application's own,
            0x301 to 0xFFFFFFFE. REJECTED (0x202) means that nothing was done and that the
            requester may try again.
        text: The text for the requester, at most 65535 bytes of UTF-8.

    Raises:
        ValueError: The code cannot end a stream.
        TypeError: The code is no `int`, or the text no `str`.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        _check_types(code, text)
        if code not in _STREAM_ERRORS and code not in _OWN_ERRORS:
            raise ValueError(f"an error code of a stream is 0x201-0x204 or 0x301 on, not {code:#x}")
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"0x{self.code:x}: {self.text}"


def _check_types(code: object, text: object) -> None:
    if not (isinstance(code, int) and isinstance(text, str)):
        kinds = f"{type(code).__name__} and {type(text).__name__}"
        raise TypeError(f"the code of an error is an int, its text a str, not {kinds}")


Elements: TypeAlias = AsyncIterator[bytes | Answer]
ResponseHandler: TypeAlias = Callable[[Request], Awaitable[bytes | Answer]]
StreamHandler: TypeAlias = Callable[[Request], Elements]
ChannelHandler: TypeAlias = Callable[[Request, "Incoming"], Elements]
SilentHandler: TypeAlias = Callable[[Request], Awaitable[None]]

H = TypeVar("H", bound=Callable[..., Any])


class HandlerTable(Generic[H]):
    """The handlers of one interaction by route; calling it decorates a handler."""

    __slots__ = ("_by_route", "_interaction")

    def __init__(self, interaction: Interaction) -> None:
        self._interaction = interaction
        self._by_route: dict[str, H] = {}

    @overload
    def __call__(self, route: str = "", /) -> Callable[[H], H]: ...
    @overload
    def __call__(self, route: H, /) -> H: ...
    def __call__(self, route: str | H = "", /) -> H | Callable[[H], H]:
        """Add a handler: `@handlers.response`, or `@handlers.response("orders.get")`.

        Args:
            route: The handler's route; "" for all routes without a handler.

        Raises:
            ValueError: The route has a handler already.
            TypeError: The handler is a function of the wrong kind: it must be a coroutine function
                or, for streams and channels, an asynchronous generator function.
        """
        if not isinstance(route, str):
            return self._add("", route)
        return lambda handler: self._add(route, handler)

    def _add(self, route: str, handler: H) -> H:
        name = self._interaction.value
        yields = self._interaction in (Interaction.STREAM, Interaction.CHANNEL)
        given: object = handler  # a second name, as `inspect` narrows the type
        if inspect.iscoroutinefunction(given) if yields else inspect.isasyncgenfunction(given):
            wanted = "a generator: it yields" if yields else "no generator: it returns its answer"
            raise TypeError(f"a handler of {name} is {wanted}")
        # Callable objects are neither and cannot be checked.
        wanted_kind = inspect.isasyncgenfunction if yields else inspect.iscoroutinefunction
        if inspect.isroutine(given) and not wanted_kind(given):
            raise TypeError(f"a handler of {name} is made with `async def`")
        if route in self._by_route:
            raise ValueError(f"there is a handler of {name} for {route!r} already")
        self._by_route[route] = handler
        return handler

    def find(self, route: str) -> H | None:
        """Return the handler of a route, or else the one for all routes."""
        found = self._by_route.get(route)
        return self._by_route.get("") if found is None else found


@dataclass(frozen=True, slots=True)
class HandlersStatistics:
    """The figures of a service's handlers at one moment.

    Attributes:
        running: Requests that handlers work on now.
        started: Requests for which a handler was started.
        failed: Requests on which a handler raised anything but `ApplicationError`.
        unhandled: Requests without a handler for their route.
        rejected: Requests beyond a limit, answered with the error REJECTED.
        dropped: Unhandled and rejected requests of an interaction without an answer.
        left_out: Metadata of answers left out because a plain message has no place for them.
    """

    running: int
    started: int
    failed: int
    unhandled: int
    rejected: int
    dropped: int
    left_out: int = 0


class Handlers:
    """The handlers of a service: one for each interaction, or for each route.

    Handlers run as concurrent tasks of the loop. Handlers of streams and channels are
    asynchronous generators, which are advanced only when the requester has given credit. A
    handler is cancelled when its requester cancels or disconnects. If it fails, the
    requester gets an error without details.

    Args:
        max_handling: Most requests that handlers work on at a time. More are REJECTED, or dropped
            and counted where the interaction has no answer.
        max_handling_per_peer: Most of these from one connection, so that one peer cannot use all
            handlers. More are REJECTED or dropped likewise. It does not apply in a client, where
            all requests come from the broker.
        channel_window: Most elements of a channel that are requested ahead of its handler.
        channel_bytes: Most bytes of elements of a channel that are requested ahead of its handler,
            by the size of its largest element so far; but one element at least.

    Attributes:
        response: Decorator of `async def f(request)`, which returns `bytes` or `Answer`.
        fire_and_forget: Decorator of `async def f(request)`, which returns nothing.
        stream: Decorator of `async def f(request)`, which yields `bytes` or `Answer`.
        channel: Decorator of `async def f(request, incoming)`, which yields `bytes` or
            `Answer`; `incoming` yields the data of the requester's elements, the first included.
        metadata_push: Decorator of `async def f(request)`, which returns nothing.

    Raises:
        ValueError: A limit is below 1.
    """

    def __init__(
        self,
        *,
        max_handling: int = 1000,
        max_handling_per_peer: int = 500,
        channel_window: int = 32,
        channel_bytes: int = 4 * 1024 * 1024,
    ) -> None:
        if min(max_handling, max_handling_per_peer, channel_window, channel_bytes) < 1:
            raise ValueError(
                "max_handling, max_handling_per_peer, channel_window and channel_bytes must be "
                "at least 1"
            )
        self.max_handling = max_handling
        self.max_handling_per_peer = max_handling_per_peer
        self.channel_window = channel_window
        self.channel_bytes = channel_bytes
        self.response = HandlerTable[ResponseHandler](Interaction.RESPONSE)
        self.fire_and_forget = HandlerTable[SilentHandler](Interaction.FIRE_AND_FORGET)
        self.stream = HandlerTable[StreamHandler](Interaction.STREAM)
        self.channel = HandlerTable[ChannelHandler](Interaction.CHANNEL)
        self.metadata_push = HandlerTable[SilentHandler](Interaction.METADATA_PUSH)
        self._tables: dict[Interaction, HandlerTable[Any]] = {
            Interaction.RESPONSE: self.response,
            Interaction.FIRE_AND_FORGET: self.fire_and_forget,
            Interaction.STREAM: self.stream,
            Interaction.CHANNEL: self.channel,
            Interaction.METADATA_PUSH: self.metadata_push,
        }
        self._service = ""
        self._running = 0
        # Running requests by peer, where it is known.
        self._shares: dict[Address, int] = {}
        self._started = 0
        self._failed = 0
        self._unhandled = 0
        self._rejected = 0
        self._dropped = 0
        self._left_out = 0

    def start(
        self,
        interaction: Interaction,
        request: Request,
        outlet: RequesterEnd,
        origin: Address | None = None,
    ) -> Handling:
        """Start the handler of a request, as a task of the running loop.

        A refused request is answered before this returns, and the returned handling has ended.

        Args:
            interaction: The interaction.
            request: The request.
            outlet: The receiver of the answer.
            origin: The requesting peer, for its limit; `None` if there is only one.
        """
        from ._service import Handling

        handler = self._tables[interaction].find(request.route)
        handling = Handling(self, interaction, outlet, origin)
        if handler is None:
            self._unhandled += 1
            what = f" of {request.route[:_LONGEST_ROUTE]!r}" if request.route else ""
            text = f"no handler for {interaction.value}{what}"
            self._refuse(handling, outlet, ErrorCode.INVALID, text)
        elif self._running >= self.max_handling or not self.room_for(origin):
            self._rejected += 1
            self._refuse(handling, outlet, ErrorCode.REJECTED, "busy")
        else:
            self._running += 1
            if origin is not None:
                self._shares[origin] = self._shares.get(origin, 0) + 1
            self._started += 1
            handling.start(handler, request)
        return handling

    def _refuse(self, handling: Handling, outlet: RequesterEnd, code: int, text: str) -> None:
        handling.over = True
        handling.outcome = INVALID if code == ErrorCode.INVALID else REJECTED
        if handling.interaction.answered:
            outlet.error(code, text)
        else:
            self._dropped += 1
        handling.let_go()

    def serves(self, service: str) -> None:
        """Set the service name for the log, unless it is set already."""
        self._service = self._service or service

    def service_of(self, request: Request) -> str:
        """Return the service of a request: the one in its tags, or else the handlers' own."""
        asked = (value for key, value in request.tags if key == WellKnownKey.SERVICE_NAME)
        return next(asked, None) or self._service

    def on_failed(self) -> None:
        """Count a handler that failed."""
        self._failed += 1

    def on_ended(self, origin: Address | None) -> None:
        """Count a handler that has ended."""
        self._running -= 1
        if origin is not None:
            self._shares[origin] -= 1
            if not self._shares[origin]:
                del self._shares[origin]

    def on_left_out(self) -> None:
        """Count metadata that were left out of an answer."""
        self._left_out += 1

    @property
    def busy(self) -> bool:
        """Whether handlers work on as many requests as they may."""
        return self._running >= self.max_handling

    def room_for(self, origin: Address | None) -> int:
        """Return how many more requests of one peer may be started.

        The limit for all peers together is not considered.
        """
        if origin is None:
            return self.max_handling
        return max(0, self.max_handling_per_peer - self._shares.get(origin, 0))

    def statistics(self) -> HandlersStatistics:
        """Return the current figures."""
        return HandlersStatistics(
            running=self._running,
            started=self._started,
            failed=self._failed,
            unhandled=self._unhandled,
            rejected=self._rejected,
            dropped=self._dropped,
            left_out=self._left_out,
        )


def route_of(entries: tuple[tuple[str, bytes], ...]) -> str:
    """Return the route in entries of composite metadata, or "".

    The content is a list of tags, each a length byte and as many bytes of UTF-8 (extension
    "Routing"); the first tag counts. Invalid content is ignored.
    """
    for mime, content in entries:
        if mime == ROUTING_MIME and content:
            return content[1 : 1 + content[0]].decode(errors="replace")
    return ""
