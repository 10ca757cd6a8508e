"""Clients of AMQP at the dispatcher of a node: what they are told of credit and of outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.dispatch import Dispatcher, DispatchOptions, Received
from onward.protocol.dispatch import Access, DeliveryLimits, RoutingPattern, Second, Semantics
from onward.protocol.security import Principal
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.support.amqp import Edge, Edges, needs_proton, refusal
from tests.support.virtual import virtual_time

pytestmark = pytest.mark.peer
proton = needs_proton()

WINDOW = Semantics().window
SHOP = frozenset({"shop"})
ACCEPTED, REJECTED = proton.Delivery.ACCEPTED, proton.Delivery.REJECTED
RELEASED, MODIFIED = proton.Delivery.RELEASED, proton.Delivery.MODIFIED


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with Node("edge") as made:
        yield made


@pytest.fixture
async def edges(node: Node) -> AsyncIterator[Edges[Dispatcher]]:
    made = Edges(await Dispatcher.attach(node))
    yield made
    for each in made.made:
        each.cut()


def send(edge: Edge, link: Any, *bodies: str, **more: Any) -> list[Any]:
    return [edge.client.send(link, edge.client.message(each, **more)) for each in bodies]


def states(deliveries: list[Any]) -> list[int]:
    return [each.remote_state for each in deliveries]


def settle(edge: Edge, state: int, number: int = 0) -> None:
    """Settle a delivery of a client that does not accept by itself."""
    delivery = edge.client.received[number][0]
    delivery.update(state)
    delivery.settle()


async def test_credit_comes_with_a_consumer_and_messages_go_in_order(
    edges: Edges[Dispatcher],
) -> None:
    producing, consuming = edges(), edges()
    link = producing.client.sender("orders")
    edges.pump()
    assert link.credit == 0
    consuming.client.receiver("orders", credit=3)
    edges.pump()
    assert link.credit == WINDOW
    sent = send(producing, link, "a", "b", "c", "d")
    edges.pump()
    assert consuming.client.bodies == ["a", "b", "c"]
    assert states(sent) == [ACCEPTED] * 3 + [0]
    assert link.credit == WINDOW - 1


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, MODIFIED])
async def test_outcomes_go_from_client_to_client(edges: Edges[Dispatcher], state: int) -> None:
    producing, consuming = edges(), edges()
    consuming.client.accepts = False
    consuming.client.receiver("orders")
    link = producing.client.sender("orders")
    edges.pump()
    (sent,) = send(producing, link, "a")
    edges.pump()
    delivery = consuming.client.received[0][0]
    if state == REJECTED:
        delivery.local.condition = proton.Condition("shop:closed", "come back tomorrow")
    settle(consuming, state)
    edges.pump()
    assert (sent.remote_state, sent.settled) == (state, True)
    if state == REJECTED:
        found = sent.remote.condition
        assert (found.name, found.description) == ("shop:closed", "come back tomorrow")


async def test_what_one_client_releases_another_one_gets(edges: Edges[Dispatcher]) -> None:
    producing, releasing, accepting = edges(), edges(), edges()
    releasing.client.accepts = False
    releasing.client.receiver("orders")
    link = producing.client.sender("orders")
    edges.pump()
    (sent,) = send(producing, link, "a")
    edges.pump()
    accepting.client.receiver("orders")
    edges.pump()
    settle(releasing, RELEASED)
    edges.pump()
    assert accepting.client.bodies == ["a"]
    assert sent.remote_state == ACCEPTED


async def test_what_a_lost_client_had_is_in_doubt_and_the_rest_is_released(
    edges: Edges[Dispatcher],
) -> None:
    producing, consuming = edges(), edges()
    consuming.client.accepts = False
    consuming.client.receiver("orders", credit=6)
    link = producing.client.sender("orders")
    edges.pump()
    sent = send(producing, link, *"abcdefghij")
    edges.pump()
    assert len(consuming.client.received) == 6
    consuming.cut()
    edges.pump()
    assert states(sent) == [MODIFIED] * 6 + [RELEASED] * 4


async def test_a_lost_producer_leaves_its_messages(edges: Edges[Dispatcher]) -> None:
    producing, consuming = edges(), edges()
    consuming.client.accepts = False
    receiver = consuming.client.receiver("orders", credit=1)
    link = producing.client.sender("orders")
    edges.pump()
    send(producing, link, "a", "b")
    edges.pump()
    producing.cut()
    settle(consuming, ACCEPTED)
    receiver.flow(1)
    edges.pump()
    assert consuming.client.bodies == ["a", "b"]


async def test_credit_is_drained_after_the_last_consumer(edges: Edges[Dispatcher]) -> None:
    producing, consuming = edges(), edges()
    receiver = consuming.client.receiver("orders")
    link = producing.client.sender("orders")
    edges.pump()
    receiver.close()
    edges.pump()
    assert (link.credit, link.drain_mode) == (WINDOW, False)
    sent = send(producing, link, "a")
    edges.pump()
    assert states(sent) == [RELEASED]
    assert (link.credit, link.drain_mode) == (WINDOW - 1, True)
    # A message that was on its way all the same is released as well.
    sent = send(producing, link, "b")
    edges.pump()
    assert states(sent) == [RELEASED]
    link.drained()
    edges.pump()
    assert link.credit == 0
    consuming.client.receiver("orders")
    edges.pump()
    assert (link.credit, link.drain_mode) == (WINDOW, False)
    sent = send(producing, link, "c")
    edges.pump()
    assert states(sent) == [ACCEPTED]


async def test_a_consumer_drains_what_waits_for_it(edges: Edges[Dispatcher]) -> None:
    producing, consuming = edges(), edges()
    receiver = consuming.client.receiver("orders", credit=0)
    link = producing.client.sender("orders")
    edges.pump()
    send(producing, link, *"abcdef")
    edges.pump()
    receiver.drain(20)
    edges.pump()
    assert consuming.client.bodies == list("abcdef")
    assert (receiver.credit, receiver.drained()) == (0, 14)
    receiver.drain_mode = False
    receiver.flow(1)
    send(producing, link, "g")
    edges.pump()
    assert consuming.client.bodies[-1] == "g"


async def test_anonymous_producers_and_requests_with_an_answer(edges: Edges[Dispatcher]) -> None:
    asking, answering = edges(), edges()
    answering.client.receiver("orders")
    answers = asking.client.receiver(None)
    assert answers is not None
    replies = asking.client.session.receiver("answers")
    replies.source.dynamic = True
    replies.open()
    replies.flow(5)
    link = asking.client.sender(None)
    edges.pump()
    name = replies.remote_source.address
    assert name.startswith("_temp/edge/")
    assert link.credit == edges.port._core.options.anonymous_window
    sent = send(asking, link, "how many?", address="orders", reply_to=name)
    sent += send(asking, link, "lost", address="nowhere")
    edges.pump()
    assert answering.client.bodies == ["how many?"]
    message = proton.Message()
    message.decode(answering.client.received[0][1])
    back = answering.client.sender(None)
    edges.pump()
    send(answering, back, "twelve", address=message.reply_to)
    edges.pump()
    assert asking.client.bodies == ["twelve"]
    assert states(sent) == [ACCEPTED, RELEASED]
    # The name ends with its link.
    replies.close()
    edges.pump()
    late = send(answering, back, "late", address=name)
    edges.pump()
    assert states(late) == [RELEASED]


async def test_one_may_send_to_a_name_that_another_one_consumes_later(
    edges: Edges[Dispatcher],
) -> None:
    producing, consuming = edges(), edges()
    link = producing.client.session.sender("given")
    link.target.dynamic = True
    link.open()
    edges.pump()
    name = link.remote_target.address
    assert link.credit == 0
    consuming.client.receiver(name)
    edges.pump()
    send(producing, link, "a")
    edges.pump()
    assert consuming.client.bodies == ["a"]


async def test_multicast_goes_to_each_and_has_one_outcome(edges: Edges[Dispatcher]) -> None:
    edges.port.provision("news", Semantics(pattern=RoutingPattern.MULTICAST))
    producing, one, two = edges(), edges(), edges()
    link = producing.client.sender("news")
    edges.pump()
    assert link.credit == 0
    for each in (one, two):
        each.client.accepts = False
        each.client.receiver("news")
    edges.pump()
    (sent,) = send(producing, link, "a")
    edges.pump()
    settle(one, ACCEPTED)
    settle(two, RELEASED)
    edges.pump()
    assert one.client.bodies == two.client.bodies == ["a"]
    assert sent.remote_state == ACCEPTED


async def test_names_that_are_refused(edges: Edges[Dispatcher]) -> None:
    port = edges.port
    port.provision("closed", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    port.provision("one", Semantics(pattern=RoutingPattern.DIRECT, second=Second.REFUSE))
    port.provision("new", Semantics(pattern=RoutingPattern.DIRECT, second=Second.NEWEST))
    port.provision("till", Semantics(access=Access(producers=SHOP, consumers=SHOP)))
    edge, shop = edges(), edges(principal=Principal("ann", "test", SHOP))
    edge.client.receiver("one")
    old = edge.client.receiver("new")
    edge.client.receiver("new")
    links = {
        "amqp:not-found": [edge.client.sender("closed"), edge.client.receiver("closed")],
        "amqp:resource-locked": [edge.client.receiver("one")],
        "amqp:link:stolen": [old],
        "amqp:invalid-field": [edge.client.sender("a\nb"), edge.client.receiver("_temp/x")],
        "amqp:unauthorized-access": [edge.client.sender("till"), edge.client.receiver("till")],
    }
    links["amqp:not-found"].append(edge.client.receiver("_temp/elsewhere/x"))
    good = [shop.client.sender("till"), shop.client.receiver("till")]
    edges.pump()
    for condition, refused in links.items():
        assert [refusal(each)[0] for each in refused] == [condition] * len(refused)
    assert good[0].credit == WINDOW
    assert good[1].state & good[1].REMOTE_ACTIVE
    anonymous = edge.client.sender(None)
    edges.pump()
    rejected = [
        *send(edge, anonymous, "a", address="closed"),
        *send(edge, anonymous, "a", address="till"),
        *send(edge, anonymous, "a", address="a\nb"),
    ]
    edges.pump()
    assert [each.remote.condition.name for each in rejected] == [
        "amqp:not-found",
        "amqp:unauthorized-access",
        "amqp:invalid-field",
    ]


async def test_a_slow_reader_beside_a_quick_one_bounces_nothing(edges: Edges[Dispatcher]) -> None:
    producing, slow, quick = edges(), edges(), edges()
    for each in (slow, quick):
        each.client.receiver("orders", credit=1000)
    link = producing.client.sender("orders")
    edges.pump()
    sent: list[Any] = []
    for _ in range(40):
        # The slow one reads nothing; each message has a third of what may wait for it.
        sent += send(producing, link, *("x" * 15_000,) * 5)
        producing.pump()
        quick.pump()
        producing.pump()
    assert set(states(sent)) == {0, ACCEPTED}
    waiting = states(sent).count(0)
    assert waiting <= WINDOW
    assert len(quick.client.received) == len(sent) - waiting
    assert (slow.dropped, quick.dropped) == ({}, {})
    # It reads at last, and gets what has waited for it.
    while 0 in states(sent):
        edges.pump()
        slow.links.resume()
    assert states(sent) == [ACCEPTED] * len(sent)
    assert len(slow.client.received) == waiting


async def test_an_unsettled_flood_of_one_client_leaves_another_its_part(node: Node) -> None:
    limits = DeliveryLimits(max_unsettled_size=40_000)
    edges = Edges(await Dispatcher.attach(node, DispatchOptions(deliveries=limits)))
    flooding, silent, measured, quick = [edges() for _ in range(4)]
    silent.client.accepts = False
    silent.client.receiver("slow", credit=1000)
    quick.client.receiver("orders", credit=1000)
    floods = [flooding.client.sender(name) for name in ("slow", None)]
    link = measured.client.sender("orders")
    edges.pump()
    flood: list[Any] = []
    for _ in range(100):
        flood += send(flooding, floods[0], "x" * 900)
        flood += send(flooding, floods[1], "x" * 900, address="slow")
    edges.pump()
    held = states(flood).count(0)
    assert 8 <= held <= 11  # a quarter
    assert sorted(states(flood)) == [0] * held + [RELEASED] * (200 - held)
    counts = edges.port.statistics().counts
    assert counts["more than the share of its source"] == 200 - held
    for _ in range(20):
        sent = send(measured, link, *["x" * 900] * 5)
        edges.pump()
        assert states(sent) == [ACCEPTED] * 5
    assert link.credit == WINDOW
    for each in edges.made:
        each.cut()


async def test_a_disposition_for_an_unknown_delivery_changes_nothing(
    edges: Edges[Dispatcher],
) -> None:
    producing, forging, other = edges(), edges(), edges()
    other.client.accepts = False
    other.client.receiver("orders", credit=1)
    forging.client.receiver("others", credit=0)
    link = producing.client.sender("orders")
    edges.pump()
    sent = send(producing, link, "a")
    edges.pump()
    # AMQP 1.0, part 2, section 2.7.6: the deliveries 0 to 9 are settled as accepted.
    frame = "00000018 02000000 005315 c0 0b 05 41 43 5209 41 00532445".replace(" ", "")
    forging.engine.receive(bytes.fromhex(frame))
    edges.pump()
    assert states(sent) == [0]
    settle(other, ACCEPTED)
    edges.pump()
    assert states(sent) == [ACCEPTED]


async def test_a_message_of_a_program_is_data_and_one_of_a_client_is_whole(
    edges: Edges[Dispatcher], node: Node
) -> None:
    edge, got = edges(), list[bytes]()
    edge.client.receiver("to-client")

    def take(delivery: Received) -> None:
        got.append(delivery.payload)

    await edges.port.consume("to-program", take)
    link = edge.client.sender("to-program")
    edges.pump()
    outcome = asyncio.create_task(node.request("34#to-client", b"12 apples"))
    while not outcome.done():
        edges.pump()
        await asyncio.sleep(0)
    assert edge.client.bodies == [b"12 apples"]
    assert (await outcome).payload == b""
    message = edge.client.message("hello", subject="a")
    sent = edge.client.send(link, message)
    while not sent.settled:
        edges.pump()
        await asyncio.sleep(0)
    assert (got, sent.remote_state) == ([message], ACCEPTED)


# --- clients of several nodes -------------------------------------------------------------------


class Far:
    """Clients of the nodes a, b and c of a simulated network, in a row."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.at = {name: Edges(dispatcher) for name, dispatcher in net.at.items()}

    async def pump(self) -> None:
        """Carry bytes, and let the network carry messages, for a while."""
        for _ in range(10):
            for each in self.at.values():
                each.pump()
            await asyncio.sleep(SETTLE / 10)

    def cut(self) -> None:
        for edges in self.at.values():
            for each in edges.made:
                each.cut()


@virtual_time
async def test_clients_of_nodes_that_are_apart() -> None:
    async with SimulatedNetwork() as network:
        net = Net(network)
        await linear(net)
        far = Far(net)
        producing, consuming = far.at["a"](), far.at["c"]()
        link = producing.client.sender("orders")
        replies = producing.client.session.receiver("answers")
        replies.source.dynamic = True
        replies.open()
        replies.flow(5)
        await far.pump()
        assert link.credit == 0
        consuming.client.accepts = False
        consuming.client.receiver("orders", credit=3)
        back = consuming.client.sender(None)
        await far.pump()
        assert link.credit == WINDOW
        sent = send(producing, link, "a", "b", reply_to=replies.remote_source.address)
        await far.pump()
        # A name that one node has made is reached from each.
        message = proton.Message()
        message.decode(consuming.client.received[0][1])
        send(consuming, back, "yes", address=message.reply_to)
        settle(consuming, REJECTED)
        await far.pump()
        assert producing.client.bodies == ["yes"]
        assert states(sent) == [REJECTED, 0]
        # The link between the nodes is lost, in both directions.
        await net.cut("b", "c")
        await far.pump()
        assert states(sent) == [REJECTED, MODIFIED]
        settle(consuming, ACCEPTED, 1)
        await far.pump()
        assert net.unsettled == 0
        lost = send(producing, link, "c")
        await far.pump()
        assert states(lost) == [RELEASED]
        assert link.drain_mode
        far.cut()
