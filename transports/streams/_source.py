"""Where a connection comes from, and how the places of a listener are shared by that."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, cast

from ...protocol import counted

__all__ = ["Places", "Proxies", "check_proxies", "source_of"]

UNIX: Final = "unix"
"""The network of all peers of a Unix socket, as far as proxies are concerned."""

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""The IPv6 addresses that stand for IPv4 addresses: RFC 4291 section 2.5.5.2."""

_V6_HOST_BITS = 64
"""Bits of an IPv6 address that its host chooses itself: a network of one customer has a /64."""


def source_of(peername: object) -> str:
    """Return what a peer's connections have in common, to bound what they take together.

    Args:
        peername: What a socket says of its other end.

    Returns:
        An IPv4 address, also where it is mapped into IPv6; the /64 network of an IPv6 address;
        empty where a socket has no such address.
    """
    found = _address(peername)
    if isinstance(found, IPv6Address):
        network = int(found) >> _V6_HOST_BITS << _V6_HOST_BITS
        return f"{IPv6Address(network)}/{_V6_HOST_BITS}"
    return str(found)


def _address(peername: object) -> IPv4Address | IPv6Address | str:
    """Return the address in what a socket says of its other end, or a text that is none."""
    if not isinstance(peername, tuple):
        return ""
    host, *_ = cast("tuple[object, ...]", peername)
    text = str(host)
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


class Proxies:
    """Networks whose addresses stand for many peers, as those of proxies do.

    Args:
        networks: Addresses, or networks like `10.0.0.0/8`; `unix` is all peers of a Unix socket.
            Those of IPv4 may be written as IPv6 has them, like `::ffff:10.0.0.0/104`.

    Raises:
        ValueError: One is neither.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        texts = tuple(networks)
        self._unix = UNIX in texts
        self._networks = tuple(_network(text) for text in texts if text != UNIX)
        self._came = 0

    def __contains__(self, peername: object) -> bool:
        """Whether a peer is a proxy, by what a socket says of its other end."""
        if not isinstance(peername, tuple):
            return self._unix
        found = _address(cast("tuple[object, ...]", peername))
        return not isinstance(found, str) and any(found in each for each in self._networks)

    def source(self, peername: object, source: str) -> str:
        """Return what a connection has in common with others: with none, if a proxy made it.

        Args:
            peername: What its socket says of its other end.
            source: Where it comes from.
        """
        if peername not in self:
            return source
        self._came += 1
        return f"{source} #{self._came}"


def check_proxies(networks: Iterable[str]) -> None:
    """Check what options say of `proxies`.

    Raises:
        ValueError: One is no network.
    """
    try:
        Proxies(networks)
    except ValueError as error:
        raise ValueError(f"proxies: {error}") from None


def _network(text: str) -> IPv4Network | IPv6Network:
    """Return a network; one of IPv4 also where it is mapped into IPv6, as peers' addresses are."""
    found = ip_network(text)
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        first = IPv4Address(int(found.network_address) & 0xFFFF_FFFF)
        return IPv4Network((first, found.prefixlen - _MAPPED.prefixlen))
    return found


class Places:
    """The places for connections of a listener, shared among the sources they come from.

    A source is what all connections of one peer have in common: see `source_of`.

    Args:
        most: How many places there are.
        most_of_one: How many of them one source may have; `None`: no more than are free.

    Attributes:
        taken: How many places are taken.
    """

    def __init__(self, most: int, most_of_one: int | None) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._by_source: dict[str, int] = {}
        self.taken = 0

    def refusal(self, source: str) -> str:
        """Return why there is no place for one more, or an empty text."""
        if self.taken >= self._most:
            return f"{counted(self.taken, 'connection')} already"
        if not source:
            return ""
        own, most = self._by_source.get(source, 0), self._most_of_one
        # Those of one source alone leave half of the places to others.
        full = own > self._most - self.taken if most is None else own >= most
        return f"{counted(own, 'connection')} of {source} already" if full else ""

    def take(self, source: str) -> None:
        """Take a place."""
        self.taken += 1
        self._by_source[source] = self._by_source.get(source, 0) + 1

    def give_up(self, source: str) -> None:
        """Give up a place."""
        self.taken -= 1
        left = self._by_source[source] - 1
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
