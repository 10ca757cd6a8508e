"""A node that prints what is published to a topic, with the key rome.key.

    python subscribe.py TOPIC NODE [URI]

TOPIC and NODE are what publish.py has printed.
"""

# --8<-- [start:program]
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from onward.actors import Node
from onward.protocol import Message
from onward.protocol.identity import parse_identity
from onward.transports.identity import Identities


async def main(topic: str, oslo: str, uri: str = "tcp://127.0.0.1:4000") -> None:
    async with Node("rome") as node:
        identities = await Identities.attach(node, Path("rome.key"))
        await identities.join(uri, identity=parse_identity(oslo))
        prices = identities.topic(parse_identity(topic))

        @prices.subscriber
        async def on_price(message: Message) -> None:
            print(message.payload.decode(), flush=True)

        await prices.ready()
        print("subscribed", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
