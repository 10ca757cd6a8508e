from __future__ import annotations

import asyncio
from collections import Counter
from typing import TypeAlias

import pytest

from onward.actors import LimitReached, MailboxOptions, Node, Worker
from onward.actors.testing import Probe, virtual_time
from onward.protocol import DeliveryError, LinkDown, LinkLost, Message, NodeStopped, UnknownAddress
from onward.transports.simulated import (
    Event,
    Faults,
    SimulatedNetwork,
    SimulationOptions,
    Traffic,
    simulate,
)
from tests.support.counts import times
from tests.transports.simulated.stage import Relay, kinds, simulated, two_nodes

# --- nodes ------------------------------------------------------------------------------


@simulated(options=SimulationOptions(nodes=2))
async def test_names_are_unique_and_bounded(network: SimulatedNetwork) -> None:
    a = await network.node("a")
    with pytest.raises(ValueError, match="the network has a node 'a'"):
        await network.node("a")
    await network.node("b")
    with pytest.raises(LimitReached, match="the limit of 2 nodes"):
        await network.node("c")
    await a.stop()
    assert await network.node("a") is not a
    assert list(network.nodes) == ["a", "b"]


@simulated()
async def test_a_node_made_elsewhere_joins_in(network: SimulatedNetwork) -> None:
    b = await network.node("b")
    far = await Probe.on(b, "far")
    await b.listen("sim://b", expose=["far"])
    async with Node("guest") as guest:
        guest.send([await guest.connect("sim://b"), "far"], b"hi")
        assert (await far.next()).payload == b"hi"
        assert network.traffic("guest", "b").arrived == 1
    async with Node("b") as twin:
        with pytest.raises(ValueError, match="the network has a node 'b'"):
            await twin.connect("sim://b")
    with pytest.raises(KeyError):
        await network.restart("guest")


@virtual_time
async def test_one_network_for_each_loop() -> None:
    async with SimulatedNetwork(1):
        with pytest.raises(RuntimeError, match="has a simulated network already"):
            SimulatedNetwork(2)
    async with SimulatedNetwork(3) as network:
        assert network.seed == 3


@virtual_time
async def test_without_a_network_one_is_made() -> None:
    async with Node("a") as a, Node("b") as b:
        far = await Probe.on(b, "far")
        await b.listen("sim://b", expose=["far"])
        a.send([await a.connect("sim://b"), "far"], b"hi")
        await far.next()


def test_random_addresses_are_from_the_seed_and_never_the_same() -> None:
    async def scenario(network: SimulatedNetwork) -> list[str]:
        made: list[str] = []
        for name in ("a", "b"):
            node = await network.node(name)
            made += [str(node.random_address()) for _ in range(3)]
            await node.stop()
            node = await network.restart(name)
            made += [str(node.random_address()) for _ in range(3)]
        return made

    first = simulate(scenario, seed=1)
    assert first == simulate(scenario, seed=1)
    assert len({*first, *simulate(scenario, seed=2)}) == 24
    assert all(len(each) == len("0#") + 32 for each in first)


# --- crashes ----------------------------------------------------------------------------


@simulated(faults=Faults(latency=(0.1, 0.1)), options=SimulationOptions(detection=2))
async def test_a_crash_tells_nobody_and_loses_what_is_on_the_way(network: SimulatedNetwork) -> None:
    a, b, link, near, far = await two_nodes(network)
    near.send([link, "far"], b"first")
    first = await far.next()
    far.reply(first, b"on the way back")
    near.send([link, "far"], b"on the way")
    await asyncio.sleep(0.05)
    await network.crash("b")
    assert b.dead_letters.total == 0
    await asyncio.sleep(1)
    assert network.traffic() == Traffic(sent=3, arrived=1, gone=2)
    assert near.payloads == []
    near.send([link, "far"], b"into the void")
    await asyncio.sleep(0.5)
    assert a.has(link)
    assert network.traffic("a", "b").gone == 2
    asked = asyncio.create_task(a.request([link, "far"], b"?", timeout=60))
    await asyncio.sleep(0.4)
    assert a.has(link)
    with pytest.raises(LinkLost, match="the other end is silent"):
        await asked
    await asyncio.sleep(0.001)
    assert not a.has(link)
    assert kinds(network)[-1] == "detected"
    with pytest.raises(UnknownAddress):
        near.send([link, "far"], b"")
    with pytest.raises(LinkDown, match="there is no listener"):
        await a.connect("sim://b")
    await network.crash("b")  # again is nothing


@simulated()
async def test_a_crash_loses_what_is_in_mailboxes(network: SimulatedNetwork) -> None:
    handled: list[bytes] = []

    class Slow(Worker):
        async def handle_message(self, message: Message) -> None:
            handled.append(message.payload)
            await asyncio.sleep(1)
            self.reply(message, b"done")

        def on_stop(self) -> None:
            handled.append(b"stopped")

    a, b, _, near, _ = await two_nodes(network)
    await b.start(Slow, address="far-slow")
    await b.listen("sim://slow", expose=["far-slow"])
    to_slow = await a.connect("sim://slow")
    for number in range(5):
        near.send([to_slow, "far-slow"], b"%d" % number)
    await asyncio.sleep(1.5)
    await network.crash("b")
    await asyncio.sleep(60)
    assert handled == [b"0", b"1"]
    assert near.payloads == [b"done"]


@simulated()
async def test_a_node_that_starts_again_knows_nothing(network: SimulatedNetwork) -> None:
    a, b, link, near, _ = await two_nodes(network)
    await network.crash("b")
    with pytest.raises(NodeStopped):
        b.send("far", b"")
    again = await network.restart("b")
    assert again is not b
    assert not again.parts.table.targets
    far = await Probe.on(again, "far")
    await again.listen("sim://b", expose=["far"])
    near.send([link, "far"], b"to the old one")
    near.send([await a.connect("sim://b"), "far"], b"to the new one")
    assert (await far.next()).payload == b"to the new one"
    await asyncio.sleep(10)
    assert far.payloads == [b"to the new one"]
    with pytest.raises(ValueError, match="has a node"):
        await network.restart("b")


@simulated()
async def test_a_restart_has_the_options_of_the_start(network: SimulatedNetwork) -> None:
    clock = lambda: 7.0  # noqa: E731
    await network.node("a", clock=clock)
    await network.crash("a")
    again = await network.restart("a")
    assert again.dead_letters.clock is clock


@simulated(faults=Faults(latency=(1, 1)))
async def test_a_crash_of_the_one_who_connects(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    for wait in (0.5, 1.5):
        connecting = asyncio.create_task(a.connect("sim://b"))
        await asyncio.sleep(wait)
        await network.crash("a")
        with pytest.raises(NodeStopped):
            await connecting
        a = await network.restart("a")
        await asyncio.sleep(10)
        assert len(b.parts.table.targets) == 1  # the listener


@simulated(faults=Faults(latency=(1, 1)))
async def test_a_crash_of_the_one_connected_to(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    for wait in (0.5, 1.5):
        await b.listen("sim://b")
        connecting = asyncio.create_task(a.connect("sim://b"))
        await asyncio.sleep(wait)
        await network.crash("b")
        with pytest.raises(LinkDown):
            await connecting
        await asyncio.sleep(10)
        assert not a.parts.table.targets
        b = await network.restart("b")


# --- partitions -------------------------------------------------------------------------


@simulated(faults=Faults(latency=(0.1, 0.1)))
async def test_a_partition_loses_what_is_on_the_way_and_keeps_links(
    network: SimulatedNetwork,
) -> None:
    _, _, link, near, far = await two_nodes(network)
    near.send([link, "far"], b"on the way")
    await asyncio.sleep(0.05)
    network.partition({"a"}, {"b"})
    near.send([link, "far"], b"into the cut")
    await asyncio.sleep(10)
    assert network.traffic() == Traffic(sent=2, cut=2)
    network.heal()
    near.send([link, "far"], b"after")
    assert (await far.next()).payload == b"after"
    assert kinds(network) == [
        *("connected", "sent", "partition", "sent", "cut", "cut", "heal", "sent", "arrived")
    ]


@simulated()
async def test_a_partition_in_one_direction(network: SimulatedNetwork) -> None:
    _, _, link, near, far = await two_nodes(network)
    network.partition({"b"}, {"a"}, both=False)
    near.send([link, "far"], b"heard")
    far.reply(await far.next(), b"not heard")
    await asyncio.sleep(1)
    assert near.payloads == []
    assert network.traffic("b", "a") == Traffic(sent=1, cut=1)


@simulated()
async def test_connecting_through_a_partition(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    loop = asyncio.get_running_loop()
    network.partition({"a"}, {"b"})
    began = loop.time()
    with pytest.raises(LinkDown, match="no answer in 5 s"):
        await a.connect("sim://b")
    assert loop.time() == began + 5
    assert not a.parts.table.targets
    connecting = asyncio.create_task(a.connect("sim://b"))
    await asyncio.sleep(2.5)
    network.heal()
    assert a.has(await connecting)
    assert loop.time() == pytest.approx(began + 5 + 3 + 0.002)


@simulated()
async def test_closing_a_link_through_a_partition(network: SimulatedNetwork) -> None:
    a, b, link, _, _ = await two_nodes(network)
    network.partition({"a"}, {"b"})
    await a.stop_worker(link)
    await asyncio.sleep(2.9)
    assert len(b.parts.table.targets) == 3
    await asyncio.sleep(0.2)
    assert len(b.parts.table.targets) == 2


HALF_A_SECOND = Faults(latency=(0.5, 0.5))


async def _connecting(network: SimulatedNetwork, cut_at: float, *, back: bool) -> Node:
    """Have `a` connect to `b`, with a partition from a time after that."""
    a, b = await network.node("a"), await network.node("b")
    await b.listen("sim://b")
    network.clockwork.at(
        network.clockwork.loop.time() + cut_at,
        lambda: network.partition({"ba"[not back]}, {"ab"[not back]}, both=False),
    )
    return a


@pytest.mark.parametrize(("cut_at", "back"), [(0.25, False), (0.75, True)])
def test_connecting_when_a_partition_begins(cut_at: float, back: bool) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        a = await _connecting(network, cut_at, back=back)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(LinkDown, match="no answer in 5 s"):
            await a.connect("sim://b")
        assert loop.time() == began + 5
        await asyncio.sleep(3)
        assert not a.parts.table.targets
        assert (
            len(network.nodes["b"].parts.table.targets) == 1
        )  # the listener: no end of a link is left
        assert kinds(network)[:2] == ["partition", "refused"]

    simulate(scenario, faults=HALF_A_SECOND)


@pytest.mark.parametrize(("cut_at", "back"), [(0.25, False), (0.75, True)])
def test_connecting_when_a_partition_begins_and_ends(cut_at: float, back: bool) -> None:
    async def scenario(network: SimulatedNetwork) -> None:
        a = await _connecting(network, cut_at, back=back)
        loop = asyncio.get_running_loop()
        network.clockwork.at(loop.time() + 3, network.heal)
        near = await Probe.on(a, "near")
        link = await a.connect("sim://b")
        assert 3 < loop.time() - 1000 < 6
        assert kinds(network) == ["partition", "heal", "connected"]
        assert len(network.nodes["b"].parts.table.targets) == 2
        near.send([link, "nobody"], b"")
        await asyncio.sleep(1)
        assert network.nodes["b"].dead_letters.total == 1

    simulate(scenario, faults=HALF_A_SECOND)


@simulated(faults=HALF_A_SECOND)
async def test_a_notice_of_a_close_is_lost_too(network: SimulatedNetwork) -> None:
    a, b, link, _, _ = await two_nodes(network)
    await a.stop_worker(link)
    network.partition({"a"}, {"b"})
    await asyncio.sleep(2.9)
    assert len(b.parts.table.targets) == 3
    await asyncio.sleep(0.2)
    assert len(b.parts.table.targets) == 2


@simulated(faults=Faults(latency=(5, 5)))
async def test_a_notice_that_is_late_and_of_a_node_that_crashed(network: SimulatedNetwork) -> None:
    a, b, link, _, _ = await two_nodes(network)
    await a.stop_worker(link)
    await network.crash("a")
    await asyncio.sleep(4.9)
    assert len(b.parts.table.targets) == 3
    await asyncio.sleep(0.2)
    assert len(b.parts.table.targets) == 2
    assert kinds(network)[-1] == "detected"


@simulated(options=SimulationOptions(nodes=3))
async def test_names_of_nodes_that_there_are_not(network: SimulatedNetwork) -> None:
    with pytest.raises(ValueError, match="no node 'a', and none is announced: it has none"):
        network.partition({"a"}, set())
    await two_nodes(network)
    with pytest.raises(ValueError, match="no node 'B', 'C', and none is announced: it has a, b"):
        network.partition({"a", "C"}, {"B"})
    with pytest.raises(ValueError, match="no node 'B'"):
        network.set_faults("a", "B", Faults())
    network.announce("later", "a")
    network.partition({"a"}, {"later"})
    network.set_faults("later", "a", Faults())
    with pytest.raises(LimitReached, match="the limit of 3 nodes"):
        network.announce("last")
    later = await network.node("later")
    await later.listen("sim://later")
    with pytest.raises(LinkDown, match="no answer in 5 s"):
        await network.nodes["a"].connect("sim://later")


@simulated()
async def test_nobody_is_on_both_sides(network: SimulatedNetwork) -> None:
    network.announce("a", "b", "c")
    with pytest.raises(ValueError, match="on both sides of a partition: b, c"):
        network.partition({"a", "b", "c"}, {"c", "b"})


# --- faults -----------------------------------------------------------------------------


@simulated()
async def test_faults_of_one_way_and_of_all(network: SimulatedNetwork) -> None:
    _, _, link, near, far = await two_nodes(network)
    network.set_faults("a", "b", Faults(loss=1), both=False)
    near.send([link, "far"], b"lost")
    await asyncio.sleep(1)
    network.set_all_faults(Faults())
    near.send([link, "far"], b"not lost")
    assert (await far.next()).payload == b"not lost"
    network.set_faults("a", "b", Faults(loss=1))
    far.reply(far.messages[0], b"lost")
    await asyncio.sleep(1)
    assert network.traffic("b", "a") == Traffic(sent=1, lost=1)
    assert kinds(network).count("faults") == 4


SLOW = Faults(latency=(1, 1))
LOSSY = Faults(loss=1)


@simulated()
async def test_faults_of_one_link(network: SimulatedNetwork) -> None:
    a, _, usual, _, far = await two_nodes(network)
    loop = asyncio.get_running_loop()
    began = loop.time()
    slow = await a.connect("sim://b", faults=SLOW)
    assert loop.time() - began == pytest.approx(2)
    for link in (slow, usual):
        a.send([link, "far"], b"hi")
        sent = loop.time()
        await far.next()
        assert loop.time() - sent == pytest.approx(0.001 if link is usual else 1)
    assert network.traffic("a", "b").arrived == 2

    network.set_faults("a", "b", LOSSY)
    network.set_all_faults(LOSSY)
    a.send([usual, "far"], b"lost")
    answered = len(far.messages)
    a.send([slow, "far"], b"kept")
    assert (await far.next()).payload == b"kept"
    assert len(far.messages) == answered + 1
    assert network.traffic("a", "b").lost == 1


@simulated()
async def test_a_link_with_faults_of_its_own_in_a_partition(network: SimulatedNetwork) -> None:
    a, _, _, _, far = await two_nodes(network)
    slow = await a.connect("sim://b", faults=SLOW)
    network.partition({"a"}, {"b"})
    a.send([slow, "far"], b"lost")
    with pytest.raises(LinkDown, match="no answer in 5 s"):
        await a.connect("sim://b", faults=Faults(latency=(2, 2)))
    network.heal()
    other = await a.connect("sim://b", faults=Faults(latency=(2, 2)))
    a.send([other, "far"], b"hi")
    assert (await far.next()).payload == b"hi"
    assert network.traffic("a", "b").cut == 1


def test_links_with_equal_faults_of_their_own_share_random_numbers() -> None:
    async def scenario(network: SimulatedNetwork) -> list[bytes]:
        a, _, usual, _, far = await two_nodes(network)
        lossy = [await a.connect("sim://b", faults=Faults(loss=0.5)) for _ in range(2)]
        for number in range(50):
            for link in (*lossy, usual):
                a.send([link, "far"], b"%d" % number)
        await asyncio.sleep(1)
        return far.payloads

    first = simulate(scenario, seed=5)
    assert 50 < len(first) < 150
    assert simulate(scenario, seed=5) == first
    assert simulate(scenario, seed=6) != first


# --- the whole --------------------------------------------------------------------------


Run: TypeAlias = tuple[tuple[Event, ...], list[Message], list[Message], Traffic]

FAULTS = Faults(latency=(0.01, 0.2), loss=0.1, duplicate=0.1, reorder=0.2)


async def everything(network: SimulatedNetwork) -> Run:
    """Six nodes in a row, messages over five hops, a partition, a crash and a restart."""
    nodes = [await network.node(f"n{number}") for number in range(6)]
    for number, node in enumerate(nodes):
        await node.start(Relay, address="relay", mailbox=MailboxOptions(limit=20))
        exposed = ["relay", "probe"] if number == 5 else ["relay"]
        await node.listen(f"sim://n{number}", expose=exposed, allow=["240#*"])
    probe = await Probe.on(nodes[-1], "probe", answer=lambda message: message.payload)
    near = await Probe.on(nodes[0], "near")
    hops = [f"240#n{number} => relay" for number in range(1, 5)]
    # Each hop finds its own way: an address of type 240 is resolved where it comes to.
    route = " => ".join([*hops, "240#n5", "probe"])
    for number in range(30):
        near.send(route, b"%d" % number)
        await asyncio.sleep(0.1 if number else 5)
        if number == 10:
            network.partition({"n0", "n1"}, {"n3", "n2"})
        if number == 15:
            network.heal()
        if number == 18:
            await network.crash("n3")
        if number == 22:
            again = await network.restart("n3")
            await again.start(Relay, address="relay")
            await again.listen("sim://n3", expose=["relay"], allow=["240#*", "probe"])
    await asyncio.sleep(100)
    return network.history, near.messages, probe.messages, network.traffic()


def test_the_same_seed_is_the_same_run() -> None:
    one, two = (simulate(everything, seed=5, faults=FAULTS) for _ in range(2))
    assert repr(one) == repr(two)
    assert repr(simulate(everything, seed=6, faults=FAULTS)) != repr(one)
    traffic = one[-1]
    assert all([traffic.lost, traffic.copied, traffic.cut, traffic.gone, traffic.overtaken])
    assert traffic.on_the_way == 0


@pytest.mark.parametrize("seed", range(times(4, 12)))
def test_every_message_is_accounted_for(seed: int) -> None:
    history, _, came, traffic = simulate(everything, seed=seed, faults=FAULTS)
    kinds = Counter(event.kind for event in history)
    ended = traffic.arrived + traffic.lost + traffic.cut + traffic.gone
    assert traffic.sent + traffic.copied == ended
    assert traffic.on_the_way == 0
    assert (kinds["sent"], kinds["copied"]) == (traffic.sent, traffic.copied)
    assert kinds["arrived"] + kinds["overtaken"] == traffic.arrived
    assert (kinds["lost"], kinds["cut"], kinds["gone"]) == (traffic.lost, traffic.cut, traffic.gone)
    assert came
    assert repr(simulate(everything, seed=seed, faults=FAULTS)[0]) == repr(history)


@simulated()
async def test_closing_forgets_what_is_due(network: SimulatedNetwork) -> None:
    _, _, link, near, far = await two_nodes(network)
    near.send([link, "far"], b"never")
    await asyncio.sleep(0)
    await network.close()
    await asyncio.sleep(10)
    assert far.payloads == []
    with pytest.raises(DeliveryError):
        near.send([link, "far"], b"")


@simulated()
async def test_some_of_what_is_cut_is_healed(network: SimulatedNetwork) -> None:
    network.announce("a", "b", "c")
    network.partition({"a"}, {"b", "c"})
    network.heal({"b"}, {"a"})
    cut = [(a, b) for a in "abc" for b in "abc" if network.path(a, b).cut_off]
    assert cut == [("a", "c"), ("c", "a")]
    assert network.history[-1][1:4] == ("heal", "b", "a")
    network.heal()
    assert not network.path("a", "c").cut_off
