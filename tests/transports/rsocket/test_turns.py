"""A connection that keeps sending has turns like all others."""

from __future__ import annotations

from typing import Any, cast

import pytest

from onward.transports.rsocket import FlowOptions, LinkOptions
from onward.transports.rsocket._connection import TURN
from tests.support.rsocket_peer import *

ASKED = asked_for("a")


def sent(marks: bytes) -> list[bytes]:
    return [request(FNF, 1 + 2 * at, ASKED, bytes([mark])) for at, mark in enumerate(marks)]


@in_world()
async def test_others_have_their_turn_while_one_keeps_sending(w: World) -> None:
    hog, destination = await w.pair()
    honest = [await w.requester() for _ in range(3)]
    flood = sent(b"h" * 3000)
    hog.send(*flood)
    for peer in honest:
        peer.send(request(FNF, 1, ASKED, b"!"))
    came = bytes(raw[-1] for raw in await destination.received())
    assert len(came) == 3003
    most = TURN // len(flood[0]) + 1
    assert came.index(b"!") <= most
    assert came.rindex(b"!") <= most + 2


@in_world()
async def test_all_that_was_read_is_handled_in_order(w: World) -> None:
    requester, destination = await w.pair()
    asked = [request(FNF, 1 + 2 * at, ASKED, b"%d" % at) for at in range(2000)]
    got = await requester.ask(*asked, frame(0, KEEPALIVE, 0x80, bytes(8)))
    assert [kind_of(raw) for raw in got] == [KEEPALIVE]
    came = await destination.received()
    assert [raw[-len(b"%d" % at) :] for at, raw in enumerate(came)] == [
        b"%d" % at for at in range(2000)
    ]


@pytest.mark.parametrize("before", [0, 3, 5000])
@in_world()
async def test_a_frame_longer_than_a_turn_is_handled_whole(w: World, before: int) -> None:
    requester, destination = await w.pair()
    large = request(RR, 1, ASKED, bytes(10 * TURN))
    requester.send(large[:before])
    requester.send(large[before:])
    # Nothing of it waits for a turn: there is no other frame in what was read.
    assert not requester.link._later
    assert [len(raw) for raw in await destination.received()] == [len(large)]
    await destination.ask(payload(2, b"!", N | C))
    assert elements(await requester.received()) == [b"!"]


@in_world()
async def test_it_is_not_read_until_all_has_had_its_turn(w: World) -> None:
    requester, _ = await w.pair()
    requester.send(*sent(b"x" * 1000))
    assert not requester.transport.reading
    requester.send(*sent(b"y"))
    assert requester.transport.unread
    await w.loop.idle()
    assert requester.transport.reading
    assert not requester.transport.unread


@in_world(options=LinkOptions(flow=FlowOptions(high_water=20_000)))
async def test_turns_wait_while_the_destination_takes_nothing(w: World) -> None:
    requester, destination = await w.pair()
    destination.stop_reading()
    requester.send(*[request(FNF, 1 + 2 * at, ASKED, bytes(100)) for at in range(900)])
    await w.loop.idle()
    destination.read_on()
    await w.loop.idle()
    assert requester.transport.reading
    assert not requester.link._later


@in_world()
async def test_what_has_not_had_its_turn_is_let_go_of_with_the_connection(w: World) -> None:
    requester, destination = await w.pair()
    requester.send(*sent(b"x" * 1000))
    requester.die()
    await w.loop.idle()
    assert not requester.link._later
    assert len(await destination.received()) < 1000


@in_world()
async def test_nothing_counts_after_what_ends_the_connection(w: World) -> None:
    requester, destination = await w.pair()
    broken = frame(0, 0x3F)
    frames = sent(b"x" * 500)
    got = await requester.ask(*frames[:1], broken, *frames[1:])
    assert [stream for stream, _, _ in errors(got)] == [0]
    assert [stream_of(raw) for raw in await destination.received()] == [2]


@in_world(options=LinkOptions(flow=FlowOptions(high_water=20_000)))
async def test_turns_wait_while_the_requester_is_not_read_and_go_on_in_order(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(CHANNEL, 1, ASKED, b"0", n=1))
    await destination.ask(request_n(2, 10_000))
    await destination.received()
    destination.stop_reading()
    requester.send(*(payload(1, b"%06d" % at + bytes(100)) for at in range(1, 901)))
    await w.loop.idle()
    assert requester.link._later
    assert not requester.transport.reading
    requester.send(payload(1, b"%06d" % 901, N | C))
    destination.read_on()
    came = elements(await destination.received())
    assert [int(each[:6]) for each in came] == list(range(1, 902))
    requester.die()


class Sliced(bytes):
    """Bytes that count what is copied out of them."""

    copied = 0

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, slice):
            return super().__getitem__(cast(int, at))
        found = super().__getitem__(cast("slice[int, int, int]", at))
        Sliced.copied += len(found)
        return Sliced(found)


@in_world()
async def test_what_has_its_turns_later_is_copied_once(w: World) -> None:
    requester, destination = await w.pair()
    sizes = [3 * TURN, *[10] * 2000, 2 * TURN, TURN + 1, *[100] * 1000, 5 * TURN]
    asked = [request(FNF, 1 + 2 * at, ASKED, bytes(size)) for at, size in enumerate(sizes)]
    data = Sliced(b"".join(asked))
    Sliced.copied = 0
    requester.transport.unread.append(data)
    requester.transport.feed()
    assert [len(raw) for raw in await destination.received()] == [len(raw) for raw in asked]
    # Once for its turn, and what is small: the metadata of each request.
    assert Sliced.copied < 2 * len(data)


@in_world()
async def test_a_read_may_be_cut_anywhere_in_a_frame(w: World) -> None:
    """A turn ends where `TURN` says, whatever is there, also within the length of a frame."""
    requester, destination = await w.pair()
    after = [request(FNF, 3, ASKED, bytes(2 * TURN)), request(FNF, 5, ASKED, bytes(TURN))]
    size = len(request(FNF, 1, ASKED))
    for number, left in enumerate((*range(12), 60, TURN - size)):
        first = request(FNF, 1, ASKED, bytes(TURN - size - left))
        frames = [
            raw[:3] + (6 * number + 1 + 2 * at).to_bytes(4) + raw[7:]
            for at, raw in enumerate((first, *after))
        ]
        requester.send(*frames)
        assert [len(raw) for raw in await destination.received()] == [len(r) for r in frames]
