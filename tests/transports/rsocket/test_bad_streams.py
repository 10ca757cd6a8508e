"""What the two ends of a stream get wrong, and what nobody has a reason to send.

Each of these ends in one error, or in a counted drop. None is held against anybody else, none
leaves a stream.

What is shown elsewhere is not repeated: frames on streams that are over, frames that are not
legal on their stream, and credit that is exceeded (test_link), credit without end
(test_link_flow), the end of requests that wait (tests/actors/broker/test_index).
"""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import BrokerOptions, MulticastOptions, WaitingOptions
from onward.transports.rsocket import FlowOptions, LinkOptions
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
APPLICATION, REJECTED, CANCELED, INVALID = 0x201, 0x202, 0x203, 0x204
MOST = 2**31 - 1


@pytest.mark.parametrize("who", ["requester", "destination"])
@pytest.mark.parametrize("how", ["die", "eof"])
@in_world()
async def test_a_request_whose_last_fragment_never_comes(w: World, who: str, how: str) -> None:
    requester, destination = await w.pair()
    asked = [request(RR, 1, ASKED, b"1", flags=F), payload(1, b"2", N | F)]
    assert await requester.ask(*asked) == []
    assert await destination.received() == [restamped(each, 2) for each in asked]
    await asyncio.sleep(60)  # an open stream has no time limit of its own
    getattr({"requester": requester, "destination": destination}[who], how)()
    if who == "requester":
        assert await destination.received() == [cancel(2)]
    else:
        got = errors(await requester.received())
        assert [(stream, code) for stream, code, _ in got] == [(1, CANCELED)]
        assert await requester.ask(payload(1, b"3", N)) == []


@pytest.mark.parametrize("how", ["die", "eof"])
@in_world()
async def test_an_answer_whose_last_fragment_never_comes(w: World, how: str) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED))
    await destination.ask(payload(2, b"half of", N | F))
    getattr(destination, how)()
    got = await requester.received()
    assert elements(got) == [b"half of"]
    assert [(stream, code) for stream, code, _ in errors(got)] == [(1, CANCELED)]


@in_world()
async def test_an_empty_element_is_an_element_and_a_frame_that_says_nothing_is_none(
    w: World,
) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(STREAM, 1, ASKED, n=2))
    await destination.received()
    says = [payload(2, b"", N), payload(2, b"", N, b"")]
    assert await destination.ask(says[0], payload(2, b"", 0), says[1]) == []
    assert await requester.received() == [restamped(each, 1) for each in says]
    assert w.listener.statistics().dropped == {"not_legal_on_stream": 1}
    assert await destination.ask(payload(2, b"", C)) == []


@pytest.mark.parametrize("n", [2**31, 2**32 - 1])
@in_world()
async def test_credit_with_the_reserved_bit_set(w: World, n: int) -> None:
    requester, destination = await w.pair()
    assert await requester.ask(request(STREAM, 1, ASKED, n=1)) == []
    got = errors(await requester.ask(request_n(1, n)))
    assert [(stream, code) for stream, code, _ in got] == [(1, INVALID)]
    assert [kind_of(raw) for raw in await destination.received()][-1] == 0x09


@in_world(options=LinkOptions(flow=FlowOptions(credit_window=4)))
async def test_credit_that_overflows_is_credit_without_end(w: World) -> None:
    requester = await w.requester()
    # Before there is a destination, with the request, and once it is taken.
    requester.send(request(STREAM, 1, ASKED, n=MOST), *[request_n(1, MOST)] * 100)
    destination = w.register()
    (first,) = await destination.received()
    assert int.from_bytes(first[9:13]) == 4
    assert await requester.ask(*[request_n(1, MOST)] * 100) == []
    passed = 4
    for sent in range(200):
        assert passed > sent
        granted = await destination.ask(payload(2, b"x"))
        passed += sum(int.from_bytes(raw[9:13]) for raw in granted)
        assert passed - (sent + 1) <= 4
    assert len(elements(await requester.received())) == 200
    await requester.ask(cancel(1))


@in_world(BrokerOptions(multicast=MulticastOptions(window=4)))
async def test_several_destinations_are_given_no_more_than_is_wanted(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination() for _ in range(2)]
    asked = composite((BROKER_FRAME, address("a", 0x040)))
    await requester.ask(request(STREAM, 1, asked, n=4))
    for each in destinations:
        assert len(await each.received()) == 1
    # All that the requester wants, in as few pieces as can be, and nothing beyond.
    first = destinations[0]
    assert await first.ask(payload(2, b"0")) == [request_n(2, 2)]
    assert await first.ask(payload(2, b"1"), payload(2, b"2")) == [request_n(2, 1)]
    granted = await first.ask(payload(2, b"3"))
    assert len(elements(await requester.received())) == 4
    await requester.ask(cancel(1))
    await w.settled_after(destinations[0])
    assert granted == []


@pytest.mark.parametrize(
    "late",
    [
        [payload(2, b"late", N | C)],
        [payload(2, b"late", N | F), payload(2, b"still", N)],
        [error(2, 0x201, b"late")],
        [error(2, 0x301), payload(2, b"x"), cancel(2), request_n(2, 1)],
    ],
)
@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@in_world()
async def test_an_answer_after_the_cancel(w: World, kind: int, late: list[bytes]) -> None:
    requester, destination = await w.pair()
    n = 5 if kind in {STREAM, CHANNEL} else None
    await requester.ask(request(kind, 1, ASKED, n=n))
    await requester.ask(cancel(1))
    assert (await destination.received())[-1] == cancel(2)
    # The requester uses the id again; the destination still speaks of the old one.
    await requester.ask(request(kind, 1, ASKED, n=n))
    assert len(await destination.ask(*late)) == 1
    assert await requester.received() == []
    assert w.listener.statistics().dropped == {"unknown_stream": len(late)}
    await destination.ask(payload(4, b"", N | C))
    assert len(await requester.received()) == 1
    if kind == CHANNEL:
        await requester.ask(payload(1, b"", C))


@in_world()
async def test_a_cancel_and_the_answer_cross_on_the_way(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await destination.received()
    requester.send(cancel(1))
    destination.send(payload(2, b"crossed", N | C), payload(4, b"answer", N | C))
    assert elements(await requester.received()) == [b"answer"]


@pytest.mark.parametrize("kind", [RR, STREAM])
@in_world()
async def test_a_second_answer_in_the_same_piece(w: World, kind: int) -> None:
    requester, destination = await w.pair()
    n = 5 if kind == STREAM else None
    await requester.ask(request(kind, 1, ASKED, n=n), request(kind, 3, ASKED, n=n))
    await destination.received()
    twice = [payload(2, b"one", N | C), payload(2, b"two", N | C), error(2, 0x201)]
    assert await destination.ask(*twice) == []
    assert await requester.received() == [restamped(twice[0], 1)]
    assert w.listener.statistics().dropped == {"unknown_stream": 2}
    await destination.ask(payload(4, b"", N | C))


@pytest.mark.parametrize("stream", [1, 3, 4, 6, 2**31 - 1, 2**31 - 2])
@in_world()
async def test_an_answer_on_a_stream_that_was_never_given(w: World, stream: int) -> None:
    """A destination cannot reach the streams of others by their numbers."""
    requester, destination = await w.pair()
    other = await w.destination("b")
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, asked_for("b")))
    await destination.received()
    await other.received()
    forged = [payload(stream, b"forged", N | C), error(stream, 0x201), cancel(stream)]
    assert await destination.ask(*forged) == []
    assert await requester.received() == []
    assert w.listener.statistics().dropped == {"unknown_stream": 3}
    await destination.ask(payload(2, b"a", N | C))
    await other.ask(payload(2, b"b", N | C))
    assert elements(await requester.received()) == [b"a", b"b"]


@pytest.mark.parametrize("says", [payload(2, b"", C), payload(2, b"x", N), error(2, 0x201)])
@in_world()
async def test_an_answer_to_a_fire_and_forget(w: World, says: bytes) -> None:
    """Some libraries send an ERROR when a handler fails; the requester has no such stream."""
    requester, destination = await w.pair()
    await requester.ask(request(FNF, 1, ASKED))
    assert len(await destination.ask(says)) == 1
    assert await requester.received() == []
    assert w.listener.statistics().dropped == {"unknown_stream": 1}


@in_world()
async def test_a_destination_that_answers_a_channel_and_cancels_it_and_errs(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(CHANNEL, 1, ASKED, n=2))
    await destination.received()
    await destination.ask(cancel(2), payload(2, b"x"), error(2, 0x201, b"no"), error(2, 0x201))
    got = await requester.received()
    assert [kind_of(raw) for raw in got] == [0x09, 0x0A, ERROR]
    assert await requester.ask(payload(1, b"y"), payload(1, b"", C)) == []
    assert await destination.received() == []


@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@in_world()
async def test_cancelled_before_a_route_is_found_and_asked_again(w: World, kind: int) -> None:
    requester = await w.requester()
    n = 1 if kind in {STREAM, CHANNEL} else None
    asked = request(kind, 1, ASKED, b"first", n=n)
    again = request(kind, 1, ASKED, b"second", n=n)
    assert await requester.ask(asked, cancel(1), again) == []
    assert w.broker.statistics().waiting == 1
    destination = w.register()
    assert await destination.received() == [restamped(again, 2)]
    await requester.ask(cancel(1))
    assert await destination.received() == [cancel(2)]


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=5)))
async def test_cancelled_as_its_time_is_over(w: World) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await asyncio.sleep(4.99)
    assert await requester.ask(cancel(1)) == []
    await asyncio.sleep(0.02)
    got = errors(await requester.received())
    assert [(stream, code) for stream, code, _ in got] == [(3, REJECTED)]
    assert await requester.ask(cancel(3)) == []


@in_world()
async def test_keepalives_are_answered_whatever_else_waits(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, asked_for("nobody")))
    await destination.received()
    alive = frame(0, KEEPALIVE, 0x80, bytes(8) + b"still there?")
    assert await requester.ask(alive) == [frame(0, KEEPALIVE, 0, bytes(8) + b"still there?")]
    assert await destination.ask(alive) == [frame(0, KEEPALIVE, 0, bytes(8) + b"still there?")]
    requester.die()


@in_world()
async def test_bad_requests_do_not_disturb_good_ones_in_the_same_piece(w: World) -> None:
    requester, destination = await w.pair()
    bad: list[bytes] = [
        request(RR, 3, None),
        request(RR, 5, composite((BROKER_FRAME, address("a", 0xE0)))),
        frame(7, 0x3F, I, b"????"),
        request(RR, 9, composite((BROKER_FRAME, address("abc")[:-1]))),
        payload(11, b"of nothing"),
    ]
    mixed: list[bytes] = []
    for number, each in enumerate(bad):
        mixed += [request(RR, 101 + 2 * number, ASKED, b"%d" % number), each]
    got = errors(await requester.ask(*mixed))
    assert [(stream, code) for stream, code, _ in got] == [(3, INVALID), (5, INVALID), (9, INVALID)]
    taken = await destination.received()
    assert len(taken) == len(bad)
    await destination.ask(*(payload(2 * n + 2, b"%d" % n, N | C) for n in range(len(bad))))
    assert elements(await requester.received()) == [b"%d" % n for n in range(len(bad))]


@in_world()
async def test_a_hundred_peers_that_send_nonsense_cost_the_others_nothing(w: World) -> None:
    requester, destination = await w.pair()
    peers = [await w.requester() for _ in range(100)]
    for number, peer in enumerate(peers):
        garbage = bytes(((number * 37) % 256,)) * (number % 50)
        noise = composite((BROKER_FRAME, address({}) + garbage))
        peer.send(request(RR, 1, noise), payload(1, b""), cancel(5), error(7, 0x201))
        peer.send(push(noise), request_n(9, 0), request(FNF, 3, noise))
    await w.loop.idle()
    assert not any(peer.closed for peer in peers)
    asked = request(RR, 1, ASKED)
    assert await requester.ask(asked) == []
    assert await destination.ask(payload(2, b"", C)) == [restamped(asked, 2)]
    await asyncio.sleep(5.1)  # one of them happens to be a query that nobody matches
