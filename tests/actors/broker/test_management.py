"""What a broker tells about itself: its table, where a request would go, and what happens."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import (
    MANAGEMENT_SERVICE,
    Broker,
    BrokerOptions,
    Handlers,
    Interaction,
    Mismatch,
    Request,
    WaitingOptions,
)
from onward.actors.broker._management import management
from onward.protocol import AddressError, WorkerFailed
from onward.protocol.rsocket import ErrorCode
from tests.support.rsocket_peer import (
    RR,
    STREAM,
    World,
    asked_for,
    cancel,
    elements,
    errors,
    in_world,
    request,
    request_n,
)
from tests.support.transports import eventually
from tests.support.workers import Echo

TO = f"32#service={MANAGEMENT_SERVICE}"
AT_ONCE = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))


class Heard:
    """An outlet that keeps what a handler says."""

    def __init__(self) -> None:
        self.data = b""
        self.failed: tuple[int, str] | None = None

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        self.data += data

    def complete(self) -> None:
        raise AssertionError("it is not a stream that ends")

    def error(self, code: int, text: str) -> None:
        self.failed = code, text

    def request_n(self, n: int) -> None:
        raise AssertionError("it is no channel")

    def cancel_input(self) -> None:
        raise AssertionError("it is no channel")


async def asked(node: Node, question: str) -> Any:
    return json.loads((await node.request(TO, question.encode())).payload)


# --- where a request would go ---------------------------------------------------------------
async def test_where_a_request_would_go(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    ids = [UUID(int=number) for number in (1, 2, 3)]
    broker.register("echo", service="a", tags={"region": "eu", "zone": "1"}, route_id=ids[0])
    broker.register("echo", service="a", tags={"region": "eu"}, route_id=ids[1])
    broker.register("echo", service="a", tags={"region": "us"}, route_id=ids[2])
    found = broker.resolve("service=a region=eu")
    assert (found.query, found.routing) == ("service=a region=eu", "unicast")
    assert (found.method, found.matches, found.routes) == ("roundrobin", 2, 4)
    assert [row.route_id for row in found.matching] == ids[:2]
    assert found.next == ids[0]
    near, far = found.others
    assert (near.route.route_id, near.missing, near.different) == (ids[2], (), ("region=us",))
    assert (far.route.service, far.missing) == (MANAGEMENT_SERVICE, ("region=eu",))
    assert far.different == (f"service={MANAGEMENT_SERVICE}",)
    await node.request("32#service=a region=eu", b"")
    assert broker.resolve("service=a region=eu").next == ids[1]
    assert [row.requests for row in broker.resolve("service=a region=eu").matching] == [1, 0]


async def test_how_a_shard_or_a_multicast_would_go(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    for _ in range(3):
        broker.register("echo", service="a")
    shard = broker.resolve("@shard=user @method=jump service=a user=7")
    assert (shard.routing, shard.method, shard.matches) == ("shard", "jump", 3)
    before = {row.route_id: row.requests for row in broker.routes()}
    await node.request("32#@shard=user @method=jump service=a user=7", b"")
    (went,) = [row.route_id for row in broker.routes() if row.requests > before[row.route_id]]
    assert shard.next == went
    multicast = broker.resolve("@multicast service=a")
    assert (multicast.routing, multicast.method, multicast.next) == ("multicast", "", None)
    assert broker.resolve("service=nobody").next is None
    assert broker.resolve("service=nobody").matching == ()


async def test_as_many_rows_as_there_is_room_for(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    for number in range(30):
        broker.register("echo", service="a", tags={"zone": str(number % 2)})
    found = broker.resolve("service=a zone=1", limit=5)
    assert (len(found.matching), len(found.others), found.matches) == (5, 5, 15)
    assert all(isinstance(each, Mismatch) for each in found.others)
    assert {each.different for each in found.others} == {("zone=0",)}


async def test_resolve_is_a_question_like_others(node: Node) -> None:
    broker = await Broker.attach(node)
    await node.start(Echo, address="echo")
    registered = broker.register("echo", service="a", tags={"region": "eu"})
    found = await asked(node, "resolve service=a region=us")
    assert (found["matches"], found["next"], found["matching"]) == (0, None, [])
    nearest = found["others"][0]
    assert nearest["route"]["route"] == str(registered.route_id)
    assert nearest["different"] == ["region=eu"]
    found = await asked(node, "resolve service=a")
    assert found["next"] == found["matching"][0]["route"] == str(registered.route_id)
    assert "@never" in (await asked(node, "resolve @never service=a"))["error"]
    assert "resolve" in (await asked(node, "what"))["error"]
    with pytest.raises(AddressError):
        broker.resolve("")


async def test_the_route_of_a_request_goes_before_its_data(node: Node) -> None:
    handlers = management(await Broker.attach(node))
    heard = Heard()
    handling = handlers.start(Interaction.RESPONSE, Request(b"service=x", route="resolve"), heard)
    handling.credit(1)
    await handling.wait()
    assert json.loads(heard.data)["query"] == "service=x"


# --- what happens ---------------------------------------------------------------------------
@in_world(AT_ONCE)
async def test_a_peer_watches(w: World) -> None:
    watcher = await w.requester()
    metadata = asked_for(MANAGEMENT_SERVICE)
    assert await watcher.ask(request(STREAM, 1, metadata, b"watch", n=2)) == []
    assert w.broker.statistics().watchers == 1
    destination = await w.destination()
    destination.die()
    other = await w.requester()
    await other.ask(request(RR, 1, asked_for("a")))
    got = [json.loads(each) for each in elements(await watcher.received())]
    assert [event["kind"] for event in got] == ["joined", "left"]
    assert (got[0]["service"], got[0]["missed"]) == ("a", 0)
    (raw,) = elements(await watcher.ask(request_n(1, 5)))
    assert (json.loads(raw)["kind"], json.loads(raw)["query"]) == ("rejected", "service=a")
    await watcher.ask(cancel(1))
    assert w.broker.statistics().watchers == 0


@in_world(BrokerOptions(max_watchers=1))
async def test_watchers_are_limited_and_watch_one_thing(w: World) -> None:
    watcher, metadata = await w.requester(), asked_for(MANAGEMENT_SERVICE)
    assert await watcher.ask(request(STREAM, 1, metadata, b"watch", n=9)) == []
    ((_, code, text),) = errors(await watcher.ask(request(STREAM, 3, metadata, b"watch", n=9)))
    assert (code, text) == (
        ErrorCode.REJECTED,
        "the limit of 1 for watchers of the broker is reached",
    )
    ((_, code, _),) = errors(await watcher.ask(request(STREAM, 5, metadata, b"routes", n=9)))
    assert code == ErrorCode.INVALID
    watcher.die()
    await w.loop.idle()
    assert w.broker.statistics().watchers == 0


# --- services -------------------------------------------------------------------------------
async def test_handlers_are_a_destination(node: Node) -> None:
    broker = await Broker.attach(node, AT_ONCE)
    handlers = Handlers()

    @handlers.response
    async def shout(request: Request) -> bytes:
        return request.data.upper()

    registration = broker.serve(handlers, service="shout", tags={"region": "eu"})
    assert registration.current
    assert node.has(registration.address)
    assert (await node.request("32#service=shout region=eu", b"hi")).payload == b"HI"
    assert registration.withdraw()
    with pytest.raises(Exception, match="no route"):
        await node.request("32#service=shout", b"hi")


async def test_what_is_in_hand_when_a_service_is_withdrawn(node: Node) -> None:
    broker = await Broker.attach(node)
    handlers, begun = Handlers(), asyncio.Event()

    @handlers.response
    async def never(request: Request) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        return request.data

    registration = broker.serve(handlers, service="never")
    asking = asyncio.ensure_future(node.request("32#service=never", b"hi"))
    await begun.wait()
    registration.withdraw()
    with pytest.raises(WorkerFailed):
        await asking


async def test_a_service_whose_worker_has_gone_leaves_the_table(node: Node) -> None:
    broker = await Broker.attach(node)
    registration = broker.serve(Handlers(), service="a")
    await node.stop_worker(registration.address)
    await eventually(lambda: not registration.current)
