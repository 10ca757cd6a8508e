"""Workers with a handler of values: a value in, a value out.

The types of a handler are analysed once, when its class is defined.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Coroutine
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar, overload

from ..protocol import (
    HANDLED,
    MAX_ROUTE_LENGTH,
    Context,
    Message,
    OnwardError,
    RouteLike,
    RouteTooLong,
    check_bytes,
)
from ..protocol.payloads import CBOR, Codec, PayloadError
from ._coroutines import is_coroutine
from ._errors import YIELDS, BadHandler
from ._sending import COUNTED
from ._values import Read, load_msgspec, reader, writer
from ._worker import Worker
from .routing._given import check_payload
from .runtime._lost import reason_text

if TYPE_CHECKING:
    from ._node import Node
    from .runtime._cell import Cell

__all__ = ["Rejection", "TypedWorker", "call", "typed"]

T = TypeVar("T")
_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

BAD_PAYLOAD: Final = "bad payload"
"""The reason of a dead letter with a payload that is not of the type."""

_BY_PLACE: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


ENDED: Final = "the worker passed no value on"
"""The reason that a requester is told when a filter ends the chain."""

REJECTED: Final = "rejected"
"""The reason of a dead letter with a value that the handler has rejected."""


class Rejection(OnwardError):
    """A value of the right type that a typed handler does not accept. Raised by the handler.

    It is no failure of the worker: the sender is told as for a payload of another type. Raise it
    before the handler has had an effect.

    Attributes:
        text: The reason, which is told to the sender.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"{REJECTED}: {self.text}"


class TypedWorker(Worker):
    """A worker with a handler of values, not bytes.

    ```python
    @dataclass
    class Order:
        item: str
        count: int


    class Orders(TypedWorker):
        codec = JSON

        def handle(self, order: Order) -> str:
            return f"{order.count} of {order.item}"
    ```

    A subclass defines `handle`, `def` or `async def`, with one or two positional parameters: the
    value, annotated with its type, and the `Message` it came in. The type may be any that
    `msgspec` can check: a dataclass, a `Struct`, a `TypedDict`, an enumeration, a union (of
    classes only if they are `Struct`s with tags), `int`, `list[str]`,
    `Annotated[int, Meta(gt=0)]`.

    The result is encoded. If the onward route has a further address, the result is passed on to
    it, by `step`; else it is the answer. So the last worker of a route answers the requester
    directly. For `None` nothing is sent, except if `handle` is annotated `-> None`: a message
    with a return route is then answered with an empty payload, the acknowledgement. A message
    that a worker of the same node has sent by `send`, with its own address as the return route,
    gets none. If the onward route goes on and `handle` is annotated with a union such as
    `-> Order | None`, `None` ends the chain, and a requester gets `GivenUp`.

    A payload that is not of the type becomes a dead letter, "bad payload", and is no failure
    of the worker. So does a payload for which the type's own code raises, such as
    `__post_init__`. The sender is told the field at fault, and that the message had no effect: a
    request of this node raises `Refused`, and other senders get an error reply if the node sends
    them. The same holds for a `Rejection` that the handler raises, "rejected". If another typed
    worker has passed the value on, on this node or another, every such error is `GivenUp`, as
    that worker may have had an effect: the mark `onward.handled` on the return route tells so.

    Attributes:
        codec: The codec of payloads, of the class or, if it is set in `__init__`, of the instance.
        ack: Whether a handler annotated `-> None` acknowledges.

    Raises:
        MissingExtra: When a class is defined: `msgspec` is not installed.
        BadHandler: When a class is defined: its `handle` declares no type, or one that cannot be
            checked. When a worker is spawned: the type has a name that is still undefined.
    """

    codec: Codec = CBOR
    ack: bool = True
    handle: Callable[..., Any]
    _contract: ClassVar[Contract | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "handle" in vars(cls):
            load_msgspec(cls.__name__)
            try:
                cls._contract = Contract(cls)
            except NameError:
                # The annotation has a name that is defined later: retry when spawned.
                cls._contract = None

    def _join(self, cell: Cell) -> None:
        super()._join(cell)
        contract = type(self)._contract
        if contract is None:
            contract = type(self)._contract = contract_of(type(self))
        self._read = reader(contract.kind, self.codec)
        self._write = writer(self.codec)
        self._with_message = contract.with_message
        self._acknowledges = self.ack and contract.result is NoneType
        self._filters = NoneType in members_of(contract.result) - {contract.result}

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Decode the payload, call `handle`, and pass on or answer. Not to be overridden."""
        try:
            value = self._read(message[2])
        except PayloadError as error:
            self._refuse(message, BAD_PAYLOAD, str(error))
            return None
        try:
            result = self.handle(value, message) if self._with_message else self.handle(value)
        except Rejection as error:
            self._refuse(message, REJECTED, str(error))
            return None
        if is_coroutine(result):
            return self._finish_later(message, result)
        self._finish(message, result)
        return None

    async def _finish_later(self, message: Message, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except Rejection as error:
            self._refuse(message, REJECTED, str(error))
        else:
            self._finish(message, result)

    def _finish(self, message: Message, result: Any) -> None:
        if result is None:
            if self._acknowledges:
                self._acknowledge(message)
            elif self._filters and len(message[0]) > 1:
                self.node.answer_error(message, ENDED, certain=False)
            return
        # Encoded first: a result that cannot be encoded is a failure, a missing return route
        # is none.
        payload = self._write(result)
        if len(message[0]) > 1:
            self._pass_on(message, payload)
            return
        back = message[1]
        if back and back[0] is HANDLED:
            self._answer_of_chain(message, payload)
        else:
            self.reply(message, payload)

    def _answer_of_chain(self, message: Message, payload: bytes) -> None:
        """Answer without the mark, which would be removed on the way by a further dispatch."""
        onward, back, came, source, context = message
        try:
            self.reply(_new(Message, (onward, back[1:], came, source, context)), payload)
        except OnwardError as error:
            if error.lost is not None:  # so that it is known as the answer to the message
                error.lost = error.lost._replace(onward_route=back)
            raise

    def _acknowledge(self, message: Message) -> None:
        back = message[1]
        # A worker's `send` puts its own address on the return route: it waits for no answer.
        if back and back != (message[3],):
            self.reply(message, b"")

    def _pass_on(self, message: Message, payload: bytes) -> None:
        onward, back, _, source, context = message
        if type(payload) is not bytes:
            check_bytes(payload)  # not in the `try`, as this is a failure of the worker
        try:
            check_payload(payload, self.node.limits)
            if back and back[0] is not HANDLED and HANDLED not in back:
                if len(back) >= MAX_ROUTE_LENGTH:
                    raise RouteTooLong(len(back) + 1, MAX_ROUTE_LENGTH)
                back = (HANDLED, *back)
            # In one, not by `_replace`; with a context, as `step` with a payload makes one.
            self.step(_new(Message, (onward, back, payload, source, context or COUNTED[0])))
        except OnwardError as error:
            error.lost = None
            # The handler has run: it is not safe to send the message again.
            self.node.dead_letter(message, error)
            self.node.answer_error(message, reason_text(error), certain=False)

    def _refuse(self, message: Message, reason: str, text: str) -> None:
        self.node.dead_letter(message, reason)
        context = message[4]
        passed_on = context is not None and context[3] > 0
        self.node.answer_error(message, text, certain=not passed_on)


def members_of(kind: Any) -> set[Any]:
    """Return the types of a union, without annotations; of another type, that type."""
    if typing.get_origin(kind) is Annotated:
        return members_of(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return set[Any]().union(*map(members_of, typing.get_args(kind)))
    return {kind}


UNKNOWN: Final = inspect.Signature.empty
"""The type of a result without an annotation."""


class Contract:
    """The declared types of a handler.

    Attributes:
        name: The name of the handler, for errors.
        kind: The type of the value.
        result: The type of the result, or `UNKNOWN`.
        with_message: Whether the handler takes the message too.

    Raises:
        BadHandler: The declaration is not supported.
        NameError: An annotation has a name that is not defined yet.
    """

    def __init__(self, owner: type[TypedWorker]) -> None:
        handler: Any = owner.handle
        is_function = isinstance(inspect.getattr_static(owner, "handle"), staticmethod)
        name = self.name = owner.__name__ if is_function else f"{owner.__name__}.handle"
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise BadHandler(name, YIELDS)
        parameters = list(inspect.signature(handler).parameters.values())
        if not is_function:
            del parameters[:1]
        if not 1 <= len(parameters) <= 2 or not all(each.kind in _BY_PLACE for each in parameters):
            raise BadHandler(name, "takes a value and optionally the message, by position")
        first = parameters[0].name
        hints = typing.get_type_hints(handler, include_extras=True)
        if first not in hints:
            raise BadHandler(name, f"{first!r} has no annotation")
        self.kind: Any = hints[first]
        self.result: Any = hints.get("return", UNKNOWN)
        self.with_message = len(parameters) == 2
        if self.with_message and hints.get(parameters[1].name, Message) not in (Message, Any):
            raise BadHandler(name, f"{parameters[1].name!r} is the message, with another type")
        try:
            # Making a decoder raises for types that msgspec cannot check.
            load_msgspec(name).json.Decoder(self.kind)
        except TypeError as error:
            raise BadHandler(name, f"{first!r}: {error}".partition("\n")[0]) from None


def contract_of(owner: type[TypedWorker]) -> Contract:
    """Return the declared types of a class of workers.

    Raises:
        BadHandler: The declaration is not supported.
    """
    if not hasattr(owner, "handle"):
        raise BadHandler(f"{owner.__name__}.handle", "is not defined")
    try:
        return Contract(owner)
    except NameError as error:
        raise BadHandler(f"{owner.__name__}.handle", str(error)) from None


@overload
def typed(function: Callable[..., Any], /) -> type[TypedWorker]: ...
@overload
def typed(
    *, codec: Codec = CBOR, ack: bool = True
) -> Callable[[Callable[..., Any]], type[TypedWorker]]: ...
def typed(
    function: Callable[..., Any] | None = None, /, *, codec: Codec = CBOR, ack: bool = True
) -> type[TypedWorker] | Callable[[Callable[..., Any]], type[TypedWorker]]:
    """Make a class of typed workers of a function.

    ```python
    @typed
    def price(order: Order) -> Priced:
        return Priced(order.item, order.count * PRICES[order.item])


    node.spawn(price, address="price")
    ```

    The function itself is `price.handle`.

    Args:
        function: The `handle` of the class: `def` or `async def`, with one or two parameters.
        codec: The codec of payloads.
        ack: Whether a function annotated `-> None` acknowledges.

    Raises:
        MissingExtra: `msgspec` is not installed.
        BadHandler: The function declares no type, or one that cannot be checked.
    """
    if function is None:
        return lambda given: _class_of(given, codec, ack)
    return _class_of(function, codec, ack)


def _class_of(function: Callable[..., Any], codec: Codec, ack: bool) -> type[TypedWorker]:
    members = {
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "ack": ack,
        "codec": codec,
        "handle": staticmethod(function),
    }
    return type(function.__name__, (TypedWorker,), members)


@overload
async def call(
    sender: Node | Worker,
    route: RouteLike,
    value: Any,
    kind: None,
    *,
    codec: Codec = CBOR,
    timeout: float = 30.0,
    context: Context | None = None,
) -> None: ...
@overload
async def call(
    sender: Node | Worker,
    route: RouteLike,
    value: Any,
    kind: type[T],
    *,
    codec: Codec = CBOR,
    timeout: float = 30.0,
    context: Context | None = None,
) -> T: ...
@overload
async def call(
    sender: Node | Worker,
    route: RouteLike,
    value: Any,
    kind: Any,
    *,
    codec: Codec = CBOR,
    timeout: float = 30.0,
    context: Context | None = None,
) -> Any: ...
async def call(
    sender: Node | Worker,
    route: RouteLike,
    value: Any,
    kind: Any,
    *,
    codec: Codec = CBOR,
    timeout: float = 30.0,
    context: Context | None = None,
) -> Any:
    """Send a value as a request and wait for a value, as the client of a `TypedWorker`.

    Args:
        sender: The node or the worker that sends the request.
        route: The onward route.
        value: The value; any that `msgspec` or the codec can encode.
        kind: The type of the answer, which is checked. `None` for an acknowledgement, the answer
            of a handler that returns nothing.
        codec: The codec of both.
        timeout: Time to wait, in seconds.
        context: The context of the message inside the node.

    Raises:
        PayloadError: The value cannot be encoded, and was not sent. Or the answer is not of the
            type; then the request has been handled.
        Refused: The worker could not decode the value.
        GivenUp: A later worker of the route could not, or the value could not be passed on to it.
        MissingExtra: `msgspec` is not installed.
        DeliveryError: As `Node.request`.
    """
    read = answer_reader(kind, codec)
    payload = writer(codec)(value)
    answer = await sender.request(route, payload, timeout=timeout, context=context)
    return read(answer.payload)


def answer_reader(kind: Any, codec: Codec) -> Read:
    """Return a function that reads an answer, or an acknowledgement if the type is `None`."""
    return _no_value if kind is None else reader(kind, codec)


def _no_value(payload: bytes) -> None:
    if payload:
        raise PayloadError("it is not empty, as an acknowledgement is")
