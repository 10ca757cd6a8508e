"""A broker that lets pages of all origins in, and clients that name one though they are no page.

The Java client does: Netty's WebSocket handshake has an Origin, that of the broker itself.

    python tests/peers/open_broker.py --listen URI... [--no-route-timeout SECONDS]

Like `onward broker` it prints `listening URI` for each, and ends when told to by SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions
from onward.transports.rsocket import WebSocketOptions

ANY_ORIGIN = WebSocketOptions(origins=("*",))


async def main(no_route_timeout: float, uris: list[str]) -> None:
    """Serve until told to stop."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Node("broker") as node:
        broker = await Broker.attach(node, BrokerOptions(no_route_timeout=no_route_timeout))
        for uri in uris:
            is_web = uri.startswith("rsocket+ws:")
            own: dict[str, Any] = {"websocket": ANY_ORIGIN} if is_web else {}
            listener = await node.listen(uri, broker=broker, **own)
            print("listening", listener.uri, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", action="append", required=True)
    parser.add_argument("--no-route-timeout", type=float, default=5.0)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.no_route_timeout, arguments.listen))
