"""One UDP socket, and the links of all its peers."""

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
"""The address of a peer, as the system gives it."""


class UdpSocket(asyncio.DatagramProtocol):
    """Sends datagrams, and gives the messages that come to the links of those who sent them.

    Args:
        options: The limits.
        loop: The loop it runs on.
        meet: Makes a link for a peer that has none; `None`: it gets none.
        dropped: What it counts in; a counter of its own if not given.

    Attributes:
        options: As given.
        links: The links by peer.
        shared: Whether it outlives its links.
        dropped: What came and was not given to a link, by reason.
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
        """Where it is bound."""
        name = cast(asyncio.DatagramTransport, self._transport).get_extra_info("sockname")
        return name[0], name[1]

    @property
    def pending(self) -> int:
        """Bytes that wait for the system."""
        # Both loops' transports have it; it is only missing in the description of the class.
        transport = cast(Any, self._transport)
        return 0 if transport is None else int(transport.get_write_buffer_size())

    @property
    def unfinished(self) -> int:
        """Messages that have not come whole."""
        return self._assembler.unfinished

    # --- for the links --------------------------------------------------------------------

    def send(self, datagrams: list[bytes], peer: Peer) -> Awaitable[None] | None:
        """Send datagrams.

        Returns:
            What to await before sending more if too many wait for the system, or `None`.

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
        """Close it; what waits for the system is lost."""
        if self._transport is None:
            self._note_closed()
        else:
            self._transport.abort()

    async def closed(self) -> None:
        """Wait until it is closed, and its port free again."""
        await asyncio.shield(self._closed)

    def _note_closed(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    # --- for the loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the socket."""
        self._transport = made = cast(asyncio.DatagramTransport, transport)
        cast(Any, made).set_write_buffer_limits(high=self.options.high_water)
        sock = made.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.options.receive_buffer)

    def datagram_received(self, data: bytes, addr: Peer) -> None:
        """Put it together with what came before, and deliver what is whole."""
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
        """Count what the system could not send, or nobody took."""
        self.dropped["refused by the system"] += 1

    def pause_writing(self) -> None:
        """Note that the system is slow; links stop sending."""
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let nobody wait for it."""
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._note_closed()
