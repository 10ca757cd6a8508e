"""Bundles that are taken apart, and those that a neighbour makes up."""

from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors.dispatch import DISPATCH
from onward.protocol import DELIVERY, ERROR_SOURCE, Address, Message
from onward.protocol.dispatch import (
    ANSWERS,
    MESSAGES,
    SETTLED,
    RoutingPattern,
    Semantics,
)
from onward.protocol.eventlog import Kind, Outcome
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.bundled import (
    bundled_world,
    learned,
    let_errors_out,
    neighbour,
    record_crossed,
    together,
)
from tests.actors.dispatch.kept import Kept
from tests.actors.dispatch.nets import SETTLE
from tests.actors.dispatch.senders import SHOP, NetSender as World
from tests.support.names import Counted


@pytest.fixture
async def world(network: SimulatedNetwork) -> World:
    return await bundled_world(network)


@pytest.fixture(autouse=True)
def crossed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes, Message]]:
    return record_crossed(monkeypatch)


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
