"""A node with an engine, at tcp://127.0.0.1:4000 or the URI that is given, with the key oslo.key.

    python serve.py [URI]

It prints the addresses of the engine and of the node, and then where it listens.
"""

# --8<-- [start:program]
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from onward.actors import Node
from onward.actors.identity import ROUTER
from onward.actors.workers import Echo
from onward.transports.identity import Identities


async def main(uri: str = "tcp://127.0.0.1:4000") -> None:
    async with Node("oslo") as node:
        identities = await Identities.attach(node, Path("oslo.key"))
        await node.start(Echo, address="echo")
        print("engine", identities.address_of(identities.engine("echo")))
        print("node", identities.address_of(identities.own))
        listener = await node.listen(uri, expose=[ROUTER])
        print("listening", listener.uri, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
