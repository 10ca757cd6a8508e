"""A tunnel from plain connections to a port with TLS: a load's side of TLS, in its own process.

It does not check the certificate. It runs on uvloop where that is installed.

    python benchmarks/_tls_tunnel.py PORT      prints `listening tunnel://127.0.0.1:PORT`
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import cast

from _relay import start


class End(asyncio.Protocol):
    """One end of a tunnelled connection.

    Args:
        port: The port with TLS.
        other: The plain end, of the one with TLS; `None` for the plain one.
    """

    transport: asyncio.Transport

    def __init__(self, port: int, other: End | None = None) -> None:
        self.port = port
        self.other = other
        self.early: list[bytes] = []
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        if self.other is None:
            self.opening = asyncio.get_running_loop().create_task(self.open())
            return
        self.transport.write(b"".join(self.other.early))
        self.other.other = self

    async def open(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        loop = asyncio.get_running_loop()
        await loop.create_connection(
            lambda: End(self.port, self), "127.0.0.1", self.port, ssl=context
        )

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


async def main() -> None:
    """Serve until killed."""
    loop, port = asyncio.get_running_loop(), int(sys.argv[1])
    server = await loop.create_server(lambda: End(port), "127.0.0.1", 0)
    print(f"listening tunnel://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    start(main())
