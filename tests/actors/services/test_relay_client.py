from __future__ import annotations

from asyncio import sleep
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.services import (
    RelayClient,
    RelayClosed,
    RelayDown,
    RelayService,
    StaticRelayService,
)
from onward.actors.testing import Probe
from onward.protocol import Address, ErrorReply, LinkDown, Message, RouteLike, encode_error_reply
from onward.protocol.bare import encode_data, encode_string
from onward.protocol.sessions import LivenessOptions, SessionState
from onward.transports.simulated import SimulatedNetwork
from tests.support.workers import start_worker

TIMES = LivenessOptions(ping_interval=1, open_timeout=1, retry=0.5, longest_retry=2)


async def hub(network: SimulatedNetwork) -> tuple[Node, StaticRelayService]:
    node = await network.node("hub") if "hub" not in network.nodes else await network.restart("hub")
    return node, await serve(node)


async def serve(node: Node) -> StaticRelayService:
    listener = await node.listen("sim://hub", expose=["relays", "static_forwarding_api"])
    return await start_worker(node, StaticRelayService(expose_at=[listener.address]), "relays")


def way(node: Node, *expose: str) -> Any:
    async def find() -> RouteLike:
        return [await node.connect("sim://hub", expose=expose), "relays"]

    return find


async def test_it_registers_watches_and_registers_again(network: SimulatedNetwork) -> None:
    log: list[str] = []

    def came_up(client: RelayClient) -> None:
        log.append(f"up {client.name}")

    def went_down(_: RelayClient) -> None:
        log.append("down")

    def closed(_: RelayClient) -> None:
        log.append("closed")

    _, service = await hub(network)
    device, phone = await network.node("device"), await network.node("phone")
    await Probe.on(device, "echo", answer=lambda message: message.payload)
    relay = await RelayClient.on(
        device,
        way(device, "echo"),
        alias="printer",
        times=TIMES,
        on_up=came_up,
        on_down=went_down,
        on_closed=closed,
    )
    await relay.until_up()
    assert relay.relay[-1] == Address(0, b"forward_to_printer")

    async def works() -> None:
        link = await phone.connect("sim://hub")
        answer = await phone.request([link, "forward_to_printer", "echo"], b"page")
        assert answer.payload == b"page"

    await works()
    await sleep(10)  # its pings pass the relay
    assert relay.state is SessionState.UP
    assert service.relays[Address(0, b"forward_to_printer")].passed > 5

    network.partition({"device"}, {"hub"})
    await sleep(2 * TIMES.silence)
    assert (relay.state is SessionState.UP, relay.relay) == (False, ())
    network.heal()
    await relay.until_up()
    await works()

    await network.crash("hub")
    await sleep(2 * TIMES.silence)
    _, service = await hub(network)
    await relay.until_up()
    await works()

    await relay.close("done")
    await relay.close("again")
    assert (relay.cause, service.relays) == ("done", {})
    assert not device.has(relay.address)
    assert log == ["up forward_to_printer", "down"] * 2 + ["up forward_to_printer", "closed"]
    with pytest.raises(RelayClosed, match="done"):
        await relay.until_up()


async def test_a_service_that_forgot_it_is_noticed_by_pings(network: SimulatedNetwork) -> None:
    node, _ = await hub(network)
    device = await network.node("device")
    relay = await RelayClient.on(device, way(device), alias="printer", times=TIMES)
    await relay.until_up()
    await node.stop_worker("relays")
    await sleep(2 * TIMES.silence)
    assert relay.state is not SessionState.UP
    await node.start(StaticRelayService, address="relays")
    await relay.until_up()
    assert relay.downs == 1


async def test_on_one_node_with_a_dynamic_service(node: Node) -> None:
    service = await start_worker(node, RelayService(), "forwarding_service")
    relay = await RelayClient.on(node, "forwarding_service")
    await relay.until_up(5)
    assert relay.relay == tuple(service.relays)
    assert relay.name == relay.relay[0].value.decode()
    await node.stop_worker(relay.address)
    assert service.relays == {}
    assert await relay.until_closed() == "stopped"


async def test_without_a_service_it_is_down_and_tries_again(node: Node) -> None:
    relay = await RelayClient.on(node, "relays", times=TIMES, api=None, address="client")
    assert relay.state is SessionState.DOWN
    assert "no such worker" in relay.cause
    with pytest.raises(RelayDown, match="not up in 2 s"):
        await relay.until_up(2)
    await node.start(RelayService, address="relays")
    await relay.until_up(5)
    assert relay.address == Address(0, b"client")


async def test_answers_that_are_none(node: Node) -> None:
    probe = await Probe.on(node, "relays")
    causes: list[str] = []

    def went_down(client: RelayClient) -> None:
        causes.append(client.cause)

    relay = await RelayClient.on(node, "relays", alias="printer", times=TIMES, on_down=went_down)
    ask = await probe.next()
    probe.reply(ask, b"\xff")
    probe.reply(ask, encode_string("forward_to_another"))
    probe.send(ask.return_route, encode_string("forward_to_printer"), return_route=())
    await sleep(0.1)
    assert relay.state is SessionState.ESTABLISHING
    probe.reply(ask, encode_string("forward_to_printer"))
    probe.reply(ask, encode_string("forward_to_printer"))
    await relay.until_up(1)
    await sleep(0.1)
    assert node.dead_letters.by_reason == {"unhandled": 3, "late answer": 1}
    # What was taken for a relay sends nothing back, and an old ping is no answer.
    node.send(relay.address, encode_data(relay._secret) + bytes(2))
    await sleep(10)
    assert causes == ["3 pings went unanswered"]


def error(target: Address, to: Message, reason: str) -> Message:
    payload = encode_error_reply(ErrorReply(reason, target, certain=True))
    return Message(to.return_route, (Address(0, b"onward.error"),), payload)


async def test_the_word_of_a_node_on_the_way_is_taken(node: Node) -> None:
    probe = await Probe.on(node, "relays")
    relay = await RelayClient.on(node, "relays", alias="printer", times=TIMES)
    asked = await probe.next()
    node.route(error(probe.address, asked, "denied"))
    await sleep(0.1)
    assert (relay.state, relay.cause) == (SessionState.DOWN, "denied")
    asked = await probe.next()
    probe.reply(asked, encode_string("forward_to_printer"))
    await relay.until_up(1)
    node.route(error(Address(0, b"somebody"), asked, "denied"))
    node.route(error(probe.address, asked, "no such worker")._replace(payload=b""))
    await sleep(0.1)
    assert relay.state is SessionState.UP
    node.route(error(probe.address, asked, "no such worker"))
    await sleep(0.1)
    assert (relay.downs, relay.cause) == (2, "no such worker")


async def test_a_ping_that_cannot_be_sent_says_that_the_way_is_lost(node: Node) -> None:
    node.add_rule(77, lambda message: message.redirect(Address(0, b"relays")))
    probe = await Probe.on(node, "relays")
    relay = await RelayClient.on(node, "77#x => relays", times=TIMES)
    asked = await probe.next()
    probe.reply(asked, encode_string("random"))
    await relay.until_up(1)
    node.remove_rule(77)
    await sleep(1.5)
    assert "no rule" in relay.cause


async def test_a_way_that_cannot_be_found(node: Node) -> None:
    async def find() -> RouteLike:
        raise LinkDown("hub")

    def broken() -> RouteLike:
        raise RuntimeError("a bug")

    for given, cause in ((find, "link down: hub"), (broken, "no route: RuntimeError")):
        relay = await RelayClient.on(node, given)
        assert await relay.until_down() == cause
        await relay.close()
