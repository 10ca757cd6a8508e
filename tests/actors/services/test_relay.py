from __future__ import annotations

import asyncio
from asyncio import sleep
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.services import RelayService, RelayServiceOptions, StaticRelayService
from onward.actors.testing import Probe
from onward.protocol import Address, EmptyRoute, Message, NotDelivered, UnknownAddress, route
from onward.protocol.bare import encode_string
from onward.protocol.ockam import decode_message, encode_message
from onward.protocol.payloads import CBOR
from onward.protocol.services import (
    ApiRequest,
    Method,
    ResponseStatus,
    decode_response,
    decode_text,
    encode_request,
)
from onward.transports.simulated import SimulatedNetwork
from tests.support.transports import eventually
from tests.support.workers import start_worker

REGISTER = bytes.fromhex("087265676973746572")  # the payload of vector a10


async def hub(node: Node, kind: type[RelayService] = RelayService, **options: Any) -> RelayService:
    """Start a relay service whose relays can be reached over every link."""
    listener = await node.listen("sim://hub", expose=["relays", "api"])
    service = kind(expose_at=[listener.address], api="api", **options)
    await node.start(lambda: service, address="relays")
    return service


async def ask(node: Node, method: Method, path: str = "") -> tuple[ResponseStatus, bytes]:
    payload = encode_request(ApiRequest(1, path, method))
    response = decode_response((await node.request("api", payload)).payload)
    return response.status, response.body


async def test_a_relay_on_one_node(node: Node) -> None:
    service = await start_worker(node, RelayService(), "forwarding_service")
    client, echo = await Probe.on(node, "py"), await Probe.on(node, "echo")
    client.send("forwarding_service", REGISTER)
    answer = await client.next()
    name = decode_text(answer.payload, "a relay")
    assert answer.return_route == (Address(0, name.encode()),)
    assert service.registered == 1

    sender = await Probe.on(node, "app")
    sender.send([answer.return_route[0], "echo", "more"], b"hi")
    passed = await echo.next()
    assert passed.onward_route == route("echo => more")
    assert passed.return_route == route("app")
    assert passed.source == answer.return_route[0]
    relay = service.relays[answer.return_route[0]]
    assert relay.passed == 1


async def test_a_dynamic_relay_between_nodes(network: SimulatedNetwork) -> None:
    a, b, c = [await network.node(name) for name in "abc"]
    service = await hub(b)
    link = await a.connect("sim://hub", expose=["echo"])
    await Probe.on(a, "echo", answer=lambda message: message.payload.upper())
    client = await Probe.on(a, "client")
    client.send([link, "relays"], REGISTER)
    relay = (await client.next()).return_route[-1]

    other = await c.connect("sim://hub")
    answer = await c.request([other, relay, "echo"], b"hi")
    assert answer.payload == b"HI"
    # The relay is not on the way back: the answer went straight to the other's link.
    assert relay not in answer.return_route
    with pytest.raises(EmptyRoute):
        await b.request([relay], b"whom is it for?")
    assert service.relays[relay].passed == 1

    await a.stop_worker(link)
    await sleep(5)
    assert service.relays == {}
    with pytest.raises(UnknownAddress):
        b.send([relay, "echo"], b"hi")


async def test_a_static_relay_is_taken_over(network: SimulatedNetwork) -> None:
    a, b, c = [await network.node(name) for name in "abc"]
    service = await hub(b, StaticRelayService)
    for node, text in ((a, b"a"), (c, b"c")):
        link = await node.connect("sim://hub", expose=["who"])
        await Probe.on(node, "who", answer=lambda _, text=text: text)  # type: ignore[misc]
        client = await Probe.on(node, "client")
        client.send([link, "relays"], encode_string("orders"))
        answer = await client.next()
        assert decode_text(answer.payload, "a relay") == "forward_to_orders"
        assert answer.return_route[-1] == Address(0, b"forward_to_orders")
        assert (await b.request("forward_to_orders => who", b"")).payload == text
    assert len(service.relays) == 1
    # Over a link that is not the registrant's too.
    assert (
        await a.request([(await a.connect("sim://hub")), "forward_to_orders", "who"], b"")
    ).payload == b"c"


async def test_an_alias_that_is_taken_and_may_not_be_taken_over(node: Node) -> None:
    service = StaticRelayService(options=RelayServiceOptions(takeover=False))
    await node.start(lambda: service, address="relays")
    first = await Probe.on(node, "first")
    for _ in range(2):  # again by the same way is no takeover
        first.send("relays", encode_string("orders"), return_route=["first", "end"])
    await first.count(2)
    with pytest.raises(NotDelivered, match="the alias is taken"):
        await node.request("relays", encode_string("orders"))
    assert (service.registered, service.refused) == (2, 1)


@pytest.mark.parametrize(
    ("payload", "text"),
    [(b"register", "BARE"), (encode_string("unregister"), "the text 'register'")],
)
async def test_what_is_no_registration_is_refused(payload: bytes, text: str, node: Node) -> None:
    service = await start_worker(node, RelayService(), "relays")
    with pytest.raises(NotDelivered, match=text):
        await node.request("relays", payload)
    node.send("relays", REGISTER)  # nobody to relay to
    await node.request("forwarding_api", encode_request(ApiRequest(1, "", Method.GET)))
    assert (service.refused, service.relays) == (2, {})


async def test_an_alias_that_cannot_be_one(node: Node) -> None:
    await node.start(StaticRelayService, address="relays")
    with pytest.raises(NotDelivered, match="an alias of 0 bytes"):
        await node.request("relays", encode_string(""))
    await Probe.on(node, "forward_to_probe")
    with pytest.raises(NotDelivered, match="the address is in use"):
        await node.request("relays", encode_string("probe"))


async def test_who_may_not_register_and_how_many_may(node: Node) -> None:
    def allow(message: Message) -> bool:
        if message.return_route[0] == Address(0, b"broken"):
            raise RuntimeError
        return message.return_route[0] != Address(0, b"stranger")

    service = RelayService(allow=allow, options=RelayServiceOptions(max_relays=1))
    await node.start(lambda: service, address="relays")
    for name, reason in (("stranger", "denied"), ("broken", "denied"), ("friend", "")):
        probe = await Probe.on(node, name)
        probe.send("relays", REGISTER)
        if not reason:
            await probe.next()
    assert (service.refused, service.registered) == (2, 1)
    with pytest.raises(NotDelivered, match="too many relays"):
        await node.request("relays", REGISTER)


async def test_a_relay_does_not_lead_to_a_relay_of_the_same_service(node: Node) -> None:
    service = await start_worker(node, RelayService(), "relays")
    relay = (await node.request("relays", REGISTER)).return_route[0]
    probe = await Probe.on(node, "probe")
    probe.send("relays", REGISTER, return_route=[relay, "probe"])
    await node.request("forwarding_api", encode_request(ApiRequest(1, "", Method.GET)))
    assert (len(service.relays), service.refused) == (1, 1)


async def test_a_relay_that_nobody_uses_expires(node: Node) -> None:
    service = RelayService(options=RelayServiceOptions(expire_after=100))
    await node.start(lambda: service, address="relays")
    await Probe.on(node, "echo", answer=lambda message: message.payload)
    relay = (await node.request("relays", REGISTER)).return_route[0]
    for _ in range(5):
        await sleep(90)
        await node.request([relay, "echo"], b"hi")
    await sleep(125)
    assert (service.relays, service.expired) == ({}, 1)
    with pytest.raises(UnknownAddress):
        node.send([relay, "echo"], b"hi")


async def test_relays_are_listed_and_taken_away_by_whose_they_are(node: Node) -> None:
    service = await start_worker(node, StaticRelayService(api="api"), "relays")
    probe = await Probe.on(node, "probe")
    probe.send("relays", encode_string("mine"))
    probe.send("relays", encode_string("yours"), return_route="probe => other => end")
    await probe.count(2)
    status, body = await ask(node, Method.GET)
    assert (status, CBOR.decode(body)) == (
        ResponseStatus.OK,
        ["forward_to_mine", "forward_to_yours"],
    )
    assert (await ask(node, Method.PUT))[0] is ResponseStatus.METHOD_NOT_ALLOWED
    assert (await ask(node, Method.DELETE, "forward_to_none"))[0] is ResponseStatus.NOT_FOUND
    assert (await ask(node, Method.DELETE, "forward_to_yours"))[0] is ResponseStatus.FORBIDDEN
    assert (await ask(node, Method.DELETE, "forward_to_mine"))[0] is ResponseStatus.OK
    assert list(service.relays) == [Address(0, b"forward_to_yours")]
    with pytest.raises(NotDelivered, match="a header"):
        await node.request("api", b"")


async def test_without_an_api_and_with_a_place_that_is_gone(node: Node) -> None:
    service = await start_worker(node, RelayService(api=None, expose_at=["gone"]), "relays")
    with pytest.raises(NotDelivered, match="no relay can be exposed"):
        await node.request("relays", REGISTER)
    assert service.relays == {}
    assert not node.has("forwarding_api")


async def test_an_answer_nobody_can_be_given_is_a_dead_letter(node: Node) -> None:
    await node.start(RelayService, address="relays")
    node.send("relays", REGISTER, return_route="gone")
    status = await node.request("forwarding_api", encode_request(ApiRequest(1, "", Method.GET)))
    assert len(CBOR.decode(decode_response(status.payload).body)) == 1
    assert node.dead_letters.by_reason == {"no such worker": 1}
    node.send("forwarding_api", encode_request(ApiRequest(1, "", Method.GET)), return_route="gone")
    await node.request("forwarding_api", encode_request(ApiRequest(1, "", Method.GET)))
    assert node.dead_letters.by_reason == {"no such worker": 2}


@pytest.mark.parametrize("options", [{"max_relays": 0}, {"expire_after": 0}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RelayServiceOptions(**options)


class Peer:
    """Another implementation, as far as this goes: frames of Ockam's wire over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def at(cls, uri: str) -> Peer:
        host, _, port = uri.removeprefix("tcp://").rpartition(":")
        peer = cls(*await asyncio.open_connection(host, int(port)))
        peer.writer.write(b"\x01")
        assert await peer.reader.readexactly(1) == b"\x01"
        return peer

    async def next(self) -> Message:
        async with asyncio.timeout(5):
            size = int.from_bytes(await self.reader.readexactly(4))
            return decode_message(await self.reader.readexactly(size))

    def send(self, message: Message) -> None:
        body = encode_message(message)
        self.writer.write(len(body).to_bytes(4) + body)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


# "register" to [forwarding_service], return [py]: vector a10, derived by hand.
A10 = bytes.fromhex(
    "00000028 84 81 820052666f7277617264696e675f73657276696365"
    "81 8200427079 49 087265676973746572 f6".replace(" ", "")
)


@pytest.mark.real_time
async def test_the_bytes_of_another_implementation_register_a_relay(node: Node) -> None:
    listener = await node.listen("tcp://127.0.0.1:0", expose=["forwarding_service"])
    service = RelayService(expose_at=[listener.address])
    await node.start(lambda: service, address="forwarding_service")
    device, phone = await Peer.at(listener.uri), await Peer.at(listener.uri)
    try:
        device.writer.write(A10)
        answer = await device.next()
        (relay,) = answer.return_route
        assert answer.onward_route == route("py")
        assert answer.payload == encode_string(relay.value.decode())

        phone.send(Message((relay, *route("echoer => more")), route("app"), b"hi"))
        passed = await device.next()
        assert (passed.onward_route, passed.payload) == (route("echoer => more"), b"hi")
        # The phone's connection and the phone's worker; not the relay.
        assert passed.return_route[1:] == route("app")
        device.send(Message(passed.return_route, route("echoer"), b"HI"))
        back = await phone.next()
        assert (back.onward_route, back.payload) == (route("app"), b"HI")
        assert back.return_route[1:] == route("echoer")
    finally:
        await device.close()
        await phone.close()
    await eventually(lambda: not service.relays)
