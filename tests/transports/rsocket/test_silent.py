"""Destinations that say nothing: passed over first, and closed after their lifetime."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_peer import *

ASKED = asked_for("a")
ALIVE = frame(0, KEEPALIVE, 0, bytes(8))


async def destination(w: World, *, keepalive: int = 20_000, lifetime: int = 90_000) -> Peer:
    peer = w.connect()
    wanted = composite((BROKER_FRAME, route_setup(w.new_id(), "a")))
    assert await peer.ask(setup(wanted, keepalive=keepalive, lifetime=lifetime)) == []
    return peer


async def share(requester: Peer, those: list[Peer], first: int) -> list[int]:
    """Send twenty requests without an answer; return how many each destination has got."""
    for number in range(20):
        await requester.ask(request(FNF, first + 2 * number, ASKED))
    return [len([raw for raw in await peer.received() if raw[7] >> 2 == FNF]) for peer in those]


@in_world(options=LinkOptions(silent_after=5))
async def test_one_that_owes_an_answer_and_says_nothing_is_passed_over(w: World) -> None:
    stopped, well = await destination(w), await destination(w)
    requester = await w.requester()
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await well.ask(payload(stream_of((await well.received())[0]), b"x", N | C))
    await stopped.received()
    assert elements(await requester.received()) == [b"x"]
    await asyncio.sleep(4.9)
    assert await share(requester, [stopped, well], 11) == [10, 10]
    await asyncio.sleep(0.2)
    assert await share(requester, [stopped, well], 101) == [0, 20]
    # One sign of life, and it has its turn again.
    await stopped.ask(ALIVE)
    assert await share(requester, [stopped, well], 201) == [10, 10]
    stopped.die()


@in_world(options=LinkOptions(silent_after=5))
async def test_the_only_one_is_asked_all_the_same(w: World) -> None:
    requester, stopped = await w.requester(), await destination(w)
    await requester.ask(request(RR, 1, ASKED))
    await asyncio.sleep(10)
    await stopped.received()
    assert await share(requester, [stopped], 11) == [20]
    stopped.die()


@pytest.mark.parametrize("kind", [STREAM, CHANNEL, None])
@in_world(options=LinkOptions(silent_after=5))
async def test_one_that_owes_nothing_may_be_silent_but_answers_a_keepalive(
    w: World, kind: int | None
) -> None:
    """A stream that it has nothing to say on is no sign of anything."""
    quiet, other = await destination(w), await destination(w)
    requester = await w.requester()
    if kind is not None:
        await requester.ask(request(kind, 1, ASKED, n=9), request(kind, 3, ASKED, n=9))
        await quiet.received()
        await other.received()
    await asyncio.sleep(30)
    await other.ask(ALIVE)
    # It is asked once, however many requests there are, and has time to answer.
    await requester.ask(request(FNF, 11, ASKED), request(FNF, 13, ASKED))
    assert (await quiet.received()).count(IS_IT_ALIVE) == 1
    assert IS_IT_ALIVE not in await other.received()
    await asyncio.sleep(2.4)
    assert await share(requester, [quiet, other], 101) == [10, 10]
    await asyncio.sleep(0.2)
    await other.ask(ALIVE)
    assert await share(requester, [quiet, other], 201) == [0, 20]
    # With its first byte it has its turn again, and is asked anew once it is silent.
    await quiet.ask(ALIVE)
    assert await share(requester, [quiet, other], 301) == [10, 10]
    for number in range(4):
        await asyncio.sleep(3)
        await other.ask(ALIVE)
        await requester.ask(request(FNF, 401 + 4 * number, ASKED))
        await requester.ask(request(FNF, 403 + 4 * number, ASKED))
        assert (await quiet.received()).count(IS_IT_ALIVE) == 1
        await other.received()
        await quiet.ask(ALIVE)
    assert await share(requester, [quiet, other], 501) == [10, 10]
    requester.die()


@in_world(options=LinkOptions(silent_after=5))
async def test_to_look_at_the_routes_sends_nothing(w: World) -> None:
    quiet, _ = [await destination(w, keepalive=60_000) for _ in range(2)]
    await asyncio.sleep(30)
    for _ in range(2):
        assert not any(row.busy for row in w.broker.routes())
        await asyncio.sleep(10)
    assert await quiet.received() == []


@in_world(options=LinkOptions(silent_after=5))
async def test_a_request_that_is_new_says_nothing_about_who_was_idle_before(w: World) -> None:
    idle, other = await destination(w), await destination(w)
    requester = await w.requester()
    await asyncio.sleep(30)
    await requester.ask(request(RR, 1, ASKED), request(RR, 3, ASKED))
    await idle.received()
    await other.received()
    assert await share(requester, [idle, other], 11) == [10, 10]
    requester.die()


@pytest.mark.parametrize("flags", [UNICAST, MULTICAST])
@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=60)), LinkOptions(silent_after=5))
async def test_time_that_a_request_waited_for_a_route_is_not_its_destinations(
    w: World, flags: int
) -> None:
    requester = await w.requester()
    await requester.ask(request(RR, 1, asked_for("a", flags)))
    await asyncio.sleep(20)
    late = w.register("a")
    other = await destination(w)
    assert [stream_of(raw) for raw in await late.received()] == [2]
    await asyncio.sleep(4.9)
    await other.ask(ALIVE)
    late.link.now -= 1  # so that it has been silent for longer than it has its request
    assert await share(requester, [late, other], 11) == [10, 10]
    await asyncio.sleep(0.2)
    assert await share(requester, [late, other], 101) == [0, 20]
    late.die()


@in_world(options=LinkOptions(silent_after=5))
async def test_one_whose_keepalive_is_overdue_is_passed_over_and_closed_at_its_lifetime(
    w: World,
) -> None:
    stopped = await destination(w, keepalive=5_000, lifetime=30_000)
    well = await destination(w)
    requester = await w.requester()
    await asyncio.sleep(10.1)
    assert await share(requester, [stopped, well], 11) == [0, 20]
    await asyncio.sleep(20)
    assert stopped.closed
    assert w.listener.statistics().closed == {"silent": 1}
