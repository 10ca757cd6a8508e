"""The addresses behind the name of a seed: a name may stand for all brokers of a cluster."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit, urlunsplit

__all__ = ["MAX_SEED_ADDRESSES", "seed_addresses"]

MAX_SEED_ADDRESSES: Final = 64
"""Most addresses of one name that are dialled; further ones are ignored."""

_NAMED: Final = ("rsocket+tcp", "rsocket+ws")
"""The schemes with a host and without TLS, for which a name has to be that of a certificate."""


async def seed_addresses(uri: str) -> tuple[str, ...]:
    """Return the URIs of all addresses that the name in a URI has now.

    A URI with an address, with TLS, or of a Unix socket is returned as it is.

    Raises:
        OSError: The name cannot be resolved.
    """
    parts = urlsplit(uri)
    host = parts.hostname
    if parts.scheme not in _NAMED or host is None or parts.port is None or _is_address(host):
        return (uri,)
    found = await asyncio.get_running_loop().getaddrinfo(host, parts.port, type=socket.SOCK_STREAM)
    hosts = dict.fromkeys(str(address[0]) for *_, address in found)
    places = (f"[{each}]" if ":" in each else each for each in list(hosts)[:MAX_SEED_ADDRESSES])
    return tuple(urlunsplit(parts._replace(netloc=f"{each}:{parts.port}")) for each in places)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
