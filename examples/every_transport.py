"""One route over a Unix socket, a WebSocket, datagrams and TCP, through a node between each two.

It prints:

    hello, by uds, ws, udp and tcp
    the way back is as long: 5 addresses
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from onward.actors import Node, Worker
from onward.protocol import Message


class Relay(Worker):
    def handle_message(self, message: Message) -> None:
        self.forward(message)


class Greeter(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, b"hello, by " + message.payload)


# --8<-- [start:main]
async def main() -> None:
    async with AsyncExitStack() as stack:
        near, one, two, three, far = [
            await stack.enter_async_context(Node(name))
            for name in ("near", "one", "two", "three", "far")
        ]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await far.start(Greeter, address="greeter")
        tcp = await far.listen("tcp://127.0.0.1:0", expose=["greeter"])
        udp = await three.listen("udp://127.0.0.1:0", expose=[f"1#{place(tcp.uri)}"])
        ws = await two.listen("ws://127.0.0.1:0/nodes", expose=[f"2#{place(udp.uri)}"])
        await one.start(Relay, address="relay")
        uds = await one.listen(
            f"uds://{folder}/one.sock", expose=["relay"], allow=[f"3#{place(ws.uri)}"]
        )

        link = await near.connect(uds.uri)
        by = [f"3#{place(ws.uri)}", f"2#{place(udp.uri)}", f"1#{place(tcp.uri)}"]
        answer = await near.request([link, "relay", *by, "greeter"], b"uds, ws, udp and tcp")
        print(answer.payload.decode())
        print(f"the way back is as long: {len(answer.return_route) - 1} addresses")


# --8<-- [end:main]


def place(uri: str) -> str:
    """Return what an address has of a URI."""
    return uri.partition("://")[2]


if __name__ == "__main__":
    asyncio.run(main())
