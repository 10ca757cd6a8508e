"""Messages between dispatchers, by the way of those before them: pre-settled ones."""

from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors.dispatch import DISPATCH, Accept, Received, _fast_transits
from onward.actors.dispatch._bundle_parts import id_of
from onward.protocol import NAME, Address, Context, Message
from onward.protocol.dispatch import (
    MAX_TRANSIT,
    RoutingPattern,
    Semantics,
    Transit,
    encode_transit,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, linear
from tests.support.names import Counted
from tests.support.workers import Recorder, start_worker

ORDERS = Address(NAME, b"orders")


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    return Net(network)


async def recorder(net: Net, at: str = "c", name: str = "orders") -> Recorder:
    """Attach a worker to a name, and have the nodes know of it."""
    shop = await start_worker(net.nodes[at], Recorder(), address="shop")
    await net.at[at].consume(name, shop.address, accept=Accept.HANDED)
    await sleep(SETTLE)
    return shop


async def send(net: Net, *payloads: bytes, to: Address = ORDERS) -> None:
    for payload in payloads:
        net.nodes["a"].send(to, payload)
        await sleep(1)


def ways(net: Net, name: str) -> int:
    """Return the number of transit addresses of which a node knows the way."""
    return len(net.at[name]._core.fast.transits._transits)


def full(net: Net, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the nodes that have read a transit address in full, from now on."""
    read: list[str] = []
    for name, dispatcher in net.at.items():
        worker = net.nodes[name].parts.table.worker_at(DISPATCH)
        before = worker._transit

        def transit(message: Message, first: Address, name: str = name, before=before) -> None:  # type: ignore[no-untyped-def]
            read.append(name)
            before(message, first)

        monkeypatch.setattr(worker, "_transit", transit)
        assert dispatcher._core.own == name
    return read


@pytest.mark.parametrize("name", ["orders", "o" * 200])
async def test_the_second_message_goes_the_way_of_the_first(
    name: str, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await linear(net)
    shop = await recorder(net, name=name)
    read = full(net, monkeypatch)
    await send(net, b"1", b"2", b"3", to=Address(NAME, name.encode()))
    assert read == ["b", "c"]
    assert shop.payloads == [b"1", b"2", b"3"]
    assert (ways(net, "a"), ways(net, "b"), ways(net, "c")) == (0, 1, 1)


async def test_the_rest_of_the_route_goes_along(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    more = Address(0, b"more")
    for _ in range(3):
        net.nodes["a"].send((ORDERS, more), b"x")
        await sleep(1)
    assert [each.onward_route for each in shop.messages] == [(shop.address, more)] * 3


async def test_a_name_of_many_bytes_is_read_in_full(net: Net) -> None:
    await linear(net)
    name = "o" * 300
    shop = await recorder(net, name=name)
    await send(net, b"1", b"2", to=Address(NAME, name.encode()))
    assert shop.payloads == [b"1", b"2"]
    assert ways(net, "b") == 0


async def test_messages_with_a_time_are_read_in_full(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    context = Context(deadline=net.nodes["a"].loop.time() + 100.0)
    for _ in range(2):
        net.nodes["a"].route(Message((ORDERS,), (), b"x", None, context))
        await sleep(1)
    producer = await net.at["a"].produce("orders")
    for _ in range(2):
        await producer.send(b"x", timeout=100.0)
    assert len(shop.messages) == 4
    assert ways(net, "b") == 0


async def test_a_handler_that_has_its_window_full_gets_the_rest_later(net: Net) -> None:
    await linear(net)
    got: list[bytes] = []

    async def handle(delivery: Received) -> None:
        await sleep(3)
        got.append(delivery.payload)

    await net.at["c"].consume("orders", handle, window=1)
    await sleep(SETTLE)
    for payload in (b"1", b"2", b"3", b"4"):
        net.nodes["a"].send(ORDERS, payload)
    await sleep(20)
    assert got == [b"1", b"2", b"3", b"4"]


async def test_a_consumer_on_the_way_takes_part_in_the_choice(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    nearer = await start_worker(net.nodes["b"], Recorder(), address="nearer")
    consumer = await net.at["b"].consume("orders", nearer.address, accept=Accept.HANDED)
    await sleep(SETTLE)
    await send(net, b"3", b"4")
    consumer.close()
    await sleep(SETTLE)
    await send(net, b"5", b"6")
    assert nearer.payloads == [b"3", b"4"]
    assert shop.payloads == [b"1", b"2", b"5", b"6"]


async def test_several_consumers_behind_one_link_get_messages_in_turn(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    other = await start_worker(net.nodes["c"], Recorder(), address="other")
    await net.at["c"].consume("orders", other.address, accept=Accept.HANDED)
    await send(net, *(b"%d" % each for each in range(8)))
    assert [len(shop.messages), len(other.messages)] == [4, 4]


async def test_ways_are_forgotten_when_a_link_is_cut(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    await net.cut("b", "c")
    await sleep(SETTLE)
    assert ways(net, "b") == 0
    await send(net, b"3")
    assert shop.payloads == [b"1", b"2"]
    await net.join("b", "c")
    await sleep(SETTLE)
    await send(net, b"4", b"5")
    assert shop.payloads == [b"1", b"2", b"4", b"5"]


async def test_a_link_without_room_drops_and_counts_the_message(net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    cell = net.nodes["a"].parts.table.cell(net.links["a", "b"])
    before = cell.limit, cell.most
    cell.limit = cell.most = 0
    await send(net, b"3")
    cell.limit, cell.most = before
    await send(net, b"4")
    assert shop.payloads == [b"1", b"2", b"4"]
    assert net.at["a"].statistics().counts["link down"] == 1
    assert net.nodes["a"].dead_letters.by_reason["link down"] == 1
    (row,) = net.at["a"].names()
    assert row.dead_letters == 1


@pytest.mark.parametrize("at", ["a", "b", "c"])
async def test_a_name_that_becomes_unavailable_takes_no_more(at: str, net: Net) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    net.at[at].provision("orders", Semantics(pattern=RoutingPattern.UNAVAILABLE))
    await sleep(1)
    await send(net, b"3")
    assert shop.payloads == [b"1", b"2"]


async def test_a_name_that_becomes_a_multicast_is_read_in_full(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    net.provision("orders", Semantics(pattern=RoutingPattern.MULTICAST))
    await sleep(SETTLE)
    read = full(net, monkeypatch)
    await send(net, b"3", b"4")
    assert shop.payloads == [b"1", b"2", b"3", b"4"]
    assert read == ["b", "c", "b", "c"]


async def test_an_event_log_is_told_of_messages_that_pass(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await linear(net)
    await recorder(net)
    await send(net, b"1", b"2")
    for name in ("b", "c"):
        net.nodes[name].add_instrument(Counted())
    read = full(net, monkeypatch)
    await send(net, b"3")
    assert read == ["b", "c"]


async def test_the_same_address_over_another_link_is_read_in_full(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await linear(net)
    shop = await recorder(net)
    await send(net, b"1", b"2")
    transits = net.at["b"]._core.fast.transits
    known = dict(transits._transits)
    other = Address(0, b"other")
    transits._transits.update({key: way._replace(source=other) for key, way in known.items()})
    transits._last = _fast_transits._NO_WAY
    read = full(net, monkeypatch)
    await send(net, b"3", b"4")
    assert read == ["b"]
    assert shop.payloads == [b"1", b"2", b"3", b"4"]


async def test_a_name_without_a_state_has_no_way(net: Net) -> None:
    await linear(net)
    consumer = await net.at["c"].consume("orders", lambda _: None)
    await sleep(SETTLE)
    await send(net, b"1", b"2")
    transits = net.at["a"]._core.fast.transits
    assert [each.link for each in transits._ways.values()] == [net.links["a", "b"]]
    consumer.close()
    await sleep(SETTLE)
    assert not transits._ways


async def test_ways_are_forgotten_with_the_state_of_their_name(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    await linear(net)
    for _ in range(2):
        consumer = await net.at["c"].consume("orders", lambda _: None)
        await sleep(SETTLE)
        read = full(net, monkeypatch)
        await send(net, b"1", b"2")
        assert read == ["b", "c"]
        assert ways(net, "c") == 1
        consumer.close()
        await sleep(SETTLE)
        assert (ways(net, "b"), ways(net, "c")) == (0, 0)


async def test_the_oldest_way_is_forgotten_beyond_the_limit(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_fast_transits, "MAX_TRANSITS", 1)
    await linear(net)
    shop = await recorder(net)
    await net.at["c"].consume("others", shop.address, accept=Accept.HANDED)
    await sleep(SETTLE)
    await send(net, b"1")
    await send(net, b"2", to=Address(NAME, b"others"))
    await send(net, b"3")
    assert shop.payloads == [b"1", b"2", b"3"]
    assert ways(net, "b") == 1


def test_the_place_of_an_id_is_that_in_the_address() -> None:
    for size in (1, 23, 24, 255):
        for node in ("n", "n" * 23, "n" * 24, "n" * 255):
            value = encode_transit(Transit("o" * size, node, b"instance", b"identity"))
            assert len(value) <= MAX_TRANSIT
            at = id_of(value)
            assert value[at : at + 8] == b"identity"
    for name, node in (("o" * 256, "n"), ("o", "n" * 256)):
        assert not id_of(encode_transit(Transit(name, node, b"instance", b"identity")))
    value = encode_transit(Transit("orders", "a", b"instance", b"identity"))
    assert not any(map(id_of, (value[:each] for each in range(11))))
    assert not id_of(value[:3] + b"\x00" + value[4:])
