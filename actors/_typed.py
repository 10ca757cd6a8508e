"""Handlers with a declared type, for which the payload is decoded and checked.

A payload is converted to the declared type in two steps:

    bytes ──codec──▶ plain data ──msgspec──▶ dataclass, Struct, TypedDict, union, int, …

The second step needs `msgspec`, the extra `typed`. The type is analysed once, when the class is
defined.
"""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import typing
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeVar, overload

from ..protocol import (
    Context,
    Message,
    OnwardError,
    RouteLike,
)
from ..protocol.payloads import CBOR, Codec, PayloadError, PlainCodec
from ._errors import YIELDS, BadHandler
from ._worker import Worker
from .runtime._thread import is_coroutine

if TYPE_CHECKING:
    from ._node import Node
    from .runtime._cell import Cell

__all__ = ["MissingExtra", "TypedWorker", "call"]

T = TypeVar("T")
Read: TypeAlias = Callable[[bytes], Any]
Write: TypeAlias = Callable[[Any], bytes]

_NATIVE: Final = (
    bytes,
    bytearray,
    dt.date,
    dt.datetime,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
)
"""Types that need no conversion with a codec of other values than plain data."""

BAD_PAYLOAD: Final = "bad payload"
"""The reason of a dead letter with a payload that is not of the type."""

_BY_PLACE: Final = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)

_KINDS: Final = 256
"""Readers that `call` caches, one for each pair of a type and a codec."""


class MissingExtra(OnwardError, ImportError):
    """A feature needs a package of an extra that is not installed.

    Attributes:
        what: The feature.
        extra: The extra, as in `onward[extra]`.
    """

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, extra)
        self.what = what
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.what} needs the extra: install onward[{self.extra}]"


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
    value, annotated with its type, and the `Message` it came in. The result is encoded and sent
    as the answer; `None` is no answer. The type may be any that `msgspec` can check: a dataclass,
    a `Struct`, a `TypedDict`, an enumeration, a union (of classes only if they are `Struct`s with
    tags), `int`, `list[str]`, `Annotated[int, Meta(gt=0)]`.

    A payload that is not of the type becomes a dead letter, "bad payload", and is no failure
    of the worker. So does a payload for which the type's own code raises, such as
    `__post_init__`. The sender is told the field at fault, and that the message had no effect: a
    request of this node raises `Refused`, and other senders get an error reply if the node sends
    them.

    Attributes:
        codec: The codec of payloads, of the class or, if it is set in `__init__`, of the instance.

    Raises:
        MissingExtra: When a class is defined: `msgspec` is not installed.
        BadHandler: When a class is defined: its `handle` declares no type, or one that cannot be
            checked. When a worker is spawned: the type has a name that is still undefined.
    """

    codec: Codec = CBOR
    handle: Callable[..., Any]
    _contract: ClassVar[_Contract | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "handle" in vars(cls):
            _msgspec(cls.__name__)
            try:
                cls._contract = _Contract(cls)
            except NameError:
                # The annotation has a name that is defined later: retry when spawned.
                cls._contract = None

    def _join(self, cell: Cell) -> None:
        super()._join(cell)
        contract = type(self)._contract
        if contract is None:
            contract = type(self)._contract = _resolved(type(self))
        self._read = _reader(contract.kind, self.codec)
        self._write = _writer(self.codec)
        self._with_message = contract.with_message

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Decode the payload, call `handle`, and answer. Not to be overridden."""
        try:
            value = self._read(message[2])
        except PayloadError as error:
            self._refuse(message, error)
            return None
        result = self.handle(value, message) if self._with_message else self.handle(value)
        if result is None:
            return None
        if is_coroutine(result):
            return self._answer_later(message, result)
        self._answer(message, result)
        return None

    async def _answer_later(self, message: Message, work: Coroutine[Any, Any, Any]) -> None:
        result = await work
        if result is not None:
            self._answer(message, result)

    def _answer(self, message: Message, result: Any) -> None:
        # Encoded first: a result that cannot be encoded is a failure, a missing return route
        # is none.
        self.reply(message, self._write(result))

    def _refuse(self, message: Message, error: PayloadError) -> None:
        self.node.dead_letter(message, BAD_PAYLOAD)
        self.node.answer_error(message, str(error))


class _Contract:
    """The declared parameters of a handler.

    Raises:
        BadHandler: The declaration is not supported.
        NameError: An annotation has a name that is not defined yet.
    """

    def __init__(self, owner: type[TypedWorker]) -> None:
        name = f"{owner.__name__}.handle"
        handler: Any = vars(owner).get("handle") or owner.handle
        if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise BadHandler(name, YIELDS)
        parameters = list(inspect.signature(handler).parameters.values())[1:]
        if not 1 <= len(parameters) <= 2 or not all(each.kind in _BY_PLACE for each in parameters):
            raise BadHandler(name, "takes a value and optionally the message, by position")
        first = parameters[0].name
        hints = typing.get_type_hints(handler, include_extras=True)
        if first not in hints:
            raise BadHandler(name, f"{first!r} has no annotation")
        self.kind: Any = hints[first]
        self.with_message = len(parameters) == 2
        if self.with_message and hints.get(parameters[1].name, Message) not in (Message, Any):
            raise BadHandler(name, f"{parameters[1].name!r} is the message, with another type")
        try:
            # Making a decoder raises for types that msgspec cannot check.
            _msgspec(name).json.Decoder(self.kind)
        except TypeError as error:
            raise BadHandler(name, f"{first!r}: {error}".partition("\n")[0]) from None


def _resolved(owner: type[TypedWorker]) -> _Contract:
    if not hasattr(owner, "handle"):
        raise BadHandler(f"{owner.__name__}.handle", "is not defined")
    try:
        return _Contract(owner)
    except NameError as error:
        raise BadHandler(f"{owner.__name__}.handle", str(error)) from None


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
        kind: The type of the answer, which is checked.
        codec: The codec of both.
        timeout: Time to wait, in seconds.
        context: The context of the message inside the node.

    Raises:
        PayloadError: The value cannot be encoded, and was not sent. Or the answer is not of the
            type; then the request has been handled.
        Refused: The worker could not decode the value.
        MissingExtra: `msgspec` is not installed.
        DeliveryError: As `Node.request`.
    """
    read = _reader(kind, codec)
    payload = _writer(codec)(value)
    answer = await sender.request(route, payload, timeout=timeout, context=context)
    return read(answer.payload)


# --- between bytes and values ---------------------------------------------------------


def _msgspec(what: str) -> Any:
    try:
        import msgspec
    except ImportError:
        raise MissingExtra(what, "typed") from None
    return msgspec


def _reader(kind: Any, codec: Codec) -> Read:
    hashable: Any = codec
    try:
        return _remembered(kind, hashable)
    except TypeError:  # one of the two cannot be hashed, and so not cached
        return _make_reader(kind, codec)


def _make_reader(kind: Any, codec: Codec) -> Read:
    """Make a function that reads a payload as a value of a type, or raises `PayloadError`."""
    decode = codec.decode
    if kind is bytes and codec.name == "bytes":
        return lambda payload: payload
    msgspec = _msgspec("a typed payload")
    # msgspec analyses a union or a `list[int]` again in every call, but a Struct once.
    box = msgspec.defstruct("Box", [("value", kind)])
    convert, invalid = msgspec.convert, msgspec.ValidationError
    plain = isinstance(codec, PlainCodec)
    native = codec.native if isinstance(codec, PlainCodec) else _NATIVE

    def read(payload: bytes) -> Any:
        value = decode(payload, kind)
        if not plain and type(value) is kind:
            return value
        try:
            return convert({"value": value}, box, builtin_types=native, str_keys=True).value
        except invalid as error:
            raise _located(str(error)) from None
        except Exception as error:
            # The payload has made msgspec or the type's own code raise, as a `list` in a set
            # does. The text of that error must not be disclosed to the sender.
            raise PayloadError("it is no valid value of the type") from error

    return read


_remembered = lru_cache(_KINDS)(_make_reader)


def _writer(codec: Codec) -> Write:
    """Make a function that writes a value."""
    if not isinstance(codec, PlainCodec):
        return codec.encode
    encode, native = codec.encode, codec.native
    to_plain = _msgspec("a typed payload").to_builtins
    text_keys = bytes not in native

    def write(value: Any) -> bytes:
        return encode(to_plain(value, builtin_types=native, str_keys=text_keys))

    return write


def _located(text: str) -> PayloadError:
    """Make an error from msgspec's text, which ends with the place: "… - at `$.value.count`"."""
    reason, _, place = text.replace("`", "").rpartition(" - at ")
    of_key = "a key: " if place.startswith("key") else ""
    return PayloadError(of_key + reason, place.partition("$.value")[2].lstrip("."))
