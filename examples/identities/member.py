"""A node that joins a domain, and serves it by an echo, with the key rome.key.

    python member.py DOMAIN NODE [URI]

DOMAIN and NODE are what found.py has printed. It prints what came of it.
"""

# --8<-- [start:program]
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from onward.actors import Node
from onward.actors.workers import Echo
from onward.protocol.identity import parse_identity
from onward.transports.identity import Identities


async def main(orders: str, oslo: str, uri: str = "tcp://127.0.0.1:4000") -> None:
    domain, founder = parse_identity(orders), parse_identity(oslo)
    async with Node("rome") as node:
        identities = await Identities.attach(node, Path("rome.key"))
        await node.start(Echo, address="orders")
        await identities.join(uri, identity=founder)
        result = await identities.join_domain(domain, founder, b"a secret of the members")
        print("result", result, flush=True)
        identities.serve(domain, "orders")
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
