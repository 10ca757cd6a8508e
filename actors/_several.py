"""Arguments of several addresses, for which a single one is refused."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol import Address, AddressLike, address as address_of

__all__ = ["several"]


def several(name: str, given: Iterable[AddressLike]) -> tuple[Address, ...]:
    """Return an argument of several addresses as a tuple.

    Args:
        name: The name of the argument, for the error.
        given: The addresses. A single one is refused, as a text is iterable too.

    Raises:
        TypeError: The argument is one address.
        AddressError: One of them cannot be read.
    """
    if isinstance(given, str | bytes | Address):
        shown = str(given) if isinstance(given, Address) else given
        raise TypeError(f"{name} takes several addresses: {name}=[{shown!r}]")
    return tuple(map(address_of, given))
