"""The source of a connection, and the sharing of a listener's places among sources."""

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
"""The name for all peers of a Unix socket in the option `proxies`."""

_MAPPED: Final = IPv6Network("::ffff:0:0/96")
"""The IPv6 addresses that stand for IPv4 addresses: RFC 4291 section 2.5.5.2."""

_V6_HOST_BITS = 64
"""The bits of an IPv6 address that a host chooses freely: the network of one customer is a /64."""


def source_of(peername: object) -> str:
    """Return the source of a connection, the same for all connections of one peer.

    Args:
        peername: The socket's `peername`.

    Returns:
        An IPv4 address, also if it is mapped into IPv6; the /64 network of an IPv6 address; empty
        for a socket without an IP address.
    """
    found = _address(peername)
    if isinstance(found, IPv6Address):
        network = int(found) >> _V6_HOST_BITS << _V6_HOST_BITS
        return f"{IPv6Address(network)}/{_V6_HOST_BITS}"
    return str(found)


def _address(peername: object) -> IPv4Address | IPv6Address | str:
    """Return the address in a `peername`, or a text if there is none."""
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
    """The networks in which each connection is a source of its own, as those of proxies are.

    Args:
        networks: Addresses, or networks like `10.0.0.0/8`; `unix` is all peers of a Unix socket.
            IPv4 networks may be mapped into IPv6, like `::ffff:10.0.0.0/104`.

    Raises:
        ValueError: A text is neither.
    """

    def __init__(self, networks: Iterable[str]) -> None:
        texts = tuple(networks)
        self._unix = UNIX in texts
        self._networks = tuple(_network(text) for text in texts if text != UNIX)
        self._came = 0

    def __contains__(self, peername: object) -> bool:
        """Whether a peer is a proxy, by the socket's `peername`."""
        if not isinstance(peername, tuple):
            return self._unix
        found = _address(cast("tuple[object, ...]", peername))
        return not isinstance(found, str) and any(found in each for each in self._networks)

    def source(self, peername: object, source: str) -> str:
        """Return the source of a connection, a unique one if a proxy made it.

        Args:
            peername: The socket's `peername`.
            source: The source according to `source_of`.
        """
        if peername not in self:
            return source
        self._came += 1
        return f"{source} #{self._came}"


def check_proxies(networks: tuple[str, ...], *, protocol: bool) -> None:
    """Check the options `proxies` and `proxy_protocol`.

    Raises:
        ValueError: A text is not a network, or there is none for the PROXY protocol.
    """
    if protocol and not networks:
        raise ValueError("proxy_protocol needs proxies, the networks of which it is accepted")
    try:
        Proxies(networks)
    except ValueError as error:
        raise ValueError(f"proxies: {error}") from None


def _network(text: str) -> IPv4Network | IPv6Network:
    """Return a network; one of IPv4 also if it is mapped into IPv6, as with peers' addresses."""
    found = ip_network(text)
    if isinstance(found, IPv6Network) and found.subnet_of(_MAPPED):
        first = IPv4Address(int(found.network_address) & 0xFFFF_FFFF)
        return IPv4Network((first, found.prefixlen - _MAPPED.prefixlen))
    return found


class Places:
    """A listener's places for connections, shared among sources.

    A source is common to all connections of one peer; see `source_of`.

    Args:
        most: The number of places.
        most_of_one: The limit for one source; `None`: as many as are free.

    Attributes:
        taken: The number of places taken.
    """

    def __init__(self, most: int, most_of_one: int | None) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._by_source: dict[str, int] = {}
        self.taken = 0

    def resize(self, most: int, most_of_one: int | None) -> None:
        """Change the number of places and the limit for one source; those taken stay."""
        self._most = most
        self._most_of_one = most_of_one

    @property
    def full(self) -> bool:
        """Whether all places are taken."""
        return self.taken >= self._most

    def taken_by(self, source: str) -> int:
        """Return the number of places that a source has."""
        return self._by_source.get(source, 0)

    def refusal(self, source: str) -> str:
        """Return why there is no place for one more connection, or ""."""
        if self.full:
            return f"{counted(self.taken, 'connection')} already"
        if not source:
            return ""
        own, most = self.taken_by(source), self._most_of_one
        # One source alone leaves half of the places to others.
        full = own > self._most - self.taken if most is None else own >= most
        return f"{counted(own, 'connection')} of {source} already" if full else ""

    def take(self, source: str) -> None:
        """Take a place."""
        self.taken += 1
        self._by_source[source] = self.taken_by(source) + 1

    def give_up(self, source: str) -> None:
        """Give up a place."""
        self.taken -= 1
        left = self._by_source[source] - 1
        if left:
            self._by_source[source] = left
        else:
            del self._by_source[source]
