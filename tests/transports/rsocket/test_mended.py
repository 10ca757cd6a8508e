"""Frames that a strict peer closes its connection over are mended on their way, or go no further.

rsocket-java closes over a PAYLOAD with neither N nor C and forgets the fragments before a C alone,
rsocket-go closes over bytes that follow a CANCEL or REQUEST_N and waits for ever after F beside C.
"""

from __future__ import annotations

import pytest

from tests.support.counts import exhaustive
from tests.support.rsocket_peer import *

ALONE, TOGETHER = "alone", "composite"
SHAPES = pytest.mark.parametrize("shape", [TOGETHER, *exhaustive(ALONE)])
ROUTED = pytest.mark.parametrize("routing", [UNICAST, MULTICAST])
"""A multicast that two destinations match; a unicast that one matches."""


def wanted(shape: str, routing: int) -> bytes:
    return address("a", routing) if shape == ALONE else asked_for("a", routing)


async def peers(w: World, shape: str, routing: int) -> tuple[Peer, list[Peer]]:
    """Return a requester, and one destination or two."""
    mime = BROKER_FRAME if shape == ALONE else COMPOSITE
    destinations: list[Peer] = []
    for _ in range(2 if routing == MULTICAST else 1):
        peer = w.connect()
        registered = route_setup(w.new_id(), "a")
        if shape == ALONE:
            assert await peer.ask(setup(registered, mime=mime)) == []
            destinations.append(peer)
        else:
            destinations.append(await w.destination("a"))
    requester = w.connect()
    assert await requester.ask(setup(mime=mime)) == []
    return requester, destinations


PARTS = [
    # flags of the middle and the last fragment of a request, and what they become
    (F, 0, N | F, N),
    (N | F, 0, N | F, N),
    (F, N, N | F, N),
    (F, C, N | F, N | C),
    (F, C | F, N | F, N | C),
    (N | F, N | C | F, N | F, N | C),
    (I | F, I, I | N | F, I | N),
]


@pytest.mark.parametrize(("middle", "last", "middle_sent", "last_sent"), PARTS)
@pytest.mark.parametrize(
    "kind",
    [
        *(RR, STREAM),
        # The first fragment of these is written as that of one of the others.
        *exhaustive(FNF, CHANNEL),
    ],
)
@pytest.mark.parametrize("at_once", [True, *exhaustive(False)])
@SHAPES
@ROUTED
@in_world()
async def test_fragments_of_requests(
    w: World,
    kind: int,
    at_once: bool,
    middle: int,
    last: int,
    middle_sent: int,
    last_sent: int,
    shape: str,
    routing: int,
) -> None:
    requester, destinations = await peers(w, shape, routing)
    n = 1 if kind in {STREAM, CHANNEL} else None
    parts = [
        request(kind, 1, wanted(shape, routing), b"1", n=n, flags=F),
        payload(1, b"2", middle),
        payload(1, b"3", last),
    ]
    if at_once:
        requester.send(*parts)
    else:
        for part in parts:
            await requester.ask(part)
    for destination in destinations:
        first, second, third, *rest = await destination.received()
        assert first == restamped(parts[0], 2)
        assert second == payload(2, b"2", middle_sent)
        assert third == payload(2, b"3", last_sent)
        assert not rest
    requester.die()


ANSWERS = [(0, N), (F | C, C), (N | C | F, N | C), (I, I | N), (M, M | N)]


@pytest.mark.parametrize(("said", "passed"), ANSWERS)
@SHAPES
@ROUTED
@in_world()
async def test_the_answer_of_a_request(
    w: World, said: int, passed: int, shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    await requester.ask(request(RR, 1, wanted(shape, routing)))
    body = b"\0\0\1mdata" if said & M else b"data"
    await destinations[0].ask(frame(2, 0x0A, said, body))
    (got,) = await requester.received()
    assert got == frame(1, 0x0A, passed, body)


ELEMENTS = [
    ([(F, b"1"), (0, b"2")], [N | F, N]),
    ([(F, b"1"), (F, b"2"), (N, b"3")], [N | F, N | F, N]),
    ([(F, b"1"), (N | F, b"2"), (N, b"3")], [N | F, N | F, N]),
    ([(N | F, b"1"), (N | F, b"2"), (0, b"3")], [N | F, N | F, N]),
]


@pytest.mark.parametrize(("said", "passed"), ELEMENTS)
@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@SHAPES
@ROUTED
@in_world()
async def test_fragments_of_elements_to_the_requester(
    w: World, kind: int, said: list[tuple[int, bytes]], passed: list[int], shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    flags = C if kind == CHANNEL else 0
    await requester.ask(request(kind, 1, wanted(shape, routing), n=9, flags=flags))
    await destinations[0].ask(*(payload(2, data, flags) for flags, data in said))
    assert await requester.received() == [
        payload(1, data, flags) for (_, data), flags in zip(said, passed, strict=True)
    ]
    requester.die()


@pytest.mark.parametrize(("said", "passed"), [(C, N | C), (C | F, N | C), (N | C | F, N | C)])
@SHAPES
@in_world()
async def test_the_last_fragment_of_the_last_element(
    w: World, said: int, passed: int, shape: str
) -> None:
    requester, (destination,) = await peers(w, shape, UNICAST)
    await requester.ask(request(STREAM, 1, wanted(shape, UNICAST), n=9))
    await destination.ask(payload(2, b"1", F), payload(2, b"2", said))
    assert await requester.received() == [payload(1, b"1", N | F), payload(1, b"2", passed)]


@pytest.mark.parametrize(("said", "passed"), ELEMENTS)
@SHAPES
@ROUTED
@in_world()
async def test_fragments_of_elements_to_the_destination(
    w: World, said: list[tuple[int, bytes]], passed: list[int], shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    await requester.ask(request(CHANNEL, 1, wanted(shape, routing), n=9))
    for destination in destinations:
        await destination.ask(request_n(2, 9))
    await requester.received()
    await requester.ask(*(payload(1, data, flags) for flags, data in said))
    for destination in destinations:
        assert [raw for raw in await destination.received() if raw[7] >> 2 == 0x0A] == [
            payload(2, data, flags) for (_, data), flags in zip(said, passed, strict=True)
        ]
    requester.die()


TAILS = pytest.mark.parametrize("tail", [b"", b"more than that", *exhaustive(b"\0")])


@TAILS
@pytest.mark.parametrize("flags", [0, M, C, 0x3E0])
@SHAPES
@ROUTED
@in_world()
async def test_a_cancel_of_the_requester(
    w: World, flags: int, tail: bytes, shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    await requester.ask(request(STREAM, 1, wanted(shape, routing), n=1))
    for destination in destinations:
        await destination.received()
    await requester.ask(frame(1, CANCEL, flags, tail))
    for destination in destinations:
        (got,) = await destination.received()
        kept = flags & I if routing == UNICAST else 0
        assert got == frame(2, CANCEL, kept)


@TAILS
@pytest.mark.parametrize("flags", [0, M, 0x1E0])
@SHAPES
@in_world()
async def test_a_cancel_of_a_channels_destination(
    w: World, flags: int, tail: bytes, shape: str
) -> None:
    requester, (destination,) = await peers(w, shape, UNICAST)
    await requester.ask(request(CHANNEL, 1, wanted(shape, UNICAST), n=1))
    await destination.ask(frame(2, CANCEL, flags, tail))
    assert await requester.received() == [frame(1, CANCEL)]
    requester.die()


@TAILS
@pytest.mark.parametrize("flags", [0, M, 0x1E0])
@SHAPES
@ROUTED
@in_world()
async def test_request_n_of_either_side(
    w: World, flags: int, tail: bytes, shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    await requester.ask(request(CHANNEL, 1, wanted(shape, routing), n=1))
    for destination in destinations:
        await destination.received()
        destination.send(frame(2, REQUEST_N, flags, (3).to_bytes(4) + tail))
    assert await requester.received() == [request_n(1, 3)]
    if routing == UNICAST:
        await destinations[0].ask(payload(2, b"x"))
        await requester.ask(frame(1, REQUEST_N, flags, (2).to_bytes(4) + tail))
        assert await destinations[0].received() == [request_n(2, 2)]
    requester.die()


@pytest.mark.parametrize("flags", [0, M, F, 0x1E0])
@SHAPES
@ROUTED
@in_world()
async def test_errors_of_either_side(w: World, flags: int, shape: str, routing: int) -> None:
    requester, destinations = await peers(w, shape, routing)
    await requester.ask(request(RR, 1, wanted(shape, routing)))
    await destinations[0].ask(error(2, 0x301, b"text", flags))
    assert await requester.received() == [error(1, 0x301, b"text")]
    for destination in destinations:
        await destination.received()
    await requester.ask(request(CHANNEL, 3, wanted(shape, routing), n=1))
    await requester.ask(frame(3, ERROR, flags, (0x201).to_bytes(4) + b"mine"))
    for destination in destinations:
        got = await destination.received()
        assert got[-1] == error(stream_of(got[0]), 0x201, b"mine")


@pytest.mark.parametrize("kind", [RR, FNF, STREAM, CHANNEL])
@SHAPES
@ROUTED
@in_world()
async def test_flags_that_mean_nothing_in_a_request(
    w: World, kind: int, shape: str, routing: int
) -> None:
    requester, destinations = await peers(w, shape, routing)
    n = 1 if kind in {STREAM, CHANNEL} else None
    metadata = wanted(shape, routing)
    await requester.ask(request(kind, 1, metadata, b"x", n=n, flags=N | C | I | 0x1F))
    kept = C | I | 0x1F if kind == CHANNEL else I | 0x1F
    sent = request(kind, 2, metadata, b"x", n=n, flags=kept)
    for destination in destinations:
        assert await destination.received() == [with_n(sent, 1) if n else sent]
    requester.die()


@SHAPES
@ROUTED
@in_world()
async def test_flags_that_mean_nothing_in_a_push(w: World, shape: str, routing: int) -> None:
    requester, destinations = await peers(w, shape, routing)
    metadata = wanted(shape, routing)
    assert await requester.ask(push(metadata, 0x3FF)) == []
    for destination in destinations:
        assert await destination.received() == [push(metadata, I | 0x1F)]
