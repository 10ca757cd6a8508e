"""Accepted connections of a listener behind proxies, before their first bytes are read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ...protocol._principal import PeerIdentity
from .._log import shown
from ._options import format_endpoint
from ._pending import PendingConnection
from ._proxy_protocol import SIGNATURE, BadProxyHeader, ProxyHeader, parse_proxy_header
from ._source import source_of

__all__ = ["ProxyEntrance", "behind_proxy"]

HEADER_TIMEOUT: Final = 5.0
"""Seconds for the first bytes of a connection, and for all of its PROXY header."""


def behind_proxy(identity: PeerIdentity, header: ProxyHeader | None) -> PeerIdentity:
    """Return the identity of the peer for which a proxy has connected.

    Args:
        identity: The identity of the proxy, or of a peer that has connected itself.
        header: The header of the proxy; `None` without a proxy.
    """
    if header is None or header.local:
        return identity
    unknown = replace(identity, user_id=None)  # it is that of the proxy
    if header.source is None:
        return unknown
    if isinstance(header.source, str):
        return replace(unknown, peer=shown(f"unix:{header.source}"))
    return replace(unknown, source=source_of(header.source), peer=format_endpoint(*header.source))


class ProxyEntrance(PendingConnection):
    """A connection to a listener behind proxies, until its PROXY header is read.

    A proxy has to send one. Of any other peer a header would be a claim about another's address,
    so its connection is closed if it begins with one.

    Args:
        proxied: Whether a proxy has connected.
        successor: Makes the protocol of the connection, given the header of a proxy; `None`: there
            is no room, and the connection is closed.
        on_done: Called once, before that, with the reason of a failure, or "".
    """

    detail = ""
    """Empty: the log shows the reason."""

    def __init__(
        self,
        proxied: bool,
        successor: Callable[[ProxyHeader | None], asyncio.Protocol | None],
        on_done: Callable[[ProxyEntrance, str], None],
    ) -> None:
        super().__init__()
        self._proxied = proxied
        self._make = successor
        self._on_done = on_done
        self._outcome = ""
        self._over = False
        self._head = b""
        text = f"no PROXY header within {HEADER_TIMEOUT:g} s"
        if not proxied:
            text = f"nothing sent within {HEADER_TIMEOUT:g} s"
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEADER_TIMEOUT, self.abort, text)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        super().connection_made(transport)
        if self._outcome:
            self.transport.abort()  # aborted before it was connected

    def data_received(self, data: bytes) -> None:
        """Read the header when it is whole, and hand the connection over with the rest."""
        if self._outcome:
            return
        self._head = head = self._head + data
        if not self._proxied:
            if head[:12] == SIGNATURE:
                self.abort("a PROXY header from outside of the proxies")
            elif head[:12] != SIGNATURE[: len(head)]:
                self._go_on(None, head)
            return
        try:
            header = parse_proxy_header(head)
        except BadProxyHeader as error:
            self.abort(str(error))
            return
        if header is not None:
            self._go_on(header, head[header.size :])

    def _go_on(self, header: ProxyHeader | None, rest: bytes) -> None:
        self._head = b""
        self._done("")
        successor = self._make(header)
        if successor is None:
            self.transport.abort()
            return
        if rest:
            super().data_received(rest)
        self.hand_over(successor)

    def abort(self, outcome: str) -> None:
        """Close the connection at once, unless it is closed for another reason."""
        self._outcome = self._outcome or outcome
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the listener, or the successor if there is one."""
        super().connection_lost(exc)
        self._done("the peer closed the connection")

    def _done(self, outcome: str) -> None:
        self._timer.cancel()
        if not self._over:
            self._over = True
            self._on_done(self, self._outcome or outcome)
