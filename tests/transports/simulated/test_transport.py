from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from onward.actors import NodeLimits, Worker
from onward.actors.testing import Probe
from onward.protocol import Address, LinkDown, Message, NodeStopped, UnreadableAddress, route
from onward.transports.simulated import (
    SIMULATED,
    Faults,
    SimulatedNetwork,
    SimulatedTransport,
    SimulationOptions,
)
from tests.transports.simulated.stage import kinds, simulated


@simulated()
async def test_uris_and_options(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    for wrong in ("sim://", "sim://a/b", "sim://a?b=c", "sim:/a", "sim://a#b"):
        with pytest.raises((ValueError, KeyError)):
            await a.listen(wrong)
    with pytest.raises(TypeError, match="no such option: colour"):
        await a.listen("sim://a", colour="red")
    with pytest.raises(TypeError, match="no such option: colour"):
        await a.connect("sim://a", colour="red")
    wrong_faults: Any = "many"
    with pytest.raises(TypeError, match="'many' are no Faults"):
        await a.connect("sim://a", faults=wrong_faults)


@simulated(faults=Faults(latency=(0.5, 0.5)))
async def test_an_address_opens_a_link_once_and_keeps_what_is_sent_meanwhile(
    network: SimulatedNetwork,
) -> None:
    a, b = await network.node("a"), await network.node("b")
    near, far = await Probe.on(a, "near"), await Probe.on(b, "far")
    await b.listen("sim://b", expose=["far"])
    assert SIMULATED == 240
    for payload in (b"1", b"2", b"3"):
        near.send("240#b => far", payload)
    assert [each.payload for each in await far.count(3)] == [b"1", b"2", b"3"]
    assert kinds(network).count("connected") == 1
    far.reply(far.messages[0], b"back")
    answer = await near.next()
    assert answer.onward_route == route("near")
    # The link stays. When it goes, the next message opens another.
    await a.stop_worker(answer.return_route[0])
    near.send("240#b => far", b"4")
    await far.count(4)
    assert kinds(network).count("connected") == 2


@simulated()
async def test_an_address_where_nobody_is(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    with pytest.raises(LinkDown, match="there is no listener"):
        await a.request("240#b => far", b"")
    with pytest.raises(UnreadableAddress, match="not a host name"):
        a.send([Address(SIMULATED, b"\xff"), "far"], b"")


@simulated(options=SimulationOptions(max_links=2))
async def test_links_are_bounded(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    links = [await a.connect("sim://b") for _ in range(2)]
    with pytest.raises(LinkDown, match="2 links already"):
        await a.connect("sim://b")
    await a.stop_worker(links[0])
    await a.connect("sim://b")


@simulated(options=SimulationOptions(max_links=2))
async def test_links_to_one_node_are_bounded(network: SimulatedNetwork) -> None:
    b = await network.node("b")
    await b.listen("sim://b")
    nodes = [await network.node(f"a{number}") for number in range(3)]
    for node in nodes[:2]:
        await node.connect("sim://b")
    with pytest.raises(LinkDown, match="the limit of 2 max_links is reached"):
        await nodes[2].connect("sim://b")
    assert len(b.parts.table.targets) == 3


@simulated()
async def test_a_node_that_has_no_room_for_a_link(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b", limits=NodeLimits(addresses=1))
    await b.listen("sim://b")
    with pytest.raises(LinkDown, match="the limit of 1 for addresses is reached"):
        await a.connect("sim://b")
    assert not a.parts.table.targets


@simulated()
async def test_links_that_are_over_are_forgotten(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    transport = a.parts.transports.for_uri("sim://")
    assert isinstance(transport, SimulatedTransport)
    for number in range(5):
        listener = await b.listen(f"sim://b{number}")
        a.send(f"240#b{number} => far", b"")
        await asyncio.sleep(1)
        await listener.close()
        await asyncio.sleep(1)
    assert len(transport._resolved) == 1
    assert not transport._place.links


@simulated()
async def test_a_node_that_stops_while_it_listens_or_connects(network: SimulatedNetwork) -> None:
    b = await network.node("b")
    await b.listen("sim://b")
    for method in ("listen", "connect"):
        for ticks in range(12):
            a = await network.node("a")
            uri = "sim://a" if method == "listen" else "sim://b"
            work = asyncio.create_task(getattr(a, method)(uri))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await a.stop()
            with suppress(NodeStopped, LinkDown):
                await work
            assert not a.parts.table.targets
            assert "a" not in network.hosts
            await asyncio.sleep(10)
            assert len(b.parts.table.targets) == 1


@simulated()
async def test_a_transport_that_is_stopped_by_itself(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    await a.connect("sim://b")
    await b.listen("sim://b2")
    await b.parts.transports.for_uri("sim://").stop()
    await a.parts.transports.for_uri("sim://").stop()
    await asyncio.sleep(1)
    assert not a.parts.table.targets
    assert not b.parts.table.targets


@simulated()
async def test_listening_that_is_given_up_leaves_nothing(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    for ticks in range(6):
        work = asyncio.create_task(a.listen("sim://a"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if not work.cancel():
            await (await work).close()
        await asyncio.wait([work])
        await asyncio.sleep(1)
        assert not a.parts.table.targets
        assert not network.hosts


@simulated()
async def test_connecting_that_is_given_up_leaves_nothing(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    for cut in (False, True):
        if cut:
            network.partition({"a"}, {"b"})
        work = asyncio.create_task(a.connect("sim://b"))
        await asyncio.sleep(0.5 if cut else 0.0005)
        began = a.loop.time()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert a.loop.time() - began < 0.1
        await asyncio.sleep(5)
        assert not a.parts.table.targets
        assert len(b.parts.table.targets) == 1


class Late(Worker):
    """Sends something when it stops."""

    refused = False

    def handle_message(self, message: Message) -> None:
        """Take nothing."""

    def on_stop(self) -> None:
        try:
            self.send("240#b => far", b"too late")
        except NodeStopped:
            self.refused = True


@simulated()
async def test_what_is_sent_while_a_node_stops_makes_no_link(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    late = Late()
    await a.start(lambda: late)
    place = network.place(a)
    await a.stop()
    assert late.refused
    assert not place.links


@simulated()
async def test_a_node_that_has_stopped_connects_to_nobody(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    await a.listen("sim://a")
    place, transport = network.place(a), SimulatedTransport(a)
    await a.stop()
    with pytest.raises(NodeStopped):
        await transport.connect("sim://a")
    assert not place.links
