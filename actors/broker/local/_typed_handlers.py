"""Handlers of a service that take and return values, not bytes."""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncGenerator, Callable
from functools import wraps
from typing import Any, Final, TypeVar, overload

from ....protocol.payloads import CBOR, Codec, PayloadError
from ....protocol.rsocket import ErrorCode
from ..._errors import BadHandler
from ..._values import Read, Write, load_msgspec, reader, writer
from ._handlers import Answer, ApplicationError, Handlers, HandlerTable, Interaction, Request

__all__ = ["TypedHandlerTable", "TypedHandlers"]

F = TypeVar("F", bound=Callable[..., Any])

_BY_PLACE: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


class TypedHandlerTable(HandlerTable[Any]):
    """The typed handlers of one interaction by route; calling it decorates a handler."""

    __slots__ = ("_codec", "_on_dropped")

    def __init__(
        self, interaction: Interaction, codec: Codec, on_dropped: Callable[[], None]
    ) -> None:
        super().__init__(interaction)
        self._codec = codec
        self._on_dropped = on_dropped

    @overload
    def __call__(self, route: str = "", /) -> Callable[[F], F]: ...
    @overload
    def __call__(self, route: F, /) -> F: ...
    def __call__(self, route: str | F = "", /) -> F | Callable[[F], F]:
        """Add a handler, as in `Handlers`.

        Raises:
            MissingExtra: `msgspec` is not installed.
            BadHandler: The handler declares no type, or one that cannot be checked.
            ValueError: The route has a handler already.
            TypeError: The handler is a function of the wrong kind.
        """
        if not isinstance(route, str):
            return self._add_typed("", route)
        return lambda handler: self._add_typed(route, handler)

    def _add_typed(self, route: str, handler: F) -> F:
        kind, takes_request = _declared(handler)
        read, write = reader(kind, self._codec), writer(self._codec)
        arguments = self._arguments(read, takes_request)
        if self._interaction is Interaction.STREAM and inspect.isasyncgenfunction(handler):
            self._add(route, _stream(handler, arguments, write))
        elif inspect.iscoroutinefunction(handler):
            self._add(route, _response(handler, arguments, write))
        else:
            self._add(route, handler)  # refuses it
        return handler

    def _arguments(self, read: Read, takes_request: bool) -> Callable[[Request], tuple[Any, ...]]:
        answered = self._interaction.answered

        def arguments(request: Request) -> tuple[Any, ...]:
            try:
                value = read(request.data)
            except PayloadError as error:
                if not answered:
                    self._on_dropped()
                raise ApplicationError(ErrorCode.INVALID, str(error)) from None
            return (value, request) if takes_request else (value,)

        return arguments


class TypedHandlers(Handlers):
    """Handlers that declare the types of the values that they take.

    ```python
    handlers = TypedHandlers(codec=JSON)


    @handlers.response("orders.price")
    async def price(order: Order) -> Receipt:
        return Receipt(order.item, order.count * PRICES[order.item])
    ```

    A handler of `response`, `stream` or `fire_and_forget` has one or two positional parameters:
    the value, annotated with its type, and the `Request` it came in. What it returns or yields is
    encoded, unless it is an `Answer`. The types are those of `TypedWorker`, and so is the check:
    a requester with data of another type gets the error INVALID, with the field at fault. Where
    the interaction has no answer, the request is counted as dropped. Handlers of `channel` and
    `metadata_push` are as in `Handlers`.

    Args:
        codec: The codec of data, both ways.
        **limits: As for `Handlers`.
    """

    response: TypedHandlerTable
    stream: TypedHandlerTable
    fire_and_forget: TypedHandlerTable

    def __init__(self, *, codec: Codec = CBOR, **limits: int) -> None:
        super().__init__(**limits)

        def table(interaction: Interaction) -> TypedHandlerTable:
            made = TypedHandlerTable(interaction, codec, self._on_bad_payload)
            self._tables[interaction] = made
            return made

        self.response = table(Interaction.RESPONSE)
        self.stream = table(Interaction.STREAM)
        self.fire_and_forget = table(Interaction.FIRE_AND_FORGET)

    def _on_bad_payload(self) -> None:
        self._dropped += 1


def _declared(handler: Callable[..., Any]) -> tuple[Any, bool]:
    """Return the type that a handler takes, and whether it takes the request too.

    Raises:
        BadHandler: The declaration is not supported.
    """
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    parameters = list(inspect.signature(handler).parameters.values())
    if not 1 <= len(parameters) <= 2 or not all(each.kind in _BY_PLACE for each in parameters):
        raise BadHandler(name, "takes a value and optionally the request, by position")
    try:
        hints = typing.get_type_hints(handler, include_extras=True)
    except NameError as error:
        raise BadHandler(name, f"{error}, for the types of its parameters") from None
    first, *others = (parameter.name for parameter in parameters)
    if first not in hints:
        raise BadHandler(name, f"{first!r} has no annotation")
    if others and hints.get(others[0], Request) not in (Request, Any):
        raise BadHandler(name, f"{others[0]!r} is the request, with another type")
    try:
        # Making a decoder raises for types that msgspec cannot check.
        load_msgspec(name).json.Decoder(hints[first])
    except TypeError as error:
        raise BadHandler(name, f"{first!r}: {error}".partition("\n")[0]) from None
    return hints[first], bool(others)


def _response(
    handler: Callable[..., Any], arguments: Callable[[Request], tuple[Any, ...]], write: Write
) -> Callable[[Request], Any]:
    @wraps(handler)
    async def answer(request: Request) -> bytes | Answer:
        return _encoded(await handler(*arguments(request)), write)

    return answer


def _stream(
    handler: Callable[..., Any], arguments: Callable[[Request], tuple[Any, ...]], write: Write
) -> Callable[[Request], Any]:
    @wraps(handler)
    async def elements(request: Request) -> AsyncGenerator[bytes | Answer]:
        values = handler(*arguments(request))
        try:
            async for value in values:
                yield _encoded(value, write)
        finally:
            await values.aclose()

    return elements


def _encoded(value: Any, write: Write) -> bytes | Answer:
    return value if isinstance(value, Answer) else write(value)
