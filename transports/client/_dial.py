"""Connecting to the endpoint of a broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ._options import TCP, UNIX, Place

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["dial"]


async def dial(place: Place, link: ClientLink) -> None:
    """Connect to an endpoint, with a link as the protocol of the socket.

    Raises:
        OSError: The connection was refused, or the server speaks no WebSocket.
    """
    loop = asyncio.get_running_loop()
    if place.scheme == TCP:
        await loop.create_connection(lambda: link, place.host, place.port)
    elif place.scheme == UNIX:
        await loop.create_unix_connection(lambda: link, place.host)
    else:
        from ._ws import dial_websocket

        await dial_websocket(place, link)
