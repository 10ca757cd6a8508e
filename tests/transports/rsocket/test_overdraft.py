"""Destinations that do not heed credit: what they may send is for the requester to say.

`rsocket_rust` sends all it has at once. Within what the requester has asked for that is relayed;
what waits because of it is bounded.
"""

from __future__ import annotations

import pytest

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.transports.rsocket import FlowOptions, LinkOptions
from onward.transports.rsocket._link import FIRST_WINDOW
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
SMALL = LinkOptions(flow=FlowOptions(credit_window=8))
INVALID, CANCELED = 0x204, 0x203


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@pytest.mark.parametrize("at_once", [True, False])
@in_world(options=SMALL)
async def test_what_the_requester_has_asked_for_is_relayed(
    w: World, kind: int, at_once: bool
) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(kind, 1, ASKED, n=60, flags=C if kind == CHANNEL else 0))
    sent = [payload(2, b"%d" % number) for number in range(60)]
    if at_once:
        destination.send(*sent)
    else:
        for each in sent:
            destination.send(each)
    assert elements(await requester.received()) == [b"%d" % number for number in range(60)]
    granted = [raw for raw in await destination.received() if kind_of(raw) == 0x08]
    # All of the requester's credit has been passed on by then, and no more.
    assert 8 + sum(int.from_bytes(raw[9:13]) for raw in granted) == 60
    await requester.ask(request_n(1, 2))
    assert await destination.received() == [request_n(2, 2)]
    await destination.ask(payload(2, b"x"), payload(2, b"y", N | C))
    assert elements(await requester.received()) == [b"x", b"y"]


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world(options=SMALL)
async def test_one_more_than_the_requester_has_asked_for_ends_the_stream(
    w: World, kind: int
) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(kind, 1, ASKED, n=60, flags=C if kind == CHANNEL else 0))
    await destination.received()
    destination.send(*[payload(2, b"x")] * 61)
    got = await requester.received()
    assert [code for _, code, _ in errors(got)] == [0x203]
    assert cancel(2) in await destination.received()
    assert not destination.closed


@in_world(options=LinkOptions(flow=FlowOptions(credit_window=8, high_water=1000)))
async def test_what_a_requester_that_does_not_read_has_waiting_is_bounded(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=1000), request(STREAM, 3, ASKED, n=1000))
    requester.stop_reading()
    # One that heeds its credit stays, however long the requester does not read.
    await destination.ask(*[payload(4, bytes(1000))] * 8)
    for _ in range(40):
        await destination.ask(payload(2, bytes(1000)))
    assert requester.link.waiting < 20_000
    assert [kind_of(raw) for raw in await destination.received()][-1:] != [0x08]
    assert requester.streams == destination.streams == 1
    assert w.listener.statistics().dropped["overdrawn"] == 1
    requester.read_on()
    got = await requester.received()
    assert [(stream, code) for stream, code, _ in errors(got)] == [(1, CANCELED)]
    assert not requester.closed
    assert not destination.closed
    await requester.ask(cancel(3))


@in_world()
async def test_fewer_elements_are_asked_for_if_they_are_large(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=10_000))
    (first,) = await destination.received()
    assert int.from_bytes(first[9:13]) == FIRST_WINDOW
    granted = FIRST_WINDOW
    for sent in range(1, 100):
        for raw in await destination.ask(payload(2, bytes(1024 * 1024))):
            granted += int.from_bytes(raw[9:13])
        if sent > FIRST_WINDOW:
            assert granted - sent <= 4
    await requester.ask(request(STREAM, 3, ASKED, n=10_000))
    (second,) = await destination.received()
    assert int.from_bytes(second[9:13]) == 3  # with the header, one is more than 1 MiB
    for _ in range(200):  # small ones again
        destination.send(payload(2, b"x"))
    await destination.received()
    await requester.ask(request(STREAM, 5, ASKED, n=10_000))
    third = [raw for raw in await destination.received() if kind_of(raw) == STREAM]
    assert int.from_bytes(third[0][9:13]) > 3
    requester.die()


@in_world()
async def test_fragments_count_as_a_part_of_something_large(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=10_000))
    await destination.received()
    for _ in range(FIRST_WINDOW):
        await destination.ask(payload(2, bytes(16_000), N | F), payload(2, b"", N))
    got = [raw for raw in await destination.ask() if kind_of(raw) == 0x08]
    assert destination.link.window < 10
    del got
    requester.die()


@in_world(BrokerOptions(multicast=MulticastOptions(window=4)))
async def test_several_destinations(w: World) -> None:
    requester = await w.requester()
    first, second = await w.destination(), await w.destination()
    await requester.ask(request(STREAM, 1, asked_for("a", MULTICAST), n=50))
    await first.ask(*[payload(2, b"f")] * 30)
    assert elements(await requester.received()) == [b"f"] * 30
    await second.ask(*[payload(2, b"s")] * 25)
    assert elements(await requester.received()) == [b"s"] * 20
    await requester.ask(request_n(1, 5))
    assert not errors(await requester.received())
    # This one exceeds what the requester has asked for: the others go on without it.
    ended = await first.ask(*[payload(2, b"f")] * 26)
    assert kind_of(ended[-1]) == CANCEL
    await requester.ask(request_n(1, 100))
    await second.ask(payload(2, b"", C))
    got = await requester.received()
    assert not errors(got)
    assert got[-1] == payload(1, b"", C)


@in_world(BrokerOptions(multicast=MulticastOptions(max_held=20_000)))
async def test_one_of_several_that_has_too_much_waiting_is_done_without(w: World) -> None:
    requester = await w.requester()
    first, second = await w.destination(), await w.destination()
    await requester.ask(request(STREAM, 1, asked_for("a", MULTICAST), n=50))
    requester.stop_reading()
    requester.link.pause_writing()
    got = [raw for _ in range(20) for raw in await first.ask(payload(2, bytes(1000)))]
    assert w.broker.index.multicast_rules.left == 1
    assert kind_of(got[-1]) == CANCEL
    requester.link.resume_writing()
    requester.read_on()
    await second.ask(payload(2, b"last", N | C))
    got = await requester.received()
    assert elements(got)[-2:] == [b"last", b""]
    requester.die()
