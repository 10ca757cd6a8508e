"""A node that asks an engine of another node, with the key rome.key.

    python ask.py NODE ENGINE [URI]

NODE and ENGINE are what serve.py has printed.
"""

# --8<-- [start:program]
import asyncio
import sys
from pathlib import Path

from onward.actors import Node
from onward.protocol.identity import parse_destination
from onward.transports.identity import Identities


async def main(oslo: str, engine: str, uri: str = "tcp://127.0.0.1:4000") -> None:
    expected = parse_destination(oslo.removeprefix("36#")).identity
    async with Node("rome") as node:
        identities = await Identities.attach(node, Path("rome.key"))
        await identities.join(uri, identity=expected)
        answer = await node.request(engine, b"hello")
        print(answer.payload.decode())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
