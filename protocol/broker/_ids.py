"""Route ids and broker ids: 128 bits, 16 bytes on the wire, a UUID's text for people."""

from __future__ import annotations

import re
from typing import Final

from .._errors import AddressError

__all__ = ["ID_SIZE", "canonical_id", "format_id", "parse_id"]

ID_SIZE: Final = 16
"""Bytes of a route id or broker id."""

_TEXT: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}", re.IGNORECASE
)
_WRAPPED: Final = re.compile(r"(?:id)?\{(.*)\}", re.IGNORECASE)


def format_id(value: bytes) -> str:
    """Write an id as the canonical, lower-case text of a UUID.

    Raises:
        ValueError: It has not 16 bytes.
    """
    if len(value) != ID_SIZE:
        raise ValueError(f"an id has {ID_SIZE} bytes, not {len(value)}")
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_id(text: str) -> bytes:
    """Read an id from any spelling that `canonical_id` knows.

    Raises:
        AddressError: It is neither.
    """
    bare = _unwrap(text)
    if not _TEXT.fullmatch(bare):
        raise AddressError(text[:80], "not a UUID")
    return bytes.fromhex(bare.replace("-", ""))


def canonical_id(text: str) -> str:
    """Return the canonical text of what names an id, and any other text unchanged.

    The reference writes the RouteId tag as `Id{…}`, the specification leaves it open; this
    makes one tag of all spellings of one id: in upper or lower case, with dashes or without, and
    bare, in braces, or as `Id{…}`.
    """
    bare = _unwrap(text)
    if not _TEXT.fullmatch(bare):
        return text
    digits = bare.replace("-", "").lower()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _unwrap(text: str) -> str:
    found = _WRAPPED.fullmatch(text)
    return text if found is None else found[1]
