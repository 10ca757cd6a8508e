"""Codecs: their interface, their limits, and the error of a payload that cannot be decoded."""

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
    """Limits of one payload of CBOR or JSON. More is a `PayloadError`.

    A byte of payload can become fifty bytes of objects, and deep nesting is slow to walk; so
    items are counted before objects are built.

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
    """The encoding of payloads. Only the two ends of a route need to know it.

    Any object with these three members is a codec. It is called on a node's loop, so it must
    not block.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the codec, in texts and in configuration."""

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
            kind: The expected type, for codecs that cannot decode without it. The result need not
                be of that type: the caller checks it.

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
