"""Who gets a request of those who could: turns, and the methods of queries."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.protocol import NoRoute
from onward.protocol.broker import RouteSetup
from tests.support.rsocket_answers import counts
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    FNF,
    RR,
    C,
    N,
    World,
    address,
    asked_for,
    composite,
    errors,
    in_world,
    kind_of,
    payload,
    request,
    stream_of,
)
from tests.support.workers import Recorder

ASKED = asked_for("a")


# --- turns ----------------------------------------------------------------------------------
@in_world()
async def test_several_destinations_take_turns(w: World) -> None:
    requester = await w.requester()
    peers = [await w.destination() for _ in range(3)]
    for number in range(7):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(peers) == [3, 2, 2]
    for number in range(7, 9):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(peers) == [0, 1, 1]


@in_world()
async def test_each_query_has_its_own_turn(w: World) -> None:
    requester = await w.requester()
    peers = [await w.destination(tags={6: "eu"}) for _ in range(2)]
    europe, both = asked_for({6: "eu"}), asked_for({6: "eu", 1: "a"})
    same = asked_for({1: "a", 6: "eu"})  # the same question
    for number, metadata in enumerate([ASKED, europe, ASKED, europe, both, same]):
        requester.send(request(FNF, 1 + 2 * number, metadata))
    assert await counts(peers) == [3, 3]


@in_world()
async def test_workers_and_peers_take_turns(w: World) -> None:
    recorder = Recorder()
    await w.node.start(lambda: recorder, address="worker")
    w.broker.register("worker", service="a")
    peer, requester = await w.destination(), await w.requester()
    for number in range(4):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    await w.loop.idle()
    assert len(recorder.messages) == len(await peer.received()) == 2
    for _ in range(4):
        w.node.send("32#service=a", b"x")
    await w.loop.idle()
    assert (len(recorder.messages), len(await peer.received())) == (4, 2)


@in_world()
async def test_the_others_take_over_when_one_leaves(w: World) -> None:
    requester = await w.requester()
    peers = [await w.destination() for _ in range(3)]
    peers.pop(1).die()
    await w.loop.idle()
    for number in range(4):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(peers) == [2, 2]
    peers.pop().eof()
    for number in range(4, 6):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(peers) == [2]


@in_world()
async def test_all_leave_while_a_message_is_with_the_forwarder(w: World) -> None:
    peers = [await w.destination() for _ in range(2)]
    task = asyncio.ensure_future(w.node.request("32#service=a", b"x"))
    await asyncio.sleep(0)  # it is in the forwarder's mailbox
    for peer in peers:
        peer.link.session.leave()
    await w.loop.idle()
    assert w.broker.statistics().waiting == 1
    late = w.register()
    (got,) = await late.received()
    assert (kind_of(got), stream_of(got), got[-1:]) == (RR, 2, b"x")
    await late.ask(payload(2, b"y", N | C))
    assert (await task).payload == b"y"


@in_world(BrokerOptions(max_queries=2))
async def test_queries_are_forgotten_at_the_limit(w: World) -> None:
    requester = await w.requester()
    peers = [await w.destination(tags={6: "eu", 7: "z"}) for _ in range(2)]
    queries = [ASKED, asked_for({6: "eu"}), asked_for({7: "z"})]
    for number in range(12):
        requester.send(request(FNF, 1 + 2 * number, queries[number % 3]))
    assert sum(await counts(peers)) == 12  # each starts anew, with the first
    for number in range(12, 16):
        requester.send(request(FNF, 1 + 2 * number, ASKED))
    assert await counts(peers) == [2, 2]


@in_world()
async def test_long_queries_are_not_remembered_and_take_turns_all_the_same(w: World) -> None:
    requester = await w.requester()
    tags: dict[int | str, str] = {f"key{number}": "v" * 100 for number in range(12)}
    peers = [await w.destination(tags=tags) for _ in range(2)]
    for number in range(6):
        requester.send(request(FNF, 1 + 2 * number, asked_for(tags)))
    assert await counts(peers) == [3, 3]
    assert not len(w.broker.index._selectors)


# --- methods --------------------------------------------------------------------------------
async def workers(w: World, count: int, **tags: str) -> list[Recorder]:
    """Register workers as destinations of service `a`."""
    made = [Recorder() for _ in range(count)]
    for worker in made:
        at = await w.node.start(partial(itself, worker))
        w.broker.register(at, service="a", tags=dict(tags))
    return made


def itself(worker: Recorder) -> Recorder:
    return worker


def busy_one(w: World, busy: bool = True) -> None:
    """Register a connection that does not keep up."""
    joins = RouteSetup(w.new_id().bytes, "a")
    to = w.broker.address
    w.broker.connect(joins, to, peer="slow", evict=print, busy=lambda: busy)


@in_world()
async def test_a_shard_s_key_belongs_to_one_destination(w: World) -> None:
    got = await workers(w, 3)
    for _ in range(2):
        for user in range(30):
            w.node.send(f"32#@shard=user service=a user={user}", str(user).encode())
    await w.loop.idle()
    payloads = [recorder.payloads for recorder in got]
    assert all(payloads)
    for each in payloads:
        assert each[: len(each) // 2] == each[len(each) // 2 :]
    assert sorted(int(user) for each in payloads for user in set(each)) == list(range(30))


@in_world()
async def test_a_sticky_key_stays_and_others_take_turns(w: World) -> None:
    got = await workers(w, 3)
    for _ in range(4):
        w.node.send("32#@sticky=user service=a user=7", b"7")
        w.node.send("32#service=a", b"x")
    await w.loop.idle()
    assert sorted(recorder.payloads.count(b"7") for recorder in got) == [0, 0, 4]
    assert sum(recorder.payloads.count(b"x") for recorder in got) == 4


@in_world()
async def test_a_plain_message_to_all(w: World) -> None:
    got = await workers(w, 3)
    w.node.send("32#@multicast service=a", b"x")
    await w.loop.idle()
    assert [recorder.payloads for recorder in got] == [[b"x"]] * 3
    for recorder in got[1:]:
        await w.node.stop_worker(recorder.address)
    w.node.send("32#@multicast service=a", b"y")
    await w.loop.idle()
    assert got[0].payloads == [b"x", b"y"]


@in_world()
async def test_one_that_does_not_keep_up_is_passed_over_by_any_method_of_unicast(w: World) -> None:
    (got,) = await workers(w, 1)
    busy_one(w)
    for method in ("round-robin", "random", "weighted", "no-such-thing"):
        for _ in range(4):
            w.node.send(f"32#@method={method} service=a", b"x")
    await w.loop.idle()
    assert len(got.messages) == 16
    assert w.broker.statistics().unknown_methods == 4


@in_world()
async def test_a_shard_goes_nowhere_else_when_its_destination_does_not_keep_up(w: World) -> None:
    (got,) = await workers(w, 1)
    busy_one(w)
    before = [row.requests for row in w.broker.routes()][-2:]
    for user in range(20):
        w.node.send(f"32#@shard=user service=a user={user}", b"x")
    await w.loop.idle()
    here, slow = [row.requests for row in w.broker.routes()][-2:]
    assert before == [0, 0]
    assert here == len(got.messages) > 0
    assert slow == 20 - here > 0


@in_world(BrokerOptions(waiting=WaitingOptions(max_wait=20.0)))
async def test_a_request_says_how_long_it_waits(w: World) -> None:
    with pytest.raises(NoRoute):
        await w.node.request("32#@no-route=reject service=a", b"")
    asked = [
        asyncio.ensure_future(w.node.request(f"32#@no-route={wait} service=a", b"", timeout=99))
        for wait in ("wait", "2.5", "7")
    ]
    ends = list[float]()
    began = w.loop.time()
    for task in asyncio.as_completed(asked):
        with pytest.raises(NoRoute):
            await task
        ends.append(w.loop.time() - began)
    assert ends == pytest.approx([2.5, 7, 20], abs=0.01)
    w.node.send("32#@no-route=wait service=b", b"waits")
    w.node.send("32#@no-route=1 service=b", b"does not")
    await asyncio.sleep(9)
    recorder = Recorder()
    w.broker.register(await w.node.start(lambda: recorder), service="b")
    await w.loop.idle()
    assert recorder.payloads == [b"waits"]


@in_world()
async def test_a_shard_request_in_a_dialect_that_cannot_say_by_what(w: World) -> None:
    requester = await w.requester()
    metadata = composite((BROKER_FRAME, address("a", 0x020)))
    ((_, code, text),) = errors(await requester.ask(request(RR, 1, metadata)))
    assert code == 0x204
    assert "shard" in text
