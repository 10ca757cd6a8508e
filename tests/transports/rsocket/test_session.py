"""What begins a session with the broker: SETUP and ROUTE_SETUP, and those that are refused."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, Handlers, Request
from onward.protocol.broker import TagList
from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_answers import answered, refused
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
ROUTE = UUID(int=77)
INVALID_SETUP, UNSUPPORTED_SETUP, REJECTED_SETUP, REJECTED_RESUME = 1, 2, 3, 4
CONNECTION_ERROR = 0x101
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
MIMES = [BROKER_FRAME, ROUTING_FRAME, FORWARDING]


# --- SETUP ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mime", MIMES)
@pytest.mark.parametrize("plain", [False, True])
@in_world()
async def test_route_setup_with_setup(w: World, mime: bytes, plain: bool) -> None:
    wanted = route_setup(ROUTE, "a", {6: "eu", "colour": "blue"})
    peer = w.connect()
    if plain:
        assert await peer.ask(setup(wanted, mime=mime)) == []
    else:
        entries = composite((b"text/plain", b"hello"), (mime, wanted))
        assert await peer.ask(setup(b"\x85\x00\x00\x01x" + entries)) == []
    row = w.row()
    assert row.route_id == ROUTE
    assert row.peer == "10.0.0.1:5000"
    assert ("region", "eu") in row.tags
    assert ("colour", "blue") in row.tags
    assert ("service", "a") in row.tags
    assert ("route", str(ROUTE)) in row.tags


@pytest.mark.parametrize("mime", MIMES)
@pytest.mark.parametrize("plain", [False, True])
@in_world(settles=False)
async def test_requests_in_each_dialect(w: World, mime: bytes, plain: bool) -> None:
    destination, peer = await w.destination(tags={6: "eu"}), w.connect()
    wanted = address({1: "a", 6: "eu"}, mime=mime)
    metadata = wanted if plain else composite((mime, wanted))
    peer.send(setup(mime=mime if plain else COMPOSITE))
    for stream in (1, 3):
        assert await peer.ask(request(RR, stream, metadata, b"x")) == []
    got = asked_for({1: "a", 6: "eu"})  # in the destination's own dialect
    assert await destination.received() == [request(RR, 2, got, b"x"), request(RR, 4, got, b"x")]


@in_world()
async def test_one_peer_may_use_all_dialects(w: World) -> None:
    requester, destination = await w.pair()
    for number, mime in enumerate([*MIMES, *MIMES]):
        entry = composite((mime, address("a", mime=mime)))
        assert await requester.ask(request(FNF, 1 + 2 * number, entry)) == []
    assert len(await destination.received()) == 6


@in_world()
async def test_the_last_route_setup_counts(w: World) -> None:
    peer = w.connect()
    entries = ((BROKER_FRAME, route_setup(w.new_id(), name)) for name in ("first", "last"))
    assert await peer.ask(setup(composite(*entries))) == []
    assert w.services() == ["last"]


def without_more_flag(frame: bytes, tags: list[tuple[int | bytes, bytes]]) -> bytes:
    """Return a frame as the JavaScript client writes it: version 0.7169, and no entry has F."""
    listed = b"".join(
        (bytes((0x80 | key,)) if isinstance(key, int) else bytes((len(key),)) + key)
        + bytes((len(value),))
        + value
        for key, value in tags
    )
    return bytes.fromhex("00001c01") + frame[4:] + listed


@in_world(settles=False)
async def test_a_client_that_never_sets_the_more_flag_has_all_its_tags(w: World) -> None:
    requester = await w.requester()
    destination, other = w.connect(), await w.destination("a", {"region": "us"})
    tags: list[tuple[int | bytes, bytes]] = [(b"region", b"eu"), (b"colour", b"blue")]
    wanted = without_more_flag(route_setup(w.new_id(), "a"), tags)
    assert await destination.ask(setup(composite((BROKER_FRAME, wanted)))) == []
    for number, asked in enumerate(([(1, b"a"), *tags], [*tags, (1, b"a")], tags)):
        raw = without_more_flag(address({}), asked)
        metadata = composite((BROKER_FRAME, raw))
        assert await requester.ask(request(FNF, 1 + 2 * number, metadata)) == []
        assert await destination.received() == [request(FNF, 2 + 2 * number, metadata)]
    none = without_more_flag(address({}), [(1, b"a"), (b"region", b"eu"), (b"colour", b"red")])
    await requester.ask(request(FNF, 9, composite((BROKER_FRAME, none))))
    assert await destination.received() == await other.received() == []


@pytest.mark.parametrize("version", ["00000001", "00001c00", "00011c01"])
@in_world()
async def test_bytes_after_the_last_tag_are_refused_from_all_others(w: World, version: str) -> None:
    requester, _ = await w.pair()
    raw = without_more_flag(address({}), [(1, b"a"), (b"region", b"eu")])
    raw = bytes.fromhex(version) + raw[4:]
    got = await requester.ask(request(RR, 1, composite((BROKER_FRAME, raw))))
    assert [code for _, code, _ in errors(got)] == [0x204]
    peer = w.connect()
    wanted = without_more_flag(route_setup(w.new_id(), "b"), [(2, b"x"), (3, b"y")])
    wanted = bytes.fromhex(version) + wanted[4:]
    got = await peer.ask(setup(composite((BROKER_FRAME, wanted))))
    assert [code for _, code, _ in errors(got)] == [0x003]


def two_addresses(first: bytes, second: bytes) -> bytes:
    """Return metadata with an ADDRESS for `first`, then one for `second` in another dialect."""
    wanted, other = address(first.decode()), address(second.decode(), mime=FORWARDING)
    return composite((BROKER_FRAME, wanted), (FORWARDING, other))


@in_world()
async def test_the_last_address_counts_whatever_came_before(w: World) -> None:
    seen: list[TagList] = []
    handlers = Handlers()

    @handlers.response
    async def answer(asked: Request) -> bytes:
        seen.append(asked.tags)
        return b""

    requester, b = await w.requester(), await w.destination("b")
    w.broker.serve(handlers, service="a")
    # This peer has last said what it asks for in the dialect of the first ADDRESS.
    spoken = composite((FORWARDING, address("b", mime=FORWARDING)))
    await requester.ask(request(FNF, 1, spoken))
    assert len(await b.received()) == 1
    assert elements(await requester.ask(request(RR, 3, two_addresses(b"b", b"a")))) == [b""]
    assert seen == [((1, "a"),)]
    assert await b.received() == []
    await requester.ask(request(FNF, 5, two_addresses(b"a", b"b")))
    (got,) = await b.received()
    both = composite((BROKER_FRAME, address("a")), (BROKER_FRAME, address("b")))
    assert got == request(FNF, 4, both)


@pytest.mark.parametrize("mime", MIMES)
@in_world()
async def test_other_broker_frames_before_the_address_are_passed_over(
    w: World, mime: bytes
) -> None:
    requester, destination = await w.pair()
    alone = w.connect()
    await alone.ask(setup(route_setup(w.new_id(), "alone"), mime=BROKER_FRAME))
    entries = (BROKER_FRAME, route_setup(ROUTE, "z")), (mime, address("a", mime=mime))
    await requester.ask(request(FNF, 1, composite(*entries)))
    (got,) = await destination.received()
    told = (BROKER_FRAME, address("a"))
    assert got == request(FNF, 2, composite(entries[0], told))
    # A destination whose metadata are a lone frame gets the ADDRESS, not what is before it.
    wanted = composite(entries[0], (mime, address("alone", mime=mime)))
    await requester.ask(request(FNF, 3, wanted))
    assert await alone.received() == [request(FNF, 2, address("alone"))]
    assert w.services() == ["a", "alone"]


@in_world()
async def test_a_push_is_what_its_last_broker_frame_says(w: World) -> None:
    requester, destination = await w.pair()
    asked, joins = (BROKER_FRAME, address("a")), (BROKER_FRAME, route_setup(ROUTE, "z"))
    assert await requester.ask(push(composite(joins, asked))) == []
    assert len(await destination.received()) == 1
    assert w.services() == ["a"]
    assert await requester.ask(push(composite(asked, joins))) == []
    assert await destination.received() == []
    assert w.services() == ["a", "z"]


@in_world()
async def test_metadata_wrapped_in_the_address_are_not_read(w: World) -> None:
    requester, destination = await w.pair()
    wrapped = address("a", mime=FORWARDING) + b"\xff any bytes"
    asked = request(FNF, 1, composite((FORWARDING, wrapped)))
    assert await requester.ask(asked, restamped(asked, 3)) == []
    assert len(await destination.received()) == 2


@in_world()
async def test_a_client_that_only_requests_needs_no_route_setup(w: World) -> None:
    peer = w.connect()
    assert await peer.ask(setup(mime=b"application/json")) == []
    assert await peer.ask(setup(b"{}", mime=b"application/json")) == []
    assert w.services() == []
    assert w.listener.statistics().dropped == {"setup_ignored": 1}
    code, text = await answered(peer, request(RR, 1, ASKED))
    assert (code, text) == (INVALID, "metadata: the request has no ADDRESS")


@pytest.mark.parametrize(
    "metadata", [b"", composite((b"text/plain", b"x")), composite((BROKER_FRAME, b""))]
)
@in_world()
async def test_a_setup_whose_metadata_are_about_something_else(w: World, metadata: bytes) -> None:
    peer = w.connect()
    assert await peer.ask(setup(metadata)) == []
    assert w.services() == []


@in_world()
async def test_a_setup_with_an_address_is_no_registration(w: World) -> None:
    peer = w.connect()
    assert await peer.ask(setup(ASKED)) == []
    assert w.services() == []


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        (composite((BROKER_FRAME, b"\x00\x00")), "header: 6 bytes needed, 2 left"),
        (composite((BROKER_FRAME, route_setup(ROUTE, "")[:-1])), "service name: 1 byte needed"),
        (composite((BROKER_FRAME, route_setup(ROUTE, ""))), "service name: empty"),
        (composite((BROKER_FRAME, route_setup(UUID(int=0), "a"))), "route id: all zeros"),
        (composite((BROKER_FRAME, route_setup(ROUTE, "a") + b"\x81")), ""),
        (composite((BROKER_FRAME, route_setup(ROUTE, "a", {1: "x"}) + b"?")), "1 byte after"),
        (composite((BROKER_FRAME, bytes.fromhex("00000001fc00"))), "frame type: 0x3f is unknown"),
        (composite((BROKER_FRAME, route_setup(ROUTE, "a")))[:-1], "runs past its"),
        (
            composite((FORWARDING, bytes.fromhex("0001 0001 0400") + route_setup(ROUTE, "a")[6:])),
            "version: 1.1 is not supported",
        ),
        (
            composite((BROKER_FRAME, route_setup(ROUTE, "a", {f"k{i}": "v" for i in range(257)}))),
            "more than 256",
        ),
    ],
)
@in_world()
async def test_a_broken_route_setup_rejects_the_setup(w: World, metadata: bytes, text: str) -> None:
    peer = w.connect()
    if not text:  # a null value at the end is legal
        assert await peer.ask(setup(metadata)) == []
        return
    code, said = await refused(peer, setup(metadata))
    assert code == REJECTED_SETUP
    assert text in said
    assert w.services() == []


@in_world()
async def test_what_follows_a_rejected_setup_in_one_piece_is_not_looked_at(w: World) -> None:
    destination, peer = await w.destination(), w.connect()
    late = push(composite((BROKER_FRAME, route_setup(ROUTE, "b"))))
    broken = setup(composite((BROKER_FRAME, b"\x00")))
    code, _ = await refused(
        peer, broken, request(FNF, 1, ASKED), request(RR, 3, ASKED), push(ASKED), late
    )
    assert code == REJECTED_SETUP
    assert await destination.received() == []
    assert w.services() == ["a"]


@pytest.mark.parametrize(
    "after", [frame(0, 0x20), error(0, 0x102), error(0, 0x101), b"\x00\x00\x01?"]
)
@in_world()
async def test_a_rejected_setup_and_the_end_in_one_piece(w: World, after: bytes) -> None:
    peer = w.connect()
    await peer.ask(setup(composite((BROKER_FRAME, b"\x00"))), after)
    assert peer.closed
    assert w.services() == []


@in_world(BrokerOptions(max_routes=2))
async def test_the_table_is_full(w: World) -> None:
    await w.destination("a", route_id=ROUTE)
    peer = w.connect()
    wanted = composite((BROKER_FRAME, route_setup(w.new_id(), "b")))
    code, text = await refused(peer, setup(wanted))
    assert code == REJECTED_SETUP
    assert "its limit" in text
    await w.destination("b", route_id=ROUTE)  # takes the other one's place
    assert w.services() == ["b"]


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (request(RR, 1, ASKED), INVALID_SETUP),
        (frame(0, KEEPALIVE, 0x80, bytes(8)), INVALID_SETUP),
        (push(ASKED), INVALID_SETUP),
        (frame(0, 0x0D, 0, bytes(20)), REJECTED_RESUME),
        (frame(1, SETUP, 0, setup()[9:]), INVALID_SETUP),
        (setup(version=(2, 0)), UNSUPPORTED_SETUP),
        (setup(version=(1, 1)), UNSUPPORTED_SETUP),
        (setup(keepalive=0), INVALID_SETUP),
        (setup(lifetime=2**31), INVALID_SETUP),
        (setup()[:-1][:3] + setup()[3:], None),
        (frame(0, SETUP, M, setup()[9:] + b"\xff\xff\xff"), INVALID_SETUP),
        (b"\xff\xff\xff" + setup()[3:], INVALID_SETUP),
        (b"\x00\x00\x05hello", INVALID_SETUP),
        (b"GET / HTTP/1.1\r\n\r\n", INVALID_SETUP),
    ],
)
@in_world()
async def test_the_first_frame(w: World, first: bytes, code: int | None) -> None:
    peer = w.connect()
    if code is None:
        assert await peer.ask(first) == []
        return
    assert (await refused(peer, first, request(FNF, 1, ASKED)))[0] == code
    assert w.listener.statistics().connections == 0


@in_world(options=LinkOptions(connection=ConnectionLimits(setup_timeout=3.0)))
async def test_a_peer_that_says_nothing(w: World) -> None:
    peer = w.connect()
    await asyncio.sleep(2.9)
    assert await peer.received() == []
    await asyncio.sleep(0.2)
    assert errors(await peer.received()) == [(0, INVALID_SETUP, "no SETUP within 3 s")]
    assert peer.closed
    assert w.listener.statistics().connections == 0


@in_world()
async def test_a_silent_peer_is_dropped_after_its_lifetime(w: World) -> None:
    requester, destination = w.connect(), w.connect()
    requester.send(setup())
    wanted = composite((BROKER_FRAME, route_setup(ROUTE, "a")))
    destination.send(setup(wanted, keepalive=1000, lifetime=3000))
    assert await destination.ask(request(RR, 1, asked_for("b"))) == []
    await requester.ask(request(STREAM, 1, ASKED, n=2))
    assert len(await destination.received()) == 1
    for _ in range(5):
        await asyncio.sleep(2)
        keepalive = frame(0, KEEPALIVE, 0x80, bytes(8) + b"data")
        assert frame(0, KEEPALIVE, 0, bytes(8) + b"data") in await destination.ask(keepalive)
    await asyncio.sleep(3.1)
    assert errors(await destination.received()) == [
        (0, CONNECTION_ERROR, "no keep-alive within 3000 ms")
    ]
    assert destination.closed
    assert [(s, c) for s, c, _ in errors(await requester.received())] == [(1, CANCELED)]
    assert w.services() == []


# --- ROUTE_SETUP again ----------------------------------------------------------------------


@in_world(settles=False)
async def test_route_setup_by_metadata_push(w: World) -> None:
    requester = await w.requester()
    assert await requester.ask(push(composite((BROKER_FRAME, route_setup(ROUTE, "a"))))) == []
    assert w.row().route_id == ROUTE
    assert await requester.ask(request(RR, 1, ASKED)) == [request(RR, 2, ASKED)]


@pytest.mark.parametrize("route_id", [ROUTE, UUID(int=78)])
@in_world()
async def test_a_second_route_setup_replaces_the_first(w: World, route_id: UUID) -> None:
    peer = await w.destination("a", route_id=ROUTE)
    requester = await w.requester()
    assert await requester.ask(request(RR, 1, ASKED)) == []
    assert await peer.ask(push(composite((BROKER_FRAME, route_setup(route_id, "b"))))) == [
        request(RR, 2, ASKED)
    ]
    assert w.services() == ["b"]
    assert await requester.ask(request(RR, 3, asked_for("b"))) == []
    assert await peer.ask(payload(2, b"", C), payload(4, b"", C)) == [
        request(RR, 4, asked_for("b"))
    ]
    await w.settled()
    peer.die()
    await w.settled()
    assert w.services() == []


@in_world(BrokerOptions(max_routes=2))
async def test_a_route_setup_that_is_refused_leaves_the_first(w: World) -> None:
    peer = await w.destination("a", route_id=ROUTE)
    other = push(composite((BROKER_FRAME, route_setup(UUID(int=78), "b"))))
    assert await peer.ask(other) == []
    assert w.services() == ["a"]
    assert w.listener.statistics().refused == 1
    peer.die()
    await w.settled()
    assert w.services() == []


@in_world()
async def test_a_duplicate_route_id_closes_the_older_connection(w: World) -> None:
    requester, old = await w.requester(), await w.destination("a", route_id=ROUTE)
    assert await requester.ask(request(RR, 1, ASKED)) == []
    assert len(await old.received()) == 1
    new = await w.destination("a", route_id=ROUTE)
    assert errors(await old.received()) == [
        (0, CONNECTION_ERROR, "another connection has taken over its route id")
    ]
    assert old.closed
    assert [(s, c) for s, c, _ in errors(await requester.received())] == [(1, CANCELED)]
    assert w.row().peer == "10.0.0.1:5002"  # the later close of the older removed nothing
    assert await requester.ask(request(RR, 3, ASKED)) == []
    assert await new.ask(payload(2, b"", C)) == [request(RR, 2, ASKED)]


@in_world()
async def test_requests_under_way_to_a_connection_that_is_replaced(w: World) -> None:
    requester, old = await w.requester(), await w.destination("a", route_id=ROUTE)
    new = w.connect()
    async with w.held(old):
        requester.send(request(RR, 1, ASKED))
        await w.loop.idle()
        new.send(setup(composite((BROKER_FRAME, route_setup(ROUTE, "a")))))
    ((stream, code, _),) = errors(await requester.received())
    assert (stream, code) == (1, REJECTED)
    assert [s for s, _, _ in errors(await old.received())] == [0]


@pytest.mark.parametrize(
    "broken",
    [
        push(composite((BROKER_FRAME, route_setup(ROUTE, "")))),
        push(composite((BROKER_FRAME, b"\x00"))),
        push(composite((BROKER_FRAME, route_setup(ROUTE, "a")))[:-1]),
        push(b""),
        push(composite((b"text/plain", b"x"))),
        push(composite((BROKER_FRAME, address("a", 0)))),
    ],
)
@in_world()
async def test_a_push_that_cannot_be_read_is_counted_and_changes_nothing(
    w: World, broken: bytes
) -> None:
    peer = await w.destination()
    assert await peer.ask(broken) == []
    assert w.services() == ["a"]
    assert w.listener.statistics().refused == 1


@in_world()
async def test_a_push_without_the_flag_that_it_has_metadata_is_relayed_with_it(w: World) -> None:
    requester, destination = await w.pair()
    assert await requester.ask(frame(0, 0x0C, 0, ASKED)) == []
    assert await destination.received() == [frame(0, 0x0C, 0x100, ASKED)]
