"""Two nodes that only dial out, and a relay between them that cannot read."""

from __future__ import annotations

# --8<-- [start:nodes]
import asyncio

from onward.actors import Node
from onward.actors.identity import ROUTER, PassedOn
from onward.actors.workers import Echo
from onward.protocol.identity import RelayPolicy, SigningKey
from onward.transports.identity import Identities
from onward.transports.simulated import SimulatedNetwork, simulate


def key_of(name: str) -> SigningKey:
    return SigningKey(name.encode().rjust(32, b"-"))


async def identified(node: Node, relay: RelayPolicy | None = None) -> Identities:
    clock = asyncio.get_running_loop().time
    return await Identities.attach(node, key_of(node.name), relay=relay, clock=clock)


async def three_nodes(network: SimulatedNetwork) -> tuple[Identities, Identities, Identities]:
    harbour = await identified(await network.node("harbour"), RelayPolicy(to_reserved=True))
    await harbour.node.listen("sim://harbour", expose=[ROUTER])
    ada, bea = [await identified(await network.node(name)) for name in ("ada", "bea")]
    for each in (ada, bea):
        await each.join("sim://harbour", identity=harbour.own)
    return ada, harbour, bea


# --8<-- [end:nodes]


# --8<-- [start:sealed]
async def sealed(network: SimulatedNetwork) -> None:
    ada, harbour, bea = await three_nodes(network)
    names = {each.own: each.node.name for each in (ada, harbour, bea)}

    def show(seen: PassedOn) -> None:
        way = f"{names[seen.previous]} -> {names[seen.following]}"
        print("harbour sees", way, seen.size, "bytes")

    harbour.watch_relay(show)
    await bea.node.start(Echo, address="echo")
    echo = bea.engine("echo")
    await bea.reserve(harbour.own)
    for text in (b"hi", b"meet me at the old mill"):
        answer = await ada.request(echo, text)
        print("ada is told", answer.payload.decode())


def main() -> None:
    simulate(sealed, seed=7)


# --8<-- [end:sealed]


if __name__ == "__main__":
    main()
