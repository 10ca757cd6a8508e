"""A node that founds a domain and serves it by an echo, with the keys oslo.key and orders.key.

    python found.py [URI]

It prints the domain, the node, and where it listens.
"""

# --8<-- [start:program]
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from onward.actors import Node
from onward.actors.identity import ROUTER, load_key_file
from onward.actors.workers import Echo
from onward.protocol.identity import JoinRequest, identity_text
from onward.transports.identity import Identities


def admit(request: JoinRequest) -> bool:
    return request.auth == b"a secret of the members"


async def main(uri: str = "tcp://127.0.0.1:4000") -> None:
    async with Node("oslo") as node:
        identities = await Identities.attach(node, Path("oslo.key"))
        await node.start(Echo, address="orders")
        key = load_key_file(Path("orders.key")).signing
        domain = identities.found_domain(key, admit=admit)
        identities.serve(domain, "orders")
        print("domain", identity_text(domain))
        print("node", identity_text(identities.own))
        listener = await node.listen(uri, expose=[ROUTER])
        print("listening", listener.uri, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
# --8<-- [end:program]
