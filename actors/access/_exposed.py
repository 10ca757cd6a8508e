"""Addresses exposed to the peers of links, and the patterns allowed behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Self

from ...protocol import LOCAL, Address
from ...protocol._pattern import matcher

__all__ = ["Exposed"]

_ANY: Final = b"*"


class Exposed(frozenset[Address]):
    """The addresses that a link exposes, and the addresses that messages may go on to.

    `Node.listen` and `Node.connect` make one from `expose` and `allow`, and transports pass it
    to their links unchanged. A plain `frozenset` may take its place, and allows no more.

    An address of a type other than 0 with the value `*` stands for all addresses of that type.

    Attributes:
        allowed: The patterns of the addresses that exposed workers may pass messages on to. In
            a value, `*` stands for any bytes.
    """

    allowed: tuple[Address, ...]
    _matches: tuple[tuple[int, Callable[[bytes], object]], ...]
    _types: frozenset[int]

    def __new__(cls, expose: Iterable[Address] = (), allow: Iterable[Address] = ()) -> Self:
        """Make a set of exposed addresses.

        Args:
            expose: The exposed addresses.
            allow: The allowed patterns.
        """
        made = super().__new__(cls, expose)
        made.allowed = tuple(allow)
        made._matches = tuple((each.type, matcher(each.value)) for each in made.allowed)
        made._types = frozenset(
            each.type for each in made if each.value == _ANY and each.type != LOCAL
        )
        return made

    def lets_in(self, address: Address) -> bool:
        """Whether an address is exposed."""
        return address in self or address[0] in self._types

    def allows(self, address: Address) -> bool:
        """Whether a message that came over the link may go to an address next."""
        if address in self or address[0] in self._types:
            return True
        kind, value = address
        return any(kind == each and match(value) for each, match in self._matches)
