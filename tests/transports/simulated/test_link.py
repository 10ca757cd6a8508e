from __future__ import annotations

import asyncio

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.testing import Probe
from onward.protocol import EmptyRoute, LinkDown, Message
from onward.transports.simulated import Faults, SimulatedNetwork, SimulationOptions, Traffic
from tests.transports.simulated.stage import simulated, two_nodes


class Stuck(Probe):
    """Handles no message until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def handle_message(self, message: Message) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        await self.go_on.wait()
        super().handle_message(message)

    @classmethod
    async def at(cls, node: Node) -> Stuck:
        stuck = cls()
        await node.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=10))
        return stuck


@simulated()
async def test_a_message_for_the_link_itself(network: SimulatedNetwork) -> None:
    a, _, link, _, _ = await two_nodes(network)
    with pytest.raises(EmptyRoute):
        await a.request(link, b"")


@simulated(options=SimulationOptions(window=20))
async def test_a_stuck_reader_holds_the_sender_up_and_nothing_is_lost(
    network: SimulatedNetwork,
) -> None:
    a, b, _, near, _ = await two_nodes(network)
    stuck = await Stuck.at(b)
    await b.listen("sim://stuck", expose=["stuck"])
    link = await a.connect("sim://stuck")
    for number in range(200):
        near.send([link, "stuck"], b"%d" % number)
    await asyncio.sleep(1)
    # In the window, in the mailbox and in hand: no more has left.
    sent = network.traffic("a", "b").sent
    assert sent < 200 / 2
    await asyncio.sleep(1)
    assert network.traffic("a", "b").sent == sent
    stuck.go_on.set()
    assert [int(each.payload) for each in await stuck.count(200, timeout=60)] == list(range(200))
    assert not b.dead_letters.total


@simulated(options=SimulationOptions(window=20))
async def test_a_close_waits_for_what_has_arrived(network: SimulatedNetwork) -> None:
    a, b, _, near, _ = await two_nodes(network)
    stuck = await Stuck.at(b)
    await b.listen("sim://stuck", expose=["stuck"])
    link = await a.connect("sim://stuck")
    for number in range(18):
        near.send([link, "stuck"], b"%d" % number)
    await asyncio.sleep(1)
    await a.stop_worker(link)
    await asyncio.sleep(1)
    stuck.go_on.set()
    await stuck.count(18, timeout=60)
    await asyncio.sleep(1)
    assert (
        len(b.parts.table.targets) == 5
    )  # the probe, the stuck one, two listeners, the other link
    assert a.dead_letters.total == b.dead_letters.total == 0


@simulated()
async def test_a_link_that_ends_with_a_full_inbox(network: SimulatedNetwork) -> None:
    a, b, _, near, _ = await two_nodes(network)
    await Stuck.at(b)
    listener = await b.listen("sim://stuck", expose=["stuck"])
    link = await a.connect("sim://stuck")
    for number in range(18):
        near.send([link, "stuck"], b"%d" % number)
    await asyncio.sleep(1)
    await listener.close()
    # One in hand, ten in the mailbox; the others had come, and found no room.
    assert b.dead_letters.by_reason == {"mailbox full": 7}
    await asyncio.sleep(1)
    assert not a.has(link)


@simulated(faults=Faults(latency=(0.1, 0.1)))
async def test_what_comes_too_late_for_a_link_is_gone(network: SimulatedNetwork) -> None:
    a, _, link, near, far = await two_nodes(network)
    near.send([link, "far"], b"first")
    first = await far.next()
    await a.stop_worker(link)
    far.reply(first, b"too late")
    await asyncio.sleep(1)
    assert network.traffic("b", "a") == Traffic(sent=1, gone=1)


@simulated(options=SimulationOptions(window=1))
async def test_a_sender_that_waits_for_room_when_the_link_ends(network: SimulatedNetwork) -> None:
    a, b, _, near, _ = await two_nodes(network)
    await Stuck.at(b)
    listener = await b.listen("sim://stuck", expose=["stuck"])
    link = await a.connect("sim://stuck")
    for number in range(20):
        near.send([link, "stuck"], b"%d" % number)
    await asyncio.sleep(1)
    await listener.close()
    await asyncio.sleep(1)
    assert not a.has(link)
    assert a.dead_letters.total == 20 - network.traffic("a", "b").sent


@simulated()
async def test_what_is_sent_through_a_link_that_is_over(network: SimulatedNetwork) -> None:
    # The end of the other side is learned of while messages wait for this one.
    a, _, link, near, _ = await two_nodes(network)
    await network.crash("b")
    network.clockwork.at(
        asyncio.get_running_loop().time() + 3 - 1e-9, near.send, [link, "far"], b"before"
    )
    network.clockwork.at(asyncio.get_running_loop().time() + 3, near.send, [link, "far"], b"behind")
    await asyncio.sleep(4)
    assert not a.has(link)
    assert a.dead_letters.total == 1


@simulated(faults=Faults(latency=(1, 1)))
async def test_connecting_to_a_listener_that_closes_meanwhile(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    for wait, why in ((0.5, "there is no listener"), (1.5, "the other end closed it")):
        listener = await b.listen("sim://b")
        connecting = asyncio.create_task(a.connect("sim://b"))
        await asyncio.sleep(wait)
        await listener.close()
        with pytest.raises(LinkDown, match=why):
            await connecting
        await asyncio.sleep(10)
        assert not a.parts.table.targets
        assert not b.parts.table.targets


@simulated(faults=Faults(latency=(1, 1)))
async def test_connecting_that_is_given_up(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    for wait in (0.5, 1.5):
        a.send("240#b => far", b"")
        (link,) = a.parts.table.targets
        await asyncio.sleep(wait)
        await a.stop_worker(link, timeout=0.1)
        await asyncio.sleep(10)
        assert not a.parts.table.targets
        assert len(b.parts.table.targets) == 1
