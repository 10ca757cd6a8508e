"""Bundles between dispatchers: their messages and acceptances mean what they mean by themselves."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from functools import partial
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Accept, Dispatcher
from onward.actors.dispatch._bundle_receiver import MAX_PARTS
from onward.actors.dispatch._bundle_sender import BundleSender
from onward.protocol import DELIVERY, ERROR_SOURCE, Address, InDoubt, LinkDown, Message, OnwardError
from onward.protocol.dispatch import (
    ANSWERS,
    BUNDLES_TAKEN,
    MAX_BUNDLE,
    MAX_BUNDLE_SIZE,
    MAX_BUNDLED,
    MESSAGES,
    RELEASED,
    SETTLED,
    RoutingPattern,
    Semantics,
    bundle_return_address,
)
from onward.protocol.eventlog import Kind, Outcome
from onward.protocol.ockam import DatagramLimits
from onward.transports.node._link import Link
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, Answer, NetSender as World, Sender
from tests.support.names import Counted
from tests.support.transports import eventually
from tests.support.workers import Recorder, start_worker


@pytest.fixture
async def world(network: SimulatedNetwork) -> World:
    net = Net(network, error_replies=True)
    await linear(net)
    await sleep(SETTLE)
    return World(net, await start_worker(net.nodes["a"], Recorder(), address=BACK))


@pytest.fixture(autouse=True)
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, Message]]:
    """Return the kinds of the messages that cross links from now on, with the address of each."""
    found: list[tuple[bytes, bytes, Message]] = []
    before = Link.handle_message

    def handle(link: Link, message: Message) -> object:
        onward = message.onward_route
        if len(onward) > 2:
            found.append((onward[2].value[:1], onward[2].value, message))
        return before(link, message)

    monkeypatch.setattr(Link, "handle_message", handle)
    return found


def kinds(crossed: list[tuple[bytes, bytes, Message]]) -> str:
    text = b"".join(kind for kind, _, _ in crossed).decode()
    crossed.clear()
    return text


async def together(world: World, *payloads: bytes, settled: bool = False) -> None:
    """Send messages in one turn, between two hellos."""
    await sleep(0.5)
    for payload in payloads:
        world.net.nodes["a"].send(ORDERS, payload, return_route=() if settled else BACK)
    await sleep(0.25)


async def learned(world: World, at: str = "c") -> Recorder:
    """Attach a worker that gets pre-settled messages, by ways that are known."""
    shop = await start_worker(world.net.nodes[at], Recorder(), address=SHOP)
    await world.net.at[at].consume("orders", SHOP, accept=Accept.HANDED)
    await sleep(SETTLE)
    await together(world, b"first", settled=True)
    assert shop.payloads == [b"first"]
    shop.messages.clear()
    return shop


def neighbour(net: Net, at: str, to: str) -> Address:
    """Return the link of a node to another one."""
    topology = net.at[at]._core.topology
    return topology.links[str(topology.network.link_to(to))]


def undelivered(link: Link, error: OnwardError, message: Message) -> None:
    """Lose a message that a link has accepted."""
    link.undelivered(message, error)


def let_errors_out(net: Net, at: str, to: str) -> None:
    """Let error replies cross a link."""
    exposures = net.nodes[at].parts.guards.exposures
    exposures.error_replies.add(neighbour(net, at, to))


# --- what goes together -------------------------------------------------------------------------


async def test_the_messages_of_a_turn_and_their_answers_go_together(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    await world.net.nodes["c"].start(Answer, address=SHOP)
    await world.net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await together(world, b"0")
    crossed.clear()
    await together(world, b"1", b"2", b"3")
    assert kinds(crossed) == "mmaa"
    assert world.told == [b"got 0", b"got 1", b"got 2", b"got 3"]
    assert world.fast == world.came == world.full == (0, 0, 0)
    assert world.outcomes("accepted") == (4, 4, 4)


async def test_acceptances_without_an_answer_go_together(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    await together(world, b"1", b"2", b"3")
    crossed.clear()
    for each in kept.deliveries[1:]:
        each.accept()
    await sleep(0.25)
    assert kinds(crossed) == "nn"
    assert world.told == [b""] * 3
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_answers_go_with_those_of_their_own_worker(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    for place in ("shop", "other"):
        await world.net.nodes["c"].start(Answer, address=place)
        await world.net.at["c"].consume("orders", place)
    await sleep(SETTLE)
    await together(world, b"0", b"1")
    world.back.messages.clear()
    crossed.clear()
    await together(world, *[b"%d" % each for each in range(6)])
    assert kinds(crossed) == "mmaaaa"
    backs = [str(each.return_route[-1]) for each in world.back.messages]
    assert sorted(backs) == ["0#other"] * 3 + ["0#shop"] * 3
    assert len(world.told) == 6


async def test_pre_settled_messages_go_together(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    shop = await learned(world)
    crossed.clear()
    await together(world, b"1", b"2", b"3", settled=True)
    assert kinds(crossed) == "pp"
    assert shop.payloads == [b"1", b"2", b"3"]
    assert all(each.return_route == () for each in shop.messages)


async def test_a_bundle_has_a_limit_of_messages_and_of_bytes(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    crossed.clear()
    many = [b"%d" % each for each in range(MAX_BUNDLE + 2)]
    await together(world, *many)
    assert kinds(crossed) == "mmmm"
    large = [bytes(MAX_BUNDLED)] * (MAX_BUNDLE_SIZE // MAX_BUNDLED + 2)
    await together(world, *large)
    assert kinds(crossed) == "mmmm"
    assert kept.payloads == [b"0", *many, *large]
    for each in kept.deliveries[1:]:
        each.accept()
    await sleep(0.25)
    assert kinds(crossed) == "nnnn"
    assert len(world.told) == len(many) + len(large)
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_what_goes_by_itself_stays_in_its_place(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    shop = await learned(world)
    crossed.clear()
    large = bytes(MAX_BUNDLED + 1)
    await together(world, b"1", b"2", large, b"3", settled=True)
    assert shop.payloads[-4:] == [b"1", b"2", large, b"3"]
    assert kinds(crossed) == "pttptt"


@pytest.mark.parametrize("first", [True, False])
async def test_pre_settled_and_unsettled_messages_of_a_turn_keep_their_order(
    first: bool, world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    await together(world, b"1", settled=True)  # this way is known as well from now on
    kept.deliveries.clear()
    crossed.clear()
    await sleep(0.5)
    settled = first
    many = [b"%d" % each for each in range(2 * MAX_BUNDLE + 4)]
    for at, payload in enumerate(many):
        world.net.nodes["a"].send(ORDERS, payload, return_route=() if settled else BACK)
        settled = settled if at > 2 and at % (MAX_BUNDLE + 1) else not settled
    await sleep(0.25)
    assert kept.payloads == many
    assert {"m", "p"} <= set(kinds(crossed))
    assert not world.net.at["a"]._core.bundles._last


@pytest.mark.parametrize("ended", [False, True])
async def test_what_is_sent_first_may_change_the_name_of_a_large_message(
    *,
    ended: bool,
    world: World,
    crossed: list[tuple[bytes, bytes, Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = await world.keep()
    core, flush = world.net.at["a"]._core, BundleSender.flush
    (state,) = core.fast.names.values()
    crossed.clear()

    def flushing(self: BundleSender) -> None:
        flush(self)
        entries = None if state.fast is None or self is not core.bundles else state.fast.entries
        for token in list(entries or ()):
            state.promote(token)
            if ended:
                core.copies.disposition(token, RELEASED, None)

    monkeypatch.setattr(BundleSender, "flush", flushing)
    await together(world, bytes(MAX_BUNDLED + 1))
    monkeypatch.undo()
    if ended:
        assert world.told == ["no consumer took it"]
        assert kinds(crossed) == ""
        assert kept.payloads == [b"0"]
    else:
        kept.last.accept(b"yes")
        await sleep(0.25)
        assert world.told == [b"yes"]
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_an_answer_that_is_too_large_goes_by_itself(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    await together(world, b"1", b"2")
    crossed.clear()
    large = bytes(MAX_BUNDLED + 1)
    kept.deliveries[1].accept(large)
    kept.deliveries[2].accept(b"small")
    await sleep(0.25)
    assert kinds(crossed) == "rrrr"
    assert sorted(map(len, map(str.encode, map(str, world.told))))
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_word_that_a_message_has_ended_goes_behind_it(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    await world.keep()
    crossed.clear()
    await sleep(0.5)
    core = world.net.at["a"]._core
    world.net.nodes["a"].send(ORDERS, b"1", return_route=BACK)
    ((_, token, link),) = core.fast.open.values()
    core.copies.tell_end(str(link), token, settled=False)
    assert [bundle.records for bundle in core.bundles._waiting] == []
    await sleep(0.25)
    assert kinds(crossed)[:2] == "te"


async def test_a_single_one_goes_by_itself(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    crossed.clear()
    await together(world, b"1")
    assert kinds(crossed) == "tt"
    kept.deliveries[1].accept()
    await sleep(0.25)
    assert kinds(crossed) == "dd"
    await together(world, b"2")
    kept.deliveries[2].accept(b"yes")
    await together(world, b"3", settled=True)
    assert kinds(crossed) == "ttrrtt"
    assert kept.payloads == [b"0", b"1", b"2", b"3"]
    assert world.told == [b"", b"yes"]
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_the_bundles_of_many_return_routes_are_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.dispatch._bundle_sender.MAX_ANSWERED", 1)
    for place in ("shop", "other"):
        await world.net.nodes["c"].start(Answer, address=place)
        await world.net.at["c"].consume("orders", place)
    await sleep(SETTLE)
    await together(world, b"0", b"1")
    await together(world, *[b"%d" % each for each in range(6)])
    assert len(world.net.at["c"]._core.bundles._answers) == 1
    assert len(world.told) == 8


@pytest.mark.parametrize("known", [True, False])
async def test_many_bundles_are_no_more_at_once_than_a_mailbox_takes(
    known: bool, world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    shop = await learned(world)
    crossed.clear()
    await together(world, *[b"%d" % each for each in range(MAX_BUNDLE)], settled=True)
    (bundle,) = (each for kind, _, each in crossed[1:] if kind == b"p")
    net, link = world.net, neighbour(world.net, "c", "b")
    route = bundle.onward_route[1:]
    if not known:
        net.at["c"]._core.fast.transits.learn = lambda *_: None  # type: ignore[method-assign]
        net.at["c"]._core.fast.clear()
    for _ in range(64):
        net.nodes["c"].parts.router.dispatch(
            Message(route, (link, *bundle.return_route), bundle.payload, link, None)
        )
    await sleep(0.25)
    assert len(shop.messages) == 65 * MAX_BUNDLE
    assert "mailbox full" not in net.nodes["c"].dead_letters.by_reason


async def test_many_acceptances_are_no_more_at_once_than_others(world: World) -> None:
    kept = await world.keep(window=1000)
    receiver = world.net.at["a"]._core.fast.transits.bundle_receiver
    for _ in range(2):
        before = len(kept.deliveries)
        await together(world, *[b"x"] * MAX_PARTS)
        for each in kept.deliveries[before:]:
            each.accept()
        await sleep(0.25)
        assert receiver.parts == 0
    assert world.fast == world.came == world.full == (0, 0, 0)


# --- neighbours that take them ----------------------------------------------------------------


@pytest.mark.parametrize("silent", ["a", "b", "c"])
async def test_a_neighbour_that_does_not_take_bundles_gets_none(
    silent: str,
    network: SimulatedNetwork,
    crossed: list[tuple[bytes, bytes, Message]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer = BundleSender.offer

    def offering(self: BundleSender, link: Address) -> None:
        if self._core.own != silent:
            offer(self, link)

    monkeypatch.setattr(BundleSender, "offer", offering)
    net = Net(network, error_replies=True)
    await linear(net)
    world = World(net, await start_worker(net.nodes["a"], Recorder(), address=BACK))
    await net.nodes["c"].start(Answer, address=SHOP)
    await net.at["c"].consume("orders", SHOP)
    await sleep(SETTLE)
    await together(world, b"0")
    crossed.clear()
    await together(world, b"1", b"2")
    sent = {"a": "mmarr", "b": "ttmrra", "c": "mttaa"}
    assert sorted(kinds(crossed)) == sorted(sent[silent])
    assert world.told == [b"got 0", b"got 1", b"got 2"]
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_a_lost_neighbour_is_asked_anew(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    net = world.net
    kept = await world.keep()
    await net.cut("a", "b")
    await sleep(SETTLE)
    assert not net.at["a"]._core.bundles._takers
    crossed.clear()
    await net.join("a", "b")
    await sleep(SETTLE)
    assert kinds(crossed) == "vv"
    await together(world, b"1")
    crossed.clear()
    await together(world, b"2", b"3")
    assert kinds(crossed) == "mm"
    assert kept.payloads == [b"0", b"1", b"2", b"3"]


async def test_word_of_a_stranger_or_of_no_kind_is_counted(world: World) -> None:
    net = world.net
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://a")
    for value in (BUNDLES_TAKEN, b"v"):
        stranger.send([link, DISPATCH, Address(DELIVERY, value)], b"")
    await sleep(1)
    assert world.counts("messages of no neighbour")[0] == 2
    net.nodes["b"].route(
        Message((neighbour(net, "b", "a"), DISPATCH, Address(DELIVERY, b"v")), (), b"", None, None)
    )
    await sleep(1)
    assert world.counts("addresses that cannot be read")[0] == 1


async def test_an_offer_that_the_link_does_not_take_is_counted(world: World) -> None:
    core = world.net.at["a"]._core
    before = core.counts["frames that a link did not take"]
    core.bundles.offer(Address(0, b"gone"))
    assert core.counts["frames that a link did not take"] == before + 1


SMALL: dict[str, dict[str, Any]] = {
    "tcp": {"max_frame": 4096},
    "udp": {"datagrams": DatagramLimits(max_message=4096)},
}


@pytest.mark.real_time
@pytest.mark.parametrize("scheme", SMALL)
@pytest.mark.parametrize("narrow", ["a", "b"])
async def test_messages_that_a_link_takes_one_by_one_are_not_lost_in_a_bundle(
    scheme: str, narrow: str
) -> None:
    options: dict[str, dict[str, Any]] = {"a": {}, "b": {}, narrow: SMALL[scheme]}
    async with Node("a") as a, Node("b") as b:
        at = [await Dispatcher.attach(each) for each in (a, b)]
        to_b = await b.listen(f"{scheme}://127.0.0.1:0", expose=[DISPATCH], **options["b"])
        await at[0].neighbour(await a.connect(to_b.uri, expose=[DISPATCH], **options["a"]))
        await b.start(Answer, address="shop")
        await at[1].consume("orders", "shop")
        known = asyncio.Event()
        at[0].watch("orders", lambda _, paths: known.set() if paths else None)
        await asyncio.wait_for(known.wait(), 60)
        sender = Sender(await start_worker(a, Recorder(), address=BACK))
        told: list[bytes | str] = []

        def has_answers(number: int) -> bool:
            told.extend(sender.told)
            return len(told) >= number

        for number in (1, 2):
            a.send(ORDERS, b"first", return_route=BACK)
            await eventually(partial(has_answers, number))
        for _ in range(12):
            a.send(ORDERS, bytes(1000), return_route=BACK)
        await eventually(partial(has_answers, 14))
        assert told[2:] == [b"got " + bytes(1000)] * 12


# --- the full way -------------------------------------------------------------------------------


async def test_a_bundle_of_which_the_way_is_not_known_any_more_is_taken_apart(
    world: World,
) -> None:
    kept = await world.keep()
    for node in "bc":
        world.net.at[node]._core.fast.clear()
    await together(world, b"1", b"2")
    assert kept.payloads == [b"0", b"1", b"2"]
    kept.deliveries[1].accept(b"yes")
    kept.deliveries[2].accept()
    await sleep(1)
    assert sorted(map(str, world.told)) == sorted(map(str, [b"yes", b""]))
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_pre_settled_ones_are_taken_apart_as_well(world: World) -> None:
    shop = await learned(world)
    for node in "bc":
        world.net.at[node]._core.fast.clear()
    await together(world, b"1", b"2", settled=True)
    assert shop.payloads == [b"1", b"2"]


async def test_acceptances_of_full_records_are_taken_apart(world: World) -> None:
    kept = await world.keep()
    await together(world, b"1", b"2", b"3")
    for name in "ab":
        core = world.net.at[name]._core
        for _, token, _ in list(core.fast.open.values()):
            core.fast.promote(token)
    kept.deliveries[1].accept(b"yes")
    kept.deliveries[2].accept()
    kept.deliveries[3].accept()
    await sleep(1)
    assert sorted(map(str, world.told)) == sorted(map(str, [b"yes", b"", b""]))
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_a_consumer_that_has_its_window_full_gets_the_rest_of_a_bundle_later(
    world: World,
) -> None:
    kept = await world.keep(window=2)
    await together(world, b"1", b"2", b"3", b"4")
    assert kept.payloads == [b"0", b"1", b"2"]
    for at in range(1, 5):
        kept.deliveries[at].accept()
        await sleep(1)
    assert kept.payloads == [b"0", b"1", b"2", b"3", b"4"]
    assert world.told == [b""] * 4


async def test_pre_settled_messages_beyond_the_window_wait(world: World) -> None:
    done: list[bytes] = []

    async def handle(delivery: object) -> None:
        await sleep(0.01)
        done.append(delivery.payload)  # type: ignore[attr-defined]

    await world.net.at["c"].consume("orders", handle, window=1)
    await sleep(SETTLE)
    await together(world, b"0", settled=True)
    await together(world, b"1", b"2", b"3", settled=True)
    assert done == [b"0", b"1", b"2", b"3"]


async def test_an_event_log_counts_each_message_of_a_bundle(world: World) -> None:
    counted = Counted()
    shop = await learned(world)
    world.net.nodes["c"].add_instrument(counted)
    await together(world, b"1", b"2", settled=True)
    assert shop.payloads == [b"1", b"2"]
    assert counted.of(Kind.NAME_LEG)[Outcome.RECEIVED] == 2


async def test_a_name_that_becomes_a_multicast_takes_bundles_apart(world: World) -> None:
    first, other = await learned(world), Kept()
    await world.net.at["c"].consume("orders", other)
    world.net.at["c"].provision("orders", Semantics(pattern=RoutingPattern.MULTICAST))
    await together(world, b"1", b"2", settled=True)
    assert first.payloads == other.payloads == [b"1", b"2"]


# --- what is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["a", "b"])
async def test_a_bundle_that_a_link_has_no_room_for_is_released(at: str, world: World) -> None:
    await world.keep()
    await sleep(0.5)
    cell = world.net.nodes[at].parts.table.cell(neighbour(world.net, at, {"a": "b", "b": "c"}[at]))
    before = cell.limit, cell.most
    cell.limit = cell.most = 0
    for payload in (b"1", b"2"):
        world.net.nodes["a"].send(ORDERS, payload, return_route=BACK)
    await sleep(0.25)
    cell.limit, cell.most = before
    assert world.told == ["no consumer took it"] * 2
    assert world.counts("copies that a link did not take")["ab".index(at)] == 2
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_pre_settled_messages_that_a_link_has_no_room_for_are_counted(world: World) -> None:
    shop = await learned(world)
    net = world.net
    await sleep(0.5)
    cell = net.nodes["a"].parts.table.cell(net.links["a", "b"])
    cell.limit = cell.most = 0
    letters = net.nodes["a"].dead_letters.total
    await together(world, b"1", b"2", settled=True)
    assert shop.payloads == []
    assert world.counts("link down")[0] == 2
    assert net.nodes["a"].dead_letters.total >= letters + 2
    assert net.at["a"].names()[0].dead_letters == 2


async def test_a_large_pre_settled_message_that_a_link_has_no_room_for_is_counted(
    world: World,
) -> None:
    shop = await learned(world)
    net = world.net
    await sleep(0.5)
    cell = net.nodes["a"].parts.table.cell(net.links["a", "b"])
    cell.limit = cell.most = 0
    await together(world, bytes(MAX_BUNDLED + 1), settled=True)
    assert shop.payloads == []
    assert world.counts("link down")[0] == 1
    assert net.at["a"].names()[0].dead_letters == 1


async def test_acceptances_that_a_link_has_no_room_for_are_counted(world: World) -> None:
    kept = await world.keep()
    await together(world, b"1", b"2", b"3")
    net = world.net
    cell = net.nodes["c"].parts.table.cell(neighbour(net, "c", "b"))
    cell.limit = cell.most = 0
    kept.deliveries[1].accept()
    kept.deliveries[2].accept(b"yes")
    kept.deliveries[3].accept(b"yes")
    await sleep(0.25)
    assert world.counts("outcomes that could not be told") == (0, 0, 3)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LinkDown("b", "cut"), "no consumer took it"),
        (InDoubt(Address(0, b"link"), "who knows"), "in doubt"),
    ],
)
async def test_a_bundle_that_a_link_loses_ends_as_each_of_its_messages(
    error: LinkDown | InDoubt, told: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.keep()
    link = world.net.nodes["a"].parts.table.worker_at(world.net.links["a", "b"])
    monkeypatch.setattr(link, "transmit", partial(undelivered, link, error))
    await together(world, b"1", b"2")
    assert world.told == [told] * 2
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_pre_settled_messages_of_a_bundle_that_a_link_loses_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await learned(world)
    link = world.net.nodes["a"].parts.table.worker_at(world.net.links["a", "b"])
    monkeypatch.setattr(link, "transmit", partial(undelivered, link, LinkDown("b", "cut")))
    await together(world, b"1", b"2", settled=True)
    assert world.counts("messages of a bundle that was lost") == (2, 0, 0)
    assert world.net.at["a"].names()[0].dead_letters == 2


@pytest.mark.parametrize(("certain", "told"), [(True, "no consumer took it"), (False, "in doubt")])
async def test_an_error_reply_for_a_bundle_is_one_for_each_of_its_messages(
    certain: bool, told: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.keep()
    let_errors_out(world.net, "b", "a")
    node = world.net.nodes["b"]
    worker = node.parts.table.worker_at(DISPATCH)

    def refuse(message: Message) -> bool:
        return node.answer_error(message, "closed", certain=certain)

    before = worker._receive
    worker._receive = refuse
    await together(world, b"1", b"2")
    worker._receive = before
    assert world.told == [told] * 2
    assert world.fast == world.came == world.full == (0, 0, 0)


async def test_word_about_a_bundle_counts_for_its_link_alone_and_once(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    await together(world, b"1", b"2")
    core = world.net.at["b"]._core
    end = list(core.bundles._sent)[-1]
    let_errors_out(world.net, "a", "b")
    error = Message(
        (neighbour(world.net, "a", "b"), DISPATCH, Address(DELIVERY, end)),
        (ERROR_SOURCE,),
        b"",
        None,
        None,
    )
    world.net.nodes["a"].route(error)  # it was sent to c, and not to a
    for value in (bundle_return_address(12345), b"b1"):
        route = neighbour(world.net, "a", "b"), DISPATCH, Address(DELIVERY, value)
        world.net.nodes["a"].route(Message(route, (), b"", None, None))
    await sleep(0.25)
    assert world.counts("outcomes that came late or for no delivery")[1] == 2
    assert world.counts("addresses that cannot be read")[1] == 1
    for each in kept.deliveries[1:]:
        each.accept()
    await sleep(0.25)
    assert world.told == [b"", b""]


async def test_the_oldest_bundles_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.dispatch._bundle_sender.MAX_SENT", 2)
    kept = await world.keep()
    for payload in (b"1", b"2", b"3"):
        await together(world, payload, payload)
    sent = world.net.at["a"]._core.bundles._sent
    assert len(sent) == 2
    for each in kept.deliveries[1:]:
        each.accept()
    await sleep(0.25)
    assert world.told == [b""] * 6


async def test_a_fault_in_a_turn_costs_its_bundle_only(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.keep()
    bundles = world.net.at["a"]._core.bundles
    send, faults = BundleSender.send, [RuntimeError("once")]

    def failing(self: BundleSender, bundle: object) -> None:
        if self is bundles and faults:
            raise faults.pop()
        send(self, bundle)  # type: ignore[arg-type]

    monkeypatch.setattr(BundleSender, "send", failing)
    await world.net.nodes["c"].start(Answer, address=SHOP)
    await world.net.at["c"].consume("others", SHOP)
    await sleep(SETTLE)
    await sleep(0.5)
    bundles.accept(world.net.links["a", "b"], b"token--1", (), None)
    bundles.accept(world.net.links["a", "b"], b"token--2", (SHOP,), b"yes")
    await sleep(0.25)
    assert not faults
    assert not bundles._waiting
    assert "sending a bundle" in caplog.text


async def test_what_waits_when_the_loop_is_closed_is_lost(world: World) -> None:
    bundles = world.net.at["a"]._core.bundles
    letters = world.net.nodes["a"].dead_letters.total
    bundles.accept(world.net.links["a", "b"], b"token--1", (SHOP,), b"yes")
    bundles.give_up()
    assert world.net.nodes["a"].dead_letters.total == letters + 1
    assert not bundles._waiting


async def test_an_error_of_one_message_of_a_bundle_is_that_of_no_other(world: World) -> None:
    shop = await learned(world)
    core = world.net.at["c"]._core
    slow, errors = core.slow, [LinkDown("d", "cut")]

    def failing(message: Message) -> None:
        if errors:
            raise errors.pop()
        slow(message)

    core.slow = failing  # type: ignore[misc]
    core.fast.clear()
    letters = world.net.nodes["c"].dead_letters.total
    await together(world, b"1", b"2", b"3", settled=True)
    assert shop.payloads == [b"2", b"3"]
    assert world.net.nodes["c"].dead_letters.total == letters + 1


# --- what a neighbour makes up ------------------------------------------------------------------


def record(shape: str, payload: bytes = b"x", count: int = 1) -> bytes:
    head = {"m": b"identity" + b"token--1", "p": b"identity", "a": b"token--1"}[shape]
    return count.to_bytes(2) + head + len(payload).to_bytes(2) + payload


FORGED: dict[str, tuple[bytes, bytes]] = {
    "no records": (b"m", b""),
    "no way back": (b"m", record("m")),
    "no name": (b"p", record("p")),
    "an unusual name": (b"p\x89\x01\x79\x01\x00", record("p")),
    "cut short": (b"a", record("a")[:-1]),
    "too many": (b"a", record("a", count=99)),
    "no token": (b"n", b"token"),
}


@pytest.mark.parametrize("forged", FORGED)
async def test_a_bundle_that_cannot_be_read_is_counted(forged: str, world: World) -> None:
    await learned(world)
    value, payload = FORGED[forged]
    route = neighbour(world.net, "b", "a"), DISPATCH, Address(DELIVERY, value)
    world.net.nodes["b"].route(Message(route, (), payload, None, None))
    await sleep(0.25)
    assert world.counts("addresses that cannot be read") == (1, 0, 0)


@pytest.mark.parametrize("settled", [True, False])
async def test_a_bundle_of_a_known_way_that_is_cut_short_is_counted(
    settled: bool, world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    await together(world, b"1", settled=settled)
    await together(world, b"2", b"3", settled=settled)
    kind = b"p" if settled else b"m"
    bundle, _ = (message for each, _, message in crossed if each == kind)
    world.net.nodes["a"].route(bundle._replace(payload=bundle.payload[:-1]))
    await sleep(0.25)
    assert world.counts("addresses that cannot be read") == (0, 1, 0)
    assert kept.payloads == [b"0", b"1", b"2", b"3"]


async def test_messages_that_have_no_name_are_counted_one_by_one(world: World) -> None:
    value = b"p\x89\x01\x61\x7f\x61b\x48instance\x48\x01\x00\x00\x40"
    two = b"\0\2" + (b"identity" + b"\0\0") * 2
    route = neighbour(world.net, "b", "a"), DISPATCH, Address(DELIVERY, value)
    world.net.nodes["b"].route(Message(route, (), two, None, None))
    await sleep(0.25)
    assert world.counts("addresses that cannot be read") == (2, 0, 0)


async def test_a_bundle_of_a_stranger_is_refused_as_one(world: World) -> None:
    net = world.net
    stranger = await net.network.node("stranger")
    link = await stranger.connect("sim://a")
    value = b"p\x89\x01\x61n\x61b\x48instance\x48\x01\x00\x00\x40"
    for payload in (b"\0\2" + (b"identity" + b"\0\0") * 2, b"\0\2"):
        stranger.send([link, DISPATCH, Address(DELIVERY, value)], payload)
    await sleep(0.25)
    assert world.counts("messages of no neighbour")[0] == 2
    assert net.nodes["a"].dead_letters.by_reason["not exposed"] == 2


async def test_a_bundle_with_a_route_behind_it_is_refused(world: World) -> None:
    route = neighbour(world.net, "b", "a"), DISPATCH, Address(DELIVERY, b"n"), SHOP
    world.net.nodes["b"].route(Message(route, (), b"token--1", None, None))
    world.net.nodes["a"].route(
        Message((DISPATCH, Address(DELIVERY, b"n")), (), b"token--1", None, None)
    )
    await sleep(0.25)
    assert world.counts("addresses that cannot be read") == (2, 0, 0)


async def test_acceptances_with_the_return_route_of_an_error_are_none(world: World) -> None:
    kept = await world.keep()
    let_errors_out(world.net, "b", "a")
    await together(world, b"1")
    ((_, token, _),) = world.net.at["a"]._core.fast.open.values()
    route = neighbour(world.net, "b", "a"), DISPATCH, Address(DELIVERY, b"a")
    payload = b"\0\1" + token + b"\0\0"
    world.net.nodes["b"].route(Message(route, (ERROR_SOURCE,), payload, None, None))
    await sleep(0.25)
    assert world.told == ["in doubt"]
    kept.deliveries[1].accept()
    await sleep(0.25)
    assert world.told == []


async def test_a_token_of_another_link_accepts_nothing(world: World) -> None:
    kept = await world.keep()
    await together(world, b"1")
    ((state, token, _),) = world.net.at["b"]._core.fast.open.values()
    route = neighbour(world.net, "a", "b"), DISPATCH, Address(DELIVERY, b"n")
    world.net.nodes["a"].route(Message(route, (), token + b"unknown!", None, None))
    await sleep(0.25)
    assert state.statistics().forged == 1
    assert world.counts("outcomes that came late or for no delivery") == (0, 1, 0)
    kept.deliveries[1].accept()
    await sleep(0.25)
    assert world.told == [b""]


async def test_a_bundle_that_comes_twice_is_refused_the_second_time(
    world: World, crossed: list[tuple[bytes, bytes, Message]]
) -> None:
    kept = await world.keep()
    crossed.clear()
    await together(world, b"1", b"2")
    again = next(message for kind, _, message in crossed if kind == b"m")
    world.net.nodes["a"].route(again)
    await sleep(0.25)
    assert kept.payloads == [b"0", b"1", b"2"]
    for each in kept.deliveries[1:]:
        each.accept()
    await sleep(1)
    assert world.fast == world.came == (0, 0, 0)
    assert world.net.unsettled == 0


def test_records_have_the_shapes_of_the_page() -> None:
    assert (MESSAGES.size, SETTLED.size, ANSWERS.size) == (18, 10, 10)
