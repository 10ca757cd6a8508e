"""A UDP socket, shared by the links of its peers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ...protocol import LinkDown
from ...protocol.ockam import Assembler

if TYPE_CHECKING:
    from ._udp_link import UdpLink
    from ._udp_options import UdpOptions

__all__ = ["Peer", "UdpSocket"]

Peer: TypeAlias = "tuple[Any, ...]"
"""The socket address of a peer."""


class UdpSocket(asyncio.DatagramProtocol):
    """A datagram endpoint that passes each complete message to the link of its sender.

    Args:
        options: The limits.
        loop: The event loop.
        meet: Returns a link for a peer that has none, or `None`.
        dropped: The counter of drops; one of its own if not given.

    Attributes:
        options: The limits.
        links: The links by peer.
        shared: Whether the socket outlives its links.
        dropped: Datagrams and messages that reached no link, by reason.
    """

    def __init__(
        self,
        options: UdpOptions,
        loop: asyncio.AbstractEventLoop,
        meet: Callable[[UdpSocket, Peer], UdpLink | None],
        dropped: Counter[str] | None = None,
    ) -> None:
        self.links: dict[Peer, UdpLink] = {}
        self.shared = True
        self.options = options
        self._loop = loop
        self._meet = meet
        self._assembler = Assembler(options.datagrams)
        if dropped is not None:
            self._assembler.dropped = dropped
        self.dropped: Counter[str] = self._assembler.dropped
        self._transport: asyncio.DatagramTransport | None = None
        self._drained: asyncio.Future[None] | None = None  # while above the high water
        self._timer: asyncio.TimerHandle | None = None
        self._closed: asyncio.Future[None] = loop.create_future()

    @property
    def where(self) -> tuple[str, int]:
        """The address and port of the socket."""
        name = cast(asyncio.DatagramTransport, self._transport).get_extra_info("sockname")
        return name[0], name[1]

    @property
    def pending(self) -> int:
        """Bytes that wait for the system."""
        # The transports of asyncio and uvloop have it; only the declaration of the class lacks it.
        transport = cast(Any, self._transport)
        return 0 if transport is None else int(transport.get_write_buffer_size())

    @property
    def unfinished(self) -> int:
        """Incomplete messages."""
        return self._assembler.unfinished

    # --- for the links --------------------------------------------------------------------

    def send(self, datagrams: list[bytes], peer: Peer) -> Awaitable[None] | None:
        """Send datagrams.

        Returns:
            An awaitable to wait for before sending more if too many wait, or `None`.

        Raises:
            LinkDown: The socket is closed.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise LinkDown(str(peer[0]), "the socket is closed")
        for each in datagrams:
            transport.sendto(each, peer)
        return None if self._drained is None else asyncio.shield(self._drained)

    def close(self) -> None:
        """Close the socket; bytes that wait for the system are lost."""
        if self._transport is None:
            self._note_closed()
        else:
            self._transport.abort()

    async def closed(self) -> None:
        """Wait until the socket is closed and its port free."""
        await asyncio.shield(self._closed)

    def _note_closed(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    # --- for the loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport, and set the buffer sizes."""
        self._transport = made = cast(asyncio.DatagramTransport, transport)
        cast(Any, made).set_write_buffer_limits(high=self.options.high_water)
        sock = made.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options.receive_buffer)

    def datagram_received(self, data: bytes, addr: Peer) -> None:
        """Add a datagram to its message, and pass a complete message to the link."""
        assembler = self._assembler
        body = assembler.receive(addr, data, self._loop.time())
        if body is None:
            if self._timer is None and assembler.unfinished:
                self._look_later()
            return
        link = self.links.get(addr) or self._meet(self, addr)
        if link is not None:
            link.receive(body)

    def _look_later(self) -> None:
        due = self._assembler.get_timer()
        if due is not None:
            self._timer = self._loop.call_at(due, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._assembler.expire(self._loop.time())
        self._look_later()

    def error_received(self, exc: Exception) -> None:
        """Count a datagram that the system could not send, or that had no receiver."""
        self.dropped["refused by the system"] += 1

    def pause_writing(self) -> None:
        """Stop the links from sending: the system is slow."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Resume sending."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer, and wake all waiting tasks."""
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._note_closed()
