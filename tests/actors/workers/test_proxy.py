from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.testing import Probe
from onward.actors.workers import Echo, Forwarder, Proxy
from onward.protocol import UnknownAddress, address, route


async def test_the_route_is_put_in_front_and_the_answer_comes_from_the_proxy(node: Node) -> None:
    await node.start(Forwarder, address="forwarder")
    await node.start(lambda: Proxy("forwarder => service"), address=["proxy", "inner"])
    service = await Probe.on(node, "service")
    client = await Probe.on(node, "client")
    client.send("proxy", b"question")
    question = await service.next()
    assert question.onward_route == route("service")
    assert question.return_route == route("forwarder => inner => client")
    service.reply(question, b"answer")
    answer = await client.next()
    assert (answer.onward_route, answer.return_route) == (route("client"), route("proxy"))


async def test_what_is_left_of_the_onward_route_comes_behind_it(node: Node) -> None:
    await node.start(Forwarder, address="forwarder")
    await node.start(Echo, address="echo")
    await node.start(lambda: Proxy("forwarder"), address="proxy")
    client = await Probe.on(node, "client")
    client.send("proxy => echo", b"hi")
    answer = await client.next()
    assert answer.return_route == route("proxy => echo")
    client.send(answer.return_route, b"again")
    assert (await client.next()).payload == b"again"


async def test_an_answer_by_another_way_keeps_it(node: Node) -> None:
    # As a rule or a transport does: what is left on the return route is another address.
    node.add_rule(200, lambda message: message.redirect(address("forwarder")))
    await node.start(Forwarder, address="forwarder")
    await node.start(Echo, address="echo")
    await node.start(lambda: Proxy("200#x"), address=["proxy", "inner"])
    client = await Probe.on(node, "client")
    client.send("proxy => echo", b"hi")
    answer = await client.next()
    assert answer.return_route == route("inner => forwarder => echo")
    client.send(answer.return_route, b"again")
    assert (await client.next()).return_route == route("inner => forwarder => echo")


async def test_proxies_of_proxies(node: Node) -> None:
    await node.start(Echo, address="echo")
    await node.start(lambda: Proxy("echo"), address="proxy-1")
    await node.start(lambda: Proxy("proxy-1"), address="proxy-2")
    client = await Probe.on(node, "client")
    client.send("proxy-2", b"hi")
    assert (await client.next()).return_route == route("proxy-2")


async def test_a_transparent_proxy_leaves_no_trace(node: Node) -> None:
    await node.start(lambda: Proxy("service", transparent=True), address="proxy")
    service = await Probe.on(node, "service")
    node.send("proxy => rest", b"hi", return_route="client")
    message = await service.next()
    assert message.onward_route == route("service => rest")
    assert message.return_route == route("client")


async def test_what_it_cannot_pass_on_is_no_failure(node: Node) -> None:
    await node.start(lambda: Proxy("nobody"), address=["proxy", "inner"])
    with pytest.raises(UnknownAddress):
        await node.request("proxy", b"")
    node.send("inner => gone", b"", return_route="nobody => x")
    node.send("inner => gone", b"", return_route="y")
    node.send("inner", b"", return_route="nobody")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"no such worker": 3, "empty route": 1}
    assert node.statistics().failed == 0


def test_a_proxy_needs_a_route() -> None:
    with pytest.raises(ValueError, match="needs a route"):
        Proxy("")
