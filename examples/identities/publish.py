"""A node that publishes the lines of its input to a topic, with the keys oslo.key and prices.key.

    python publish.py [URI]

It prints the topic, the node, and where it listens.
"""

# --8<-- [start:program]
import asyncio
import sys
from pathlib import Path

from onward.actors import Node
from onward.actors.identity import ROUTER, load_key_file
from onward.actors.workers import Echo
from onward.protocol.identity import SCOPE_ANY, identity_text
from onward.transports.identity import Identities


async def main(uri: str = "tcp://127.0.0.1:4000") -> None:
    async with Node("oslo") as node:
        identities = await Identities.attach(node, Path("oslo.key"))
        await node.start(Echo, address="pricer")
        key = load_key_file(Path("prices.key")).signing
        prices = identities.create_topic(key, engine="pricer", scope=SCOPE_ANY)
        print("topic", identity_text(prices))
        print("node", identity_text(identities.own))
        listener = await node.listen(uri, expose=[ROUTER])
        print("listening", listener.uri, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            identities.publish(prices, line.strip().encode(), source="pricer")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
