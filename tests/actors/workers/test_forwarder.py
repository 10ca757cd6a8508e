from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.testing import Probe
from onward.actors.workers import Echo, Forwarder
from onward.protocol import EmptyRoute, UnknownAddress, route


async def test_it_is_on_the_way_there_and_on_the_way_back(node: Node) -> None:
    await node.start(Forwarder, address="forwarder")
    await node.start(Echo, address="echo")
    probe = await Probe.on(node, "probe")
    probe.send("forwarder => echo", b"hi")
    answer = await probe.next()
    assert (answer.onward_route, answer.return_route) == (
        route("probe"),
        route("forwarder => echo"),
    )


async def test_it_may_leave_another_address(node: Node) -> None:
    await node.start(lambda: Forwarder("back"), address=["there", "back"])
    probe = await Probe.on(node, "probe")
    node.send("there => probe", b"hi", return_route="me")
    assert (await probe.next()).return_route == route("back => me")


async def test_what_it_cannot_pass_on_is_no_failure(node: Node) -> None:
    await node.start(Forwarder, address="forwarder")
    with pytest.raises(UnknownAddress):
        await node.request("forwarder => nobody", b"")
    with pytest.raises(EmptyRoute):
        await node.request("forwarder", b"")
    # As long as it gets when two forwarders point at each other.
    node.send("forwarder => forwarder", b"", return_route=["a"] * 64)
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {
        "no such worker": 1,
        "empty route": 1,
        "route too long": 1,
    }
    assert node.statistics().failed == 0
