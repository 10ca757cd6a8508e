"""The two simplest codecs: bytes as they are, and one text as BARE writes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..bare import BareError, BareReader, encode_string
from ._codec import PayloadError

__all__ = ["BARE_STRING", "BYTES", "BareStringCodec", "BytesCodec"]


@dataclass(frozen=True, slots=True)
class BytesCodec:
    """Payloads that are what they are."""

    @property
    def name(self) -> str:
        """Its name."""
        return "bytes"

    def encode(self, value: Any) -> bytes:
        """Return the bytes.

        Raises:
            PayloadError: It is something else.
        """
        if not isinstance(value, bytes):
            raise PayloadError(f"a value of type {type(value).__name__} is not bytes")
        return value

    def decode(self, data: bytes, kind: Any = None) -> bytes:
        """Return the bytes."""
        return data


@dataclass(frozen=True, slots=True)
class BareStringCodec:
    """Payloads that are one BARE string, as Ockam's workers in Rust exchange them."""

    @property
    def name(self) -> str:
        """Its name."""
        return "bare-string"

    def encode(self, value: Any) -> bytes:
        """Write a text.

        Raises:
            PayloadError: It is something else, or UTF-8 cannot write it.
        """
        if not isinstance(value, str):
            raise PayloadError(f"a value of type {type(value).__name__} is not a text")
        try:
            return encode_string(value)
        except BareError as error:
            raise PayloadError(error.reason) from None

    def decode(self, data: bytes, kind: Any = None) -> str:
        """Read a text.

        Raises:
            PayloadError: It is not one BARE string and nothing else.
        """
        try:
            reader = BareReader(data)
            text = reader.string()
            reader.finish()
        except BareError as error:
            raise PayloadError(error.reason) from None
        return text


BYTES: Final = BytesCodec()
"""Payloads as they are."""

BARE_STRING: Final = BareStringCodec()
"""Payloads of one BARE string: what Rust's `String` is on Ockam's wire."""
