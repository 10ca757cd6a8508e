"""Section Handling Routing Flags, sentence by sentence, as the peers of a broker see it."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from tests.support.broker_model import MULTICAST, SHARD, UNICAST, Wanted
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CHANNEL,
    FNF,
    PUSH,
    RR,
    STREAM,
    C,
    N,
    Peer,
    World,
    cancel,
    composite,
    elements,
    error,
    errors,
    in_world,
    kind_of,
    lists_of_tags,
    payload,
    push,
    request,
)

REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
MARK = bytes(range(16))
ALL = Wanted(MULTICAST, "a").metadata(MARK, specification=True)


async def several(w: World, count: int = 3) -> tuple[Peer, list[Peer]]:
    """Return a requester, and destinations of one service."""
    return await w.requester(), [await w.destination("a") for _ in range(count)]


async def asked(w: World, kind: int, n: int | None = None) -> tuple[Peer, list[Peer]]:
    """Return a requester and the destinations that have its request, each on stream 2."""
    requester, destinations = await several(w)
    assert await requester.ask(request(kind, 1, ALL, b"data", n=n)) == []
    for each in destinations:
        (raw,) = await each.received()
        assert (kind_of(raw), raw[-4:]) == (kind, b"data")
    return requester, destinations


@in_world()
async def test_each_destination_gets_a_fire_and_forget(w: World) -> None:
    await asked(w, FNF)


@in_world()
async def test_each_destination_gets_a_metadata_push(w: World) -> None:
    requester, destinations = await several(w)
    await requester.ask(push(ALL))
    for each in destinations:
        assert [kind_of(raw) for raw in await each.received()] == [PUSH]


@pytest.mark.parametrize("first", [payload(2, b"first", N | C), error(2, 0x301, b"first")])
@in_world()
async def test_the_first_answer_ends_a_request_and_the_others_are_cancelled(
    w: World, first: bytes
) -> None:
    requester, (one, two, three) = await asked(w, RR)
    assert await two.ask(first) == []
    (answer,) = await requester.received()
    assert answer[7:] == first[7:]
    for late in (one, three):
        assert await late.ask(payload(2, b"late", N | C)) == [cancel(2)]
    assert await requester.received() == []


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world()
async def test_the_elements_of_all_come_in_one_stream(w: World, kind: int) -> None:
    requester, destinations = await asked(w, kind, n=10)
    for number, each in enumerate(destinations):
        await each.ask(payload(2, b"%d" % number))
    assert elements(await requester.received()) == [b"0", b"1", b"2"]
    for each in destinations[:2]:
        await each.ask(payload(2, b"", C))
    assert await requester.received() == []
    await destinations[2].ask(payload(2, b"last", N | C))
    got = await requester.received()
    assert elements(got) == [b"last", b""]
    assert [bool(raw[8] & C) for raw in got] == [False, True]
    if kind == CHANNEL:
        await requester.ask(payload(1, b"", C))


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world()
async def test_an_error_of_one_cancels_all(w: World, kind: int) -> None:
    requester, (one, two, three) = await asked(w, kind, n=10)
    await one.ask(payload(2, b"1"))
    await two.ask(error(2, 0x301, b"no"))
    got = await requester.received()
    assert elements(got) == [b"1"]
    assert errors(got) == [(1, 0x301, "no")]
    for each in (one, three):
        assert await each.received() == [cancel(2)]


@in_world()
async def test_a_destination_that_leaves_is_passed_over(w: World) -> None:
    requester, (one, two, three) = await asked(w, STREAM, n=10)
    await one.ask(payload(2, b"1"))
    one.die()
    two.die()
    assert elements(await requester.received()) == [b"1"]
    await three.ask(payload(2, b"3", N | C))
    assert elements(await requester.received()) == [b"3", b""]


@pytest.mark.parametrize("method", ["", "jump", "Bounded_Ring", "modulo", "unheard-of"])
@in_world()
async def test_a_key_goes_to_one_destination(w: World, method: str) -> None:
    requester, destinations = await several(w)
    places: dict[str, int] = {}
    stream = 1
    for user in [str(number) for number in range(12)] * 2:
        wanted = Wanted(SHARD, "a", user=user, keys=("user",), method=method)
        metadata = wanted.metadata(MARK, specification=True)
        await requester.ask(request(FNF, stream, metadata))
        stream += 2
        (place,) = [at for at, each in enumerate(destinations) if await each.received()]
        assert places.setdefault(user, place) == place
    assert len(set(places.values())) > 1


@pytest.mark.parametrize("keys", [(), ("nobody",), ("user", "nobody")])
@in_world()
async def test_a_shard_request_names_tags_that_it_has(w: World, keys: tuple[str, ...]) -> None:
    requester, destinations = await several(w)
    wanted = Wanted(SHARD, "a", user="1", keys=keys)
    asked = request(RR, 1, wanted.metadata(MARK, specification=True))
    assert [code for _, code, _ in errors(await requester.ask(asked))] == [INVALID]
    for each in destinations:
        assert await each.received() == []


def in_reference_dialect(flags: int, tags: dict[int | str, str]) -> bytes:
    """Return the metadata of a request of the Java and JavaScript clients."""
    head = bytes.fromhex("0000 0001") + (0x05 << 10 | flags).to_bytes(2) + MARK
    return composite((BROKER_FRAME, head + lists_of_tags(tags)))


@in_world()
async def test_a_shard_request_in_the_reference_dialect_has_its_key_among_the_tags(
    w: World,
) -> None:
    requester, destinations = await several(w)
    places: dict[str, int] = {}
    stream = 1
    for user in [str(number) for number in range(12)] * 2:
        metadata = in_reference_dialect(SHARD, {1: "a", 0x0A: user, 0x1B: "user"})
        await requester.ask(request(FNF, stream, metadata))
        stream += 2
        (place,) = [at for at, each in enumerate(destinations) if await each.received()]
        assert places.setdefault(user, place) == place
    assert len(set(places.values())) > 1


@pytest.mark.parametrize("key", [None, "nobody"])
@in_world()
async def test_a_shard_request_in_the_reference_dialect_names_a_tag_that_it_has(
    w: World, key: str | None
) -> None:
    requester, _ = await several(w)
    tags: dict[int | str, str] = {1: "a", 0x0A: "1"}
    if key is not None:
        tags[0x1B] = key
    got = errors(await requester.ask(request(RR, 1, in_reference_dialect(SHARD, tags))))
    assert [code for _, code, _ in got] == [INVALID]


@pytest.mark.parametrize("hint", [(0x1D, "user"), (0x1F, "@sticky=user")])
@in_world()
async def test_a_sticky_request_in_the_reference_dialect(w: World, hint: tuple[int, str]) -> None:
    requester, destinations = await several(w)
    for stream in range(1, 13, 2):
        metadata = in_reference_dialect(UNICAST, {1: "a", 0x0A: "7", hint[0]: hint[1]})
        await requester.ask(request(FNF, stream, metadata))
    got = [len(await each.received()) for each in destinations]
    assert sorted(got) == [0, 0, 6]


@in_world()
async def test_a_method_in_the_reference_dialect_that_destinations_do_not_carry(w: World) -> None:
    requester = await w.requester()
    heavy = await w.destination("a", {"weight": "3"}, route_id=UUID(int=1))
    light = await w.destination("a", {"weight": "1"}, route_id=UUID(int=2))
    metadata = in_reference_dialect(UNICAST, {1: "a", 0x1F: "@method=weighted"})
    for stream in range(1, 17, 2):
        await requester.ask(request(FNF, stream, metadata))
    assert (len(await heavy.received()), len(await light.received())) == (6, 2)


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=None)))
async def test_a_request_in_the_reference_dialect_says_how_long_to_wait(w: World) -> None:
    requester = await w.requester()
    metadata = in_reference_dialect(UNICAST, {1: "a", 0x1F: "@no-route=reject"})
    got = errors(await requester.ask(request(RR, 1, metadata)))
    assert [code for _, code, _ in got] == [REJECTED]


@in_world()
async def test_a_hint_chooses_the_method(w: World) -> None:
    requester = await w.requester()
    heavy = await w.destination("a", {"weight": "3"}, route_id=UUID(int=1))
    light = await w.destination("a", {"weight": "1"}, route_id=UUID(int=2))
    raw = Wanted(UNICAST, "a").metadata(MARK, specification=True)
    hinted = raw.replace(b"\x80\x00\x81\x01a", b"\x9e\x08weighted\x81\x01a")
    # Both lengths grow by the hint: that of the entry stands before the frame.
    at = hinted.index(b"\x00\x00\x01" + b"\x14") - 6
    size = int.from_bytes(raw[29:32]) + 8
    assert at > 0
    hinted = hinted[:29] + size.to_bytes(3) + hinted[32:]
    for stream in range(1, 17, 2):
        await requester.ask(request(FNF, stream, hinted))
    assert (len(await heavy.received()), len(await light.received())) == (6, 2)
