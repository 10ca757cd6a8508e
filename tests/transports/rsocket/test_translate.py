"""Requests to destinations that wrap their broker frames in another way than the requester."""

from __future__ import annotations

import pytest

from tests.support.counts import exhaustive
from tests.support.rsocket_peer import *

INVALID = 0x204
FORMS = [
    (mime, alone) for mime in (BROKER_FRAME, ROUTING_FRAME, FORWARDING) for alone in (False, True)
]
EACH_FORM = [*FORMS[:2], *exhaustive(*FORMS[2:4]), *FORMS[4:]]
"""The second of two names of one dialect is tried where there is time."""
OTHERS = ((b"text/plain", b"t"), (b"x/y", b""))


async def destination(w: World, mime: bytes, alone: bool, service: str = "a") -> Peer:
    """Connect a destination that registers in some form."""
    peer = w.connect()
    wanted = route_setup(w.new_id(), service)
    metadata = wanted if alone else composite((mime, wanted))
    assert await peer.ask(setup(metadata, mime=mime if alone else COMPOSITE)) == []
    return peer


async def requester(w: World, mime: bytes, alone: bool) -> Peer:
    peer = w.connect()
    assert await peer.ask(setup(mime=mime if alone else COMPOSITE)) == []
    return peer


def asked(mime: bytes, alone: bool, flags: int = 0x080) -> bytes:
    frame = address("a", flags, mime=mime)
    return frame if alone else composite((mime, frame))


@pytest.mark.parametrize(("mime", "alone"), EACH_FORM)
@pytest.mark.parametrize(("their_mime", "their_alone"), EACH_FORM)
@in_world()
async def test_each_form_to_each(
    w: World, mime: bytes, alone: bool, their_mime: bytes, their_alone: bool
) -> None:
    to, peer = await destination(w, their_mime, their_alone), await requester(w, mime, alone)
    for number in (1, 3):
        flags = I | 0x01F
        await peer.ask(request(RR, number, asked(mime, alone), b"data", flags=flags))
        wanted = request(RR, number + 1, asked(their_mime, their_alone), b"data", flags=flags)
        assert await to.received() == [wanted]
        await to.ask(payload(number + 1, b"x", N | C))
        assert await peer.received() == [payload(number, b"x", N | C)]


@pytest.mark.parametrize(("mime", "alone"), EACH_FORM)
@in_world()
async def test_in_the_same_form_bytes_stay_as_they_are(w: World, mime: bytes, alone: bool) -> None:
    to, peer = await destination(w, mime, alone), await requester(w, mime, alone)
    metadata = asked(mime, alone)
    if mime == FORWARDING:
        # A metadata list that is not empty, and wrapped metadata.
        frame = address("a", mime=FORWARDING, wrapped=b"wrapped")
        frame = frame[:22] + b"\x9e\x01w" + frame[24:]
        metadata = frame if alone else composite((mime, frame))
    if not alone:
        metadata = b"\x85\x00\x00\x01x" + metadata + composite(*OTHERS, (mime, b"twice"))
    for number, one in enumerate(
        (
            request(RR, 1, metadata, b"data", flags=I | 0x1F),
            request(STREAM, 3, metadata, n=3),
            request(CHANNEL, 5, metadata, b"data", n=7, flags=C),
            request(FNF, 7, metadata),
        )
    ):
        await peer.ask(one)
        assert await to.received() == [restamped(one, 2 * number + 2)]
    assert await peer.ask(push(metadata, 0x21F)) == []
    assert await to.received() == [push(metadata, 0x21F)]
    peer.die()
    to.die()


@in_world()
async def test_other_entries_stay_where_they_are(w: World) -> None:
    to, peer = await destination(w, FORWARDING, False), await requester(w, BROKER_FRAME, False)
    before, after = b"\x85\x00\x00\x01x" + composite(OTHERS[0]), composite(OTHERS[1])
    await peer.ask(request(FNF, 1, before + asked(BROKER_FRAME, False) + after))
    assert await to.received() == [request(FNF, 2, before + asked(FORWARDING, False) + after)]


@in_world()
async def test_a_lone_frame_has_no_place_for_other_entries(w: World) -> None:
    to, peer = await destination(w, FORWARDING, True), await requester(w, BROKER_FRAME, False)
    entries = composite(OTHERS[0]) + asked(BROKER_FRAME, False) + composite(OTHERS[1])
    await peer.ask(request(FNF, 1, entries))
    assert await to.received() == [request(FNF, 2, address("a", mime=FORWARDING))]
    assert to.link.core.counters["metadata_entry_left_out"] == 2


@in_world()
async def test_what_the_reference_dialect_has_no_place_for(w: World) -> None:
    to, peer = await destination(w, BROKER_FRAME, True), await requester(w, FORWARDING, True)
    frame = address("a", mime=FORWARDING, wrapped=b"wrapped")
    await peer.ask(request(FNF, 1, frame[:22] + b"\x9e\x01w" + frame[24:]))
    assert await to.received() == [request(FNF, 2, address("a", wrapped=b"wrapped"))]


@pytest.mark.parametrize("kind", [STREAM, CHANNEL])
@in_world()
async def test_credit_and_completion_of_a_translated_request(w: World, kind: int) -> None:
    to, peer = await destination(w, FORWARDING, True), await requester(w, BROKER_FRAME, False)
    flags = C if kind == CHANNEL else 0
    await peer.ask(request(kind, 1, asked(BROKER_FRAME, False), b"d", n=7, flags=flags))
    wanted = request(kind, 2, asked(FORWARDING, True), b"d", n=7, flags=flags)
    assert await to.received() == [wanted]
    await to.ask(payload(2, b"", C))
    assert await peer.received() == [payload(1, b"", C)]


@in_world()
async def test_a_translated_request_in_fragments(w: World) -> None:
    to, peer = await destination(w, FORWARDING, False), await requester(w, BROKER_FRAME, True)
    metadata = asked(BROKER_FRAME, True)
    await peer.ask(request(RR, 1, metadata[:9], flags=F), payload(1, b"he", F, metadata[9:]))
    await peer.ask(payload(1, b"ll", F))
    await peer.ask(payload(1, b"o", N))
    frames = await to.received()
    got, data = b"", b""
    for frame in frames:
        at = 9
        if frame[7] & 1:  # M
            size = int.from_bytes(frame[9:12])
            got += frame[12 : 12 + size]
            at = 12 + size
        data += frame[at:]
    assert got == asked(FORWARDING, False)
    assert data == b"hello"
    assert [bool(frame[8] & F) for frame in frames] == [True] * (len(frames) - 1) + [False]
    await to.ask(payload(2, b"x", N | C))
    assert len(await peer.received()) == 1


@pytest.mark.parametrize("kind", [RR, STREAM, *exhaustive(FNF, CHANNEL)])
@pytest.mark.parametrize("largest", [64, 65, 100, 127, 128, 200])
@in_world()
async def test_no_fragment_but_the_first_and_the_last_is_too_small(
    w: World, kind: int, largest: int
) -> None:
    """Java takes none below 61 bytes (64 with the length), unless it is the first or the last."""
    to, peer = await destination(w, FORWARDING, False), await requester(w, BROKER_FRAME, True)
    metadata = asked(BROKER_FRAME, True)
    n = 1 if kind in {STREAM, CHANNEL} else None
    room = largest - 9 - (4 if n else 0)
    sent = b""
    for stream in range(1, 2 * largest, 2):
        # The first fragment with data ends the metadata: it is handed over with what came.
        rest = metadata[room:]
        data = bytes(range(stream % (largest - 9 - len(rest[: largest - 9 - 1]))))
        peer.send(request(kind, stream, metadata[:room], n=n, flags=F))
        for at in range(0, len(rest), largest - 10):
            peer.send(payload(stream, b"", N | F, rest[at : at + largest - 10]))
        peer.send(payload(stream, data, N | F))
        peer.send(payload(stream, b"end", N))
        frames = await to.received()
        assert all(len(frame) >= 64 for frame in frames[1:-1]), [len(each) for each in frames]
        got, sent = _put_together(frames), data + b"end"
        assert got == (asked(FORWARDING, False), sent)
    peer.die()


def _put_together(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Return the metadata and the data of a request in fragments."""
    metadata, data = b"", b""
    for raw in frames:
        at = 13 if raw[7] >> 2 in {STREAM, CHANNEL} else 9
        if raw[7] & 1:  # M
            size = int.from_bytes(raw[at : at + 3])
            metadata += raw[at + 3 : at + 3 + size]
            at += 3 + size
        data += raw[at:]
    return metadata, data


@in_world()
async def test_a_translated_push(w: World) -> None:
    to, peer = await destination(w, FORWARDING, True), await requester(w, BROKER_FRAME, False)
    assert await peer.ask(push(asked(BROKER_FRAME, False), 0x21F)) == []
    assert await to.received() == [push(asked(FORWARDING, True), 0x21F)]


@in_world()
async def test_metadata_that_cannot_be_read_are_not_translated(w: World) -> None:
    to, peer = await destination(w, FORWARDING, True), await requester(w, BROKER_FRAME, False)
    got = await peer.ask(request(RR, 1, asked(BROKER_FRAME, False) + b"\x05te"))
    assert [code for _, code, _ in errors(got)] == [INVALID]
    assert await to.received() == []


@in_world()
async def test_a_multicast_is_translated_for_each(w: World) -> None:
    peers = [await destination(w, *form) for form in FORMS]
    peer = await requester(w, FORWARDING, False)
    await peer.ask(request(RR, 1, asked(FORWARDING, False, MULTICAST), b"x"))
    for to, form in zip(peers, FORMS, strict=True):
        assert await to.received() == [request(RR, 2, asked(*form, MULTICAST), b"x")]
    await peer.ask(cancel(1))
    await peer.ask(request(RR, 3, asked(FORWARDING, False, MULTICAST) + b"\x05te"))
    peers[2].die()
    for to in peers:
        to.die()


@pytest.mark.parametrize(("mime", "alone"), EACH_FORM)
@in_world()
async def test_a_worker_asks_in_the_form_of_the_destination(
    w: World, mime: bytes, alone: bool
) -> None:
    to = await destination(w, mime, alone)
    w.node.send("32#service=a", b"x")
    frame = address("a", mime=mime, origin=w.broker.broker_id.bytes)
    assert await to.received() == [
        request(FNF, 2, frame if alone else composite((mime, frame)), b"x")
    ]


@in_world()
async def test_a_worker_asks_a_service_whose_name_is_too_long_for_a_tag(w: World) -> None:
    to = await destination(w, BROKER_FRAME, True, "s" * 200)
    (row,) = (row for row in w.broker.routes() if row.service == "s" * 200)
    w.node.send(f"32#route={row.route_id}", b"x")
    frame = address({2: str(row.route_id)}, origin=w.broker.broker_id.bytes)
    assert await to.received() == [request(FNF, 2, frame, b"x")]
