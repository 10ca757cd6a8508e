"""Relays and their clients over a network that loses, doubles, is cut, and whose hub crashes."""

from __future__ import annotations

from asyncio import sleep
from random import Random

import pytest

from onward.actors import Node
from onward.actors.services import (
    PubSubService,
    RelayClient,
    RelayService,
    RelayServiceOptions,
    StaticRelayService,
    Subscriber,
)
from onward.actors.sessions import (
    SessionClient,
    SessionOptions,
    SessionService,
    SessionServiceOptions,
)
from onward.actors.testing import Probe
from onward.protocol import Address, DeliveryError, Message, RouteLike
from onward.protocol.sessions import LivenessOptions
from onward.transports.simulated import Faults, SimulatedNetwork, simulate_many
from tests.support.counts import times
from tests.support.workers import start_worker

TIMES = LivenessOptions(
    ping_interval=1, open_timeout=1, retry=0.5, longest_retry=2, forget_after=20
)
BAD = Faults(latency=(0.001, 0.2), loss=0.15, duplicate=0.1, reorder=0.2)
SERVICE = RelayServiceOptions(expire_after=30)


async def hub(node: Node, kind: type[RelayService] = StaticRelayService) -> RelayService:
    listener = await node.listen("sim://hub", expose=["relays"])
    service = kind(expose_at=[listener.address], options=SERVICE)
    await node.start(lambda: service, address="relays")
    return service


async def device(network: SimulatedNetwork, name: str, alias: str | None) -> RelayClient:
    node = await network.node(name)
    await Probe.on(node, "who", answer=lambda _: name.encode())

    async def way() -> RouteLike:
        return [await node.connect("sim://hub", expose=["who", "sessions"]), "relays"]

    return await RelayClient.on(node, way, alias=alias, times=TIMES)


async def asked(node: Node, relay: str | Address) -> bytes:
    """Ask through a relay, over a new link each time, until there is an answer."""
    for _ in range(60):
        try:
            link = await node.connect("sim://hub")
            return (await node.request([link, relay, "who"], b"", timeout=2)).payload
        except DeliveryError:
            await sleep(0.5)
    raise AssertionError("there was no answer")


async def comes_back(network: SimulatedNetwork) -> None:
    """A cut and a crash of the hub: each alias leads where it led."""
    random = Random(network.seed)
    await hub(await network.node("hub"))
    names = ["d0", "d1"]
    clients = [await device(network, name, name) for name in names]
    phone = await network.node("phone")
    for name in names:
        assert await asked(phone, f"forward_to_{name}") == name.encode()

    network.partition({"d0", "d1"}, {"hub"})
    await sleep(random.uniform(0, 10))
    network.heal()
    assert await asked(phone, "forward_to_d0") == b"d0"

    await network.crash("hub")
    await sleep(random.uniform(0, 5))
    service = await hub(await network.restart("hub"))
    for name in names:
        assert await asked(phone, f"forward_to_{name}") == name.encode()

    # Who is gone is forgotten at the hub; the other stays.
    network.set_all_faults(Faults())
    await clients[0].until_up()
    await network.crash("d0")
    await sleep(3 * SERVICE.expire_after)
    assert set(service.relays) == {Address(0, b"forward_to_d1")}
    assert clients[1].relay[-1] == Address(0, b"forward_to_d1")


@pytest.mark.slow
def test_a_relay_comes_back_under_its_alias() -> None:
    simulate_many(comes_back, seeds=range(times(5, 25)), faults=BAD)


async def leads_to_who_has_it(network: SimulatedNetwork) -> None:
    """Dynamic relays: whatever is doubled or late, the address that a client has is its own."""
    service = await hub(await network.node("hub"), RelayService)
    clients = [await device(network, f"d{number}", None) for number in range(3)]
    phone = await network.node("phone")
    for number, client in enumerate(clients):
        await client.until_up(60)
        assert await asked(phone, client.relay[-1]) == f"d{number}".encode()
    # A registration that came twice made a relay that nobody uses: it expires.
    network.set_all_faults(Faults())
    await sleep(3 * SERVICE.expire_after)
    for client in clients:
        await client.until_up()
    await sleep(2 * SERVICE.expire_after)
    assert len(service.relays) == len(clients)


@pytest.mark.slow
def test_a_dynamic_relay_leads_to_who_registered_it() -> None:
    faults = Faults(latency=(0.001, 0.2), loss=0.1, duplicate=0.3)
    simulate_many(leads_to_who_has_it, seeds=range(times(3, 10)), faults=faults)


async def session_through_a_relay(network: SimulatedNetwork) -> None:
    """A session over a relay over two links: three prefixes of one route."""
    await hub(await network.node("hub"))
    relay = await device(network, "device", "d")
    options = SessionOptions(liveness=TIMES)
    service = SessionService(expose=["who"], options=SessionServiceOptions(session=options))
    await relay.node.start(lambda: service, address="sessions")
    phone = await network.node("phone")

    async def way() -> RouteLike:
        return [await phone.connect("sim://hub"), "forward_to_d", "sessions"]

    session = await SessionClient.on(phone, "device", way, options=options)

    async def works() -> None:
        for _ in range(60):
            try:
                answer = await phone.request("device => who", b"", timeout=2)
            except DeliveryError:
                await sleep(0.5)
                continue
            assert (answer.payload, answer.return_route[0]) == (b"device", session.address)
            return
        raise AssertionError("there was no answer")

    await works()
    await network.crash("hub")
    await sleep(5)
    await hub(await network.restart("hub"))
    await works()
    assert len(service.sessions) == 1


@pytest.mark.slow
def test_a_session_through_a_relay_survives_the_hub() -> None:
    simulate_many(session_through_a_relay, seeds=range(times(8, 40)), faults=BAD)


async def is_published(network: SimulatedNetwork) -> None:
    """A subscriber gets what is published after a cut, by subscribing again."""
    server = await network.node("hub")
    listener = await server.listen("sim://hub", expose=["pub_sub"])
    await start_worker(server, PubSubService(expose_at=[listener.address]), "pub_sub")
    node, publisher = await network.node("screen"), await network.node("publisher")
    link = await node.connect("sim://hub")
    seen: list[bytes] = []

    def show(message: Message) -> None:
        seen.append(message.payload)

    await Subscriber.on(node, [link, "pub_sub"], "screen", "news", show, refresh=2)
    out = await publisher.connect("sim://hub")
    await sleep(60)
    network.partition({"screen"}, {"hub"})
    await sleep(1)
    network.heal()
    await sleep(30)
    for number in range(30):
        publisher.send([out, "pub_sub_t_news"], bytes([number]))
        await sleep(1)
    # 15 % are lost on each of two links, and some come twice.
    assert len(set(seen)) > 10


@pytest.mark.slow
def test_a_subscription_survives_loss_and_a_cut() -> None:
    simulate_many(is_published, seeds=range(times(10, 50)), faults=BAD)
