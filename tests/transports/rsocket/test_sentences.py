"""Sentences of the specification that no other test shows, and where we depart from one.

The conformance page names these tests.
"""

from __future__ import annotations

import pytest

from tests.support.rsocket_peer import *

REJECTED = 0x202
STICKY_ROUTE_KEY = 0x1D
ELSEWHERE = asked_for("b")
"""Metadata that would go to another service, if it were that of a request."""


@pytest.mark.parametrize("flags", [UNICAST, MULTICAST])
@in_world()
async def test_a_later_frame_that_looks_like_an_address_is_none(w: World, flags: int) -> None:
    requester = await w.requester()
    destinations = [await w.destination("a") for _ in range(2 if flags == MULTICAST else 1)]
    other = await w.destination("b")
    await requester.ask(request(CHANNEL, 1, asked_for("a", flags), n=9))
    for each in destinations:
        await each.received()
        await each.ask(request_n(2, 4))
    await requester.received()
    later = payload(1, b"x", N, ELSEWHERE)
    assert await requester.ask(later) == []
    for each in destinations:
        assert await each.received() == [restamped(later, 2)]
    answer = payload(2, b"y", N, ELSEWHERE)
    await destinations[0].ask(answer)
    assert await requester.received() == [restamped(answer, 1)]
    assert await other.received() == []
    await requester.ask(payload(1, b"", C))
    for each in destinations:
        await each.ask(payload(2, b"", C))


@in_world()
async def test_later_fragments_of_a_request_route_nothing(w: World) -> None:
    requester, destination = await w.pair()
    other = await w.destination("b")
    asked = [
        request(RR, 1, asked_for("a"), b"its metadata end here", flags=F),
        payload(1, b"", N | F, ELSEWHERE),
        payload(1, b"x", N),
    ]
    await requester.ask(*asked)
    assert await destination.received() == [restamped(each, 2) for each in asked]
    assert await other.received() == []
    await destination.ask(payload(2, b"", N | C))


@in_world()
async def test_what_is_wrapped_arrives_wrapped(w: World) -> None:
    requester, destination = await w.pair()
    wrapped = composite((b"text/plain", b"for the handler"))
    frame = address("a", mime=FORWARDING, wrapped=wrapped)
    await requester.ask(request(RR, 1, composite((FORWARDING, frame)), b"data"))
    (raw,) = await destination.received()
    size = int.from_bytes(raw[9:12])
    metadata, data = raw[12 : 12 + size], raw[12 + size :]
    # In the dialect it registered with, which has no metadata list before the tags.
    said = address("a", wrapped=wrapped)
    assert (metadata, data) == (composite((BROKER_FRAME, said)), b"data")
    await destination.ask(payload(2, b"", N | C))


def sticky(user: str) -> bytes:
    """Return metadata that asks any destination of a service, and the same for each user."""
    head = bytes.fromhex("0000 0001") + (0x05 << 10 | UNICAST).to_bytes(2) + bytes(range(16))
    tags = lists_of_tags({SERVICE_NAME: "a", "user": user})
    return composite((FORWARDING, head + lists_of_tags({STICKY_ROUTE_KEY: "user"}) + tags))


async def asked_by(w: World, requester: Peer, user: str, stream: int, of: list[Peer]) -> int:
    """Ask for a user, have it answered, and return the number of the destination that was asked."""
    await requester.ask(request(RR, stream, sticky(user)))
    found: list[int] = []
    for number, each in enumerate(of):
        for raw in await each.received():
            found.append(number)
            await each.ask(payload(int.from_bytes(raw[3:7]), b"", N | C))
    (chosen,) = found
    await w.settled_after(requester)
    return chosen


@in_world()
async def test_a_sticky_key_keeps_a_user_with_a_destination_while_that_is_there(w: World) -> None:
    requester = await w.requester()
    destinations = [await w.destination("a") for _ in range(3)]
    streams = iter(range(1, 1000, 2))
    first = {
        user: await asked_by(w, requester, user, next(streams), destinations)
        for user in ("1", "2", "3")
    }
    assert len(set(first.values())) == 3  # in turn, as nothing is known of them yet
    for user in ("3", "1", "1", "2", "3"):
        number = await asked_by(w, requester, user, next(streams), destinations)
        assert number == first[user]
    gone = first["1"]
    destinations[gone].die()
    await w.loop.idle()
    left = [each for number, each in enumerate(destinations) if number != gone]
    moved = await asked_by(w, requester, "1", next(streams), left)
    assert await asked_by(w, requester, "1", next(streams), left) == moved


@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@in_world()
async def test_a_rejection_before_any_element_is_not_the_first_signal(w: World, kind: int) -> None:
    requester = await w.requester()
    busy, other = await w.destination("a"), await w.destination("a")
    n = None if kind == RR else 9
    await requester.ask(request(kind, 1, asked_for("a", MULTICAST), n=n))
    await other.received()
    assert len(await busy.ask(error(2, REJECTED, b"busy"))) == 1
    assert await requester.received() == []
    assert await other.ask(payload(2, b"x", N | C)) == []
    got = await requester.received()
    assert elements(got)[0] == b"x"
    assert errors(got) == []
    if kind == CHANNEL:
        await requester.ask(payload(1, b"", C))


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world()
async def test_a_rejection_after_an_element_ends_all(w: World, kind: int) -> None:
    requester = await w.requester()
    one, other = await w.destination("a"), await w.destination("a")
    await requester.ask(request(kind, 1, asked_for("a", MULTICAST), n=9))
    await other.received()
    await one.ask(payload(2, b"x", N), error(2, REJECTED, b"enough"))
    got = await requester.received()
    assert [kind_of(raw) for raw in got] == [0x0A, 0x0B]
    assert errors(got) == [(1, REJECTED, "enough")]
    assert await other.received() == [cancel(2)]
