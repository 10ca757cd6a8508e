"""The broker that `broker.py` compares with: request/response with the `rsocket` package only.

It is written to be fast within the limits of the package. The package's server accepts the
connections, a ROUTE_SETUP makes a connection's requester side a destination, and a request is
forwarded with `request_response`, its payload unchanged. The package's codec, streams and
connections do all the work. The additions are a dictionary, a cache of the service that each
ADDRESS names, and a larger read buffer than the package's 1 KiB. It runs on uvloop, as Onward's
broker does.

    python benchmarks/_rsocket_broker.py      prints `listening rsocket+tcp://127.0.0.1:PORT`
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable
from typing import Any

from rsocket.extensions.composite_metadata import CompositeMetadata
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_server import RSocketServer
from rsocket.transports.tcp import TransportTCP

BROKER_FRAME = "message/x.rsocket.broker.frame.v0"
HEADER_AND_ID_SIZE = 6 + 16
READ_BUFFER_SIZE = 1 << 16

routes: dict[str, list[RSocketServer]] = {}
positions = itertools.count()


class Connection(BaseRequestHandler):  # type: ignore[misc]
    """The handler of one connection; it registers the connection and forwards its requests."""

    def __init__(self) -> None:
        self.rsocket: Any = None
        self._service = ""

    async def on_setup(self, data_encoding: bytes, metadata_encoding: bytes, payload: Any) -> None:
        broker_frame = find_broker_frame(payload.metadata)
        self._service = broker_frame[HEADER_AND_ID_SIZE + 1 :].decode()
        routes.setdefault(self._service, []).append(self.rsocket)

    async def request_response(self, payload: Any) -> Awaitable[Payload]:
        destinations = routes.get(service_of(bytes(payload.metadata)))
        if not destinations:
            raise LookupError("no route")
        destination = destinations[next(positions) % len(destinations)]
        answer: Awaitable[Payload] = destination.request_response(payload)
        return answer

    async def on_close(self, rsocket: Any, exception: Exception | None = None) -> None:
        if self.rsocket in routes.get(self._service, ()):
            routes[self._service].remove(self.rsocket)


@functools.lru_cache(maxsize=1024)
def service_of(metadata: bytes) -> str:
    """Return the service that the ADDRESS in composite metadata names with its only tag."""
    tag = find_broker_frame(metadata)[HEADER_AND_ID_SIZE:]
    return tag[2 : 2 + tag[1]].decode()


def find_broker_frame(metadata: bytes) -> bytes:
    """Return the broker frame in composite metadata."""
    for item in CompositeMetadata().parse(metadata).find_by_mimetype(BROKER_FRAME):
        return bytes(item.content or b"")
    raise LookupError("no broker frame")


def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection."""
    connection = Connection()
    transport = TransportTCP(reader, writer, read_buffer_size=READ_BUFFER_SIZE)
    connection.rsocket = RSocketServer(transport, handler_factory=lambda: connection)


async def main() -> None:
    """Serve until killed."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(f"listening rsocket+tcp://{host}:{port}", flush=True)
    await server.serve_forever()


def start() -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


if __name__ == "__main__":
    start()
