"""Connections that take places from others: too many of one source, and those that do nothing."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.transports.rsocket import FlowOptions, LinkOptions
from tests.support.rsocket_peer import *

HOG, OTHER = "10.0.0.66", "10.0.0.7"
ALIVE = frame(0, KEEPALIVE, 0, bytes(8))


async def opened(w: World, number: int, host: str = HOG) -> list[Peer]:
    """Connect peers that say no more than SETUP, and return those that were taken."""
    made = [w.connect(host) for _ in range(number)]
    await w.loop.idle()
    taken = [peer for peer in made if not peer.closed]
    for peer in taken:
        peer.send(setup())
    w.peers[:] = [peer for peer in w.peers if peer not in made or peer in taken]
    await w.loop.idle()
    return taken


@in_world(options=LinkOptions(max_connections=10))
async def test_one_source_leaves_half_of_the_places_to_others(w: World) -> None:
    assert len(await opened(w, 20)) == 6
    assert len(await opened(w, 20, OTHER)) == 3
    assert len(await opened(w, 20, "10.0.0.8")) == 1
    assert w.listener.statistics().turned_away == 50
    for peer in w.peers:
        peer.eof()
    await w.loop.idle()
    assert len(await opened(w, 20, OTHER)) == 6


@in_world(
    BrokerOptions(waiting=WaitingOptions(max_messages=10)),
    LinkOptions(
        max_connections=10,
        proxies=("10.0.0.64/28", "10.0.0.9"),
        flow=FlowOptions(max_pending_total=10_000_000),
    ),
)
async def test_clients_behind_a_proxy_do_not_share_what_one_source_may_have(w: World) -> None:
    clients = await opened(w, 12)
    assert len(clients) == 10
    clients.pop().die()
    await w.loop.idle()
    destination = await w.destination()
    # Requests that wait: nine of ten places, where one source would have six.
    for number, client in enumerate(clients):
        assert await client.ask(request(RR, 1, asked_for(f"none{number}"))) == []
    assert w.broker.statistics().waiting == 9
    # Bytes that wait: 8.1 of 10 MB, where one source would have half of them.
    for client in clients:
        client.stop_reading()
        await client.ask(request(RR, 3, asked_for("a")))
        (asked,) = await destination.received()
        await destination.ask(payload(stream_of(asked), bytes(900_000), N | C))
    assert not any(client.closed for client in clients)
    for client in clients:
        client.read_on()
        client.die()


def test_a_proxy_that_is_no_network() -> None:
    with pytest.raises(ValueError, match=r"proxies: 10\.0\.0\.1/8 has host bits set"):
        LinkOptions(proxies=("10.0.0.1/8",))


@pytest.mark.parametrize("most", [1, 3, 10, 20])
@in_memory
async def test_how_many_of_one_source_can_be_said(most: int) -> None:
    options = LinkOptions(max_connections=10, max_connections_per_source=most)
    async with world(options=options) as w:
        assert len(await opened(w, 30)) == min(most, 10)


@in_world(options=LinkOptions(max_connections=3, max_connections_per_source=3, unused_timeout=10))
async def test_what_has_done_nothing_gives_up_its_place_when_there_is_none(w: World) -> None:
    idle = await opened(w, 3)
    await asyncio.sleep(9.9)
    assert await opened(w, 1, OTHER) == []
    await asyncio.sleep(0.2)
    (new,) = await opened(w, 1, OTHER)
    assert [peer.closed for peer in idle] == [True, False, False]
    ((stream, code, text),) = errors(await idle[0].received())
    assert (stream, code) == (0, 0x101)
    assert "place" in text
    assert not new.closed
    assert w.listener.statistics().closed == {"unused": 1}
    # Also one that has not even said SETUP; and none that is younger.
    w.connect(OTHER)
    assert [peer.closed for peer in idle] == [True, True, False]
    w.connect(OTHER)
    assert [peer.closed for peer in idle] == [True, True, True]
    assert await opened(w, 1) == []


@in_world(options=LinkOptions(max_connections=4, max_connections_per_source=4, unused_timeout=1))
async def test_who_is_a_destination_or_has_asked_keeps_its_place(w: World) -> None:
    destination, asked = await w.destination(), await w.requester()
    refused, pushed = await w.requester(), await w.requester()
    await asked.ask(request(RR, 1, asked_for("nowhere")))
    await refused.ask(request(RR, 1, None))
    await pushed.ask(push(asked_for("nowhere")))
    for _ in range(30):
        await asyncio.sleep(1)
        assert await opened(w, 1, OTHER) == []
    assert not any(peer.closed for peer in (destination, asked, refused, pushed))


@in_world(options=LinkOptions(max_connections=10, unused_timeout=5))
async def test_a_source_that_has_its_share_gives_up_its_own(w: World) -> None:
    honest = await opened(w, 2, OTHER)
    hogs = await opened(w, 5)
    await asyncio.sleep(6)
    for peer in (*honest, *hogs):
        peer.send(ALIVE)
    assert len(await opened(w, 3)) == 3
    assert [peer.closed for peer in hogs] == [True] * 3 + [False] * 2
    assert not any(peer.closed for peer in honest)
    assert w.listener.statistics().turned_away == 0


@in_world(options=LinkOptions(max_connections=6, max_connections_per_source=6, unused_timeout=5))
async def test_when_all_places_are_taken_the_largest_source_gives_up_one(w: World) -> None:
    few = await opened(w, 2, "10.0.0.8")
    many = await opened(w, 4)
    await asyncio.sleep(6)
    assert len(await opened(w, 2, OTHER)) == 2
    assert [peer.closed for peer in many] == [True, True, False, False]
    assert not any(peer.closed for peer in few)


@in_world()
async def test_places_are_given_back_and_nothing_is_kept_of_who_has_left(w: World) -> None:
    for host in (HOG, OTHER):
        for peer in await opened(w, 5, host):
            peer.die()
    await w.loop.idle()
    places = w.listener._acceptor.places
    assert (places.taken, places._by_source, w.listener._unused._unused) == (0, {}, {})
