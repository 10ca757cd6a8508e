"""A node that publishes the lines of its input to a topic, with the keys oslo.key and prices.key.

    python publish.py [URI]

It prints the topic, the node, and where it listens.
"""

# --8<-- [start:program]
import sys
from contextlib import suppress
from pathlib import Path

from onward.actors import Node
from onward.actors.identity import ROUTER, load_key_file
from onward.actors.workers import Echo
from onward.protocol.identity import SCOPE_ANY, Identity, identity_text
from onward.transports.identity import Identities


async def start(node: Node, uri: str) -> tuple[Identities, Identity]:
    identities = await Identities.attach(node, Path("oslo.key"))
    await node.start(Echo, address="pricer")
    key = load_key_file(Path("prices.key")).signing
    prices = identities.create_topic(key, engine="pricer", scope=SCOPE_ANY)
    print("topic", identity_text(prices))
    print("node", identity_text(identities.own))
    listener = await node.listen(uri, expose=[ROUTER])
    print("listening", listener.uri, flush=True)
    return identities, prices


async def publish(identities: Identities, topic: Identity, payload: bytes) -> None:
    identities.publish(topic, payload, source="pricer")


def main(uri: str = "tcp://127.0.0.1:4000") -> None:
    # Reading the input blocks, so the node has a thread of its own.
    with Node.in_background("oslo") as background:
        identities, prices = background.call(start, background.node, uri)
        for line in sys.stdin:
            background.call(publish, identities, prices, line.strip().encode())


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
# --8<-- [end:program]
