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
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload
from uuid import UUID

from ....protocol import Address, OnwardError
from ....protocol.broker import TagList, WellKnownKey
from ....protocol.rsocket import ErrorCode
from .._exchange import INVALID, REJECTED

if TYPE_CHECKING:
    from ._service import Handling, Incoming, Outlet

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
        given: object = handler  # to look at: what `inspect` finds narrows the type
        if inspect.iscoroutinefunction(given) if yields else inspect.isasyncgenfunction(given):
            wanted = "a generator: it yields" if yields else "no generator: it returns its answer"
            raise TypeError(f"a handler of {name} is {wanted}")
        # Callable objects are neither; they are taken at their word.
        wanted_kind = inspect.isasyncgenfunction if yields else inspect.iscoroutinefunction
        if inspect.isroutine(given) and not wanted_kind(given):
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
        left_out: Metadata of answers that were left out, as a plain message was answered, which
            has no place for them.
    """

    running: int
    started: int
    failed: int
    unhandled: int
    rejected: int
    dropped: int
    left_out: int = 0


class Handlers:
    """What a service does with requests: a handler for each interaction, or for each route.

    A handler runs as a task of the loop, so it may wait; several run side by side. Those of
    streams and channels are asynchronous generators, which are not advanced before the
    requester has asked for an element. A handler whose requester cancels or goes away is
    cancelled. If it fails, the requester is told no more than that it has.

    Args:
        max_handling: Most requests in the hands of handlers at a time. More are REJECTED,
            or dropped and counted where the interaction has no answer.
        max_handling_per_peer: Most of them that come from one connection. More are REJECTED or
            dropped likewise, so that one peer cannot have all handlers to itself. In a client all
            come from the broker, and it does not apply.
        channel_window: Most elements of a channel that are asked for ahead of its handler.
        channel_bytes: Most bytes of elements of a channel that are asked for ahead of its handler,
            by the largest that has come so far; but one element at least.

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
        # Of those that are known to come from one peer; there are no more than run.
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
        outlet: Outlet,
        origin: Address | None = None,
    ) -> Handling:
        """Start the handler of a request, as a task of the running loop.

        A request that is refused is answered before this returns; what is returned has
        ended then.

        Args:
            interaction: How it is asked.
            request: What is asked.
            outlet: Where the answer goes.
            origin: Which peer asks, if several do: one of them cannot have all handlers.
        """
        from ._service import Handling

        handler = self._tables[interaction].find(request.route)
        handling = Handling(self, interaction, outlet, origin)
        if handler is None:
            self._unhandled += 1
            what = f" of {request.route[:_LONGEST_ROUTE]!r}" if request.route else ""
            text = f"nothing here answers {interaction.value}{what}"
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

    def _refuse(self, handling: Handling, outlet: Outlet, code: int, text: str) -> None:
        handling.over = True
        handling.outcome = INVALID if code == ErrorCode.INVALID else REJECTED
        if handling.interaction.answered:
            outlet.error(code, text)
        else:
            self._dropped += 1

    def serves(self, service: str) -> None:
        """Note the name of a service these handlers are for. The first one is for the log."""
        self._service = self._service or service

    def service_of(self, request: Request) -> str:
        """Return the service that a request is for: the one it asks for, if it says so."""
        asked = (value for key, value in request.tags if key == WellKnownKey.SERVICE_NAME)
        return next(asked, None) or self._service

    def on_failed(self) -> None:
        """Count a handler that failed."""
        self._failed += 1

    def on_ended(self, origin: Address | None) -> None:
        """Count a handler that has ended, however it did."""
        self._running -= 1
        if origin is not None:
            self._shares[origin] -= 1
            if not self._shares[origin]:
                del self._shares[origin]

    def on_left_out(self) -> None:
        """Count metadata of an answer that there was no place for."""
        self._left_out += 1

    @property
    def busy(self) -> bool:
        """Whether as many requests are in the hands of handlers as may be."""
        return self._running >= self.max_handling

    def room_for(self, origin: Address | None) -> int:
        """Return how many more requests of one peer may be in the hands of handlers.

        The limit for all together is another matter.
        """
        if origin is None:
            return self.max_handling
        return max(0, self.max_handling_per_peer - self._shares.get(origin, 0))

    def statistics(self) -> HandlersStatistics:
        """Return the figures at this moment."""
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
    """Return the route that entries of composite metadata name, or "".

    The content is a list of tags, each a length byte and so many bytes of UTF-8 (extension
    "Routing"); the first one counts. What cannot be read is as good as not there.
    """
    for mime, content in entries:
        if mime == ROUTING_MIME and content:
            return content[1 : 1 + content[0]].decode(errors="replace")
    return ""
