"""Arguments that take several addresses, where one alone would be taken apart."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol import Address, AddressLike, address as address_of

__all__ = ["several"]


def several(name: str, given: Iterable[AddressLike]) -> tuple[Address, ...]:
    """Return several addresses.

    Args:
        name: What the error calls them.
        given: The addresses; one alone is refused, as a text is a series of texts too.

    Raises:
        TypeError: It is one address.
        AddressError: One of them cannot be read.
    """
    if isinstance(given, str | bytes | Address):
        shown = str(given) if isinstance(given, Address) else given
        raise TypeError(f"{name} takes several addresses: {name}=[{shown!r}]")
    return tuple(map(address_of, given))
