"""Channels whose request frame has F and C: its fragments are the requester's last element.

Peers that put fragments together look for C on the last one, so it has C when it is relayed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from onward.actors.broker import Handlers, Incoming, Request
from tests.support.rsocket_peer import *

HALF = 20
"""Bytes of metadata in the first fragment."""


def in_two(flags: int, *, last: int = N, stream: int = 1) -> tuple[bytes, bytes]:
    """Return a channel in two fragments, the first of which says that it is all."""
    return (
        request(CHANNEL, stream, asked_for("a", flags), b"1", n=10, flags=F | C),
        payload(stream, b"2", last),
    )


def split_in_metadata(stream: int = 1) -> tuple[bytes, bytes]:
    metadata = asked_for("a")
    return (
        request(CHANNEL, stream, metadata[:HALF], n=10, flags=F | C),
        payload(stream, b"data", N, metadata[HALF:]),
    )


def channel_of(received: list[bytes]) -> Handlers:
    """Return handlers with a channel that notes what it gets, and answers at the end."""
    handlers = Handlers()

    async def collect(_request: Request, incoming: Incoming) -> AsyncGenerator[bytes]:
        received.extend([element async for element in incoming])
        yield b"done"

    handlers.channel(collect)
    return handlers


@pytest.mark.parametrize("last", [N, 0, C])
@pytest.mark.parametrize("at_once", [True, False])
@in_world()
async def test_the_streams_of_both_sides_end(w: World, at_once: bool, last: int) -> None:
    requester, destination = await w.pair()
    parts = in_two(UNICAST, last=last)
    if at_once:
        requester.send(*parts)
    else:
        for part in parts:
            await requester.ask(part)
    assert await destination.received() == [restamped(parts[0], 2), payload(2, b"2", N | C)]
    await destination.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]


@in_world()
async def test_the_end_survives_another_shape_of_metadata(w: World) -> None:
    requester, destination = await w.requester(), w.connect()
    await destination.ask(setup(route_setup(w.new_id(), "a"), mime=BROKER_FRAME))
    for stream in (1, 3):
        await requester.ask(*split_in_metadata(stream))
        frames = await destination.received()
        assert kind_of(frames[0]) == CHANNEL
        mine = stream_of(frames[0])
        await destination.ask(payload(mine, b"x", N | C))
        assert elements(await requester.received()) == [b"x"]
        assert (requester.streams, destination.streams) == (0, 0)
    # Its metadata are whole, and it is not.
    metadata = asked_for("a")
    await requester.ask(
        request(CHANNEL, 5, metadata[:HALF], n=10, flags=F | C),
        payload(5, b"da", F, metadata[HALF:]),
    )
    first = (await destination.received())[0]
    assert first[8] & C
    assert await requester.ask(payload(5, b"ta", N)) == []
    await destination.ask(payload(stream_of(first), b"", C))
    assert await requester.received() == [payload(5, b"", C)]


@in_world()
async def test_a_merge_ends(w: World) -> None:
    requester, first, second = await w.requester(), await w.destination(), await w.destination()
    for at_once, stream in ((True, 1), (False, 3)):
        parts = in_two(MULTICAST, stream=stream)
        if at_once:
            requester.send(*parts)
        else:
            for part in parts:
                await requester.ask(part)
        for destination in (first, second):
            first_frame, rest = await destination.received()
            assert first_frame == restamped(with_n(parts[0], 1), stream + 1)
            assert rest == payload(stream + 1, b"2", N | C)
            await destination.ask(payload(stream + 1, b"", C))
        assert await requester.received() == [payload(stream, b"", C)]
        await w.settled()


@in_world()
async def test_a_handler_gets_the_end(w: World) -> None:
    received: list[bytes] = []
    w.broker.serve(channel_of(received), service="a")
    requester = await w.requester()
    assert elements(await requester.ask(*in_two(UNICAST))) == [b"done", b""]
    parts = in_two(UNICAST, stream=3)
    await requester.ask(parts[0])
    assert elements(await requester.ask(parts[1])) == [b"done", b""]
    assert received == [b"12", b"12"]


@in_world()
async def test_several_handlers_get_the_end(w: World) -> None:
    received: list[bytes] = []
    w.broker.serve(channel_of(received), service="a")
    w.broker.serve(channel_of(received), service="a")
    requester = await w.requester()
    assert elements(await requester.ask(*in_two(MULTICAST))) == [b"done", b"done", b""]
    assert received == [b"12", b"12"]


@in_world()
async def test_nothing_is_left_where_one_side_alone_is_over(w: World) -> None:
    """Who asks itself, and says all in one piece, has ended its stream before it is looked at."""
    peer = await w.destination()
    await peer.ask(request(CHANNEL, 1, asked_for("a"), b"1", n=10))
    frames = await peer.ask(payload(2, b"x", N | C), payload(1, b"", C))
    assert payload(1, b"x", N | C) in frames
    assert cancel(2) in frames


@in_world()
async def test_a_refused_fire_and_forget_in_fragments_is_forgotten(w: World) -> None:
    requester = await w.requester()
    big = bytes(600 * 1024)
    await requester.ask(request(FNF, 1, asked_for("nobody"), big, flags=F))
    await requester.ask(payload(1, big, N | F))
    assert requester.streams == 0
    await requester.ask(payload(1, big, N | F), frame(1, 0x0A, N))
