"""What clients of other makes get wrong in what they register and ask for.

Each of these ends in one error to the one who sent it, or in a counted drop. None reaches a
destination it was not meant for, none leaves a stream. What they get wrong on streams is in
test_bad_streams.

What is shown elsewhere is not repeated: the first frame, broken frames of the RSocket protocol
and most broken metadata (test_session), frames never finished (test_hostile), every byte of
the lists (tests/protocol/broker).
"""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.protocol import UnreadableAddress
from tests.support.counts import exhaustive
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
ROUTE = UUID(int=77)
REJECTED_SETUP, APPLICATION, REJECTED, CANCELED, INVALID = 0x003, 0x201, 0x202, 0x203, 0x204

HEADER = bytes.fromhex("0000 0001")
ADDRESS_HEAD = HEADER + bytes.fromhex("1480") + bytes(range(16))
"""An ADDRESS with the unicast flag, up to its lists."""


async def refused(w: World, metadata: bytes, kind: int = RR) -> str:
    """Send a request that is INVALID; return the text it is refused with.

    One connection must survive it, and nobody else may hear of it.
    """
    requester, destination = await w.pair()
    n = 1 if kind in {STREAM, CHANNEL} else None
    ((stream, code, text),) = errors(await requester.ask(request(kind, 1, metadata, n=n)))
    assert (stream, code) == (1, INVALID)
    assert len(text) < 300
    assert await destination.received() == []
    # The next one is served, on the same stream id.
    assert await requester.ask(request(RR, 1, ASKED)) == []
    assert await destination.ask(payload(2, b"", C)) == [request(RR, 2, ASKED)]
    await w.settled_after(requester)
    return text


@pytest.mark.parametrize("kind", [RR, *exhaustive(STREAM, CHANNEL)])
@pytest.mark.parametrize("encrypted", [0, 0x100])
@pytest.mark.parametrize("flags", [0x000, 0x060, 0x0A0, 0x0C0, 0x0E0])
@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING])
@in_world()
async def test_a_request_needs_exactly_one_routing_flag(
    w: World, mime: bytes, flags: int, encrypted: int, kind: int
) -> None:
    metadata = composite((mime, address("a", flags | encrypted, mime=mime)))
    assert "exactly one of U, M and S" in await refused(w, metadata, kind)


@pytest.mark.parametrize("flags", [0x200, 0x01F, 0x100, 0x31F])
@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING])
@in_world()
async def test_flags_that_mean_nothing_to_a_route_are_relayed(
    w: World, mime: bytes, flags: int
) -> None:
    requester, destination = await w.pair()
    asked = request(RR, 1, composite((mime, address("a", 0x080 | flags, mime=mime))))
    assert await requester.ask(asked) == []
    (arrived,) = await destination.received()
    if mime == BROKER_FRAME:  # the shape the destination registered with
        assert arrived == restamped(asked, 2)
    await destination.ask(payload(2, b"", C))


def reference(tags: bytes) -> bytes:
    return composite((BROKER_FRAME, ADDRESS_HEAD + tags))


def specification(lists: bytes) -> bytes:
    return composite((FORWARDING, ADDRESS_HEAD + lists))


EMPTY = bytes.fromhex("8000")
"""An empty metadata list."""


@pytest.mark.parametrize(
    "metadata",
    [
        # The more-flag promises an entry that is not there.
        reference(b"\x81\x81a"),
        specification(EMPTY + b"\x81\x81a"),
        # A key, or a value, is longer than what is left.
        reference(b"\x05abc"),
        reference(b"\x81\x04abc"),
        specification(EMPTY + b"\x81\x04abc"),
        # The metadata list takes everything, or ends nowhere.
        specification(b"\x81\x01a"),
        specification(b"\x9e\x81w"),
        specification(b""),
        # An entry after the last one: a client that forgets the more-flag.
        reference(b"\x81\x01a\x01k\x01v"),
        # 16-bit keys cut short.
        specification(EMPTY + b"\xfc\x00"),
        specification(EMPTY + b"\xff"),
        # Not UTF-8, in the key and in the value; an overlong form and half a surrogate pair.
        reference(b"\x01\xff\x01v"),
        reference(b"\x81\x02\xc0\x80"),
        reference(b"\x81\x03\xed\xa0\x80"),
        specification(EMPTY + b"\x01\xff\x01v"),
        # No tag but the mark of none.
        reference(EMPTY),
        specification(EMPTY + EMPTY),
    ],
)
@in_world()
async def test_a_list_that_cannot_be_read(w: World, metadata: bytes) -> None:
    assert await refused(w, metadata)


@pytest.mark.parametrize("size", [128, 255, *exhaustive(129, 160, 200, 254)])
@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING])
@in_world()
async def test_a_value_over_127_bytes_does_not_become_another_tag(
    w: World, mime: bytes, size: int
) -> None:
    """Some clients write its length into all eight bits, where the first is the more-flag."""
    middle = EMPTY if mime == FORWARDING else b""
    tags = b"\x81" + bytes((size,)) + b"a" * size
    await refused(w, composite((mime, ADDRESS_HEAD + middle + tags)))


@in_world()
async def test_a_value_of_127_bytes_is_the_longest(w: World) -> None:
    requester = await w.requester()
    destination = await w.destination("a", {"k": "v" * 127})
    assert await requester.ask(request(RR, 1, asked_for({"k": "v" * 127}))) == []
    assert len(await destination.ask(payload(2, b"", C))) == 1
    await w.settled_after(requester)
    with pytest.raises(UnreadableAddress, match="at most 127 bytes"):
        await w.node.request("32#k=" + "v" * 128, b"")


@pytest.mark.parametrize("size", [128, 200, 255])
@in_world()
async def test_a_service_name_over_127_bytes_is_reached_by_its_route_id(
    w: World, size: int
) -> None:
    """The name has 8 bits of length, and the tag that a request would ask for only 7."""
    requester, destination = await w.requester(), await w.destination("n" * size)
    assert w.services() == ["n" * size]
    (row,) = (row for row in w.broker.routes() if row.service == "n" * size)
    assert await requester.ask(request(RR, 1, asked_for({2: str(row.route_id)}))) == []
    assert len(await destination.ask(payload(2, b"", C))) == 1


@pytest.mark.parametrize(
    "broken",
    [
        route_setup(ROUTE, "a")[:-1] + b"\xff",
        route_setup(ROUTE, "a", {"k": "v"})[:-1] + b"\xff",
        route_setup(ROUTE, "a", {"k": "v"}).replace(b"\x01k", b"\x01\xff"),
        route_setup(ROUTE, "a") + b"\x01k\x81v",
        route_setup(ROUTE, "a") + b"\x05k",
        # What the Java encoder makes of {k1: "", k2: "v"} in reverse, and of 128 bytes.
        route_setup(ROUTE, "s") + bytes.fromhex("026b318176026b32")[:-3],
        route_setup(ROUTE, "s") + bytes.fromhex("01618162"),
        route_setup(ROUTE, "s") + b"\x01k\xc8" + b"a" * 200,
    ],
)
@pytest.mark.parametrize("late", [False, True])
@in_world()
async def test_a_route_setup_that_cannot_be_read_registers_nothing(
    w: World, broken: bytes, late: bool
) -> None:
    wanted = composite((BROKER_FRAME, broken))
    if late:
        peer = await w.requester()
        assert await peer.ask(push(wanted)) == []
        assert not peer.closed
        assert w.listener.statistics().refused == 1
    else:
        peer = w.connect()
        assert [code for _, code, _ in errors(await peer.ask(setup(wanted)))] == [REJECTED_SETUP]
        assert peer.closed
    assert w.services() == []


@in_world()
async def test_an_empty_value_of_the_reference_encoder_is_refused_not_misread(w: World) -> None:
    """It leaves out its length: {k1: "", k2: "v"} reads as {k1: "k2"}, with two bytes over."""
    raw = route_setup(ROUTE, "s") + bytes.fromhex("026b31026b320176")
    peer = w.connect()
    ((_, code, text),) = errors(await peer.ask(setup(composite((BROKER_FRAME, raw)))))
    assert (code, text) == (REJECTED_SETUP, "ROUTE_SETUP: 2 bytes after its end")
    assert w.services() == []


@in_world()
async def test_the_metadata_list_is_not_asked_of_destinations(w: World) -> None:
    """A tag of the metadata list that one destination carries does not choose it."""
    requester = await w.requester()
    here = await w.destination("a", {6: "eu"}, route_id=UUID(int=1))
    there = await w.destination("a", {6: "us"}, route_id=UUID(int=2))
    lists = b"\x86\x02eu" + b"\x81\x81a" + b"\x86\x02us"
    assert await requester.ask(*(request(RR, n, specification(lists)) for n in (1, 3))) == []
    assert len(await there.ask(*(payload(n, b"", C) for n in (2, 4)))) == 2
    assert await here.received() == []


TIME = (1_700_000_000_000).to_bytes(8)
OF_BROKERS = [
    HEADER + bytes.fromhex("0800") + bytes(32) + TIME + b"\x01a",
    HEADER + bytes.fromhex("0c00") + bytes(16) + UUID(int=1).bytes + TIME,
    HEADER + bytes.fromhex("1000") + bytes(16) + TIME,
]


@pytest.mark.parametrize("raw", OF_BROKERS, ids=["ROUTE_ADD", "ROUTE_REMOVE", "BROKER_INFO"])
@in_world()
async def test_a_client_cannot_speak_as_a_broker(w: World, raw: bytes) -> None:
    claims = raw is OF_BROKERS[2]
    requester, destination = await w.pair()
    before = w.broker.routes()
    metadata = composite((BROKER_FRAME, raw))
    assert [code for _, code, _ in errors(await requester.ask(request(RR, 1, metadata)))] == [
        INVALID
    ]
    # Who claims to be a broker loses the connection; the other two are no claims.
    refused = [(0, 0x101, "not allowed: peer")] if claims else []
    assert errors(await requester.ask(push(metadata))) == refused
    peer = w.connect()
    refused = [(0, REJECTED_SETUP, "not allowed: peer")] if claims else []
    assert errors(await peer.ask(setup(metadata))) == refused
    assert w.broker.routes() == before
    assert w.services() == ["a"]
    assert await destination.received() == []


@pytest.mark.parametrize("number", [0x00, 0x29, 0x2A, 0x50, 0x5F, 0x7A, 0x7E, 0x7F])
@in_world()
async def test_entries_of_well_known_types_nobody_knows_are_passed_over(
    w: World, number: int
) -> None:
    requester, destination = await w.pair()
    odd = bytes((0x80 | number,)) + (3).to_bytes(3) + b"???"
    asked = request(RR, 1, odd + ASKED + odd)
    assert await requester.ask(asked) == []
    assert await destination.ask(payload(2, b"", C)) == [restamped(asked, 2)]


@in_world()
async def test_names_as_long_as_their_fields_allow(w: World) -> None:
    """128 to 255 bytes: some clients write the length as a signed byte."""
    peer = w.connect()
    mime = b"m" * 255
    assert await peer.ask(setup(mime=mime)) == []
    got = errors(await peer.ask(request(RR, 1, ASKED)))
    assert [code for _, code, _ in got] == [INVALID]
    requester, destination = await w.pair()
    entry = composite((b"x" * 128, b"?"))
    asked = request(RR, 1, entry + ASKED)
    assert await requester.ask(asked) == []
    assert await destination.ask(payload(2, b"", C)) == [restamped(asked, 2)]


@pytest.mark.parametrize("kind", [RR, FNF, STREAM, CHANNEL])
@in_world()
async def test_an_address_may_be_cut_anywhere(w: World, kind: int) -> None:
    requester, destination = await w.pair()
    n = 1 if kind in {STREAM, CHANNEL} else None
    for number, at in enumerate(range(len(ASKED))):
        stream, taken = 2 * number + 1, 2 * number + 2
        asked = [
            request(kind, stream, ASKED[:at], n=n, flags=F),
            payload(stream, b"d", N, ASKED[at:]),
        ]
        assert await requester.ask(asked[0]) == []
        assert await destination.received() == []
        assert await requester.ask(asked[1]) == []
        assert await destination.received() == [restamped(each, taken) for each in asked]
        if kind != FNF:
            await destination.ask(error(taken, APPLICATION))
            assert len(errors(await requester.received())) == 1


@pytest.mark.parametrize("kind", [RR, STREAM, CHANNEL])
@in_world()
async def test_a_broken_address_in_fragments_is_refused_once(w: World, kind: int) -> None:
    requester, destination = await w.pair()
    n = 1 if kind in {STREAM, CHANNEL} else None
    broken = reference(b"\x81\x04abc")
    asked = [request(kind, 1, broken[:10], n=n, flags=F), payload(1, b"data", F, broken[10:])]
    got = errors(await requester.ask(*asked))
    assert [(stream, code) for stream, code, _ in got] == [(1, INVALID)]
    # The rest of it is on its way already.
    assert await requester.ask(payload(1, b"more", F), payload(1, b"end", N | C)) == []
    assert await destination.received() == []
    assert w.listener.statistics().dropped == {"unknown_stream": 2}
