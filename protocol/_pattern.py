"""Patterns of addresses that messages from outside may be sent to, and of URIs to connect to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ._address import Address

__all__ = ["matcher", "matches", "uri_matcher"]

_ANY: Final = b"*"


def matcher(value: bytes) -> Callable[[bytes], object]:
    """Return a function that returns something true for values that a pattern stands for.

    Args:
        value: The pattern of a value: each `*` in it stands for any bytes, also none.
    """
    parts = [re.escape(each) for each in value.split(_ANY)]
    return re.compile(b".*".join(parts), re.DOTALL).fullmatch


def uri_matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that returns something true for URIs that a pattern stands for.

    A `*` stands for a part of the host, the port or the path, and ends at each character that ends
    one of these: `rsocket+wss://*.example:1` is no `rsocket+wss://other/.example:1`. A pattern of
    one `*` stands for all URIs.
    """
    if pattern == "*":
        return bool
    return re.compile("[^/?#@]*".join(map(re.escape, pattern.split("*")))).fullmatch


def matches(pattern: Address, address: Address) -> bool:
    """Whether an address matches a pattern; both have to be of the same type."""
    return pattern.type == address.type and bool(matcher(pattern.value)(address.value))
