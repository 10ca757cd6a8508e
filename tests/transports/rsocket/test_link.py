"""What the broker relays between two peers, frame by frame."""

from __future__ import annotations

import pytest

from onward.protocol import Address
from tests.support.rsocket_answers import relay
from tests.support.rsocket_peer import *

ASKED = asked_for("a")


@in_world()
async def test_request_response_byte_for_byte(w: World) -> None:
    requester, destination = await w.pair()
    # Unknown flag bits, the I flag and a second entry of metadata are nobody's business.
    asked = request(RR, 1, ASKED + b"\x85\x00\x00\x00", b"ping\x00", flags=I | 0x01F)
    await relay(destination, requester, 2, asked)
    assert w.row().outstanding == 1
    await relay(requester, destination, 1, payload(2, b"pong", N | C | I | 0x1F, b"meta"))
    assert w.row().outstanding == 0
    assert w.row().requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        payload(2, b"", N | C),
        payload(2, b"", N | C, b""),
        payload(2, b"", C),
        payload(2, b"", N),
        error(2, 0x201, b"no"),
        error(2, 0x301, b"of my own \xff"),
        error(2, 0xFFFFFFFE),
        error(2, 0x202, b"", I),
    ],
)
@in_world()
async def test_any_answer_of_request_response_is_relayed_as_it_is(w: World, answer: bytes) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(RR, 1, ASKED))
    await relay(requester, destination, 1, answer)


@in_world()
async def test_fire_and_forget(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(FNF, 1, ASKED, b"data", flags=I))
    assert w.row().requests == 1
    await w.settled()
    await relay(destination, requester, 4, request(FNF, 3, ASKED, b""))


@in_world()
async def test_request_stream(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(STREAM, 1, ASKED, b"q", n=3))
    await relay(requester, destination, 1, payload(2, b""), payload(2, b"", N, b""))
    await relay(requester, destination, 1, payload(2, b"three", N, b"m"))
    await relay(destination, requester, 2, request_n(1, 2))
    await relay(requester, destination, 1, payload(2, b"4"), payload(2, b"5", N | C))


@in_world()
async def test_request_channel_both_ways(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, b"0", n=2))
    await relay(requester, destination, 1, payload(2, b"a"), request_n(2, 3))
    await relay(destination, requester, 2, payload(1, b"1"), payload(1, b"", N))
    await relay(destination, requester, 2, payload(1, b"3", N | C))
    assert w.row().outstanding == 1
    await relay(requester, destination, 1, payload(2, b"b"), payload(2, b"", C))


@in_world()
async def test_a_channel_whose_requester_is_complete_at_once(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, b"", n=1, flags=C))
    await relay(requester, destination, 1, payload(2, b"x", N | C))


@in_world()
async def test_a_channel_whose_responder_wants_no_more(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(CHANNEL, 1, ASKED, b"0", n=5))
    await relay(requester, destination, 1, cancel(2), payload(2, b"a"))
    requester.send(payload(1, b"1"))  # was on its way
    assert await destination.received() == []
    await relay(requester, destination, 1, payload(2, b"b", N | C))


@in_world()
async def test_metadata_push(w: World) -> None:
    requester, destination = await w.pair()
    assert await requester.ask(push(ASKED)) == []
    assert await destination.received() == [push(ASKED)]
    assert w.row().requests == 1


@in_world()
async def test_fragments_are_relayed_as_fragments(w: World) -> None:
    requester, destination = await w.pair()
    asked = [
        request(RR, 1, ASKED[:10], flags=F),
        payload(1, b"", N | F, ASKED[10:]),
        payload(1, b"da", N | F),
        payload(1, b"ta", N),
    ]
    await relay(destination, requester, 2, *asked)
    answers = [
        payload(2, b"", N | F, b"me"),
        payload(2, b"ta", N | F, b"ta"),
        payload(2, b"end", N | C),
    ]
    await relay(requester, destination, 1, *answers)


@in_world()
async def test_fragments_that_come_one_by_one(w: World) -> None:
    requester, destination = await w.pair()
    first = [request(STREAM, 1, ASKED[:1], n=7, flags=F), payload(1, b"", N | F, ASKED[1:])]
    for each in first:
        assert await requester.ask(each) == []
    assert await destination.received() == []  # there may be more metadata
    assert await requester.ask(payload(1, b"x", N | F)) == []
    got = await destination.received()
    assert got == [restamped(each, 2) for each in [*first, payload(1, b"x", N | F)]]
    await relay(destination, requester, 2, payload(1, b"y", N | F))
    await relay(destination, requester, 2, payload(1, b"", N))
    await relay(requester, destination, 1, payload(2, b"z", N | F), payload(2, b"z", N | C))


@in_world()
async def test_fire_and_forget_in_fragments(w: World) -> None:
    requester, destination = await w.pair()
    await relay(destination, requester, 2, request(FNF, 1, ASKED, b"1", flags=F), payload(1, b"2"))
    await w.settled()
    await relay(destination, requester, 4, request(FNF, 3, ASKED, b"1", flags=F))
    assert w.row().outstanding == 1
    await relay(destination, requester, 4, payload(3, b"2"))


@in_world()
async def test_the_largest_frame_there_is(w: World) -> None:
    requester, destination = await w.pair()
    room = 2**24 - 1 - 6 - 3 - len(ASKED)
    asked = request(RR, 1, ASKED, bytes(room))
    assert asked[:3] == b"\xff\xff\xff"
    for at in range(0, len(asked), 1 << 20):
        requester.send(asked[at : at + (1 << 20)])
    assert await destination.received() == [restamped(asked, 2)]
    await relay(requester, destination, 1, payload(2, bytes(2**24 - 7), N | C))


@in_world()
async def test_byte_by_byte(w: World) -> None:
    requester, destination = w.connect(), await w.destination()
    for byte in setup() + request(RR, 1, ASKED, b"slowly"):
        requester.send(bytes((byte,)))
    assert await destination.received() == [request(RR, 2, ASKED, b"slowly")]
    for byte in payload(2, b"so slow", N | C):
        destination.send(bytes((byte,)))
    assert elements(await requester.received()) == [b"so slow"]


@in_world()
async def test_a_setup_and_requests_in_one_piece(w: World) -> None:
    requester, destination = w.connect(), await w.destination()
    asked = [request(FNF, 1, ASKED, b"f"), request(RR, 3, ASKED, b"r"), push(ASKED)]
    requester.send(setup(), *asked, request(STREAM, 5, ASKED, b"s", n=1))
    got = await destination.received()
    assert [kind_of(each) for each in got] == [FNF, RR, 0x0C, STREAM]
    destination.send(payload(4, b"", C), payload(6, b"", N | C))
    assert [stream_of(each) for each in await requester.received()] == [3, 5]


@in_world()
async def test_a_peer_may_be_its_own_destination(w: World) -> None:
    peer = await w.destination()
    assert await peer.ask(request(RR, 1, ASKED, b"x")) == [request(RR, 2, ASKED, b"x")]
    assert await peer.ask(payload(2, b"y", N | C)) == [payload(1, b"y", N | C)]
    await w.settled()
    assert await peer.ask(request(RR, 3, ASKED, b"x")) == [request(RR, 4, ASKED, b"x")]
    peer.die()


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@pytest.mark.parametrize("last", [C, N, N | C])
@pytest.mark.parametrize("first", ["cancel", "answer"])
@in_world()
async def test_its_own_destination_ends_both_streams_in_one_piece(
    w: World, kind: int, last: int, first: str
) -> None:
    peer = await w.destination()
    assert len(await peer.ask(request(kind, 1, ASKED, n=3))) == 1
    both = [cancel(1), payload(2, b"" if last == C else b"x", last)]
    await peer.ask(*(both if first == "cancel" else reversed(both)))


@in_world()
async def test_many_at_once_do_not_mix(w: World) -> None:
    destination = await w.destination()
    requesters = [await w.requester() for _ in range(10)]
    for number in range(50):
        for which, peer in enumerate(requesters):
            peer.send(request(RR, 1 + 2 * number, ASKED, b"%d/%d" % (which, number)))
    got = await destination.received()
    assert len({stream_of(each) for each in got}) == 500
    assert w.row().outstanding == 500
    for each in reversed(got):
        destination.send(payload(stream_of(each), each[12 + len(ASKED) :], N | C))
    for which, peer in enumerate(requesters):
        answers = {stream_of(each): each[9:] for each in await peer.received()}
        assert answers == {1 + 2 * n: b"%d/%d" % (which, n) for n in range(50)}


@pytest.mark.parametrize("at", ["tags", "route"])
@in_world()
async def test_a_request_is_handed_over_once(w: World, at: str) -> None:
    requester, destination = await w.pair()
    sent = request(STREAM, 1, asked_for("a"), b"x", n=3)
    assert await requester.ask(sent) == []
    assert await destination.received() == [restamped(sent, 2)]
    exchange = requester.link.core.streams[1].peer
    to = Address(32, b"service=a") if at == "tags" else exchange.route.to
    for _ in range(2):
        w.node.parts.router.dispatch(requester.link.session.message(exchange, (to,)))
    assert await destination.received() == []
    assert (destination.streams, w.row().outstanding) == (1, 1)
    assert w.node.dead_letters.by_reason == {"it has been handed over already": 2}
    assert await destination.ask(payload(2, b"1", N | C)) == []
    assert await requester.received() == [payload(1, b"1", N | C)]
