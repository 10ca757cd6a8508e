"""The addresses behind the name of a seed: a name may stand for all brokers of a cluster.

With TLS the name is kept, as each certificate has to be for it, and the address stands behind it:
`rsocket+tls://brokers.example:7001#10.0.0.1`. Only a `PeerDialler` reads that.
"""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from ._places import needs_tls

__all__ = ["MAX_SEED_ADDRESSES", "address_in", "seed_addresses"]

MAX_SEED_ADDRESSES: Final = 64
"""Most addresses of one name that are dialled; further ones are ignored."""

_NAMED: Final = ("rsocket+tcp", "rsocket+ws", "rsocket+tls", "rsocket+wss")
"""The schemes with a host."""


async def seed_addresses(uri: str) -> tuple[str, ...]:
    """Return the URIs of all addresses that the name in a URI has now.

    A URI with an address, or of a Unix socket, is returned as it is.

    Raises:
        OSError: The name cannot be resolved.
        ValueError: It can be no name, or the port no port.
    """
    parts = urlsplit(uri)
    host = parts.hostname
    if parts.scheme not in _NAMED or host is None or parts.port is None or _is_address(host):
        return (uri,)
    found = await asyncio.get_running_loop().getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
    hosts = list(dict.fromkeys(str(address[0]) for *_, address in found))[:MAX_SEED_ADDRESSES]
    if needs_tls(uri):
        return tuple(urlunsplit(parts._replace(fragment=each)) for each in hosts)
    places = (f"[{each}]" if ":" in each else each for each in hosts)
    return tuple(urlunsplit(parts._replace(netloc=f"{each}:{parts.port}")) for each in places)


def address_in(uri: str) -> tuple[str, str]:
    """Return a URI of `seed_addresses` without its address, and that; empty if it has none."""
    if not needs_tls(uri):
        return uri, ""
    place, _, address = uri.partition("#")
    return place, address


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
