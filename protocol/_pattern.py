"""Patterns of addresses, for the addresses that messages from outside may be sent to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ._address import Address

__all__ = ["matcher", "matches"]

_ANY: Final = b"*"


def matcher(value: bytes) -> Callable[[bytes], object]:
    """Return a function that returns something true for values that a pattern stands for.

    Args:
        value: The pattern of a value: each `*` in it stands for any bytes, also none.
    """
    parts = [re.escape(each) for each in value.split(_ANY)]
    return re.compile(b".*".join(parts), re.DOTALL).fullmatch


def matches(pattern: Address, address: Address) -> bool:
    """Whether an address matches a pattern; both have to be of the same type."""
    return pattern.type == address.type and bool(matcher(pattern.value)(address.value))
