"""Requests that the broker cannot route, and frames that are wrong."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.protocol.rsocket import ConnectionLimits
from onward.transports.rsocket import GatheringOptions, LinkOptions
from tests.support.rsocket_answers import answered, refused
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
ROUTE = UUID(int=77)
CONNECTION_ERROR = 0x101
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204


@pytest.mark.parametrize(
    ("metadata", "code", "text"),
    [
        (None, INVALID, "the request has no metadata"),
        (b"", INVALID, "metadata: the request has no ADDRESS"),
        (composite((b"text/plain", b"a")), INVALID, "metadata: the request has no ADDRESS"),
        (b"\x10abc", INVALID, "an entry of composite metadata runs past its 4 bytes"),
        (ASKED[:-1], INVALID, "runs past its"),
        (composite((BROKER_FRAME, address("a", 0))), INVALID, "exactly one of U, M and S"),
        (composite((BROKER_FRAME, address("a", 0xC0))), INVALID, "exactly one of U, M and S"),
        (composite((BROKER_FRAME, address("a", 0xE0))), INVALID, "exactly one of U, M and S"),
        (composite((BROKER_FRAME, address("a", 0x20))), INVALID, "ShardKey"),
        (composite((BROKER_FRAME, address({}))), INVALID, "needs at least one"),
        (composite((BROKER_FRAME, b"")), INVALID, "header: 6 bytes needed, 0 left"),
        (composite((BROKER_FRAME, address("a")[:20])), INVALID, "origin route id"),
        (composite((BROKER_FRAME, address("a")[:-1])), INVALID, "tag value: 1 byte needed"),
        (composite((BROKER_FRAME, address("a") + b"!")), INVALID, "1 byte after its end"),
        (composite((BROKER_FRAME, route_setup(ROUTE, "a"))), INVALID, "the request has no ADDRESS"),
        (composite((BROKER_FRAME, address({1: "\x00"})[:-1] + b"\xff")), INVALID, "not UTF-8"),
        (
            composite((BROKER_FRAME, address({f"k{i}": "v" for i in range(257)}))),
            INVALID,
            "more than 256",
        ),
    ],
)
@pytest.mark.parametrize("fragments", [False, True])
@in_world()
async def test_a_request_that_cannot_be_routed(
    w: World, metadata: bytes | None, code: int, text: str, fragments: bool
) -> None:
    requester, destination = await w.pair()
    asked = [request(RR, 1, metadata, b"data")]
    if fragments:
        asked = [request(RR, 1, metadata, flags=F), payload(1, b"data")]
    got_code, got_text = await answered(requester, *asked)
    assert got_code == code
    assert text in got_text or (fragments and metadata in {None, b""})
    # The same as a fire-and-forget is only counted.
    fnf = [request(FNF, 3, metadata, b"data")]
    if fragments:
        fnf = [request(FNF, 3, metadata, flags=F), payload(3, b"data")]
    assert await requester.ask(*fnf) == []
    assert w.listener.statistics().refused == 2
    assert await destination.received() == []


@in_world()
async def test_the_same_metadata_in_fragments_of_one_byte(w: World) -> None:
    requester, destination = await w.pair()
    asked = [request(STREAM, 1, ASKED[:1], n=5, flags=F)]
    asked += [payload(1, b"", N | F, ASKED[at : at + 1]) for at in range(1, len(ASKED))]
    asked += [payload(1, b"data", N)]
    assert await requester.ask(*asked) == []
    assert await destination.received() == [restamped(each, 2) for each in asked]
    assert await requester.ask(cancel(1)) == []


@in_world(options=LinkOptions(gathering=GatheringOptions(max_gather=1000)))
async def test_fragments_that_never_end(w: World) -> None:
    requester, _ = await w.pair()
    assert await requester.ask(request(RR, 1, ASKED, flags=F)) == []
    for _ in range(3):
        assert await requester.ask(payload(1, b"", F, bytes(250))) == []
    code, text = await answered(requester, payload(1, b"", F, bytes(250)))
    assert code == INVALID
    assert "over the limit of 1000 bytes" in text
    assert await requester.ask(payload(1, b"", N | F, bytes(250))) == []
    # A fire-and-forget has no answer: it is read to its end, and nothing of it is kept.
    assert await requester.ask(request(FNF, 3, ASKED, flags=F)) == []
    for _ in range(5):
        assert await requester.ask(payload(3, b"", F, bytes(250))) == []
    assert await requester.ask(payload(3, b"")) == []
    assert w.listener.statistics().refused == 2


@in_world(options=LinkOptions(gathering=GatheringOptions(max_gather=1000, max_gathered=4000)))
async def test_fragments_of_one_peer_have_a_limit_together(w: World) -> None:
    requester, _ = await w.pair()
    for stream in (1, 3, 5):
        assert await requester.ask(request(RR, stream, bytes(900), flags=F)) == []
    ((stream, code, text),) = errors(await requester.ask(request(RR, 7, bytes(900), flags=F)))
    assert (stream, code) == (7, REJECTED)
    assert "4000 bytes" in text
    assert await requester.ask(cancel(3)) == []
    assert await requester.ask(request(RR, 9, bytes(900), flags=F)) == []
    assert await requester.ask(cancel(1), cancel(5), cancel(9)) == []


@in_world(options=LinkOptions(gathering=GatheringOptions(max_gather=1000, max_gathered=5500)))
async def test_fragments_that_wait_for_a_route_count_as_well(w: World) -> None:
    requester = await w.requester()
    for stream in (1, 3, 5, 7):
        await requester.ask(request(RR, stream, ASKED, b"x", flags=F))
    assert w.broker.statistics().waiting == 4
    got: list[tuple[int, int, str]] = []
    for stream in (1, 3, 5, 7):
        got += errors(await requester.ask(payload(stream, bytes(850), N | F)))
    assert [(stream, code) for stream, code, _ in got] == [(7, REJECTED)]
    destination = w.register()
    taken = await destination.received()
    assert len(taken) == 6
    # Those have been handed over and count no more.
    for stream in (9, 11, 13):
        assert await requester.ask(request(RR, stream, bytes(900), flags=F)) == []
    requester.die()


@in_world()
async def test_a_peer_dies_between_fragments(w: World) -> None:
    requester, _ = await w.pair()
    assert await requester.ask(request(RR, 1, ASKED, flags=F)) == []
    requester.die()


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (frame(0, 0x20), "frame type 0x20 is unknown"),
        (frame(1, 0x3F, 0, bytes(4)), "frame type 0x3f is unknown"),
        (frame(1, 0x00), "frame type 0x00 is unknown"),
        (frame(1, RR, M, b"\xff\xff\xffabc"), "metadata length runs past the frame on stream 1"),
        (frame(1, RR, M, b"\x00"), "metadata length runs past the frame on stream 1"),
        (frame(1, STREAM, 0, b"\x00"), "REQUEST_STREAM of 7 bytes"),
        (frame(2**31 + 1, RR, M, b"\x00\x00\x00"), "reserved bit"),
        (b"\x00\x00\x05hello", "a frame of 5 bytes has no header"),
        (frame(0, KEEPALIVE, 0x80, bytes(4)), "KEEPALIVE of 10 bytes"),
        (frame(0, KEEPALIVE, 0x80, bytes(70_000)), "over 65536 bytes"),
        (frame(0, 0x0D, 0, bytes(20)), "RESUME after SETUP"),
    ],
)
@in_world()
async def test_a_broken_frame_ends_the_connection(w: World, wrong: bytes, text: str) -> None:
    requester, destination = await w.pair()
    other = await w.requester()
    await requester.ask(request(RR, 5, ASKED))
    assert len(await destination.received()) == 1
    code, said = await refused(requester, wrong, request(FNF, 7, ASKED))
    assert code == CONNECTION_ERROR
    assert text in said
    assert await destination.received() == [cancel(2)]
    assert await other.ask(request(RR, 1, ASKED)) == []
    assert len(await destination.received()) == 1
    other.die()


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (frame(0, 0x20, I), "unknown_type"),
        (frame(1, 0x3F, I, bytes(4)), "unknown_type"),
        (frame(1, RR, M | I, b"\xff\xff\xffabc"), "malformed_ignored"),
        (frame(3, 0x09), "unknown_stream"),
        (frame(0, RR, M, b"\x00\x00\x00"), "request_on_stream_0"),
        (frame(2, RR, M, b"\x00\x00\x00"), "request_id_not_the_peers"),
        (frame(1, KEEPALIVE, 0x80, bytes(8)), "control_frame_on_stream"),
        (frame(0, 0x02, 0, bytes(8)), "lease_ignored"),
        (error(0, 0x201), "error_ignored"),
        (setup(), "setup_ignored"),
    ],
)
@in_world()
async def test_an_odd_frame_is_ignored_and_counted(w: World, odd: bytes, reason: str) -> None:
    requester, destination = await w.pair()
    assert await requester.ask(odd) == []
    assert w.listener.statistics().dropped == {reason: 1}
    assert await requester.ask(request(RR, 5, ASKED)) == []
    assert await destination.ask(payload(2, b"", C)) == [request(RR, 2, ASKED)]


@in_world(options=LinkOptions(connection=ConnectionLimits(max_frame=1000)))
async def test_a_frame_over_the_limit(w: World) -> None:
    requester, destination = await w.pair()
    code, text = await refused(requester, request(RR, 1, ASKED, bytes(1000))[:50])
    assert code == CONNECTION_ERROR
    assert "over the limit of 1000 bytes" in text
    assert await destination.received() == []


@in_world(options=LinkOptions(connection=ConnectionLimits(max_streams=3)))
async def test_too_many_streams_of_one_peer(w: World) -> None:
    requester = await w.requester()
    for stream in (1, 3, 5):
        assert await requester.ask(request(RR, stream, ASKED)) == []
    ((stream, code, text),) = errors(await requester.ask(request(RR, 7, ASKED)))
    assert (stream, code, text) == (7, REJECTED, "3 streams open already")
    assert await requester.ask(cancel(1), cancel(3), cancel(5)) == []


@in_world()
async def test_a_peer_says_that_the_connection_is_over(w: World) -> None:
    requester, destination = await w.pair()
    await requester.ask(request(RR, 1, ASKED), error(0, 0x101, b"bye"))
    assert requester.closed
    assert await destination.received() == []
    assert await destination.ask(error(0, 0x101, b"me too")) == []
    assert destination.closed
    assert w.services() == []


@in_world()
async def test_a_waiting_request_keeps_its_own_bytes_only(w: World) -> None:
    requester = await w.requester()
    noise = frame(0, 0x20, I, bytes(60_000))
    channel = request(CHANNEL, 3, ASKED, b"b", n=1, flags=F)
    requester.send(noise, request(RR, 1, ASKED, b"a"), noise)
    requester.send(noise, channel, noise)
    requester.send(noise, payload(3, b"c", N | C), noise)
    await w.loop.idle()
    held = [each.peer for each in requester.link.core.streams.values()]
    assert [len(exchange.frames) for exchange in held] == [1, 2]
    for exchange in held:
        for each in exchange.frames:
            assert len(each.buffer) < 200
    destination = w.register()
    assert await destination.received() == [
        request(RR, 2, ASKED, b"a"),
        restamped(channel, 4),
        payload(4, b"c", N | C),
    ]
    requester.die()
