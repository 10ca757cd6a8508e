"""What brokers must not do: the link ends with a reason, a pause and a count, and others go on.

Each case has a client and a destination beside it, whose requests are answered all the time.
"""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from onward.protocol.cluster import ClusterLimits
from tests.support.cluster_frames import *
from tests.support.rsocket_peer import *

CONNECTION_ERROR, REJECTED_SETUP, REJECTED = 0x101, 0x003, 0x202
PAUSE = ClusterLimits().pause
FAR_AHEAD = int(ClusterLimits().max_ahead * 1000) + 60_000


class Bystander:
    """A client and a destination that have nothing to do with the cluster."""

    def __init__(self, requester: Peer, destination: Peer) -> None:
        self._requester = requester
        self._destination = destination
        self._number = -1

    @classmethod
    async def beside(cls, w: World) -> Bystander:
        """Connect both."""
        return cls(*await w.pair("bystander"))

    async def is_answered(self) -> None:
        """Check that a request is answered, and that nothing else has come at either."""
        self._number += 2
        asked = request(RR, self._number, asked_for("bystander"), b"hi")
        assert await self._requester.ask(asked) == []
        (got,) = await self._destination.received()
        assert got.endswith(b"hi")
        answer = payload(stream_of(got), b"yes", N | C)
        assert await self._destination.ask(answer) == []
        assert await self._requester.received() == [restamped(answer, self._number)]


def introduced(w: World, broker_id: UUID = THEIRS, version: str = "1") -> tuple[Peer, bytes]:
    """Return a peer that has not said anything, and the SETUP of a broker."""
    frame = composite((FORWARDING, broker_info(broker_id, version=version)))
    return w.connect("127.0.0.1"), setup(frame, keepalive=1000, lifetime=5000)


async def refused(w: World, peer: Peer, hello: bytes) -> str:
    """Return the text with which a broker is refused at SETUP."""
    ((stream, code, text),) = errors(await peer.ask(hello))
    await w.loop.idle()
    assert (stream, code, peer.closed) == (0, REJECTED_SETUP, True)
    assert w.listener.statistics().closed["setup refused"] == 1
    return text


# --- elements that end the link ---------------------------------------------------------------
WHOLE = element(2, 2, route_add("later"))
ELEMENTS: dict[str, tuple[list[bytes], str]] = {
    "a lie about another's route": (
        [element(2, 2, route_add("lie", home=ANOTHER))],
        "another broker's route",
    ),
    "a removal of another's route": (
        [element(2, 2, route_remove(home=ANOTHER))],
        "another broker's route",
    ),
    "another's element": (
        [element(2, 2, route_add("lie", home=ANOTHER), home=ANOTHER)],
        "another broker's routes",
    ),
    "an unknown kind": ([b"\x09" + WHOLE[1:]], "kind 9"),
    "bytes behind it": ([WHOLE + b"\0"], "cut short"),
    "a flood": (
        [element(2, 1 + 600 * turn, *[route_add("flood")] * 600) for turn in range(1, 21)],
        "more elements than were requested",
    ),
    **{f"cut at {at}": ([WHOLE[:at]], "") for at in range(0, len(WHOLE), 9)},
}


@pytest.mark.parametrize(("elements", "text"), ELEMENTS.values(), ids=ELEMENTS.keys())
@in_world(settles=False)
async def test_a_bad_element_ends_the_link_and_is_followed_by_a_pause(
    w: World, elements: list[bytes], text: str
) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    assert w.services() == ["bystander", "far"]
    await others.is_answered()
    got = await peer.ask(*(payload(2, each, N) for each in elements))
    await w.loop.idle()
    ((stream, code, said),) = errors(got)
    assert (stream, code, text in said, peer.closed) == (0, CONNECTION_ERROR, True, True)
    await others.is_answered()
    assert w.services() == ["bystander"]
    (row,) = cluster.peers()
    assert (row.state, row.routes) == ("paused", 0)
    assert row.reason == said.removeprefix("bad frame of a peer broker: ")
    assert cluster.statistics().lost == {"bad frame": 1}
    assert w.listener.statistics().closed == {"bad frame": 1}
    again, hello = introduced(w)
    assert "the pause is not over" in await refused(w, again, hello)
    assert cluster.statistics().refused == {"paused": 1}
    await others.is_answered()
    await asyncio.sleep(PAUSE + 1)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    assert w.services() == ["bystander", "far"]


# --- what is put right ------------------------------------------------------------------------


@in_world(settles=False)
async def test_parts_out_of_order_are_asked_for_anew(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    for number, sequence in enumerate((7, 1, 3)):
        stream_id = 2 + 2 * number
        got = await peer.ask(payload(stream_id, element(2, sequence, route_add("far")), N))
        kinds = [kind_of(each) for each in got if kind_of(each) != REQUEST_N]
        assert kinds == [CANCEL, STREAM]
        assert got[-1] == request(STREAM, stream_id + 2, routing(ROUTES), NOWHERE, n=16)
        await peer.ask(payload(stream_id + 2, element(1, 1, route_add("far")), N))
        await w.loop.idle()
        assert w.services() == ["bystander", "far"]
        await others.is_answered()
    (row,) = cluster.peers()
    assert (row.state, row.losses) == ("up", 0)


@in_world(settles=False)
async def test_a_timestamp_far_ahead_is_counted_and_the_link_stays(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    ahead = route_add("ahead", UUID(int=9), later=FAR_AHEAD)
    assert await told(w, peer, element(1, 1, route_add("far"), ahead)) == []
    await others.is_answered()
    assert w.services() == ["bystander", "far"]
    (row,) = cluster.peers()
    assert (row.state, row.refused) == ("up", {"timestamp too far ahead": 1})


# --- brokers that are refused ------------------------------------------------------------------


@in_world(settles=False)
async def test_two_brokers_with_one_id(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    frame = composite((FORWARDING, broker_info(THEIRS).replace(b"1700000000000", b"1700000000001")))
    twin = w.connect("127.0.0.1")
    assert "same id" in await refused(w, twin, setup(frame, keepalive=1000, lifetime=5000))
    await others.is_answered()
    assert cluster.statistics().refused == {"twin": 1}
    assert (peer.closed, cluster.peers()[0].state) == (False, "up")
    assert w.services() == ["bystander", "far"]


@in_world(settles=False)
async def test_a_broker_with_the_id_of_this_one(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, hello = introduced(w, w.broker.broker_id)
    assert "same id" in await refused(w, peer, hello)
    await others.is_answered()
    assert cluster.statistics().refused == {"own_id": 1}
    assert cluster.peers() == []


@in_world(settles=False)
async def test_a_later_protocol(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, hello = introduced(w, version="2")
    assert "another version" in await refused(w, peer, hello)
    await others.is_answered()
    assert cluster.statistics().refused == {"version": 1}
    assert cluster.peers() == []


@pytest.mark.parametrize("later", [False, True], ids=["at-setup", "later"])
@in_world(settles=False)
async def test_a_client_that_claims_to_be_a_broker(w: World, later: bool) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, claim = w.connect("10.0.0.1"), composite((FORWARDING, broker_info(THEIRS)))
    if later:
        assert await peer.ask(setup()) == []
        ((_, code, text),) = errors(await peer.ask(push(claim)))
        assert code == CONNECTION_ERROR
        await w.loop.idle()
        assert w.listener.statistics().closed == {"not allowed": 1}
    else:
        text = await refused(w, peer, setup(claim))
    assert (text, peer.closed) == ("not allowed: peer", True)
    await others.is_answered()
    assert cluster.peers() == []


# --- floods and stalls ---------------------------------------------------------------------------


@in_world(settles=False)
async def test_a_flood_of_forwarded_requests(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    wrong = asked_for({2: str(UUID(int=0xDEAD))})
    for turn in range(10):
        first = 101 + 200 * turn
        flood = [request(RR, first + 2 * at, wrong, b"x") for at in range(100)]
        peer.send(*flood)
        await others.is_answered()
        codes = [code for _, code, _ in errors(await peer.received())]
        assert codes == [REJECTED] * 100
    assert w.broker.statistics().waiting == 0
    assert cluster.peers()[0].in_flight == 0


@in_world(settles=False)
async def test_a_broker_that_reads_nothing_of_what_it_has_asked_for(w: World) -> None:
    cluster = (await clustered(w)).cluster
    others = await Bystander.beside(w)
    peer, _ = await joined(w)
    # It asks for all routes, and grants no credit for more than one element.
    await peer.ask(request(STREAM, 3, routing(ROUTES), NOWHERE, n=1))
    destinations = [await w.destination(f"s{number}") for number in range(50)]
    await asyncio.sleep(1)
    got = [each for each in await peer.received() if kind_of(each) == PAYLOAD]
    assert len(got) <= 1
    await others.is_answered()
    for destination in destinations:
        destination.die()
    await w.loop.idle()
    assert cluster.peers()[0].unsent > 0
    await others.is_answered()
    assert not peer.closed
