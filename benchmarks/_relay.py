"""The least work of a broker in Python: cut frames, replace stream ids and send them on.

It reads no metadata, has no state machine and knows one destination, the first connection. It
answers KEEPALIVE and ignores SETUP. It runs on uvloop where that is installed.

    python benchmarks/_relay.py           prints `listening rsocket+tcp://127.0.0.1:PORT`
    python benchmarks/_relay.py FILE      prints `listening rsocket+tls://127.0.0.1:PORT`

With a file, which has a certificate and its key in PEM, it speaks TLS.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Coroutine
from typing import Any, ClassVar, cast

KEEPALIVE = 0x0C


class Relay(asyncio.Protocol):
    """A connection: the first is the destination, all others are requesters."""

    destination: ClassVar[Relay | None] = None
    requests: ClassVar[dict[bytes, tuple[Relay, bytes]]] = {}
    """Stream ids at the destination, each with its requester and the stream id there."""
    next_stream: ClassVar[int] = 2

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.rest: list[bytes] = []
        self.missing = 0
        self.frames: list[bytes] = []
        if Relay.destination is None:
            Relay.destination = self

    def connection_lost(self, exc: Exception | None) -> None:
        if Relay.destination is self:
            Relay.destination = None
            Relay.requests.clear()

    def data_received(self, data: bytes) -> None:
        if self.rest:
            self.rest.append(data)
            self.missing -= len(data)
            if self.missing > 0:
                return
            data = b"".join(self.rest)
            self.rest.clear()
        touched: set[Relay] = set()
        answering = Relay.destination is self
        position, end = 0, len(data)
        while end - position >= 9:
            after = position + 3 + int.from_bytes(data[position : position + 3])
            if after > end:
                self.missing = after - end
                break
            if data[position + 3 : position + 7] == b"\0\0\0\0":
                self.control(data[position:after])
            elif answering:
                touched.add(self.answer(data, position, after))
            elif Relay.destination is not None:
                touched.add(self.request(Relay.destination, data, position, after))
            position = after
        if position < end:
            self.rest.append(data[position:])
        for each in touched:
            each.transport.write(b"".join(each.frames))
            each.frames.clear()

    def control(self, frame: bytes) -> None:
        if frame[7] & 0xFC == KEEPALIVE:
            self.transport.write(frame[:8] + b"\0" + frame[9:])

    def request(self, destination: Relay, data: bytes, position: int, after: int) -> Relay:
        Relay.next_stream += 2
        there = Relay.next_stream.to_bytes(4)
        Relay.requests[there] = self, data[position + 3 : position + 7]
        destination.frames += data[position : position + 3], there, data[position + 7 : after]
        return destination

    def answer(self, data: bytes, position: int, after: int) -> Relay:
        requester, there = Relay.requests.pop(data[position + 3 : position + 7])
        requester.frames += data[position : position + 3], there, data[position + 7 : after]
        return requester


async def main() -> None:
    """Serve until killed."""
    loop = asyncio.get_running_loop()
    context, scheme = None, "rsocket+tcp"
    for file in sys.argv[1:]:
        context, scheme = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "rsocket+tls"
        context.load_cert_chain(file)
    server = await loop.create_server(Relay, "127.0.0.1", 0, ssl=context)
    host, port = server.sockets[0].getsockname()
    print(f"listening {scheme}://{host}:{port}", flush=True)
    await server.serve_forever()


def start(serving: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


if __name__ == "__main__":
    start(main())
