"""What the transports of this package claim."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from ...protocol import TCP
from .._options import parse_uri
from ..simulated import SIMULATED
from ._claims import DEFAULT, Claims

__all__ = ["known_claims"]


async def _to_socket(uri: str, data: bytes) -> None:
    """Connect as a stranger would, write, read what comes, and go away."""
    _, writer = await asyncio.open_connection(*parse_uri(uri, "tcp"))
    with suppress(OSError):
        writer.write(data)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


_KNOWN: Final[dict[str, Claims]] = {
    "memory": Claims(),
    "sim": Claims(threads=False, virtual=True, address_type=SIMULATED),
    "tcp": Claims(reconnects=True, ephemeral=True, address_type=TCP, raw=_to_socket),
}


def known_claims(uri: str) -> Claims:
    """Return what a transport of this package claims; for others, what is usual."""
    return _KNOWN.get(uri.partition("://")[0], DEFAULT)
