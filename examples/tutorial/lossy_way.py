"""Numbers over a bad network, through a relay: as they come, and through a pipe."""

from __future__ import annotations

# --8<-- [start:nodes]
import asyncio

from onward.actors import Node, Worker
from onward.actors.pipes import PipeChannel, PipeChannelService, PipeSender, PipeService
from onward.actors.workers import Echo, Forwarder
from onward.protocol import Message
from onward.transports.simulated import Faults, SimulatedNetwork, simulate


class Printer(Worker):
    def handle_message(self, message: Message) -> None:
        print(message.payload.decode(), end=" ")


async def three_nodes(network: SimulatedNetwork) -> Node:
    near, hub, far = [await network.node(name) for name in ("near", "hub", "far")]
    await hub.start(Forwarder, address="relay")
    await hub.listen("sim://hub", expose=["relay"], allow=["240#far"])
    await far.start(Printer, address="printer")
    await far.start(Echo, address="echo")
    await far.start(PipeService, address="pipes")
    await far.start(PipeChannelService, address="channels")
    await far.listen("sim://far", expose=["printer", "pipes", "channels"], allow=["echo"])
    return near


WAY = "240#hub => relay => 240#far"
# --8<-- [end:nodes]


# --8<-- [start:plain]
async def plain(network: SimulatedNetwork) -> None:
    near = await three_nodes(network)
    for number in range(1, 11):
        near.send(f"{WAY} => printer", b"%d" % number)
    await asyncio.sleep(60)
    print()


BAD = Faults(latency=(0.01, 0.05), loss=0.1, duplicate=0.1, reorder=0.1)


def without() -> None:
    simulate(plain, seed=7)
    simulate(plain, seed=7, faults=BAD)
    simulate(plain, seed=7, faults=BAD)
    simulate(plain, seed=8, faults=BAD)


# --8<-- [end:plain]


# --8<-- [start:piped]
async def piped(network: SimulatedNetwork) -> None:
    near = await three_nodes(network)
    await near.start(lambda: PipeSender(f"{WAY} => pipes"), address="pipe")
    for number in range(1, 11):
        near.send("pipe => printer", b"%d" % number)
    await asyncio.sleep(60)
    print()


def through_a_pipe() -> None:
    simulate(piped, seed=7, faults=BAD)
    simulate(piped, seed=8, faults=BAD)


# --8<-- [end:piped]


# --8<-- [start:channel]
async def asked(network: SimulatedNetwork) -> None:
    near = await three_nodes(network)
    await near.start(lambda: PipeChannel(f"{WAY} => channels"), address="channel")
    answers = [await near.request("channel => echo", b"%d" % number) for number in range(1, 11)]
    print(*(answer.payload.decode() for answer in answers))


# --8<-- [end:channel]


def through_a_channel() -> None:
    simulate(asked, seed=7, faults=BAD)


if __name__ == "__main__":
    without()
    through_a_pipe()
    through_a_channel()
