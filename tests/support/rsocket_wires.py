"""Connections in memory between clients and servers, on virtual time, with faults.

A client of a `WiredLoop` connects to its servers by their ports, as it would on sockets: to a
listener of ours, or to a broker that a test plays by hand.
"""

from __future__ import annotations

import asyncio
import errno
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, cast

from tests.support.rsocket_peer import (
    KEEPALIVE,
    MemoryLoop,
    MemoryTransport,
    frame,
    kind_of,
    split,
)

__all__ = ["BrokerByHand", "End", "Hand", "Wire", "WiredLoop", "on_wires"]

_P = ParamSpec("_P")


class End(MemoryTransport):
    """One end of a wire.

    Attributes:
        other: The other end.
        held: Whether nothing arrives here any more, not even the end of the other.
    """

    other: End

    def __init__(self, loop: MemoryLoop, protocol: asyncio.BaseProtocol, name: object) -> None:
        super().__init__(loop, cast(asyncio.Protocol, protocol), name)
        self.held = False

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: Any) -> None:
        super().write(data)
        self._pass_on()

    def drain(self, size: int | None = None) -> None:
        super().drain(size)
        self._pass_on()

    def _pass_on(self) -> None:
        if self.delivered:
            self._loop.call_soon(self.other.arrive, bytes(self.delivered))
            self.delivered.clear()

    def arrive(self, data: bytes | None) -> None:
        """Receive bytes, or the end of them."""
        if not self.held:
            self.unread.append(data)
            self.feed()

    def lose(self, error: Exception | None) -> None:
        if not self.lost:
            self._loop.call_soon(self.other.arrive, None)
        super().lose(error)


class Wire:
    """A connection.

    Attributes:
        client: The end of the client.
        server: The end of the server.
    """

    def __init__(self, client: End, server: End) -> None:
        self.client, self.server = client, server
        client.other, server.other = server, client

    def cut(self) -> None:
        """Lose the connection, and what is under way in it."""
        for end in (self.client, self.server):
            end.unread.clear()
            end.waiting.clear()
            end.lose(ConnectionResetError("connection reset by peer"))

    def hold(self) -> None:
        """Lose all that is sent from now on, in both directions, without a word to either end."""
        self.client.held = self.server.held = True


class WiredLoop(MemoryLoop):
    """A loop with virtual time, whose clients reach its servers.

    Attributes:
        wires: The connections that were opened.
        dials: The times of all attempts.
        refuses: Whether attempts are refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[Wire] = []
        self.dials: list[float] = []
        self.refuses = False

    @property
    def wire(self) -> Wire:
        """The last connection."""
        return self.wires[-1]

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_options: Any
    ) -> Any:
        self.dials.append(self.time())
        if self.refuses or port not in self.servers:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = protocol_factory(), self.servers[port]()
        wire = Wire(
            End(self, near, (host, port)), End(self, far, ("10.0.0.1", 5000 + len(self.wires)))
        )
        self.wires.append(wire)
        far.connection_made(wire.server)
        near.connection_made(wire.client)
        return wire.client, near


class Hand(asyncio.Protocol):
    """The end of a broker that does what a test does, and answers KEEPALIVE by itself.

    Attributes:
        frames: The frames that came, without KEEPALIVE.
        keepalives: The KEEPALIVE frames that came.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.keepalives: list[bytes] = []
        self._rest = b""
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        whole, self._rest = split(self._rest + data)
        for raw in whole:
            if kind_of(raw) == KEEPALIVE:
                self.keepalives.append(raw)
                self.send(frame(0, KEEPALIVE, 0, bytes(8)))
            else:
                self.frames.append(raw)

    def send(self, *frames: bytes) -> None:
        """Send frames in one piece."""
        self._transport.write(b"".join(frames))

    def close(self) -> None:
        """Close the connection after what was sent."""
        self._transport.close()


class BrokerByHand:
    """A server whose connections are played by a test.

    Attributes:
        hands: The connections, the oldest first.
        uri: The URI for clients.
    """

    def __init__(self, loop: WiredLoop, port: int = 7) -> None:
        self.hands: list[Hand] = []
        self.uri = f"rsocket+tcp://127.0.0.1:{port}"
        loop.servers[port] = self._make

    def _make(self) -> Hand:
        self.hands.append(Hand())
        return self.hands[-1]

    @property
    def hand(self) -> Hand:
        """The last connection."""
        return self.hands[-1]


def on_wires(
    test: Callable[_P, Coroutine[Any, Any, None]],
) -> Callable[_P, None]:
    """Run a coroutine function on a `WiredLoop` of its own; no task may be left at its end."""

    async def whole(*args: _P.args, **kwargs: _P.kwargs) -> None:
        await test(*args, **kwargs)
        await cast(WiredLoop, asyncio.get_running_loop()).idle()
        assert asyncio.all_tasks() == {asyncio.current_task()}, asyncio.all_tasks()

    @functools.wraps(test)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with asyncio.Runner(loop_factory=WiredLoop) as runner:
            runner.run(whole(*args, **kwargs))

    return run
