"""What a service does with requests: handlers for all interactions, and what they are given.

The same handlers serve as a destination of the broker's own node (`Broker.serve`) and in a
client that connects to a broker from elsewhere (`onward.transports.client`).

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
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, overload
from uuid import UUID

from ...protocol import OnwardError
from ...protocol.broker import TagList
from ...protocol.rsocket import ErrorCode

if TYPE_CHECKING:
    from ._service import Handling, Incoming

__all__ = [
    "Answer",
    "ApplicationError",
    "Handlers",
    "HandlersStatistics",
    "Interaction",
    "Outlet",
    "Request",
    "route_of",
]

ROUTING_MIME: Final = "message/x.rsocket.routing.v0"
"""The MIME type of the metadata that name what is asked for (extension "Routing")."""

_STREAM_ERRORS: Final = range(ErrorCode.APPLICATION_ERROR, ErrorCode.INVALID + 1)
_OWN_ERRORS: Final = range(0x301, 0xFFFFFFFF)
_LONGEST_ROUTE: Final = 100
"""Most characters of a route that an error's text repeats."""


class Interaction(Enum):
    """The five ways to ask (RSocket, section "Interaction Models")."""

    RESPONSE = "request/response"
    FIRE_AND_FORGET = "fire-and-forget"
    STREAM = "request/stream"
    CHANNEL = "request/channel"
    METADATA_PUSH = "metadata push"

    @property
    def answered(self) -> bool:
        """Whether anything goes back to the requester, be it an error."""
        return self not in (Interaction.FIRE_AND_FORGET, Interaction.METADATA_PUSH)


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler sees of a request.

    Attributes:
        data: The data; of a channel, those of its first element.
        metadata: The metadata that the ADDRESS wraps (of a metadata push: what was pushed);
            `None` if there are none.
        entries: The other entries of composite metadata, as (MIME type, content), in order.
        origin: The route id that the requester gave as its own; `None` if it has none.
        tags: The tags it asked for.
        encrypted: Whether the ADDRESS says that the payload is encrypted.
        route: What is asked for, of the metadata `message/x.rsocket.routing.v0`; "" if not said.
    """

    data: bytes
    metadata: bytes | None = None
    entries: tuple[tuple[str, bytes], ...] = ()
    origin: UUID | None = None
    tags: TagList = ()
    encrypted: bool = False
    route: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or an element of one, that has metadata.

    Attributes:
        data: The data.
        metadata: The metadata; `None` for none, which is not the same as empty.
    """

    data: bytes
    metadata: bytes | None = None


class ApplicationError(OnwardError):
    """A handler raises it to answer with an error of its own.

    A handler of a channel also gets it, from its incoming elements, when the requester
    ended them with an error.

    Attributes:
        code: The RSocket error code: 0x201 to 0x204, or one of the application's own,
            0x301 to 0xFFFFFFFE. REJECTED (0x202) tells the requester that nothing was done,
            and that it may try again.
        text: What the requester is told, at most 65535 bytes of UTF-8.

    Raises:
        ValueError: No stream may end with that code.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        if code not in _STREAM_ERRORS and code not in _OWN_ERRORS:
            raise ValueError(f"an error code of a stream is 0x201-0x204 or 0x301 on, not {code:#x}")
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"0x{self.code:x}: {self.text}"


class Outlet(Protocol):
    """Where what a handler says goes. All calls are made on the loop's thread, none blocks.

    After `complete`, `error` or an element that completes, only `cancel_input` may follow.
    """

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an answer or an element of one; the requester has given credit for it.

        Raises:
            PayloadTooBig: It cannot be sent. Nothing was; the handler's end is an error then.
        """

    def complete(self) -> None:
        """End the answer."""

    def error(self, code: int, text: str) -> None:
        """End with an error. Never called for an interaction without an answer."""

    def request_n(self, n: int) -> None:
        """Ask the requester of a channel for that many more elements."""

    def cancel_input(self) -> None:
        """Tell the requester of a channel that no more elements are wanted."""


Elements: TypeAlias = AsyncIterator[bytes | Answer]
ResponseHandler: TypeAlias = Callable[[Request], Awaitable[bytes | Answer]]
StreamHandler: TypeAlias = Callable[[Request], Elements]
ChannelHandler: TypeAlias = Callable[[Request, "Incoming"], Elements]
SilentHandler: TypeAlias = Callable[[Request], Awaitable[None]]

H = TypeVar("H", bound=Callable[..., Any])


class HandlerTable(Generic[H]):
    """The handlers of one interaction by route, and the decorator that adds to them."""

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
            route: What the handler is for; "" for all that has no handler of its own.

        Raises:
            ValueError: There is one for that already.
            TypeError: It is a function, yet no coroutine function, or no asynchronous
                generator function, where it has to be one.
        """
        if not isinstance(route, str):
            return self._add("", route)
        return lambda handler: self._add(route, handler)

    def _add(self, route: str, handler: H) -> H:
        name = self._interaction.value
        yields = self._interaction in (Interaction.STREAM, Interaction.CHANNEL)
        if inspect.iscoroutinefunction(handler) if yields else inspect.isasyncgenfunction(handler):
            wanted = "a generator: it yields" if yields else "no generator: it returns its answer"
            raise TypeError(f"a handler of {name} is {wanted}")
        # Callable objects are neither; they are taken at their word.
        wanted_kind = inspect.isasyncgenfunction if yields else inspect.iscoroutinefunction
        if inspect.isroutine(handler) and not wanted_kind(handler):
            raise TypeError(f"a handler of {name} is made with `async def`")
        if route in self._by_route:
            raise ValueError(f"there is a handler of {name} for {route!r} already")
        self._by_route[route] = handler
        return handler

    def find(self, route: str) -> H | None:
        """Return the handler for a route, or else the one for all."""
        found = self._by_route.get(route)
        return self._by_route.get("") if found is None else found


@dataclass(frozen=True, slots=True)
class HandlersStatistics:
    """The handlers of a service at one moment.

    Attributes:
        running: Requests in the hands of handlers now.
        started: Requests that handlers were started for.
        failed: Those on which a handler failed otherwise than by `ApplicationError`.
        unhandled: Requests that no handler is for.
        rejected: Requests that were too many, and got the error REJECTED.
        dropped: Those of the unhandled and the rejected that could not be told, as their
            interaction has no answer.
    """

    running: int
    started: int
    failed: int
    unhandled: int
    rejected: int
    dropped: int


class Handlers:
    """What a service does with requests: a handler for each interaction, or for each route.

    A handler runs as a task of the loop, so it may wait; several run side by side. Those of
    streams and channels are asynchronous generators, which are not advanced before the
    requester has asked for an element. A handler whose requester cancels or goes away is
    cancelled. If it fails, the requester is told no more than that it has.

    Args:
        max_handling: Most requests in the hands of handlers at a time. More are REJECTED,
            or dropped and counted where the interaction has no answer.
        channel_window: Most elements of a channel that are asked for ahead of its handler.

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

    def __init__(self, *, max_handling: int = 1000, channel_window: int = 32) -> None:
        if min(max_handling, channel_window) < 1:
            raise ValueError("max_handling and channel_window must be at least 1")
        self.max_handling = max_handling
        self.channel_window = channel_window
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
        self._running = 0
        self._started = 0
        self._failed = 0
        self._unhandled = 0
        self._rejected = 0
        self._dropped = 0

    def start(self, interaction: Interaction, request: Request, outlet: Outlet) -> Handling:
        """Start the handler of a request, as a task of the running loop.

        A request that is refused is answered before this returns; what is returned has
        ended then.

        Args:
            interaction: How it is asked.
            request: What is asked.
            outlet: Where the answer goes.
        """
        from ._service import Handling

        handler = self._tables[interaction].find(request.route)
        handling = Handling(self, interaction, outlet)
        if handler is None:
            self._unhandled += 1
            what = f" of {request.route[:_LONGEST_ROUTE]!r}" if request.route else ""
            text = f"nothing here answers {interaction.value}{what}"
            self._refuse(handling, outlet, ErrorCode.INVALID, text)
        elif self._running >= self.max_handling:
            self._rejected += 1
            self._refuse(handling, outlet, ErrorCode.REJECTED, "busy")
        else:
            self._running += 1
            self._started += 1
            handling.start(handler, request)
        return handling

    def _refuse(self, handling: Handling, outlet: Outlet, code: int, text: str) -> None:
        handling.over = True
        if handling.interaction.answered:
            outlet.error(code, text)
        else:
            self._dropped += 1

    def on_failed(self) -> None:
        """Count a handler that failed."""
        self._failed += 1

    def on_ended(self) -> None:
        """Count a handler that has ended, however it did."""
        self._running -= 1

    def statistics(self) -> HandlersStatistics:
        """Return the figures at this moment."""
        return HandlersStatistics(
            running=self._running,
            started=self._started,
            failed=self._failed,
            unhandled=self._unhandled,
            rejected=self._rejected,
            dropped=self._dropped,
        )


def route_of(entries: tuple[tuple[str, bytes], ...]) -> str:
    """Return the route that entries of composite metadata name, or "".

    The content is a list of tags, each a length byte and so many bytes of UTF-8 (extension
    "Routing"); the first one counts. What cannot be read is as good as not there.
    """
    for mime, content in entries:
        if mime == ROUTING_MIME and content:
            return content[1 : 1 + content[0]].decode(errors="replace")
    return ""
