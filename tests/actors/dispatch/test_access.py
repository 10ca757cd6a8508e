"""Roles of names: who may send to them, and who may consume them."""

from __future__ import annotations

import asyncio
from asyncio import sleep

import pytest

from onward.actors import Node, Refused
from onward.actors.dispatch import (
    DISPATCH,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    PrincipalOf,
    ProducerClosed,
    Received,
)
from onward.protocol import NAME, Address
from onward.protocol.dispatch import ACCEPTED, Access, Rejected, Semantics
from onward.protocol.security import Principal
from onward.transports.simulated import SimulatedNetwork

ANN = Principal("ann", "token", frozenset({"shop", "staff"}))
BOB = Principal("bob", "token", frozenset({"stock"}))
REFUSED = Rejected("amqp:unauthorized-access", "the name is for other roles")
ORDERS = Semantics(access=Access(producers=frozenset({"shop"}), consumers=frozenset({"stock"})))


class Shop:
    """A node with a name for some roles, and a peer that may reach it."""

    def __init__(self, node: Node, peer: Node, dispatcher: Dispatcher, link: Address) -> None:
        self.node = node
        self.peer = peer
        self.dispatcher = dispatcher
        self.link = link
        self.got: list[bytes] = []

    async def consume(self, name: str = "orders") -> None:
        def handle(delivery: Received) -> None:
            self.got.append(delivery.payload)

        await self.dispatcher.consume(name, handle)

    def counted(self) -> int:
        counts = self.dispatcher.statistics().counts
        return counts.get("senders without a role of the name", 0)


async def shop(network: SimulatedNetwork, principal_of: PrincipalOf | None) -> Shop:
    node = await network.node("shop", error_replies=True)
    peer = await network.node("peer")
    dispatcher = await Dispatcher.attach(node, principal_of=principal_of)
    dispatcher.provision("orders", ORDERS)
    exposed = [Address(NAME, b"orders"), DISPATCH]
    await node.listen("sim://shop", expose=exposed, error_replies=True)
    made = Shop(node, peer, dispatcher, await peer.connect("sim://shop"))
    await made.consume()
    return made


async def test_a_peer_with_the_role_may_send(network: SimulatedNetwork) -> None:
    there = await shop(network, lambda _: ANN)
    answer = await there.peer.request((there.link, Address(NAME, b"orders")), b"1")
    assert (answer.payload, there.got) == (b"", [b"1"])


@pytest.mark.parametrize("principal", [None, BOB])
async def test_a_peer_without_the_role_is_refused(
    principal: Principal | None, network: SimulatedNetwork
) -> None:
    there = await shop(network, lambda _: principal)
    route = (there.link, Address(NAME, b"orders"))
    with pytest.raises(Refused, match="unauthorized-access: the name is for other roles"):
        await there.peer.request(route, b"1")
    there.peer.send(route, b"2")
    await sleep(1)
    assert there.got == []
    assert there.counted() == 2
    (letter,) = there.node.dead_letters.recent
    assert letter.reason == "sender without a role of the name"


async def test_the_node_itself_may_use_each_name(network: SimulatedNetwork) -> None:
    there = await shop(network, None)
    assert (await there.node.request("34#orders", b"1")).payload == b""
    producer = await there.dispatcher.produce("orders")
    assert await producer.send(b"2") == ACCEPTED
    assert there.got == [b"1", b"2"]


async def test_what_a_neighbour_passes_on_was_checked_where_it_entered(
    network: SimulatedNetwork,
) -> None:
    there = await shop(network, None)
    other = await Dispatcher.attach(there.peer)
    await other.neighbour(there.link)
    await sleep(10)
    producer = await other.produce("orders")
    assert await producer.send(b"1") == ACCEPTED


async def test_principals_that_a_producer_and_a_consumer_are_attached_for(
    network: SimulatedNetwork,
) -> None:
    dispatcher = (await shop(network, None)).dispatcher
    producer = await dispatcher.produce("orders", principal=ANN)
    assert await producer.send(b"1") == ACCEPTED
    with pytest.raises(ConsumerRefused, match="other roles"):
        await dispatcher.produce("orders", principal=BOB)
    await dispatcher.consume("orders", lambda _: None, principal=BOB)
    with pytest.raises(ConsumerRefused, match="other roles"):
        await dispatcher.consume("orders", lambda _: None, principal=ANN)


async def test_roles_that_change_reach_those_that_are_attached(network: SimulatedNetwork) -> None:
    there = await shop(network, None)
    dispatcher = there.dispatcher
    ann = await dispatcher.produce("orders", principal=ANN)
    program = await dispatcher.produce("orders")
    bob = await dispatcher.consume("orders", lambda _: None, principal=BOB)
    # What has the same roles, or others of those that they have, ends nothing.
    dispatcher.update("orders", ORDERS)
    staff = Access(producers=frozenset({"staff"}), consumers=frozenset({"stock"}))
    dispatcher.update("orders", Semantics(access=staff))
    assert (ann.closed, bob.reason) == (False, "")
    nobody = Access(producers=frozenset({"cooks"}), consumers=frozenset({"cooks"}))
    dispatcher.update("orders", Semantics(access=nobody))
    assert (ann.closed, bob.reason) == (True, "it is for other roles")
    with pytest.raises(ProducerClosed, match="orders was closed: it is for other roles"):
        await ann.send(b"1")
    # Programs of the node may use each name.
    assert await program.send(b"2") == ACCEPTED
    assert there.got == [b"2"]


async def test_a_send_that_waits_is_told_of_other_roles(network: SimulatedNetwork) -> None:
    there = await shop(network, None)
    ann = await there.dispatcher.produce("closed", principal=ANN)
    send = asyncio.create_task(ann.send(b"1"))
    await sleep(1)
    cooks = Access(producers=frozenset({"cooks"}))
    there.dispatcher.provision("closed", Semantics(access=cooks))
    with pytest.raises(ProducerClosed, match="other roles"):
        await send


async def test_a_peer_without_the_role_is_no_neighbour(
    network: SimulatedNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    links: dict[Address, Principal] = {}

    def principal_of(link: Address) -> Principal:
        return links.setdefault(link, BOB if links else ANN)

    node = await network.node("a")
    options = DispatchOptions(neighbour_roles=("staff", "ops"))
    dispatcher = await Dispatcher.attach(node, options, principal_of=principal_of)
    await node.listen("sim://a", expose=[DISPATCH])
    for name in "bc":
        other = await Dispatcher.attach(await network.node(name))
        await other.neighbour("sim://a")
        await sleep(10)
    assert [each.node for each in dispatcher.nodes()] == ["a", "b"]
    assert dispatcher.statistics().counts["frames of peers that may not be neighbours"] > 1
    assert caplog.text.count("bob wants to be a neighbour") == 1
    # The one that dials has chosen its neighbour: the principal of the peer does not matter.
    listening = await network.node("d")
    await Dispatcher.attach(listening)
    await listening.listen("sim://d", expose=[DISPATCH])
    await dispatcher.neighbour("sim://d")
    await sleep(10)
    assert [each.node for each in dispatcher.nodes()] == ["a", "b", "d"]


async def test_an_anonymous_producer_is_checked_for_each_message(
    network: SimulatedNetwork,
) -> None:
    there = await shop(network, None)
    await there.consume("mail")
    ann = await there.dispatcher.produce_any(principal=ANN)
    bob = await there.dispatcher.produce_any(principal=BOB)
    assert await ann.send("orders", b"1") == ACCEPTED
    assert await bob.send("orders", b"2") == REFUSED
    assert await bob.send("mail", b"3") == ACCEPTED
    await bob.send_settled("orders", b"4")
    await bob.send_settled("mail", b"5")
    await sleep(1)
    assert there.got == [b"1", b"3", b"5"]
    assert there.counted() == 2
