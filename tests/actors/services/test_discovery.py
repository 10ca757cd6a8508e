from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors import Node, NodeLimits
from onward.actors.services import (
    Announcer,
    DiscoveryClient,
    DiscoveryOptions,
    DiscoveryService,
    RequestRefused,
)
from onward.actors.testing import Probe
from onward.protocol import Address, Message, NotDelivered, RequestTimeout, Route, route
from onward.protocol.services import (
    ApiRequest,
    ApiResponse,
    Method,
    ResponseStatus,
    ServiceError,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from onward.transports.simulated import SimulatedNetwork


async def served(node: Node, options: DiscoveryOptions | None = None) -> DiscoveryService:
    service = DiscoveryService(options=options or DiscoveryOptions())
    await node.start(lambda: service, address="discovery")
    return service


async def ask(node: Node, method: Method, path: str, body: bytes = b"") -> ApiResponse:
    payload = encode_request(ApiRequest(7, path, method, body))
    return decode_response((await node.request("discovery", payload)).payload)


async def test_a_service_is_found_and_used_from_another_node(network: SimulatedNetwork) -> None:
    hub, device, phone = [await network.node(name) for name in ("hub", "device", "phone")]
    service = await served(hub)
    await hub.listen("sim://hub", expose=["discovery"])
    await Probe.on(device, "print", answer=lambda message: b"printed " + message.payload)
    link = await device.connect("sim://hub")
    announcer = await Announcer.on(
        device, [link, "discovery"], "printer", "print", {"paper": b"A4"}
    )
    await announcer.until_announced()
    await sleep(25)
    assert announcer.announced == 3
    # The way to the device is a link of the hub, which it exposes to nobody here.
    found = await DiscoveryClient(hub, "discovery").get("printer")
    assert found is not None
    assert found.metadata == {"paper": b"A4"}
    assert (await hub.request(found.route, b"page")).payload == b"printed page"
    assert announcer.passed == 1

    other = await phone.connect("sim://hub")
    client = DiscoveryClient(phone, [other, "discovery"])
    (listed,) = await client.list()
    assert listed.route == (other, *found.route)
    assert await client.get("nothing") is None

    with pytest.raises(RequestTimeout):
        await phone.request(listed.route, b"page", timeout=5)

    await device.stop_worker(announcer.address)
    await sleep(1)
    assert service.services == {}
    assert await client.list() == ()


async def test_a_service_is_used_through_the_discovery_node(network: SimulatedNetwork) -> None:
    hub, device, phone = [await network.node(name) for name in ("hub", "device", "phone")]
    listener = await hub.listen("sim://hub", expose=["discovery"])
    service = DiscoveryService(expose_at=[listener.address])
    await hub.start(lambda: service, address="discovery")
    await Probe.on(device, "print", answer=lambda message: b"printed " + message.payload)
    link = await device.connect("sim://hub")
    announcers = [
        await Announcer.on(device, [link, "discovery"], name, "print") for name in ("a", "b")
    ]
    for announcer in announcers:
        await announcer.until_announced()
    client = DiscoveryClient(phone, [await phone.connect("sim://hub"), "discovery"])
    for each in await client.list():
        assert (await phone.request(each.route, b"page")).payload == b"printed page"
    found = await client.get("b")
    assert found is not None
    await device.stop_worker(announcers[0].address)
    assert (await phone.request(found.route, b"page")).payload == b"printed page"
    await device.stop_worker(announcers[1].address)
    await sleep(1)
    before = device.dead_letters.total
    with pytest.raises(RequestTimeout):
        await phone.request(found.route, b"page", timeout=5)
    # The hub has passed on to the device before, whose business it is.
    assert device.dead_letters.total == before + 1
    assert "not exposed" not in hub.dead_letters.by_reason


async def test_no_more_links_are_exposed_than_may_be() -> None:
    async with Node(limits=NodeLimits(exposed=1)) as node:
        listener = await node.listen("memory://discovery-limits")
        service = DiscoveryService(expose_at=[listener.address])
        await node.start(lambda: service, address="discovery")
        for name, status in (("one", ResponseStatus.OK), ("two", ResponseStatus.CONFLICT)):
            probe = await Probe.on(node, name)
            probe.send("discovery", encode_request(ApiRequest(1, name, Method.PUT)))
            assert decode_response((await probe.next()).payload).status is status
        # An announcement by the mailbox of a request is of no use, and of no harm.
        assert (await ask(node, Method.PUT, "three")).status is ResponseStatus.OK
        assert (list(service.services), service.refused) == (["one", "three"], 1)


async def test_what_cannot_be_exposed_everywhere_is_exposed_nowhere() -> None:
    async with Node(limits=NodeLimits(exposed=1)) as node:
        one, two = [await node.listen(f"memory://discovery-{name}") for name in ("one", "two")]
        service = DiscoveryService(expose_at=[one.address, two.address])
        await node.start(lambda: service, address="discovery")
        probe = await Probe.on(node, "worker")
        announcement = encode_request(ApiRequest(1, "name", Method.PUT))
        node.expose(two.address, "discovery")  # no room for more
        probe.send("discovery", announcement)
        assert decode_response((await probe.next()).payload).status is ResponseStatus.CONFLICT
        node.expose(one.address, "discovery")  # so there is room for it here
        node.hide(one.address, "discovery")
        node.hide(two.address, "discovery")
        probe.send("discovery", announcement)
        assert decode_response((await probe.next()).payload).status is ResponseStatus.OK
        # What is exposed for one name stays exposed when another cannot be.
        await two.close()
        probe.send("discovery", announcement)
        assert decode_response((await probe.next()).payload).status is ResponseStatus.OK
        assert list(service.services) == ["name"]


@pytest.mark.parametrize("takeover", [False, True])
async def test_whose_a_name_is(takeover: bool, network: SimulatedNetwork) -> None:
    hub, first, second = [await network.node(name) for name in ("hub", "first", "second")]
    service = await served(hub, DiscoveryOptions(takeover=takeover))
    await hub.listen("sim://hub", expose=["discovery"])

    def route_known() -> Route:
        return service.services["printer"].route

    # Another worker of the same node, by the same link, is the same owner.
    link = await first.connect("sim://hub")
    for name in ("old", "new"):
        announcer = await Announcer.on(first, [link, "discovery"], "printer", "print", address=name)
        await announcer.until_announced()
    before = route_known()
    assert before[-1] == Address(0, b"new")

    link = await second.connect("sim://hub")
    other = await Announcer.on(second, [link, "discovery"], "printer", "print", address="thief")
    await sleep(1)
    assert (route_known() == before) is not takeover
    assert (other.failed, service.refused) == ((0, 0) if takeover else (1, 1))

    # When the link of who has it has stopped, the name is free.
    await network.crash("first")
    await sleep(12)
    assert route_known()[-1] == Address(0, b"thief")
    assert other.announced


async def test_what_is_not_announced_again_is_forgotten(node: Node) -> None:
    service = await served(node, DiscoveryOptions(max_services=2, max_listed=1))
    client = DiscoveryClient(node, "discovery")
    for name in ("a", "b", "a"):
        assert (await ask(node, Method.PUT, name)).status is ResponseStatus.OK
        await sleep(10)
    assert (await ask(node, Method.PUT, "c")).status is ResponseStatus.CONFLICT
    assert [each.name for each in await client.list()] == ["b"]
    await sleep(15)
    assert [each.name for each in await client.list()] == ["a"]
    await sleep(30)
    assert await client.list() == ()
    assert service.expired == 2


async def test_what_cannot_be_done(node: Node) -> None:
    service = await served(node)
    assert (await ask(node, Method.POST, "a")).status is ResponseStatus.METHOD_NOT_ALLOWED
    assert (await ask(node, Method.PUT, "")).status is ResponseStatus.BAD_REQUEST
    assert (await ask(node, Method.PUT, "a", b"\xff")).status is ResponseStatus.BAD_REQUEST
    assert (await ask(node, Method.DELETE, "a")).status is ResponseStatus.NOT_FOUND
    payload = encode_request(ApiRequest(1, "a", Method.PUT))
    node.send("discovery", payload, return_route="other => end")
    assert (await ask(node, Method.DELETE, "a")).status is ResponseStatus.FORBIDDEN
    with pytest.raises(NotDelivered, match="a header"):
        await node.request("discovery", b"")
    assert list(service.services) == ["a"]


async def test_answers_that_the_client_does_not_take(node: Node) -> None:
    status, number = ResponseStatus.FORBIDDEN, 0

    def answer(message: Message) -> bytes:
        to = decode_request(message.payload).number + number
        return encode_response(ApiResponse(1, to, status))

    await Probe.on(node, "discovery", answer=answer)
    client = DiscoveryClient(node, "discovery")
    with pytest.raises(RequestRefused, match="403 forbidden") as caught:
        await client.list()
    assert caught.value.status is ResponseStatus.FORBIDDEN
    with pytest.raises(RequestRefused):
        await client.get("a")
    number = 1
    with pytest.raises(ServiceError, match="an answer to request 4, not 3"):
        await client.list()


async def test_an_announcer_counts_and_hands_on_what_is_no_answer(node: Node) -> None:
    probe = await Probe.on(node, "service")
    announcer = await Announcer.on(
        node, "discovery", "a", ["service"], address="announcer", refresh=5
    )
    assert announcer.failed == 1  # there is no discovery yet
    with pytest.raises(TimeoutError):
        await announcer.until_announced(1)
    no = DiscoveryOptions(max_services=1)
    await served(node, no)
    assert (await ask(node, Method.PUT, "other")).status is ResponseStatus.OK
    await sleep(5)
    assert (announcer.announced, announcer.failed) == (0, 2)
    node.send("announcer => further", b"1", return_route="discovery")
    node.send("announcer", b"2")
    late = encode_response(ApiResponse(1, 99, ResponseStatus.OK))
    node.send("announcer", late, return_route="discovery")
    assert [each.payload for each in await probe.count(3)] == [b"1", b"2", late]
    assert probe.messages[0].onward_route == route("service => further")
    await node.stop_worker("service")
    node.send("announcer", b"3")
    await sleep(0.1)
    assert (announcer.passed, node.dead_letters.by_reason["no such worker"]) == (3, 1)
