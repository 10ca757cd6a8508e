"""What a codec is, and what is wrong with a payload that has none of its meaning."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from .._errors import ProtocolError
from ..options import Size, check_options

__all__ = ["LIMITS", "Codec", "PayloadError", "PayloadLimits", "PlainCodec"]


class PayloadError(ProtocolError):
    """A payload is not what its reader takes it for, or a value cannot be made one.

    Attributes:
        reason: What is wrong, in words that may be told to the sender.
        field: Which field is at fault, as `order.lines[2].count`; empty where that is not
            known or the whole is.
    """

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason, field)
        self.reason = reason
        self.field = field

    def __str__(self) -> str:
        at = f"{self.field}: " if self.field else ""
        return f"bad payload: {at}{self.reason}"


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    """How much one payload of CBOR or JSON may hold. More is a `PayloadError`.

    A byte of payload can become fifty of objects, and what nests deeply is slow to walk; so it
    is counted before it is built.

    Attributes:
        size: Bytes of the payload, read or written.
        items: Values in it: each number, text, list, map and key counts as one, and each part of
            a text or of bytes that CBOR has in parts.
        depth: Lists and maps within each other.
    """

    size: Size = 1024 * 1024
    items: Size = 100_000
    depth: Size = 32

    def __post_init__(self) -> None:
        check_options(self)


LIMITS: Final = PayloadLimits()
"""The default limits."""


@runtime_checkable
class Codec(Protocol):
    """What the bytes of payloads mean. Only the two ends of a route know it.

    A codec of one's own is any object with these three. It is called on a node's loop, so it
    must not block.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called, for people and in configuration."""

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Write a value.

        Raises:
            PayloadError: It cannot be written.
        """

    @abstractmethod
    def decode(self, data: bytes, kind: Any) -> Any:
        """Read a value.

        Args:
            data: The payload.
            kind: The type that is wanted, for codecs that cannot read without it. What comes out
                need not be of it yet: who asked for a type checks it.

        Raises:
            PayloadError: The bytes are not such a value.
        """


@runtime_checkable
class PlainCodec(Codec, Protocol):
    """A codec of plain data: `None`, bool, int, float, str, list and dict.

    A typed worker turns dataclasses and the like into plain data before such a codec writes
    them, and back after it has read them. To any other codec values go as they are.
    """

    @property
    @abstractmethod
    def native(self) -> tuple[type, ...]:
        """Types that it takes beside the plain ones, as `(bytes,)`; others come as text.

        With `bytes` among them, keys of maps may be numbers too.
        """
