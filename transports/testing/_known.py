"""What the transports of this package claim."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final

from ...protocol import TCP, UDP, UDS, WEBSOCKET
from ...protocol.ockam import MAX_FRAME
from .._options import parse_endpoint, parse_uri
from ..simulated import SIMULATED
from ._claims import DEFAULT, Claims

__all__ = ["known_claims"]


async def _to_stream(uri: str, data: bytes) -> None:
    """Connect to a socket as a stranger would, write, and go away."""
    scheme, _, rest = uri.partition("://")
    if scheme == "uds":
        _, writer = await asyncio.open_unix_connection(rest)
    else:
        _, writer = await asyncio.open_connection(*parse_endpoint(rest.partition("/")[0]))
    with suppress(OSError):
        writer.write(data)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


async def _to_datagrams(uri: str, data: bytes) -> None:
    """Send a datagram, of what fits into one."""
    where = parse_uri(uri, "udp")
    loop = asyncio.get_running_loop()
    sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=where)
    sender.sendto(data[:_DATAGRAM])
    sender.close()


_DATAGRAM: Final = 60_000
_STREAM: Final = Claims(reconnects=True, too_large=MAX_FRAME, raw=_to_stream)

_KNOWN: Final[dict[str, Claims]] = {
    "memory": Claims(),
    "sim": Claims(threads=False, virtual=True, address_type=SIMULATED),
    "tcp": replace(_STREAM, ephemeral=True, address_type=TCP),
    "tls": replace(_STREAM, ephemeral=True, address_type=None),
    "ws": replace(_STREAM, ephemeral=True, address_type=WEBSOCKET),
    "wss": replace(_STREAM, ephemeral=True, address_type=None),
    "uds": replace(_STREAM, address_type=UDS),
    "udp": Claims(
        ordered=False,
        reliable=False,
        connected=False,
        backpressure=False,
        ephemeral=True,
        address_type=UDP,
        max_payload=32 * 1024,
        raw=_to_datagrams,
    ),
}


def known_claims(uri: str) -> Claims:
    """Return what a transport of this package claims; for others, what is usual.

    Of those with TLS it says nothing about certificates: they are options.
    """
    return _KNOWN.get(uri.partition("://")[0], DEFAULT)
