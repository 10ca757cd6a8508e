"""The express path: when it is taken, and what the actors on the way handle when it is not."""

from __future__ import annotations

from collections import Counter

from onward.actors import Instrument, Node, Worker
from onward.protocol import Address, Message
from tests.support.rsocket_peer import *

ASKED = asked_for("a")


def handled(node: Node) -> dict[str, int]:
    """Return the messages that the broker's actors have handled, by their kind."""
    counts: dict[str, int] = {}
    for each in node.statistics().workers:
        counts[each.kind] = counts.get(each.kind, 0) + each.handled
    return counts


def on_the_way(w: World) -> tuple[int, ...]:
    counts = handled(w.node)
    kinds = ("TagIndexWorker", "Unicast", "RouteWorker", "ConnectionWorker")
    return tuple(counts[kind] for kind in kinds)


@in_world()
async def test_the_actors_that_handle_a_request(w: World, express: bool) -> None:
    requester, destination = await w.pair()
    assert on_the_way(w) == (0, 0, 0, 0)
    assert await requester.ask(request(RR, 1, ASKED)) == []
    assert await destination.received() == [request(RR, 2, ASKED)]
    # A shortcut past the index and the forwarder; the route and the connection count the same.
    assert on_the_way(w) == ((0, 0, 1, 1) if express else (1, 1, 1, 1))
    assert w.row().requests == 1
    assert await destination.ask(payload(2, b"done", N | C)) == []


@in_world()
async def test_a_request_does_not_pass_those_that_wait(w: World, express: bool) -> None:
    requester, destination = await w.pair()
    (entry,) = (each for each in w.broker.index.table if each.service_name == "a")
    parts = [*w.broker.index.cells[:2], entry.target.cell, entry.target.connection]
    for number, cell in enumerate(parts, 1):
        assert cell is not None
        first = request(FNF, 4 * number + 1, ASKED, b"first")
        second = request(FNF, 4 * number + 3, ASKED, b"then")
        cell.scheduled = True  # as if it had other things to do
        requester.send(first)
        await w.loop.idle()
        assert await destination.received() == []
        w.node.parts.run_queue.schedule(cell)
        requester.send(second)
        got = await destination.received()
        assert [each[-4:] for each in got] == [b"irst", b"then"]


@in_world()
async def test_a_multicast_waits_for_its_forwarder_and_for_a_destination(
    w: World, express: bool
) -> None:
    requester = await w.requester()
    first, second = await w.destination(), await w.destination()
    asked = request(FNF, 1, asked_for("a", MULTICAST))
    assert await requester.ask(asked) == []
    assert [len(await peer.received()) for peer in (first, second)] == [1, 1]
    forwarder = w.broker.index.cells[2]
    # Its legs need no messages.
    assert (forwarder.handled, on_the_way(w)[2:]) == ((0 if express else 1), (2, 2))
    for cell, got in ((forwarder, 0), (first.link.worker._placed, 1)):
        cell.scheduled = True  # as if it had other things to do
        requester.send(request(FNF, 3 + 2 * got, asked_for("a", MULTICAST)))
        await w.loop.idle()
        assert [len(await peer.received()) for peer in (first, second)] == [0, got]
        w.node.parts.run_queue.schedule(cell)
        assert [len(await peer.received()) for peer in (first, second)] == [1, 1 - got]


@in_world()
async def test_every_destination_has_a_route_with_an_address(w: World) -> None:
    _, destination = await w.pair()
    route = next(each.target for each in w.broker.index.table if each.service_name == "a")
    assert route.to != route.destination.worker
    assert w.node.has(route.to)
    # It takes messages of workers as well.
    w.node.send(Address(0, route.to.value), b"x")
    assert len(await destination.received()) == 1
    destination.die()
    await w.loop.idle()
    assert not w.node.has(route.to)


class EachMessage(Instrument):
    """An instrument that counts the messages that workers handle, by their kind."""

    def __init__(self) -> None:
        self.handled: Counter[str] = Counter()

    def message_handled(
        self, worker: Worker, message: Message, seconds: float, error: BaseException | None
    ) -> None:
        del message, seconds, error
        self.handled[type(worker).__name__] += 1


@in_world()
async def test_an_instrument_observes_each_hop_of_a_request(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(FNF, 1, ASKED))
    instrument = EachMessage()
    w.node.add_instrument(instrument)
    await requester.ask(request(FNF, 3, ASKED))
    kinds = ("TagIndexWorker", "Unicast", "RouteWorker", "ConnectionWorker")
    assert instrument.handled == dict.fromkeys(kinds, 1)
    assert len(await destination.received()) == 2
