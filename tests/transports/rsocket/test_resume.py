"""Sessions that are resumed at a listener, by raw frames: each row of the decisions."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, DrainOptions, WaitingOptions
from onward.protocol.broker import SnapshotRoute
from onward.protocol.rsocket import Connection
from onward.transports.rsocket import FlowOptions, LeaseOptions, LinkOptions
from onward.transports.rsocket._link import Link
from onward.transports.rsocket._resumable_link import ResumableLink
from tests.support.rsocket_peer import *
from tests.support.rsocket_sessions import *

REJECTED_SETUP, REJECTED_RESUME, REJECTED, CANCELED = 0x003, 0x004, 0x202, 0x203
CONNECTION_ERROR = 0x101
OTHER = bytes(range(16, 32))
ON = resumable()
WAITING = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0, max_wait=30.0))


async def requester(w: World, token: bytes = TOKEN) -> Peer:
    peer = w.connect()
    assert await peer.ask(begun(token=token)) == []
    return peer


async def destination(w: World, number: int = 7, token: bytes = OTHER) -> Peer:
    peer = w.connect()
    route = route_setup(UUID(int=number), "a")
    assert await peer.ask(begun(composite((BROKER_FRAME, route)), token=token)) == []
    return peer


def link_of(peer: Peer) -> ResumableLink:
    link = peer.link
    assert isinstance(link, ResumableLink)
    return link


# --- a listener without sessions ------------------------------------------------------------


@in_world()
async def test_without_sessions_a_token_is_refused(w: World) -> None:
    peer = w.connect()
    assert errors(await peer.ask(begun())) == [
        (0, REJECTED_SETUP, "sessions cannot be resumed here")
    ]
    assert peer.closed


@in_world()
async def test_without_sessions_resume_is_refused(w: World) -> None:
    peer = w.connect()
    answer = await peer.ask(resume())
    assert errors(answer) == [(0, REJECTED_RESUME, "sessions cannot be resumed here")]
    assert peer.closed


@in_world()
async def test_without_sessions_connections_are_what_they_were(w: World) -> None:
    """Positions and kept frames are in subclasses, so that others do not pay for them."""
    peer = await w.requester()
    assert type(peer.link) is Link
    assert type(peer.link.core) is Connection


@in_world(options=ON)
async def test_a_peer_without_a_token_has_no_session(w: World) -> None:
    destination_ = await w.destination()
    peer = await w.requester()
    await peer.ask(request(RR, 1, asked_for("a")))
    await lost(peer)
    assert [kind_of(raw) for raw in await destination_.received()] == [RR, CANCEL]
    assert w.listener.statistics().sessions == 0


# --- the layout, and positions ----------------------------------------------------------------


@in_world(options=ON)
async def test_a_request_is_answered_after_a_loss(w: World) -> None:
    """The answer that comes meanwhile is kept; both positions are those of the frames."""
    back = await w.destination()
    peer = await requester(w)
    asking = request(RR, 1, asked_for("a"), b"question")
    await peer.ask(asking)
    await back.received()
    await lost(peer)
    assert row(w, 1)["suspended"] == pytest.approx(0, abs=0.1)
    await back.ask(payload(2, b"answer", N | C))
    again = w.connect()
    answer = payload(1, b"answer", N | C)
    assert await again.ask(resume(0, 0)) == [resume_ok(size_of(asking)), answer]
    assert again.link is peer.link
    assert row(w, 1)["suspended"] is None
    assert w.listener.statistics().resumes == {"resumed": 1}
    assert w.listener.statistics().closed == {"resumed another": 1}
    # And once more: what the client has received is not sent again.
    await lost(again)
    third = w.connect()
    assert await third.ask(resume(size_of(answer), 0)) == [resume_ok(size_of(asking))]


@in_world(options=ON)
async def test_what_was_received_is_not_sent_again(w: World) -> None:
    """The client sends from the position in RESUME_OK on; a request is routed once."""
    back = await w.destination()
    peer = await requester(w)
    first, second = (request(FNF, at, asked_for("a"), b"%d" % at) for at in (1, 3))
    await peer.ask(first, second[:-1])
    await lost(peer)
    again = w.connect()
    assert await again.ask(resume()) == [resume_ok(size_of(first))]
    await again.ask(second)
    assert [raw[-1:] for raw in await back.received()] == [b"1", b"3"]


@in_world(options=ON)
async def test_keepalive_has_positions(w: World) -> None:
    """KEEPALIVE tells what was received, and releases what the peer has received."""
    back = await w.destination()
    peer = await requester(w)
    asking = request(RR, 1, asked_for("a"))
    await peer.ask(asking)
    await back.ask(payload(2, b"answer", N | C))
    (answer,) = await peer.received()
    link = link_of(peer)
    assert link.kept_bytes > 0
    assert w.listener.statistics().kept_bytes == link.kept_bytes
    alive = frame(0, KEEPALIVE, 0x80, size_of(answer).to_bytes(8))
    assert await peer.ask(alive) == [frame(0, KEEPALIVE, 0, size_of(asking).to_bytes(8))]
    assert link.kept_bytes == 0


@in_world(options=ON)
async def test_keepalive_lease_and_push_have_no_position(w: World) -> None:
    peer = await requester(w)
    alive = frame(0, KEEPALIVE, 0x80, bytes(8))
    await peer.ask(alive, push(b"lost"), frame(0, LEASE, 0, bytes(8)))
    await lost(peer)
    assert await w.connect().ask(resume()) == [resume_ok(0)]


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 15])
@in_world(options=ON)
async def test_a_short_token(w: World, size: int) -> None:
    answer = await w.connect().ask(begun(token=bytes(size)))
    assert errors(answer) == [(0, REJECTED_SETUP, "a resume token has at least 16 bytes")]


@in_world(options=ON)
async def test_a_token_in_use(w: World) -> None:
    """It is refused, unless the old connection is silent for more than half of its lifetime."""
    first = w.connect()
    assert await first.ask(begun(lifetime=60_000)) == []
    second = w.connect()
    assert errors(await second.ask(begun())) == [(0, REJECTED_SETUP, "the resume token is in use")]
    assert second.closed
    assert not first.closed
    await asyncio.sleep(30.1)
    third = w.connect()
    assert await third.ask(begun()) == []
    assert first.closed
    assert w.listener.statistics().closed == {"setup refused": 1, "replaced": 1}
    assert w.listener.statistics().sessions == 1


@in_world(options=ON)
async def test_a_token_of_a_suspended_session(w: World) -> None:
    """A client that has lost its state begins anew, and the session before it ends."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await lost(peer)
    again = w.connect()
    assert await again.ask(begun()) == []
    assert await back.received() == [cancel(2)]
    assert w.listener.statistics().sessions == 1
    await again.ask(request(RR, 1, asked_for("a")))
    assert [kind_of(raw) for raw in await back.ask(payload(4, b"", N | C))] == [RR]
    assert await again.received() == [payload(1, b"", N | C)]


@in_world(options=ON)
async def test_an_unknown_token(w: World) -> None:
    peer = w.connect()
    assert errors(await peer.ask(resume())) == [(0, REJECTED_RESUME, "no such session")]
    assert peer.closed
    assert w.listener.statistics().resumes == {"unknown": 1}
    assert w.listener.statistics().closed == {"resume refused": 1}


@in_world(options=ON)
async def test_a_session_is_bound_to_the_certificate(w: World) -> None:
    """Another peer that knows the token finds no session."""
    peer = w.connect()
    peer.link.identity = replace(peer.link.identity, digest=b"d" * 32)
    assert await peer.ask(begun(token=b"short")) == []
    await lost(peer)
    for digest, user in ((b"", None), (b"e" * 32, None), (b"", 1000)):
        thief = w.connect()
        thief.link.identity = replace(thief.link.identity, digest=digest, user_id=user)
        answer = await thief.ask(resume(token=b"short"))
        assert errors(answer) == [(0, REJECTED_RESUME, "no such session")]
    again = w.connect()
    again.link.identity = replace(again.link.identity, digest=b"d" * 32)
    assert await again.ask(resume(token=b"short")) == [resume_ok(0)]


@in_world(options=ON)
async def test_a_session_is_bound_to_the_user(w: World) -> None:
    peer = w.connect()
    peer.link.identity = replace(peer.link.identity, user_id=0)
    assert await peer.ask(begun(token=b"short")) == []
    await lost(peer)
    other = w.connect()
    other.link.identity = replace(other.link.identity, user_id=1)
    assert errors(await other.ask(resume(token=b"short")))[0][1] == REJECTED_RESUME
    again = w.connect()
    again.link.identity = replace(again.link.identity, user_id=0)
    assert await again.ask(resume(token=b"short")) == [resume_ok(0)]


@in_world(options=resumable(max_sessions=3))
async def test_too_many_sessions(w: World) -> None:
    """One source has at most half of them, and one that ends leaves its place."""
    peers = [await requester(w, bytes([at]) * 16) for at in range(2)]
    refused = await w.connect().ask(begun(token=bytes([9]) * 16))
    assert errors(refused) == [(0, REJECTED_SETUP, "there are too many sessions")]
    other = w.connect("10.9.9.9")
    assert await other.ask(begun(token=bytes([8]) * 16)) == []
    assert errors(await w.connect("10.8.8.8").ask(begun(token=bytes([7]) * 16)))
    peers[0].send(error(0, CONNECTION_ERROR))
    await w.loop.idle()
    assert await w.connect("10.8.8.8").ask(begun(token=bytes([7]) * 16)) == []
    limits = {each.name: (each.used, each.limit, each.reached) for each in w.listener.limits()}
    assert limits["resume.max_sessions"] == (3, 3, 2)


# --- suspended ----------------------------------------------------------------------------------


@in_world(WAITING, ON)
async def test_a_hidden_route(w: World) -> None:
    """A request that only it could take waits, and is sent once the session is resumed."""
    back = await destination(w)
    front = await w.requester()
    await lost(back)
    assert w.services() == []
    assert [each.service for each in w.broker.expected()] == ["a"]
    assert await front.ask(request(RR, 1, asked_for("a"), b"first")) == []
    assert w.broker.statistics().waiting == 1
    again = w.connect()
    ok, asked = await again.ask(resume(token=OTHER))
    assert ok == resume_ok(0)
    assert asked[-5:] == b"first"
    assert w.services() == ["a"]
    assert w.broker.expected() == ()
    assert await front.ask() == []
    await again.ask(payload(2, b"answer", N | C))
    assert await front.received() == [payload(1, b"answer", N | C)]


@in_world(replace(WAITING, expected_seconds=5.0, max_routes=4), ON)
async def test_a_hidden_route_outlasts_those_that_are_expected(w: World) -> None:
    """Neither the end of their time nor the lack of room ends it."""
    back = await destination(w)
    front = await w.requester()
    await lost(back)
    w.broker.expect([SnapshotRoute(UUID(int=900).bytes, "b", ())])
    await w.destination("c")
    await w.destination("d")
    assert [each.service for each in w.broker.expected()] == ["a"]
    await asyncio.sleep(6)
    assert [each.service for each in w.broker.expected()] == ["a"]
    await front.ask(request(RR, 1, asked_for("a"), b"first"))
    assert w.broker.statistics().waiting == 1
    again = w.connect()
    received = await again.ask(resume(token=OTHER))  # with the KEEPALIVE of these seconds
    assert [raw[-5:] for raw in received if kind_of(raw) == RR] == [b"first"]
    assert w.broker.expected() == ()
    await again.ask(payload(2, b"answer", N | C))
    assert (await front.received())[-1] == payload(1, b"answer", N | C)


@in_world(WAITING, ON)
async def test_other_destinations_take_over(w: World) -> None:
    back = await destination(w)
    other = await w.destination()
    front = await w.requester()
    await lost(back)
    for at in (1, 3):
        await front.ask(request(RR, at, asked_for("a")))
    assert [kind_of(raw) for raw in await other.received()] == [RR, RR]
    await other.ask(payload(2, b"", N | C), payload(4, b"", N | C))
    await front.received()


@in_world(WAITING, resumable(time=10))
async def test_a_session_that_is_not_resumed(w: World) -> None:
    """After its time its streams are CANCELED, and what waits for its route is REJECTED."""
    back = await destination(w)
    front = await w.requester()
    await front.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await lost(back)
    await front.ask(request(RR, 3, asked_for("a")))
    await asyncio.sleep(9.9)
    assert await front.received() == []
    await asyncio.sleep(0.2)
    ((stream, code, _),) = errors(await front.received())
    assert (stream, code) == (1, CANCELED)
    assert errors(await w.connect().ask(resume(token=OTHER)))[0][2] == "no such session"
    statistics = w.listener.statistics()
    assert statistics.closed == {"not resumed": 1, "resume refused": 1}
    assert (statistics.sessions, statistics.suspended) == (0, 0)
    await asyncio.sleep(30)
    assert [code for _, code, _ in errors(await front.received())] == [REJECTED]
    assert w.broker.expected() == ()


@in_world(options=ON)
async def test_open_streams_go_on(w: World) -> None:
    """Both ends of a channel lose their sockets; no element is lost or repeated."""
    back = await destination(w)
    front = await requester(w)
    await front.ask(request(CHANNEL, 1, asked_for("a"), b"0", n=10))
    (opened,) = await back.received()
    await back.ask(request_n(2, 10))
    await front.received()
    received, sent = size_of(opened), size_of(request_n(2, 10))
    await lost(back)
    first = payload(1, b"1")
    await front.ask(first)
    back = w.connect()
    ok, element = await back.ask(resume(received, 0, token=OTHER))
    assert ok == resume_ok(sent)
    assert element == restamped(first, 2)
    await back.ask(payload(2, b"one"))
    await lost(front)
    await back.ask(payload(2, b"two", N | C))
    front = w.connect()
    answers = await front.ask(resume(size_of(request_n(1, 10)), 0))
    assert elements(answers) == [b"one", b"two"]
    await front.ask(payload(1, b"", C))
    assert elements(await back.received()) == [b""]


@in_world(options=ON)
async def test_a_client_that_comes_back_before_its_loss_is_noticed(w: World) -> None:
    """The old socket is given up; nothing that still comes of it counts."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")))
    await back.received()
    old = link_of(peer)
    again = w.connect()
    ok = await again.ask(resume())
    assert [kind_of(raw) for raw in ok] == [RESUME_OK]
    assert peer.closed
    w.peers.remove(peer)
    await back.ask(payload(2, b"", N | C))
    assert await again.received() == [payload(1, b"", N | C)]
    assert again.link is old
    assert not again.closed


@in_world(options=ON)
async def test_a_closed_socket_is_a_loss(w: World) -> None:
    peer = await requester(w)
    peer.eof()
    await w.loop.idle()
    assert row(w)["suspended"] is not None
    assert await w.connect().ask(resume()) == [resume_ok(0)]


@in_world(options=ON)
async def test_a_silent_peer_is_suspended(w: World) -> None:
    peer = w.connect()
    assert await peer.ask(begun(keepalive=1000, lifetime=3000)) == []
    await asyncio.sleep(3.1)
    assert peer.closed
    assert row(w)["suspended"] is not None
    w.peers.remove(peer)
    again = w.connect()
    assert await again.ask(resume()) == [resume_ok(0)]
    await asyncio.sleep(2.9)
    assert not again.closed


@pytest.mark.parametrize("code", [CONNECTION_ERROR, 0x102])
@in_world(options=ON)
async def test_an_error_of_the_peer_ends_the_session(w: World, code: int) -> None:
    peer = await requester(w)
    await peer.ask(error(0, code))
    peer.eof()
    await w.loop.idle()
    assert w.listener.statistics().sessions == 0
    assert errors(await w.connect().ask(resume()))[0][2] == "no such session"


@in_world(options=ON)
async def test_a_peer_that_closes_with_open_streams(w: World) -> None:
    """After its ERROR[CONNECTION_CLOSE] the loss of the socket is the end."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")), error(0, 0x102))
    await back.received()
    await lost(peer)
    assert await back.received() == [cancel(2)]
    assert w.listener.statistics().sessions == 0


@in_world(options=ON, settles=False)
async def test_a_broken_frame_ends_the_session(w: World) -> None:
    peer = await requester(w)
    await peer.ask(b"\0\0\1x")
    assert w.listener.statistics().sessions == 0


@in_world(options=resumable(LinkOptions(flow=FlowOptions(high_water=4096)), max_kept=1 << 16))
async def test_a_suspended_requester_is_one_that_does_not_read(w: World) -> None:
    """Above `high_water` its destination gets no more credit, and goes on when it is back."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(STREAM, 1, asked_for("a"), n=1000))
    (opened,) = await back.received()
    await lost(peer)
    granted = int.from_bytes(opened[9:13])
    sent = 0
    for _ in range(50):
        for _ in range(granted):
            back.send(payload(2, bytes(512)))
            sent += 1
        granted = sum(int.from_bytes(raw[9:]) for raw in await back.received())
        if not granted:
            break
    assert 4096 // 512 <= sent < 128
    again = w.connect()
    assert len(elements(await again.ask(resume()))) == sent
    assert [kind_of(raw) for raw in await back.received()] == [REQUEST_N]
    await again.ask(cancel(1))
    await back.received()


@in_world(options=resumable(LinkOptions(flow=FlowOptions(high_water=4096)), max_kept=1 << 16))
async def test_a_destination_that_answers_a_suspended_peer_only_is_not_read(w: World) -> None:
    """Answers have no credit; it is read again once the peer is back."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(*(request(RR, at, asked_for("a")) for at in (1, 3)))
    await back.received()
    await lost(peer)
    await back.ask(payload(2, bytes(8000), N | C))
    assert not back.transport.reading
    back.send(payload(4, b"", N | C))
    again = w.connect()
    assert elements(await again.ask(resume())) == [bytes(8000), b""]
    assert back.transport.reading


@in_world(options=resumable(LinkOptions(flow=FlowOptions(high_water=4096)), max_kept=1 << 16))
async def test_a_destination_that_answers_another_peer_too_is_read(w: World) -> None:
    back = await w.destination()
    peer, other = await requester(w), await w.requester("10.0.0.9")
    for each in (peer, other):
        await each.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await lost(peer)
    await back.ask(payload(2, bytes(8000), N | C))
    assert back.transport.reading
    await back.ask(payload(4, b"here", N | C))
    assert elements(await other.received()) == [b"here"]
    assert elements(await w.connect().ask(resume())) == [bytes(8000)]


@in_world(options=resumable(max_kept=2000), settles=False)
async def test_too_much_for_a_suspended_peer(w: World) -> None:
    """What it cannot have received is dropped, so nothing can resume the session: it ends."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")), request(RR, 3, asked_for("a")))
    await back.received()
    await lost(peer)
    assert await back.ask(payload(2, bytes(5000), N | C)) == [cancel(4)]
    statistics = w.listener.statistics()
    assert statistics.closed == {"not resumable": 1}
    assert statistics.resumes == {"dropped": 1}


@in_world(options=resumable(max_kept=2000))
async def test_dropped_frames_that_were_received(w: World) -> None:
    """Frames over the limit are dropped while it is connected; it is resumed if it has them."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await back.ask(payload(2, bytes(5000), N | C))
    (answer,) = await peer.received()
    await lost(peer)
    again = w.connect()
    assert plain(await again.ask(resume(size_of(answer)))) == [
        resume_ok(size_of(request(RR, 1, asked_for("a"))))
    ]
    assert w.listener.statistics().resumes == {"dropped": 1, "resumed": 1}


@in_world(options=resumable(max_kept_total=4000))
async def test_too_much_for_the_listener(w: World) -> None:
    """A session that finds no room drops what it keeps; its own limit is larger."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await back.ask(payload(2, bytes(3000), N | C))
    assert link_of(peer).kept_bytes == 0
    assert w.listener.statistics().kept_bytes == 0
    limits = {each.name: each.reached for each in w.listener.limits()}
    assert limits["resume.max_kept_total"] == 1
    await lost(peer)
    answer = await w.connect().ask(resume())
    text = "the server has dropped frames that were not received"
    assert errors(answer) == [(0, REJECTED_RESUME, text)]


# --- the rule of acceptance -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last_received", "first_available", "result"),
    [
        (0, 1000, "client_dropped"),
        (1000, 0, "not_sent"),
        (1, 0, "no_border"),
    ],
)
@in_world(options=ON)
async def test_positions_that_are_refused(
    w: World, last_received: int, first_available: int, result: str
) -> None:
    """ERROR[REJECTED_RESUME], and the session ends: both sides are told."""
    back = await w.destination()
    peer = await requester(w)
    await peer.ask(request(RR, 1, asked_for("a")))
    await back.received()
    await back.ask(payload(2, b"answer", N | C))
    await peer.ask(request(RR, 3, asked_for("a")))
    await back.received()
    await lost(peer)
    again = w.connect()
    ((stream, code, _),) = errors(await again.ask(resume(last_received, first_available)))
    assert (stream, code) == (0, REJECTED_RESUME)
    assert await back.received() == [cancel(4)]
    statistics = w.listener.statistics()
    assert statistics.resumes == {result: 1}
    assert statistics.closed == {"resume refused": 1, "not resumable": 1}
    assert errors(await w.connect().ask(resume()))[0][2] == "no such session"


@in_world(options=ON)
async def test_another_version(w: World) -> None:
    peer = await requester(w)
    await lost(peer)
    answer = await w.connect().ask(resume(version=(1, 1)))
    assert errors(answer) == [(0, REJECTED_RESUME, "another version of the protocol")]


@in_world(options=ON)
async def test_a_broken_resume(w: World) -> None:
    peer = await requester(w)
    await lost(peer)
    answer = await w.connect().ask(frame(0, RESUME, 0, resume()[9:-1]))
    ((stream, code, _),) = errors(answer)
    assert (stream, code) == (0, REJECTED_RESUME)
    assert await w.connect().ask(resume()) == [resume_ok(0)]


@in_world(options=ON)
async def test_resume_after_setup(w: World) -> None:
    peer = await requester(w)
    answer = await peer.ask(resume())
    assert errors(answer) == [(0, CONNECTION_ERROR, "RESUME after SETUP")]


@in_world(options=ON)
async def test_resume_after_resume(w: World) -> None:
    await lost(await requester(w))
    peer = w.connect()
    await peer.ask(resume())
    assert errors(await peer.ask(resume())) == [(0, CONNECTION_ERROR, "RESUME after SETUP")]


@in_world(options=ON)
async def test_frames_right_after_resume(w: World) -> None:
    """They are of the session; more than one turn of them is refused."""
    back = await w.destination()
    await lost(await requester(w))
    again = w.connect()
    await again.ask(resume(), request(FNF, 1, asked_for("a")))
    assert [kind_of(raw) for raw in await back.received()] == [FNF]
    await lost(again)
    flood = w.connect()
    answer = await flood.ask(resume(), frame(0, KEEPALIVE, 0, bytes(8)) * 2000)
    assert errors(answer) == [(0, CONNECTION_ERROR, "frames before RESUME_OK")]


# --- leases, routes, the end -------------------------------------------------------------------


@in_world(options=resumable(LinkOptions(lease=LeaseOptions(requests=2, interval=10))))
async def test_leases_start_anew(w: World) -> None:
    """The budgets of before are void in both directions; the broker sends a LEASE at once."""
    back = w.connect()
    route = route_setup(w.new_id(), "a")
    await back.ask(begun(composite((BROKER_FRAME, route)), flags=0x40))
    await back.ask(frame(0, LEASE, 0, (60_000).to_bytes(4) + (5).to_bytes(4)))
    await lost(back)
    again = w.connect()
    ok, lease = await again.ask(resume())
    assert ok == resume_ok(0)
    assert kind_of(lease) == LEASE
    front = await w.requester()
    assert [code for _, code, _ in errors(await front.ask(request(RR, 1, asked_for("a"))))] == [
        REJECTED
    ]
    await again.ask(frame(0, LEASE, 0, (60_000).to_bytes(4) + (5).to_bytes(4)))
    await front.ask(request(FNF, 3, asked_for("a")))
    assert [kind_of(raw) for raw in await again.received()] == [FNF]


@in_world(options=ON)
async def test_another_registration_of_the_route_id(w: World) -> None:
    """It replaces the suspended session, which ends."""
    back = await destination(w)
    front = await w.requester()
    await front.ask(request(RR, 1, asked_for("a")))
    await lost(back)
    other = await destination(w, token=bytes(16))
    assert [code for _, code, _ in errors(await front.received())] == [CANCELED]
    assert w.listener.statistics().closed == {"replaced": 1}
    assert errors(await w.connect().ask(resume(token=OTHER)))[0][2] == "no such session"
    await front.ask(request(FNF, 3, asked_for("a")))
    assert [kind_of(raw) for raw in await other.received()] == [FNF]


@in_world(options=ON)
async def test_an_operator_closes_a_suspended_connection(w: World) -> None:
    peer = await requester(w)
    await lost(peer)
    (found,) = w.listener.connections()
    assert w.listener.close_connection(found["id"], "closed")
    assert errors(await w.connect().ask(resume()))[0][2] == "no such session"
    assert w.listener.statistics().closed == {"by an operator": 1, "resume refused": 1}


@in_world(options=ON)
async def test_a_drain_ends_suspended_sessions(w: World) -> None:
    """They could not come back; one that is lost during the drain is not suspended."""
    gone, here = await requester(w), await requester(w, OTHER)
    await lost(gone)
    drain = asyncio.ensure_future(
        w.broker.drain(DrainOptions(grace=0, spread=5, timeout=20), random=lambda: 0.5)
    )
    await asyncio.sleep(0.3)
    assert w.listener.statistics().closed == {"drained": 1}
    await lost(here)
    assert w.listener.statistics().connections == 0
    assert await drain


@in_world(options=ON)
async def test_places_are_taken_and_given_up(w: World) -> None:
    """A suspended session holds no place of a connection; a resumed one that of its new source."""
    places = w.listener._acceptor.places
    peer = await requester(w)
    assert places.taken_by("10.0.0.1") == 1
    await lost(peer)
    assert places.taken == 0
    again = w.connect("10.7.7.7")
    await again.ask(resume())
    assert (places.taken, places.taken_by("10.7.7.7")) == (1, 1)
    assert row(w)["source"] == "10.7.7.7"
    again.send(error(0, CONNECTION_ERROR))
    await w.loop.idle()
    assert places.taken == 0


@in_world(options=ON)
async def test_what_is_logged(w: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "onward.transports.rsocket")
    await lost(await requester(w))
    await w.connect().ask(resume())
    events = [getattr(each, "event", "") for each in caplog.records]
    assert events == ["connection.suspended", "connection.closed", "connection.resumed"]


# --- full sockets --------------------------------------------------------------------------------

NARROW = resumable(LinkOptions(flow=FlowOptions(high_water=20_000, stall_timeout=5.0)))


@in_world(options=NARROW)
async def test_a_full_socket_that_is_lost_is_not_slow(w: World) -> None:
    """The time in which it had to read is over with it; what waited in it is sent again."""
    back = await w.destination()
    peer = await requester(w)
    asking = request(RR, 1, asked_for("a"))
    await peer.ask(asking)
    await back.received()
    peer.stop_reading()
    answer = payload(1, bytes(50_000), N | C)
    await back.ask(payload(2, bytes(50_000), N | C))
    await lost(peer)
    await asyncio.sleep(10)
    assert w.listener.statistics().closed == {}
    assert row(w, 1)["suspended"] == pytest.approx(10, abs=0.1)
    assert await w.connect().ask(resume(0, 0)) == [resume_ok(size_of(asking)), answer]


@in_world(options=NARROW)
async def test_one_that_is_not_read_is_not_read_over_another_socket_either(w: World) -> None:
    """It has filled the socket of a destination, which still does not read."""
    back = await w.destination()
    peer = await requester(w)
    opening = request(CHANNEL, 1, asked_for("a"), n=1)
    await peer.ask(opening)
    await back.received()
    await back.ask(request_n(2, 100))
    (credit,) = await peer.received()
    back.stop_reading()
    sent = [payload(1, bytes(45_000)), payload(1, b"x")]
    for each in sent:
        peer.send(each)
        await w.loop.idle()
    assert not peer.transport.reading
    await lost(peer)
    again = w.connect()
    assert await again.ask(resume(size_of(credit))) == [resume_ok(size_of(opening, *sent))]
    assert not again.transport.reading
    back.read_on()
    await w.loop.idle()
    assert again.transport.reading
    assert [raw[-1:] for raw in await back.received()] == [b"\0", b"x"]
    await again.ask(cancel(1))
    await back.received()


@in_world(options=resumable(max_kept_total=4000))
async def test_a_session_that_drops_frames_again_is_counted_once(w: World) -> None:
    back = await w.destination()
    peer = await requester(w)
    for at in (1, 3):
        await peer.ask(request(RR, at, asked_for("a")))
        await back.received()
        await back.ask(payload(at + 1, bytes(3000), N | C))
    assert w.listener.statistics().resumes == {"dropped": 1}
    limits = {each.name: each.reached for each in w.listener.limits()}
    assert limits["resume.max_kept_total"] == 2
