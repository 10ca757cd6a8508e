"""Listeners for RSocket over WebSocket."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from websockets.server import ServerProtocol

from ...actors import Node
from ...actors.broker import Broker
from .._log import shown
from ..streams._options import parse_websocket_uri
from ..streams._ws_handshake import Handshake, Opener, own_names
from ._link import Link
from ._listener import ListenerStatistics, TcpListener
from ._options import LinkOptions, WebSocketOptions
from ._transport import RSocketTransport
from ._ws_socket import WebSocket

__all__ = ["RSocketWebSocketTransport"]


class WebSocketListener(TcpListener):
    """A listening TCP socket for connections that begin with a WebSocket handshake.

    Args:
        node: The node of its workers.
        broker: The broker of the connections.
        options: The limits.
        web: The limits of the handshake.
        host: The address or name to listen at.
        port: The port; 0 takes a free one.
        path: The path that clients have to request; "": any.
    """

    _scheme: ClassVar[str] = "rsocket+ws"

    def __init__(
        self,
        node: Node,
        broker: Broker,
        options: LinkOptions,
        web: WebSocketOptions,
        host: str,
        port: int,
        path: str,
    ) -> None:
        super().__init__(node, broker, options, host, port)
        self._web = web
        self._names = own_names(host)
        self._path = path
        self._handshakes: dict[Handshake, str] = {}  # with the source of each
        self._refused_handshakes: Counter[str] = Counter()

    def _first(self, source: str) -> asyncio.BaseProtocol:
        handshake = Handshake(
            self._node.loop,
            self._names,
            "rsocket",
            self._path,
            self._web,
            partial(self._room, source),
            self._on_handshake,
        )
        self._handshakes[handshake] = source
        self._places.take(source)
        return handshake

    def _room(self, source: str) -> Opener | None:
        link = self._link(source)
        return None if link is None else partial(self._open, link)

    def _open(
        self, link: Link, transport: asyncio.Transport, wire: ServerProtocol, rest: bytes
    ) -> None:
        loop = self._node.loop
        socket = WebSocket(transport, wire, link, self._shared.unfinished, self._options, loop)
        transport.set_protocol(socket)
        link.connection_made(socket)
        if rest:
            socket.data_received(rest)

    def _on_handshake(self, handshake: Handshake, outcome: str) -> None:
        self._places.give_up(self._handshakes.pop(handshake))
        if outcome:
            self._refused_handshakes[outcome] += 1
            if handshake.detail:
                text = "%s: a handshake failed: %s"
                kind, detail = f"refused {outcome}", shown(handshake.detail)
                self._seldom.log(logging.WARNING, kind, text, self._uri, detail)

    def _shown(self, server: asyncio.Server) -> str:
        return super()._shown(server) + self._path

    def _unbound(self) -> None:
        for handshake in list(self._handshakes):
            handshake.abort("stopped")

    def statistics(self) -> ListenerStatistics:
        """Return the listener's figures at this moment."""
        return replace(
            super().statistics(),
            handshakes=len(self._handshakes),
            refused_handshakes=dict(self._refused_handshakes),
        )


class RSocketWebSocketTransport(RSocketTransport):
    """Listeners for RSocket over WebSocket: `rsocket+ws://host:port/path`.

    Each binary message is one frame (RSocket, "WebSocket"). The subprotocol `rsocket` is accepted,
    not required. There is no TLS: for `wss`, run a proxy in front that terminates it.

    A path in the URI is required of clients; without one, any path is accepted. Besides `broker`
    and `options`, `listen` takes `websocket`, a `WebSocketOptions`. Pages in browsers may connect
    only if their origin is listed there.
    """

    scheme: ClassVar[str] = "rsocket+ws"
    own_options: ClassVar[dict[str, type[Any]]] = {"websocket": WebSocketOptions}

    def _listener(
        self, uri: str, broker: Broker, options: LinkOptions, own: dict[str, Any]
    ) -> WebSocketListener:
        host, port, path = parse_websocket_uri(uri, self.scheme)
        web: WebSocketOptions = own.get("websocket") or WebSocketOptions()
        return WebSocketListener(self.node, broker, options, web, host, port, path)
