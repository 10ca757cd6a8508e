"""The handshake of brokers, frame by frame, and what is refused before and after it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.protocol.security import Principal, read_rules
from onward.transports.client import connect as client_of
from onward.transports.rsocket import LinkOptions, ResumeOptions, RSocketListener
from tests.support.peer_brokers import CLUSTER, HandMade
from tests.support.rsocket_peer import *
from tests.support.transports import eventually

REJECTED_SETUP, CONNECTION_ERROR, REJECTED, INVALID = 0x003, 0x101, 0x202, 0x204
THEIRS = UUID(int=0xB)
OURS = UUID(int=0xA)
ROUTING = b"message/x.rsocket.routing.v0"
HEADER = bytes.fromhex("0000 0001")
TIME = (1_700_000_000_000).to_bytes(8)
INSIDE = "127.0.0.1"


def broker_info(broker_id: UUID = THEIRS, lists: bytes = b"\x06onward\x011") -> bytes:
    return HEADER + bytes.fromhex("1000") + broker_id.bytes + TIME + lists


def routing(route: str) -> bytes:
    """Return composite metadata that name a route: the type is well-known, number 0x7E."""
    tag = bytes((len(route),)) + route.encode()
    return b"\xfe" + len(tag).to_bytes(3) + tag


INTRODUCTION = composite((FORWARDING, broker_info()))
HANDSHAKE = request(RR, 1, routing("cluster.broker-info"), broker_info())


clustered = in_world(peers=lambda: HandMade(OURS))
"""Run a coroutine function in a world whose broker is in a cluster."""


def peers_of(w: World) -> HandMade:
    found = w.listener._shared.peers
    assert isinstance(found, HandMade)
    return found


async def joined(w: World, host: str = INSIDE, metadata: bytes = INTRODUCTION) -> Peer:
    """Connect a broker, and shake hands."""
    peer = w.connect(host)
    assert await peer.ask(setup(metadata, keepalive=1000, lifetime=5000)) == []
    (answer,) = await peer.ask(HANDSHAKE)
    assert answer == payload(1, broker_info(OURS), N | C)
    return peer


@clustered
async def test_each_gets_the_broker_info_of_the_other(w: World) -> None:
    peers = peers_of(w)
    peer = await joined(w)
    assert [each.broker_id for each in peers.greeted] == [THEIRS.bytes]
    (link,) = peers.links
    assert link.info.broker_id == THEIRS.bytes
    assert not link.dialled
    assert link.address == peer.link.worker.address
    assert peer.link.to_broker
    assert peer.link.session.used
    peer.die()
    await w.loop.idle()
    assert peers.lost == [(link, "by the peer")]


@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING, ROUTING_FRAME])
@clustered
async def test_the_introduction_in_any_dialect(w: World, mime: bytes) -> None:
    await joined(w, metadata=composite((b"a/b", b"?"), (mime, broker_info())))


@clustered
async def test_its_requests_are_served_by_the_cluster(w: World) -> None:
    peer = await joined(w)
    asked = request(RR, 3, routing(CLUSTER), b"hi")
    assert await peer.ask(asked) == [payload(3, b"answer to hi", N | C)]
    got = await peer.ask(request(STREAM, 5, routing(CLUSTER), b"3", n=2))
    assert elements(got) == [b"0", b"1"]
    (link,) = peers_of(w).links
    assert link.in_flight == 0  # it is the cluster's own
    got = await peer.ask(request_n(5, 9))
    assert elements(got) == [b"2", b""]
    ((_, code, _),) = errors(await peer.ask(request(RR, 7, routing("onward.else"))))
    assert code == INVALID
    # In fragments.
    metadata = routing(CLUSTER)
    parts = [
        request(RR, 9, metadata, b"a" * 80, flags=F),
        payload(9, b"b" * 80, 0),
    ]
    assert await peer.ask(*parts) == [payload(9, b"answer to " + b"a" * 80 + b"b" * 80, N | C)]


@clustered
async def test_requests_of_the_cluster_to_the_peer(w: World) -> None:
    peer = await joined(w)
    (link,) = peers_of(w).links
    answer = link.request("some.route", b"data")
    assert await peer.received() == [request(RR, 2, routing("some.route"), b"data")]
    assert await peer.ask(payload(2, b"yes", N | C)) == []
    assert await answer == b"yes"
    refused = link.request("some.route", b"data")
    await peer.ask(error(4, REJECTED, b"no"))
    with pytest.raises(Exception, match="no"):
        await refused
    given_up = link.request("some.route", b"data")
    await peer.received()
    assert link.in_flight == 0
    given_up.cancel()  # type: ignore[attr-defined]
    assert await peer.received() == [cancel(6)]
    lost = link.request("some.route", b"data")
    await peer.received()
    peer.die()
    await w.loop.idle()
    with pytest.raises(Exception, match="lost"):
        await lost
    with pytest.raises(Exception, match="ended"):
        await link.request("some.route", b"")


class Received:
    """The receiver of a stream."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.ends: list[str] = []

    def element(self, data: bytes) -> None:
        self.got.append(data)

    def ended(self, text: str) -> None:
        self.ends.append(text)

    def broken(self) -> None:
        raise AssertionError("nothing is broken here")


@clustered
async def test_a_stream_of_the_peer(w: World) -> None:
    peer = await joined(w)
    (link,) = peers_of(w).links
    got = Received()
    stream = link.subscribe("some.stream", b"from", 2, got)
    assert await peer.received() == [request(STREAM, 2, routing("some.stream"), b"from", n=2)]
    await peer.ask(payload(2, b"1"), payload(2, b"2a", F | N), payload(2, b"2b", N))
    assert got.got == [b"1", b"2a2b"]
    stream.request_n(5)
    assert await peer.received() == [request_n(2, 5)]
    await peer.ask(payload(2, b"3", N | C))
    assert (got.got[2:], got.ends) == ([b"3"], [""])
    stream.request_n(1)
    stream.cancel()
    assert await peer.received() == []
    others = Received(), Received(), Received()
    one, *_ = (link.subscribe("some.stream", b"", 1, each) for each in others)
    await peer.received()
    one.cancel()
    assert await peer.received() == [cancel(4)]
    await peer.ask(payload(4, b"late"), error(6, INVALID, b"not known"))
    peer.die()
    await w.loop.idle()
    lost = "the connection to the destination was lost"
    assert [each.ends for each in others] == [[], ["not known"], [lost]]
    assert others[0].got == []


# --- refused --------------------------------------------------------------------------------


async def refused(w: World, peer: Peer, got: list[bytes], reason: str) -> tuple[int, str]:
    """Return code and text of the error that has ended a connection, and look at the counts."""
    ((stream, code, text),) = errors(got)
    assert stream == 0
    await w.loop.idle()
    assert peer.closed
    assert w.listener.statistics().closed == {reason: 1}
    assert peers_of(w).links == []
    return code, text


@clustered
async def test_a_broker_from_outside_without_rules(w: World) -> None:
    peer = w.connect("10.0.0.1")
    got = await peer.ask(setup(INTRODUCTION))
    assert await refused(w, peer, got, "setup refused") == (REJECTED_SETUP, "not allowed: peer")


@in_world()
async def test_a_broker_without_a_cluster(w: World) -> None:
    peer = w.connect(INSIDE)
    ((_, code, text),) = errors(await peer.ask(setup(INTRODUCTION)))
    assert (code, text) == (REJECTED_SETUP, "this broker has no cluster")


@clustered
async def test_a_broker_that_the_cluster_refuses(w: World) -> None:
    peers_of(w).refuses["greet"] = "the same id lives elsewhere"
    peer = w.connect(INSIDE)
    got = await peer.ask(setup(INTRODUCTION))
    wanted = (REJECTED_SETUP, "the same id lives elsewhere")
    assert await refused(w, peer, got, "setup refused") == wanted


@clustered
async def test_a_broker_that_the_cluster_refuses_once_it_has_connected(w: World) -> None:
    peers_of(w).refuses["connected"] = "another link stays"
    peer = w.connect(INSIDE)
    got = await peer.ask(setup(INTRODUCTION), HANDSHAKE)
    assert got[0] == payload(1, broker_info(OURS), N | C)
    wanted = (CONNECTION_ERROR, "another link stays")
    assert await refused(w, peer, got, "peer refused") == wanted
    assert peers_of(w).lost == []


BROKEN = [
    composite((FORWARDING, broker_info()[:20])),
    composite((FORWARDING, broker_info() + b"!")),
    composite((FORWARDING, b"\x00\x01" + broker_info()[2:])),  # a later version
    composite((FORWARDING, broker_info(lists=b"\x06onward\x811"))),
]


@pytest.mark.parametrize("metadata", BROKEN)
@clustered
async def test_a_broken_introduction(w: World, metadata: bytes) -> None:
    peer = w.connect(INSIDE)
    code, _ = await refused(w, peer, await peer.ask(setup(metadata)), "setup refused")
    assert code == REJECTED_SETUP


@clustered
async def test_a_broker_is_no_destination(w: World) -> None:
    both = composite((BROKER_FRAME, route_setup(w.new_id(), "a")), (BROKER_FRAME, broker_info()))
    peer = w.connect(INSIDE)
    got = await peer.ask(setup(both))
    code, text = await refused(w, peer, got, "setup refused")
    assert (code, text) == (REJECTED_SETUP, "a broker is no destination")
    assert w.services() == []


ANOTHER = request(RR, 1, routing("cluster.broker-info"), broker_info(UUID(int=0xC)))
VIOLATIONS = {
    "another request": request(RR, 1, routing(CLUSTER), b""),
    "no metadata": request(RR, 1, None, broker_info()),
    "broken metadata": request(RR, 1, b"\xfe\xff", broker_info()),
    "a tag that is cut": request(RR, 1, b"\xfe\x00\x00\x01\x05", broker_info()),
    "a request for a destination": request(RR, 1, asked_for("a")),
    "another interaction": request(STREAM, 1, routing("cluster.broker-info"), broker_info(), n=1),
    "fire and forget": request(FNF, 1, asked_for("a")),
    "fragments": request(RR, 1, routing("cluster.broker-info"), broker_info(), flags=F),
    "a push": push(asked_for("a")),
    "a route setup": push(composite((BROKER_FRAME, route_setup(UUID(int=1), "a")))),
    "another broker": ANOTHER,
    "no broker info": request(RR, 1, routing("cluster.broker-info"), b"?"),
    "bytes behind it": request(RR, 1, routing("cluster.broker-info"), broker_info() + b"!"),
}


@pytest.mark.parametrize("first", VIOLATIONS.values(), ids=VIOLATIONS.keys())
@clustered
async def test_the_handshake_is_the_first_request(w: World, first: bytes) -> None:
    destination = await w.destination()
    peer = w.connect(INSIDE)
    # What follows is not read.
    got = await peer.ask(setup(INTRODUCTION), first, HANDSHAKE)
    code, text = await refused(w, peer, got, "handshake")
    assert code == CONNECTION_ERROR
    assert text.startswith("handshake of brokers: ")
    assert await destination.received() == []
    assert w.services() == ["a"]


@clustered
async def test_a_handshake_that_does_not_come(w: World) -> None:
    peer = w.connect(INSIDE)
    await peer.ask(setup(INTRODUCTION))
    await asyncio.sleep(LinkOptions().connection.setup_timeout - 1)
    assert not peer.closed
    await asyncio.sleep(1.1)
    got = await peer.received()
    code, text = await refused(w, peer, got, "handshake")
    assert (code, "in time" in text) == (CONNECTION_ERROR, True)


@pytest.mark.parametrize(
    "again", [request(RR, 3, routing("cluster.broker-info"), broker_info()), push(INTRODUCTION)]
)
@clustered
async def test_a_second_handshake(w: World, again: bytes) -> None:
    peer = await joined(w)
    got = await peer.ask(again)
    ((stream, code, text),) = errors(got)
    assert (stream, code) == (0, CONNECTION_ERROR)
    assert "a second BROKER_INFO" in text
    assert peer.closed
    assert [reason for _, reason in peers_of(w).lost] == ["handshake"]


@pytest.mark.parametrize("inside", [False, True])
@clustered
async def test_a_client_cannot_become_a_broker_later(w: World, inside: bool) -> None:
    peer = w.connect(INSIDE if inside else "10.0.0.1")
    assert await peer.ask(setup()) == []
    assert errors(await peer.ask(push(INTRODUCTION))) == [
        (0, CONNECTION_ERROR, "not allowed: peer")
    ]
    assert peer.closed
    assert peers_of(w).greeted == []
    # The request of the handshake means nothing from a client.
    peer = w.connect(INSIDE)
    await peer.ask(setup())
    ((_, code, _),) = errors(await peer.ask(HANDSHAKE))
    assert code == INVALID


@clustered
async def test_a_silent_peer_broker_is_lost_after_its_lifetime(w: World) -> None:
    peer = await joined(w)
    await asyncio.sleep(5.1)
    ((_, code, text),) = errors(await peer.received())
    assert (code, "no keep-alive" in text) == (CONNECTION_ERROR, True)
    assert [reason for _, reason in peers_of(w).lost] == ["silent"]


RULES = "rule = [{roles = ['cluster'], peer = true}]"
NO_RULES = "rule = [{roles = ['cluster'], read = true}]"


@pytest.mark.parametrize("by", ["rules", "role"])
@in_world(peers=lambda: HandMade(OURS), rules=RULES)
async def test_a_broker_that_is_not_allowed_any_more_loses_its_link(w: World, by: str) -> None:
    peer = w.connect("10.0.0.1")
    session = peer.link.session
    session.principal = Principal("broker-1", "test", frozenset({"cluster"}))
    assert await peer.ask(setup(INTRODUCTION)) == []
    await peer.ask(HANDSHAKE)
    (link,) = peers_of(w).links
    authorization = w.broker.authorization
    assert authorization is not None
    session = peer.link.session
    authorization.replace(read_rules(RULES))
    session.renew(Principal("broker-1", "test", frozenset({"cluster", "more"})))
    assert await peer.received() == []
    if by == "rules":
        authorization.replace(read_rules(NO_RULES))
    else:
        session.renew(Principal("broker-1", "test"))
    assert errors(await peer.received()) == [(0, CONNECTION_ERROR, "not allowed: peer")]
    assert peers_of(w).lost == [(link, "not allowed")]
    assert authorization.statistics().denied == {"peer": 1}
    authorization.replace(read_rules(RULES))  # nobody listens any more


@clustered
async def test_a_peer_broker_that_stalls_is_closed_as_too_slow(w: World) -> None:
    destination = await w.destination(route_id=UUID(int=1))
    peer = await joined(w)
    await peer.ask(request(STREAM, 3, asked_for("a"), n=1_000_000))
    (asked,) = await destination.received()
    peer.stop_reading()
    high = LinkOptions().flow.high_water
    for _ in range(8):
        await destination.ask(payload(stream_of(asked), bytes(high // 4)))
    # It answers KEEPALIVE, and reads nothing.
    for _ in range(9):
        await peer.ask(IS_IT_ALIVE)
        await asyncio.sleep(4)
    assert peer.closed
    assert [reason for _, reason in peers_of(w).lost] == ["too slow"]
    assert kind_of((await destination.received())[-1]) == CANCEL


@clustered
async def test_a_peer_broker_that_floods_is_answered_and_nobody_waits(w: World) -> None:
    destination, requester = await w.pair()
    peer = await joined(w)
    del destination
    flood = [request(RR, 2 * n + 3, asked_for({2: str(UUID(int=0xDEAD))})) for n in range(500)]
    got = await peer.ask(*flood)
    assert [code for _, code, _ in errors(got)] == [REJECTED] * 500
    assert w.broker.statistics().waiting == 0
    assert not peer.closed
    requester.die()


# --- on sockets -----------------------------------------------------------------------------
AFTER_SETUP = {
    "a broker that is none": (INTRODUCTION, VIOLATIONS["a request for a destination"], "handshake"),
    "another id": (INTRODUCTION, ANOTHER, "handshake"),
    "cut in the middle": (INTRODUCTION, HANDSHAKE[:-3], "by the peer"),
    "a later version": (BROKEN[2], HANDSHAKE, "setup refused"),
    "a destination as well": (
        composite((BROKER_FRAME, route_setup(UUID(int=9), "a")), (BROKER_FRAME, broker_info())),
        HANDSHAKE,
        "setup refused",
    ),
}


@pytest.mark.parametrize(
    ("metadata", "then", "reason"), AFTER_SETUP.values(), ids=AFTER_SETUP.keys()
)
@pytest.mark.parametrize("unix", [False, True])
async def test_on_real_sockets_nobody_else_notices(
    metadata: bytes, then: bytes, reason: str, unix: bool, tmp_path: Path
) -> None:
    uri = f"rsocket+unix://{tmp_path}/b" if unix else "rsocket+tcp://127.0.0.1:0"
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return request.data

    async with Node("edge") as node:
        broker = await Broker.attach(node)
        peers = HandMade(OURS)
        listener = await node.listen(uri, broker=broker, peers=peers)
        assert isinstance(listener, RSocketListener)
        async with (
            client_of(listener.uri, service="a", handlers=handlers),
            client_of(listener.uri) as requester,
        ):
            if unix:
                reader, writer = await asyncio.open_unix_connection(f"{tmp_path}/b")
            else:
                port = int(listener.uri.rpartition(":")[2])
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(setup(metadata) + then)
            if reason == "by the peer":
                writer.write_eof()
            got, _ = split(await reader.read())
            codes = [code for _, code, _ in errors(got)]
            wanted = {"handshake": [CONNECTION_ERROR], "setup refused": [REJECTED_SETUP]}
            assert codes == wanted.get(reason, [])
            writer.close()
            await writer.wait_closed()
            await eventually(lambda: listener.statistics().closed == {reason: 1})
            assert peers.links == []
            # The others go on.
            assert (await requester.request("service=a", b"hi")).data == b"hi"


@in_world(options=LinkOptions(resume=ResumeOptions()), peers=lambda: HandMade(OURS))
async def test_a_link_of_brokers_has_no_session_to_resume(w: World) -> None:
    peer = await joined(w)
    peer.die()
    await w.loop.idle()
    assert [reason for _, reason in peers_of(w).lost] == ["by the peer"]
    token = (5).to_bytes(2) + b"token"
    frame_of_it = setup(INTRODUCTION, flags=0x80)
    asking = frame_of_it[:21] + token + frame_of_it[21:]
    asking = (len(asking) - 3).to_bytes(3) + asking[3:]
    another = w.connect(INSIDE)
    ((_, code, text),) = errors(await another.ask(asking))
    assert (code, text) == (REJECTED_SETUP, "a broker has no session to resume")
