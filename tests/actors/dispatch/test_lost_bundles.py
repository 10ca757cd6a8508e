"""Bundles that are lost on their way, or of which a part is."""

from __future__ import annotations

from asyncio import sleep
from functools import partial

import pytest

from onward.actors.dispatch import DISPATCH
from onward.actors.dispatch._bundle_sender import BundleSender
from onward.protocol import DELIVERY, ERROR_SOURCE, Address, InDoubt, LinkDown, Message
from onward.protocol.dispatch import (
    MAX_BUNDLED,
    bundle_return_address,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.bundled import (
    bundled_world,
    learned,
    let_errors_out,
    neighbour,
    record_crossed,
    together,
    undelivered,
)
from tests.actors.dispatch.nets import SETTLE
from tests.actors.dispatch.senders import BACK, ORDERS, SHOP, Answer, NetSender as World


@pytest.fixture
async def world(network: SimulatedNetwork) -> World:
    return await bundled_world(network)


@pytest.fixture(autouse=True)
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, Message]]:
    return record_crossed(monkeypatch)


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
