"""Relays over TCP, in the topologies that Ockam's Rust tests have.

Hub, device and phone are three nodes, and nothing connects device and phone but the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node
from onward.actors.access import Access, not_, to_next
from onward.actors.services import RelayClient, RelayService, StaticRelayService
from onward.actors.sessions import SessionClient, SessionService
from onward.actors.testing import Probe
from onward.protocol import Address, Message, NotDelivered, address
from onward.protocol.bare import encode_string
from onward.protocol.services import FORWARDING_API, decode_text
from onward.transports import TcpListener
from tests.support.transports import eventually
from tests.support.workers import start_worker

Nodes = tuple[Node, Node, Node]


@pytest.fixture
async def nodes() -> AsyncIterator[Nodes]:
    async with Node("hub") as hub, Node("device") as device, Node("phone") as phone:
        yield hub, device, phone


def echo(message: Message) -> bytes:
    return message.payload


async def serve(hub: Node) -> TcpListener:
    """Offer both services at the hub, and what they make to whoever connects."""
    services = ["relays", "static_relays", FORWARDING_API]
    listener = await hub.listen("tcp://127.0.0.1:0", expose=services)
    assert isinstance(listener, TcpListener)
    dynamic = RelayService(expose_at=[listener.address])
    static = StaticRelayService(expose_at=[listener.address])
    await hub.start(lambda: dynamic, address="relays")
    await hub.start(lambda: static, address="static_relays")
    return listener


async def registered(device: Node, uri: str, expose: list[str]) -> RelayClient:
    """Have the device registered at the hub, with a relay at a random address."""
    link = await device.connect(uri, expose=expose)
    client = await RelayClient.on(device, [link, "relays"])
    await client.until_up()
    return client


async def test_all_on_one_node() -> None:
    async with Node() as node:
        await node.start(RelayService, address="relays")
        await Probe.on(node, "echoer", answer=echo)
        client = await RelayClient.on(node, "relays")
        await client.until_up()
        answer = await node.request([client.relay[-1], "echoer"], b"hello")
        assert answer.payload == b"hello"
        await client.close()


async def test_a_client_reaches_a_server_through_the_cloud(nodes: Nodes) -> None:
    hub, device, phone = nodes
    listener = await serve(hub)
    await Probe.on(device, "echoer", answer=echo)
    client = await registered(device, listener.uri, ["echoer"])
    link = await phone.connect(listener.uri)
    answer = await phone.request([link, client.relay[-1], "echoer"], b"hello")
    assert answer.payload == b"hello"
    assert answer.return_route[0] == link
    assert answer.return_route[-1] == address("echoer")


async def test_what_the_device_does_not_expose_the_relay_does_not_reach(nodes: Nodes) -> None:
    """From the hub itself, as in the reference: before it is exposed, and after."""
    hub, device, _ = nodes
    listener = await serve(hub)
    probe = await Probe.on(device, "ctx")
    client = await registered(device, listener.uri, [])
    hub.send([client.relay[-1], "ctx"], b"too early")
    await eventually(lambda: device.dead_letters.by_reason == {"not exposed": 1})
    device.expose(client.relay[0], "ctx")
    hub.send([client.relay[-1], "ctx"], b"hello")
    assert (await probe.next()).payload == b"hello"
    assert probe.payloads == [b"hello"]


async def test_a_tunnel_from_end_to_end_through_a_relay(nodes: Nodes) -> None:
    """A session through the relay in the place of the secure channel: two stable ends."""
    hub, device, phone = nodes
    listener = await serve(hub)
    await Probe.on(device, "echoer", answer=echo)
    service = await start_worker(device, SessionService(expose=["echoer"]), "tunnels")
    client = await registered(device, listener.uri, ["tunnels"])
    link = await phone.connect(listener.uri)
    tunnel = await SessionClient.on(phone, "tunnel", [link, client.relay[-1], "tunnels"])
    await tunnel.until_up()
    answer = await phone.request("tunnel => echoer", b"hello")
    assert answer.payload == b"hello"
    assert answer.return_route == (tunnel.address, address("echoer"))
    with pytest.raises(TimeoutError):  # not exposed but through the tunnel
        await asyncio.wait_for(
            phone.request([link, client.relay[-1], "echoer"], b"", timeout=5), timeout=0.05
        )
    await tunnel.close()
    assert service.sessions == ()


async def test_the_rest_of_the_onward_route_is_kept(nodes: Nodes) -> None:
    hub, device, phone = nodes
    listener = await serve(hub)
    first = await Probe.on(device, "first")
    client = await registered(device, listener.uri, ["first"])
    link = await phone.connect(listener.uri)
    phone.send([link, client.relay[-1], "first", "second", "third"], b"hello")
    message = await first.next()
    assert [str(step) for step in message.onward_route] == ["0#first", "0#second", "0#third"]
    assert message.payload == b"hello"


async def test_who_registers_an_alias_again_takes_it_over(nodes: Nodes) -> None:
    hub, *devices = nodes
    listener = await serve(hub)
    relay = Address(0, b"forward_to_orders")
    for device in devices:
        name = device.name.encode()
        await Probe.on(device, "who", answer=lambda _, name=name: name)  # type: ignore[misc]
        link = await device.connect(listener.uri, expose=["who"])
        client = await Probe.on(device, "client")
        client.send([link, "static_relays"], encode_string("orders"))
        answer = await client.next()
        assert decode_text(answer.payload, "a relay") == "forward_to_orders"
        assert answer.return_route[-1] == relay
        assert (await hub.request([relay, "who"], b"")).payload == name


async def test_an_alias_is_refused_to_who_may_not_have_it(nodes: Nodes) -> None:
    hub, device, phone = nodes
    listener = await hub.listen("tcp://127.0.0.1:0", expose=["static_relays"], error_replies=True)

    def allow(message: Message) -> bool:
        return message.payload == encode_string("device")

    service = await start_worker(hub, StaticRelayService(allow=allow), "static_relays")
    for node in (device, phone):
        link = await node.connect(listener.uri)
        probe = await Probe.on(node, "client")
        probe.send([link, "static_relays"], encode_string(node.name))
        if node is device:
            assert decode_text((await probe.next()).payload, "a relay") == "forward_to_device"
    await eventually(lambda: service.refused == 1)
    assert set(service.relays) == {Address(0, b"forward_to_device")}


async def test_a_worker_that_may_not_send_to_a_relay_does_not(nodes: Nodes) -> None:
    hub, device, _ = nodes
    listener = await serve(hub)
    seen = await Probe.on(device, "seen")
    client = await registered(device, listener.uri, ["seen"])
    relay = client.relay[-1]
    probe = await start_worker(hub, Probe(), "sender", access=Access(outgoing=not_(to_next(relay))))
    with pytest.raises(NotDelivered, match="denied"):
        probe.send([relay, "seen"], b"no")
    hub.send([relay, "seen"], b"yes")
    assert (await seen.next()).payload == b"yes"
