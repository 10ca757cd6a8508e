"""Where a connection comes from, as far as shares are counted by it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import cast

__all__ = ["source_of"]

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
    if not isinstance(peername, tuple):
        return ""
    host, *_ = cast("tuple[object, ...]", peername)
    text = str(host)
    try:
        found: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(found, IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    network = int(found) >> _V6_HOST_BITS << _V6_HOST_BITS
    return f"{IPv6Address(network)}/{_V6_HOST_BITS}"
