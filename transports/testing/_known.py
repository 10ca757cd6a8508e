"""The claims of the transports of this package."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...protocol import TCP, UDP, UDS, WEBSOCKET
from ...protocol.ockam import MAX_FRAME
from ..simulated import SIMULATED
from ._claims import DEFAULT, Claims
from ._strangers import to_datagrams, to_stream

__all__ = ["known_claims"]


_STREAM: Final = Claims(reconnects=True, too_large=MAX_FRAME, raw=to_stream)

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
        raw=to_datagrams,
    ),
}


def known_claims(uri: str) -> Claims:
    """Return the claims of a transport of this package, or the default claims.

    For those with TLS, the certificates still have to be given as options.
    """
    return _KNOWN.get(uri.partition("://")[0], DEFAULT)
