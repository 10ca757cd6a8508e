"""Unsettled messages between dispatchers on the fast path: they end as others do."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections.abc import Callable

import pytest

from onward.actors import MailboxOptions, Worker
from onward.actors.dispatch import DISPATCH, Accept, Dispatcher, Received
from onward.actors.dispatch._bundle_sender import BundleSender
from onward.protocol import (
    DELIVERY,
    NAME,
    Address,
    Message,
)
from onward.protocol.dispatch import (
    ACCEPTED,
    MAX_BUNDLED,
    Disposition,
    Modified,
    NodeHello,
    Semantics,
    Transit,
    disposition_address,
    encode_disposition,
    encode_network_frame,
    encode_transit,
    node_digest,
    return_address,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE, Net, ended, linear, make_narrow, sent
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, Answer, NetSender as World
from tests.support.workers import Recorder, start_worker


def offer_nothing(bundles: BundleSender, link: Address) -> None:
    """Be a node as it was before there were bundles."""


@pytest.fixture(params=[True, False], ids=["bundles", "alone"])
async def world(
    network: SimulatedNetwork, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> World:
    """Yield the dispatchers, of which each takes bundles, or none as before there were any."""
    if not request.param:
        monkeypatch.setattr(BundleSender, "offer", offer_nothing)
    net = Net(network, error_replies=True)
    await linear(net)
    return World(net, await start_worker(net.nodes["a"], Recorder(), address=BACK))


# --- what is accepted ---------------------------------------------------------------------------


async def test_the_answer_of_a_worker_goes_to_the_sender(world: World) -> None:
    net = world.net
    await net.nodes["c"].start(Answer, address=SHOP)
    await net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await world.send(b"1", b"2", b"3")
    assert world.told == [b"got 1", b"got 2", b"got 3"]
    assert world.outcomes("accepted") == (3, 3, 3)
    assert world.fast == world.came == world.full == (0, 0, 0)
    assert net.unsettled == 0
    for each in net.at.values():
        (row,) = each.names()
        assert (row.accepted, row.in_flight) == (3, 0)


async def test_a_handler_accepts_with_its_answer_or_without(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1", b"2", b"3")
    assert world.fast == (3, 3, 3)
    assert world.came == (0, 3, 3)
    assert world.full == (0, 0, 0)
    assert world.net.unsettled == 9
    kept.deliveries[2].accept(b"yes")
    kept.deliveries[1].accept()
    kept.deliveries[3].accept(b"")
    await sleep(1)
    assert world.told == [b"yes", b"", b""]
    assert world.fast == world.came == (0, 0, 0)
    assert world.outcomes("accepted") == (4, 4, 4)


async def test_the_answer_has_the_return_route_of_the_consumer(world: World) -> None:
    net = world.net

    class Asking(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"and?")

    await net.nodes["c"].start(Asking, address=SHOP)
    await net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await world.send(b"1", b"2")
    first, second = world.back.messages
    assert first.return_route == second.return_route
    assert first.return_route[-1] == SHOP


async def test_the_rest_of_the_route_goes_along(world: World) -> None:
    shop = await start_worker(world.net.nodes["c"], Recorder(), address=SHOP)
    await world.net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    more = Address(0, b"more")
    await world.send(b"1", b"2", more=(more,))
    assert [each.onward_route for each in shop.messages] == [(SHOP, more)] * 2
    # What a peer has chosen is looked at: it is on the fast path of its own node alone.
    assert world.fast == (1, 0, 0)


async def test_messages_of_a_producer_pass_and_have_no_limit_of_time(world: World) -> None:
    kept = await world.net.keep("c", "orders")
    await sleep(SETTLE)
    producer = await world.net.at["a"].produce("orders")
    sends = await sent(producer, 3)
    await sleep(1)
    assert world.fast == (0, 2, 2)
    await sleep(1000)
    for each in kept.deliveries:
        assert each.accept()
    assert await ended(sends) == [ACCEPTED] * 3
    assert world.fast == world.came == (0, 0, 0)


async def test_consumers_on_the_way_and_at_the_end_share_messages(world: World) -> None:
    end = await world.keep()
    nearer = await world.net.keep("b", "orders")
    await sleep(SETTLE)
    await world.send(*(b"%d" % each for each in range(6)))
    assert len(nearer.deliveries) + len(end.deliveries) == 7
    assert len(nearer.deliveries) > 1
    for kept in (nearer, end):
        for each in kept.deliveries:
            each.accept()
    await sleep(1)
    assert world.told == [b""] * 6
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_what_waits_for_credit_has_a_full_record(world: World) -> None:
    kept = await world.keep(window=2)
    await world.send(b"1", b"2", b"3", b"4")
    assert kept.payloads == [b"0", b"1", b"2"]
    assert world.fast == (4, 4, 2)
    (row,) = world.net.at["c"].names()
    assert row.in_flight == 4
    for at in range(1, 5):
        kept.deliveries[at].accept()
        await sleep(1)
    assert kept.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert world.told == [b""] * 4


async def test_what_is_accepted_as_it_is_handed_over_goes_the_full_way_at_its_end(
    world: World,
) -> None:
    await start_worker(world.net.nodes["c"], Recorder(), address=SHOP)
    await world.net.at["c"].consume("orders", SHOP, accept=Accept.HANDED)
    await sleep(SETTLE)
    await world.send(b"1", b"2")
    assert world.told == [b"", b""]
    assert world.fast == world.came == world.full == (0, 0, 0)


# --- other ends ---------------------------------------------------------------------------------

ENDS: dict[str, tuple[Callable[[Received], object], str]] = {
    "released": (lambda each: each.release(), "no consumer took it"),
    "rejected": (lambda each: each.reject("shop:closed"), "shop:closed"),
    "modified": (lambda each: each.modify(), "in doubt"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_another_outcome_is_told_by_full_records(end: str, world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    assert world.fast == (1, 1, 1)
    ENDS[end][0](kept.deliveries[-1])
    await sleep(1)
    assert world.fast == world.came == world.full == (0, 0, 0)
    assert world.told == [ENDS[end][1]]
    assert world.outcomes(end) == (1, 1, 1)


async def test_an_error_reply_is_no_acceptance(world: World) -> None:
    class Refusing(Worker):
        def handle_message(self, message: Message) -> None:
            if message.payload == b"no":
                self.node.answer_error(message, "closed")
            else:
                self.reply(message, b"")

    await world.net.nodes["c"].start(Refusing, address=SHOP)
    await world.net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await world.send(b"", b"no")
    assert world.told == [b"", "no consumer took it"]


async def test_what_is_released_goes_to_a_consumer_on_the_way(world: World) -> None:
    end = await world.keep()
    await world.send(b"1")
    nearer = await world.net.keep("b", "orders")
    end.deliveries[-1].release()
    await sleep(1)
    assert nearer.payloads == [b"1"]
    nearer.deliveries[0].accept(b"by the nearer")
    await sleep(1)
    assert world.told == [b"by the nearer"]


async def test_a_message_keeps_its_id_if_it_is_sent_again(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    core = world.net.at["a"]._core
    ((_, token, _),) = core.fast.open.values()
    arrival = core.names.states["orders"].arrival_of(token)
    assert arrival is not None
    kept.deliveries[-1].received()
    sent = world.net.at["c"]._core.names.states["orders"]
    (copy,) = world.net.at["c"]._core.copies.tokens
    received = sent.arrival_of(copy)
    assert received is not None
    assert received.identity == arrival.identity
    assert (received.path, received.leg) == ((node_digest("a"), node_digest("b")), True)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("b", "c")])
async def test_a_lost_link_leaves_messages_in_doubt_in_both_directions(
    one: str, other: str, world: World
) -> None:
    kept = await world.keep()
    await world.send(b"1", b"2")
    await world.net.cut(one, other)
    await sleep(SETTLE)
    assert world.told == ["in doubt", "in doubt"]
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()] * 2
    assert world.fast == world.came == world.full == (0, 0, 0)
    assert world.net.unsettled == 0
    lost = "abc".index(other)
    assert not list(world.net.at.values())[lost]._core.fast.unsettled.came


async def test_a_node_that_starts_again_on_the_same_link_leaves_messages_in_doubt(
    world: World,
) -> None:
    net, kept = world.net, await world.keep()
    producer = await net.at["a"].produce("orders")
    credit = producer.credit
    sends = await sent(producer, 2)
    await world.send(b"plain")
    await net.nodes["b"].stop_worker(DISPATCH)
    net.at["b"] = await Dispatcher.attach(net.nodes["b"])
    await sleep(SETTLE)
    assert await ended(sends) == [Modified()] * 2
    assert world.told == ["in doubt"]
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()] * 3
    assert world.fast == world.came == world.full == (0, 0, 0)
    await sleep(SETTLE)
    assert producer.credit == credit
    await world.send(b"1")
    kept.deliveries[-1].accept(b"yes")
    await sleep(1)
    assert world.told == [b"yes"]


@pytest.mark.parametrize("at", "bc")
async def test_a_dispatcher_that_stops_leaves_messages_in_doubt(at: str, world: World) -> None:
    net, kept = world.net, await world.keep()
    producer = await net.at["a"].produce("orders")
    credit = producer.credit
    sends = await sent(producer, 2)
    await world.send(b"plain")
    await net.nodes[at].stop_worker(DISPATCH)
    await sleep(1)  # long before it would be missed
    assert await ended(sends) == [Modified()] * 2
    assert world.told == ["in doubt"]
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()] * 3
    assert world.fast == world.came == world.full == (0, 0, 0)
    assert producer.credit == credit
    assert [(each.nodes, each.in_flight) for each in net.at["a"].names()] == [(0, 0)]
    net.at[at] = await Dispatcher.attach(net.nodes[at])
    if at == "c":
        kept = await net.keep("c", "orders")
    await sleep(SETTLE)
    assert producer.credit == credit
    await world.send(b"1")
    kept.deliveries[-1].accept(b"yes")
    await sleep(1)
    assert world.told == [b"yes"]
    assert world.counts("neighbours that were closed") == (0, 0, 0)


async def test_a_dispatcher_that_stops_releases_what_no_consumer_has(world: World) -> None:
    net, kept = world.net, await world.keep(window=1)
    other = await net.keep("c", "orders", window=1)
    await sleep(SETTLE)
    await world.send(*[b"%d" % each for each in range(5)])
    assert len(kept.deliveries) + len(other.deliveries) == 3
    await net.nodes["c"].stop_worker(DISPATCH)
    await sleep(1)
    assert sorted(world.told) == ["in doubt"] * 2 + ["no consumer took it"] * 3
    assert len(kept.deliveries) + len(other.deliveries) == 3
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_the_messages_of_a_dispatcher_that_stops_are_in_doubt(world: World) -> None:
    net, kept = world.net, await world.keep()
    await world.send(b"1", b"2")
    await net.nodes["a"].stop_worker(DISPATCH)
    await sleep(1)
    assert world.told == ["in doubt"] * 2
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()] * 2
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_a_lost_consumer_leaves_its_message_in_doubt(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    kept.consumer.close()
    await sleep(1)
    assert world.told == ["in doubt"]
    assert world.fast == world.came == world.full == (0, 0, 0)


@pytest.mark.parametrize("at", ["a", "b"])
async def test_what_a_link_has_no_room_for_is_released(at: str, world: World) -> None:
    await world.keep()
    net = world.net
    link = net.links["a", "b"] if at == "a" else net.links["b", "c"]
    cell = net.nodes[at].parts.table.cell(link)
    before = cell.limit, cell.most
    cell.limit = cell.most = 0
    await world.send(b"1")
    cell.limit, cell.most = before
    assert world.told == ["no consumer took it"]
    assert world.counts("copies that a link did not take")["ab".index(at)] == 1
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_a_full_mailbox_gives_the_message_back(world: World) -> None:
    await world.net.nodes["c"].start(Answer, address=SHOP, mailbox=MailboxOptions(limit=2))
    await world.net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await world.send(b"1")
    for payload in (b"2", b"3", b"4"):
        world.net.nodes["a"].send(ORDERS, payload, return_route=BACK)
    await sleep(1)
    assert sorted(map(str, world.told)) == sorted(
        map(str, [b"got 1", b"got 2", b"got 3", "no consumer took it"])
    )


async def test_an_answer_that_cannot_be_sent_is_counted(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    net = world.net
    (link,) = net.at["c"]._core.fast.unsettled.came
    cell = net.nodes["c"].parts.table.cell(link)
    cell.limit = cell.most = 0
    kept.deliveries[-1].accept()
    await sleep(0.5)
    assert world.counts("outcomes that could not be told") == (0, 0, 1)


@pytest.mark.parametrize("settled", [False, True])
async def test_the_node_before_may_not_wait_for_an_outcome_any_more(
    settled: bool, world: World
) -> None:
    kept = await world.keep()
    await world.send(b"1")
    core = world.net.at["a"]._core
    ((_, token, link),) = core.fast.open.values()
    core.copies.tell_end(str(link), token, settled=settled)
    await sleep(1)
    assert world.fast == (1, 0, 0)
    assert kept.deliveries[-1].outcome == Modified()


async def test_the_time_for_an_outcome_ends(network: SimulatedNetwork) -> None:
    net = Net(network, error_replies=True, outcome_timeout=10.0)
    await linear(net)
    world = World(net, await start_worker(net.nodes["a"], Recorder(), address=BACK))
    kept = await world.keep()
    await world.send(b"1")
    assert world.fast == (1, 1, 1)
    await sleep(6)  # 8.1 s at c, 9 s at b
    assert world.told == []
    await sleep(3)
    assert world.told == ["in doubt"]
    assert kept.deliveries[-1].outcome == Modified()
    assert world.fast == world.came == world.full == (0, 0, 0)


@pytest.mark.parametrize("at", ["a", "b", "c"])
async def test_other_semantics_make_full_records_which_end_alike(at: str, world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    world.net.at[at].provision("orders", Semantics(window=9))
    await sleep(1)
    assert world.fast["abc".index(at)] == 0
    assert world.full["abc".index(at)] == 1
    kept.deliveries[-1].accept(b"yes")
    await sleep(1)
    assert world.told == [b"yes"]
    assert world.fast == world.came == world.full == (0, 0, 0)


# --- what is not as it should be ----------------------------------------------------------------


async def test_an_outcome_counts_from_the_link_that_the_copy_was_sent_on(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    (mark,) = world.net.at["b"]._core.fast.open
    stranger = await world.net.network.node("stranger")
    link = await stranger.connect("sim://b")
    frame = encode_disposition(Disposition(ACCEPTED))
    stranger.send([link, DISPATCH, Address(DELIVERY, disposition_address(mark))], frame)
    stranger.send([link, DISPATCH, Address(DELIVERY, mark)], b"forged")
    await sleep(1)
    assert world.told == []
    state = world.net.at["b"]._core.names.states["orders"]
    assert state.statistics().forged == 2
    kept.deliveries[-1].accept(b"yes")
    await sleep(1)
    assert world.told == [b"yes"]


async def test_an_acceptance_that_comes_twice_is_late(world: World) -> None:
    kept = await world.keep()
    await world.send(b"1")
    ((mark, (_, _, _)),) = world.net.at["a"]._core.fast.open.items()
    kept.deliveries[-1].accept(b"yes")
    await sleep(1)
    link = next(iter(world.net.at["b"]._core.fast.unsettled.came))
    world.net.nodes["b"].send([link, DISPATCH, Address(DELIVERY, mark)], b"again")
    await sleep(1)
    assert world.told == [b"yes"]
    assert world.counts("outcomes that came late or for no delivery") == (1, 0, 0)


async def neighbour(world: World) -> tuple[Callable[..., None], Recorder]:
    """Join a node n to c, of which the test says each word; return how it sends messages."""
    node = await world.net.network.node("n")
    back = await start_worker(node, Recorder(), address="n-back")
    link = await node.connect("sim://c", expose=[back.address])
    hello = encode_network_frame(NodeHello("n", 1, 0, ("c",)))
    node.send([link, DISPATCH], hello)
    await sleep(1)

    def send(
        token: bytes, payload: bytes = b"x", *, mark: bytes | None = None, to_name: str = "orders"
    ) -> None:
        transit = Transit(to_name, "n", b"instance", token, wait=90_000)
        to = (link, DISPATCH, Address(DELIVERY, encode_transit(transit)))
        end = Address(DELIVERY, return_address(token) if mark is None else mark)
        node.send([link, DISPATCH], hello)  # it is a neighbour as long as it says so
        node.route(Message(to, (back.address, end), payload, None, None))

    return send, back


async def test_a_token_that_is_in_use_is_refused(world: World) -> None:
    kept = await world.keep()
    send, back = await neighbour(world)
    send(b"1" * 8)
    send(b"2" * 8)
    await sleep(0.1)
    assert world.fast == (0, 0, 1)
    send(b"2" * 8, b"the same again")  # on the fast path
    send(b"1" * 8, b"the same again")  # with a full record
    await sleep(1)
    assert len(kept.deliveries) == 3
    state = world.net.at["c"]._core.names.states["orders"]
    assert state.statistics().refused == 2
    told = [each.onward_route[-1] for each in back.messages if len(each.onward_route) > 1]
    assert [each.value for each in told] == [
        disposition_address(return_address(b"2" * 8)),
        disposition_address(return_address(b"1" * 8)),
    ]


async def test_a_message_is_in_doubt_with_its_link_also_if_its_token_came_twice(
    world: World,
) -> None:
    kept = await world.keep()
    send, _ = await neighbour(world)
    send(b"1" * 8)
    send(b"1" * 8, b"the same again")
    await sleep(1)
    assert world.full == (0, 0, 1)
    await world.net.network.crash("n")
    await sleep(SETTLE)
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()]
    assert world.full == (0, 0, 0)
    assert world.net.unsettled == 0


@pytest.mark.parametrize("learned", [False, True])
async def test_a_token_that_a_message_of_another_name_has_is_refused(
    learned: bool, world: World
) -> None:
    kept, prices = await world.keep(), await world.net.keep("c", "prices")
    send, back = await neighbour(world)
    if learned:
        send(b"0" * 8, b"first", to_name="prices")  # the next one may go the fast path
        await sleep(0.1)
        prices.deliveries[0].accept()
        await sleep(1)
        back.messages.clear()
    had = len(prices.deliveries)
    send(b"1" * 8)
    send(b"1" * 8, b"the same again", to_name="prices")
    await sleep(1)
    assert len(prices.deliveries) == had
    assert world.counts("messages under a token that another name has") == (0, 0, 1)
    told = [each.onward_route[-1] for each in back.messages if len(each.onward_route) > 1]
    assert [each.value for each in told] == [disposition_address(return_address(b"1" * 8))]
    await world.net.network.crash("n")
    await sleep(SETTLE)
    assert [each.outcome for each in kept.deliveries[1:]] == [Modified()]
    assert world.net.unsettled == 0


@pytest.mark.parametrize("mark", [b"r1234567", b"r123456789", b"x12345678"], ids=repr)
async def test_a_message_without_a_way_back_is_not_read(mark: bytes, world: World) -> None:
    kept = await world.keep()
    send, _ = await neighbour(world)
    send(b"1" * 8)
    send(b"2" * 8, mark=mark)
    await sleep(1)
    assert len(kept.deliveries) == 2
    assert world.counts("addresses that cannot be read") == (0, 0, 1)


async def test_an_empty_address_is_not_read(world: World) -> None:
    node = world.net.nodes["c"]
    node.route(Message((DISPATCH, Address(DELIVERY, b"")), (), b"x", None, None))
    await sleep(1)
    assert world.counts("addresses that cannot be read") == (0, 0, 1)


async def test_a_link_of_one_message_gives_back_what_it_has_no_room_for(world: World) -> None:
    kept = await world.keep()
    make_narrow(world.net, "a", world.net.links["a", "b"])
    first, *others = (each * (MAX_BUNDLED + 1) for each in (b"1", b"2", b"3"))
    for payload in (first, *others):
        world.net.nodes["a"].send(ORDERS, payload, return_route=BACK)
    await sleep(1)
    assert kept.payloads == [b"0", first]
    assert world.told == ["no consumer took it"] * 2
    kept.deliveries[-1].accept()
    await sleep(1)
    assert world.told == [b""]


async def test_nothing_stays_of_a_name_of_another_node(world: World) -> None:
    net, kept = world.net, Kept()
    name = (await net.at["c"].temporary(kept, accept=Accept.SELF)).name
    await sleep(SETTLE)
    producer = await net.at["a"].produce_any()
    sends = [asyncio.create_task(producer.send(name, each)) for each in (b"1", b"2", b"3")]
    await sleep(1)
    for at in (0, 2, 1):
        kept.deliveries[at].accept()
    assert await ended(sends) == [ACCEPTED] * 3
    assert [len(each.names()) for each in net.at.values()] == [0, 0, 1]


async def test_what_is_unsettled_at_a_name_of_another_node_is_shown(world: World) -> None:
    net, kept = world.net, Kept()
    name = (await net.at["c"].temporary(kept, accept=Accept.SELF)).name
    to = Address(NAME, name.encode())
    await sleep(SETTLE)
    net.nodes["a"].send(to, b"pre-settled")
    await sleep(1)
    net.nodes["a"].send(to, b"1", return_route=BACK)
    await sleep(1)
    assert [row.in_flight for each in net.at.values() for row in each.names()] == [1, 1, 1]
    kept.deliveries[1].accept(b"yes")
    await sleep(1)
    assert world.told == [b"yes"]
    assert [len(each.names()) for each in net.at.values()] == [0, 0, 1]
