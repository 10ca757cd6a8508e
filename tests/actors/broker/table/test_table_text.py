"""What a broker tells of a large table, and what that costs others."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, PeerRoutes
from onward.actors.broker.table import _table_text as module
from onward.protocol import address
from onward.protocol.broker import RouteAdd, RouteSetup, SnapshotRoute, parse_tag
from tests.support.compiled import interpreted
from tests.support.rsocket_peer import (
    FNF,
    RR,
    STREAM,
    World,
    asked_for,
    cancel,
    elements,
    errors,
    in_world,
    kind_of,
    request,
)

ASKED = asked_for(MANAGEMENT_SERVICE)
ROUTES = 1000


class Rows:
    """Destinations of a broker that count how often a row is made of one of them."""

    def __init__(self, broker: Broker, number: int = ROUTES) -> None:
        self.made = 0
        worker = address("nobody")
        for each in range(1, number + 1):
            joins = RouteSetup(UUID(int=1 << 64 | each).bytes, f"s{each}", ((6, "eu"),))
            broker.connect(joins, worker, peer="x", evict=print, busy=self.count)

    def count(self) -> bool:
        self.made += 1
        return False


def answers(frames: list[bytes]) -> list[Any]:
    return [json.loads(each) for each in elements(frames)]


@in_world()
async def test_requests_go_on_while_a_large_table_is_written(w: World) -> None:
    rows = Rows(w.broker)
    asking, (honest, destination) = await w.requester(), await w.pair()
    asking.send(*(request(RR, 1 + 2 * at, ASKED, b"routes") for at in range(10)))
    honest.send(request(FNF, 1, asked_for("a"), b"!"))
    # Handed over in the turn in which it came; a pass of the loop writes a slice of the table.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert rows.made <= 2 * module.SLICE
    assert [kind_of(raw) for raw in await destination.received()] == [FNF]
    await w.settled_after(asking)


@in_world()
async def test_a_table_is_written_once_for_all_who_ask_meanwhile(w: World) -> None:
    rows = Rows(w.broker)
    asking = await w.requester()
    got = answers(
        await asking.ask(*(request(RR, 1 + 2 * at, ASKED, b"routes") for at in range(10)))
    )
    assert [len(each) for each in got] == [ROUTES + 1] * 10
    assert rows.made <= 2 * ROUTES
    assert {row["service"] for row in got[9]} >= {"s1", f"s{ROUTES}"}
    # Nothing of it is kept, and who asks later is told what is so then.
    before = rows.made
    Rows(w.broker, 1)
    (later,) = answers(await asking.ask(request(RR, 21, ASKED, b"routes")))
    assert len(later) == ROUTES + 1
    assert before < rows.made <= before + ROUTES


@in_world()
async def test_who_asks_while_it_is_written_is_told_of_what_has_joined_by_then(w: World) -> None:
    Rows(w.broker)
    first, second = await w.requester(), await w.requester()
    first.send(request(RR, 1, ASKED, b"routes"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late = w.register("late")
    second.send(request(RR, 1, ASKED, b"routes"))
    assert await late.received() == []
    (early,), (told,) = answers(await first.received()), answers(await second.received())
    assert "late" not in {row["service"] for row in early}
    assert "late" in {row["service"] for row in told}


@in_world()
async def test_another_goes_on_when_the_first_who_asked_has_given_up(w: World) -> None:
    Rows(w.broker)
    first, second = await w.requester(), await w.requester()
    first.send(request(RR, 1, ASKED, b"routes"))
    second.send(request(RR, 1, ASKED, b"routes"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await first.ask(cancel(1)) == []
    assert [len(each) for each in answers(await second.received())] == [ROUTES + 1]


@pytest.mark.parametrize("question", [b"statistics", b"resolve service=none", b"table"])
@in_world()
async def test_other_questions_take_turns(w: World, question: bytes) -> None:
    Rows(w.broker)
    asking = await w.requester()
    n = None if question != b"table" else 100
    kind = RR if n is None else STREAM
    asking.send(*(request(kind, 1 + 2 * at, ASKED, question, n=n) for at in range(20)))
    while before := asking.streams:
        await asyncio.sleep(0)
        assert before - asking.streams <= 1
    assert not errors(await asking.received())


@interpreted
@in_world()
async def test_a_table_that_is_too_long_for_an_answer(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 50_000)
    Rows(w.broker)
    asking = await w.requester()
    ((stream, code, text),) = errors(await asking.ask(request(RR, 1, ASKED, b"routes")))
    assert (stream, code) == (1, 0x202)
    assert "ask for 'table', a stream" in text
    got = await asking.ask(request(STREAM, 3, ASKED, b"table", n=100))
    assert b"".join(elements(got)).count(b"\n") == ROUTES


async def test_what_is_expected_is_in_it_too(node: Node) -> None:
    broker = await Broker.attach(node)
    broker.expect([SnapshotRoute(UUID(int=5).bytes, "later")])
    answer = await node.request(f"32#service={MANAGEMENT_SERVICE}", b"routes")
    rows = json.loads(answer.payload)
    assert [row["service"] for row in rows if row["expected"]] == ["later"]


async def test_no_text_is_kept_once_all_have_it(node: Node) -> None:
    table = module.TableText(partial(module.destinations, await Broker.attach(node)))
    first, second = await asyncio.gather(table.written(), table.written())
    assert json.loads(first) == json.loads(second)
    assert not table._text


async def with_groups(node: Node) -> Broker:
    """Attach a broker that knows groups of two zones."""
    broker = await Broker.attach(node)
    for number, zone in enumerate(("north", "south"), 1):
        gateway = PeerRoutes(bytes(15) + bytes((number,)), f"{zone}-1")
        gateway.zone = zone
        broker.index.gateway_joined(gateway)
        for region in ("eu", "us"):
            tags = (parse_tag(f"region={region}"), ("onward.count", str(number)))
            route_id = region.encode().rjust(16)
            route = RouteAdd(gateway.broker_id, route_id, 1000, "orders", tags)
            assert not broker.index.add_group(gateway, route)
    return broker


async def groups(node: Node, question: bytes) -> list[dict[str, Any]]:
    answer = await node.request(f"32#service={MANAGEMENT_SERVICE}", question)
    found: list[dict[str, Any]] = json.loads(answer.payload)
    return found


async def test_groups_are_told_by_zone(node: Node) -> None:
    broker = await with_groups(node)
    found = await groups(node, b"groups south")
    tags = {"service": "orders", "region": "eu"}
    assert sorted(each["tags"]["region"] for each in found) == ["eu", "us"]
    (first,) = (each for each in found if each["tags"]["region"] == "eu")
    assert {**first, "tags": dict(sorted(first["tags"].items(), reverse=True))} == {
        "zone": "south",
        "broker": "south-1",
        "service": "orders",
        "tags": tags,
        "routes": 2,
        "outstanding": 0,
        "requests": 0,
        "since": 1.0,
        "latency": 0.0,
        "busy": False,
        "expected": False,
        "folded": False,
    }
    assert [each["zone"] for each in await groups(node, b"groups")] == ["north"] * 2 + ["south"] * 2
    assert await groups(node, b"groups west") == []
    # They are no routes.
    assert {each["service"] for each in await groups(node, b"routes")} == {MANAGEMENT_SERVICE}
    broker.index.suspend_gateway(broker.index.zones.known[bytes(15) + b"\x01"])
    assert [each["expected"] for each in await groups(node, b"groups north")] == [True, True]


async def test_of_groups_a_requester_sees_what_it_may_request(node: Node) -> None:
    rows = partial(module.groups, await with_groups(node), "north")
    wanted = parse_tag("region=us")
    found = json.loads(await module.TableText(rows).seen(lambda tags: wanted in tags))
    assert [each["tags"]["region"] for each in found] == ["us"]
