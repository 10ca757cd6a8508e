"""Values as payloads: encoded by a codec, decoded and checked against a type.

```
bytes ──codec──▶ plain data ──msgspec──▶ dataclass, Struct, TypedDict, union, int, …
```

The second step needs `msgspec`, the extra `typed`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar, overload

from ..protocol import OnwardError
from ..protocol.payloads import CBOR, Codec, PayloadError, PlainCodec

__all__ = ["MissingExtra", "decode_value", "encode_value"]

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

_KINDS: Final = 256
"""Readers that are cached, one for each pair of a type and a codec."""


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


def encode_value(value: object, codec: Codec = CBOR) -> bytes:
    """Return a value as a payload.

    Args:
        value: The value; any that `msgspec` or the codec can encode.
        codec: The codec.

    Raises:
        PayloadError: It cannot be encoded.
        MissingExtra: `msgspec` is not installed.
    """
    return writer(codec)(value)


@overload
def decode_value(payload: bytes, kind: type[T], codec: Codec = CBOR) -> T: ...
@overload
def decode_value(payload: bytes, kind: Any, codec: Codec = CBOR) -> Any: ...
def decode_value(payload: bytes, kind: Any, codec: Codec = CBOR) -> Any:
    """Return a payload as a value of a type.

    Args:
        payload: The payload.
        kind: The type; any that `msgspec` can check.
        codec: The codec.

    Raises:
        PayloadError: The payload is not of the type.
        MissingExtra: `msgspec` is not installed.
    """
    return reader(kind, codec)(payload)


def load_msgspec(what: str) -> Any:
    """Import `msgspec` for a feature.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        import msgspec
    except ImportError:
        raise MissingExtra(what, "typed") from None
    return msgspec


def reader(kind: Any, codec: Codec) -> Read:
    """Return a function that reads a payload as a value of a type, or raises `PayloadError`."""
    hashable: Any = codec
    try:
        return _remembered(kind, hashable)
    except TypeError:  # one of the two cannot be hashed, and so not cached
        return _make_reader(kind, codec)


def _make_reader(kind: Any, codec: Codec) -> Read:
    decode = codec.decode
    if kind is bytes and codec.name == "bytes":
        return lambda payload: payload
    msgspec = load_msgspec("a typed payload")
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


def writer(codec: Codec) -> Write:
    """Return a function that writes a value as a payload, or raises `PayloadError`."""
    if not isinstance(codec, PlainCodec):
        return codec.encode
    encode, native = codec.encode, codec.native
    to_plain = load_msgspec("a typed payload").to_builtins
    text_keys = bytes not in native

    def write(value: Any) -> bytes:
        return encode(to_plain(value, builtin_types=native, str_keys=text_keys))

    return write


def _located(text: str) -> PayloadError:
    """Make an error from msgspec's text, which ends with the place: "… - at `$.value.count`"."""
    reason, _, place = text.replace("`", "").rpartition(" - at ")
    of_key = "a key: " if place.startswith("key") else ""
    return PayloadError(of_key + reason, place.partition("$.value")[2].lstrip("."))
