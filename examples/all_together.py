"""A channel through a session over a relay, on a network that loses every tenth message.

A device that accepts no connections registers a relay with a hub. A phone opens a session with the
device over that relay, and a channel through the session: three workers, each of which knows only
the one before it. It prints:

    the route of the session: 240#hub => 0#forward_to_device => 0#sessions
    the route of the channel: 0#session => 0#channels
    20 answers, in order: True
    messages lost: True
"""

from __future__ import annotations

from onward.actors import Node
from onward.actors.pipes import PipeChannel, PipeChannelService
from onward.actors.services import RelayClient, StaticRelayService
from onward.actors.sessions import SessionClient, SessionService
from onward.actors.workers import Echo
from onward.protocol import RouteLike, format_route, route
from onward.transports.simulated import Faults, SimulatedNetwork, simulate

BAD = Faults(latency=(0.01, 0.05), loss=0.1, duplicate=0.1, reorder=0.1)


async def start_hub(hub: Node) -> None:
    listener = await hub.listen("sim://hub", expose=["relays"])
    await hub.start(lambda: StaticRelayService(expose_at=[listener.address]), address="relays")


async def start_device(device: Node) -> None:
    await device.start(Echo, address="echo")
    await device.start(PipeChannelService, address="channels")
    await device.start(lambda: SessionService(expose=["channels"]), address="sessions")

    async def to_the_hub() -> RouteLike:
        link = await device.connect("sim://hub", expose=["sessions"], allow=["echo"])
        return [link, "relays"]

    relay = await RelayClient.on(device, to_the_hub, alias="device")
    await relay.until_up()


async def start_phone(phone: Node) -> None:
    onward = route("240#hub => forward_to_device => sessions")
    print("the route of the session:", format_route(onward))
    session = await SessionClient.on(phone, "session", onward)
    await session.until_up()

    onward = route("session => channels")
    print("the route of the channel:", format_route(onward))
    await phone.start(lambda: PipeChannel(onward), address="channel")


async def scenario(network: SimulatedNetwork) -> None:
    hub, device, phone = [await network.node(name) for name in ("hub", "device", "phone")]
    await start_hub(hub)
    await start_device(device)
    await start_phone(phone)

    asked = [b"%d" % number for number in range(20)]
    answers = [(await phone.request("channel => echo", each)).payload for each in asked]
    print(f"{len(answers)} answers, in order: {answers == asked}")
    print("messages lost:", network.traffic().lost > 0)


if __name__ == "__main__":
    simulate(scenario, seed=7, faults=BAD)
