"""Bundles between dispatchers: their messages and acceptances mean what they mean by themselves."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from functools import partial
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Dispatcher
from onward.actors.dispatch._bundle_receiver import MAX_PARTS
from onward.actors.dispatch._bundle_sender import BundleSender
from onward.protocol import DELIVERY, Address, Message
from onward.protocol.dispatch import (
    BUNDLES_TAKEN,
    MAX_BUNDLE,
    MAX_BUNDLE_SIZE,
    MAX_BUNDLED,
    RELEASED,
)
from onward.protocol.ockam import DatagramLimits
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.bundled import (
    bundled_world,
    kinds,
    learned,
    neighbour,
    record_crossed,
    together,
)
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, Answer, NetSender as World, Sender
from tests.support.transports import eventually
from tests.support.workers import Recorder, start_worker


@pytest.fixture
async def world(network: SimulatedNetwork) -> World:
    return await bundled_world(network)


@pytest.fixture(autouse=True)
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, Message]]:
    return record_crossed(monkeypatch)


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
