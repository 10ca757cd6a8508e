"""Destinations that were there before: expected, waited for, and forgotten."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from onward.actors import LimitReached
from onward.actors.broker import MANAGEMENT_SERVICE, BrokerOptions, WaitingOptions, _management
from onward.actors.broker.table import _expected
from onward.protocol import NoRoute, NotDelivered
from onward.protocol.broker import SnapshotRoute, WellKnownKey, parse_routes
from tests.support.fixtures import Caplog, Patch
from tests.support.rsocket_peer import STREAM, World, asked_for, elements, in_world, request
from tests.support.workers import Echo

ZONE = int(WellKnownKey.ZONE)


def expected(number: int, service: str = "a", zone: str = "1") -> SnapshotRoute:
    return SnapshotRoute(UUID(int=number).bytes, service, ((ZONE, zone),))


async def register(w: World, number: int, zone: str = "1", service: str = "a") -> None:
    if not w.node.has("echo"):
        await w.node.start(Echo, address="echo")
    w.broker.register("echo", service=service, tags={"zone": zone}, route_id=UUID(int=number))


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=2.0, max_wait=60.0)))
async def test_a_request_waits_for_what_is_expected_as_long_as_any_may(w: World) -> None:
    assert w.broker.expect([expected(1)]) == 1
    with pytest.raises(NoRoute):
        await w.node.request("32#service=other", b"", timeout=5)
    task = asyncio.ensure_future(w.node.request("32#service=a zone=1", b"x", timeout=99))
    await asyncio.sleep(50)
    assert w.broker.statistics().waiting == 1
    await register(w, 1)
    assert (await task).payload == b"x"
    assert w.broker.statistics().expected_joined == 1
    # It is gone for good this time: nobody expects it any more.
    began = w.loop.time()
    with pytest.raises(NoRoute):
        await w.node.request("32#service=a zone=2", b"", timeout=99)
    assert w.loop.time() - began == pytest.approx(2.0, abs=0.01)


@in_world(BrokerOptions(waiting=WaitingOptions(max_wait=60.0)))
async def test_what_a_request_says_itself_counts(w: World) -> None:
    w.broker.expect([expected(1)])
    with pytest.raises(NoRoute):
        await w.node.request("32#@no-route=reject service=a", b"", timeout=99)
    began = w.loop.time()
    with pytest.raises(NoRoute):
        await w.node.request("32#service=a", b"", timeout=99)
    assert w.loop.time() - began == pytest.approx(60.0, abs=0.01)


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_who_comes_with_other_tags_has_those(w: World) -> None:
    w.broker.expect([expected(1, zone="1")])
    await register(w, 1, zone="2")
    assert (await w.node.request("32#zone=2", b"x")).payload == b"x"
    with pytest.raises(NoRoute):
        await w.node.request("32#zone=1", b"")
    figures = w.broker.statistics()
    assert (figures.expected, figures.expected_joined, figures.routes) == (0, 1, 2)


@in_world()
async def test_who_is_there_already_is_not_expected(w: World) -> None:
    await register(w, 1)
    assert w.broker.expect([expected(1), expected(2), expected(2)]) == 1
    assert [row.route_id for row in w.broker.expected()] == [UUID(int=2)]
    await register(w, 1)
    assert w.broker.statistics().expected_joined == 0


@in_world(BrokerOptions(expected_seconds=10.0, waiting=WaitingOptions(no_route_timeout=1.0)))
async def test_absent_destinations_expire_and_are_counted(
    w: World, monkeypatch: Patch, caplog: Caplog
) -> None:
    monkeypatch.setattr(_expected, "SLICE", 2)
    w.broker.expect(map(expected, range(1, 4)))
    await asyncio.sleep(9)
    # All have their time again.
    w.broker.expect(map(expected, range(4, 7)))
    await register(w, 2)
    await asyncio.sleep(9)
    assert w.broker.statistics().expected == 5
    await asyncio.sleep(2)
    figures = w.broker.statistics()
    assert (figures.expected, figures.expected_forgotten) == (0, 5)
    assert "5 expected destinations have not registered" in caplog.text
    began = w.loop.time()
    with pytest.raises(NoRoute):
        await w.node.request("32#zone=9", b"", timeout=99)
    assert w.loop.time() - began == pytest.approx(1.0, abs=0.01)
    # The next time it is said how many those were, not how many in all.
    w.broker.expect(map(expected, range(7, 10)))
    await asyncio.sleep(11)
    assert "3 expected destinations have not registered" in caplog.text
    assert w.broker.statistics().expected_forgotten == 8


@in_world()
async def test_who_is_expected_has_come_when_it_has_joined(w: World) -> None:
    w.broker.expect([expected(1)])
    expectations = w.broker.index.expectations
    # About to come is not there: the table may still refuse it.
    assert expectations.coming(UUID(int=1).bytes)
    assert not expectations.coming(UUID(int=2).bytes)
    assert w.broker.statistics().expected_joined == 0
    await register(w, 1)
    assert w.broker.statistics().expected_joined == 1
    assert not expectations.coming(UUID(int=1).bytes)


@in_world(BrokerOptions(expected_seconds=10.0))
async def test_if_all_have_come_there_is_nothing_to_forget(w: World, caplog: Caplog) -> None:
    w.broker.expect([expected(1)])
    await register(w, 1)
    await asyncio.sleep(20)
    assert w.broker.statistics().expected_forgotten == 0
    assert "have not come" not in caplog.text


@in_world(BrokerOptions(max_routes=3))
async def test_no_more_are_expected_than_there_may_be(w: World) -> None:
    with pytest.raises(LimitReached):
        w.broker.expect(map(expected, range(1, 9)))
    assert w.broker.statistics().expected == 2
    # Who is there goes before who may come.
    await register(w, 20)
    assert w.broker.statistics().expected == 1
    await register(w, 2)
    figures = w.broker.statistics()
    assert (figures.routes, figures.expected) == (3, 0)
    assert (figures.expected_joined, figures.expected_forgotten) == (1, 1)
    with pytest.raises(NotDelivered):
        await register(w, 21)


@in_world()
async def test_the_table_says_who_is_expected(w: World) -> None:
    w.broker.expect([expected(1)])
    answer = await w.node.request(f"32#service={MANAGEMENT_SERVICE}", b"routes")
    rows: list[dict[str, Any]] = json.loads(answer.payload)
    assert [row["expected"] for row in rows] == [False, True]
    assert rows[1]["route"] == str(UUID(int=1))
    assert rows[1]["tags"]["zone"] == "1"
    assert rows[1]["since"] > 0
    # It has no say in anything else.
    assert len(w.broker.routes()) == 1
    found = w.broker.resolve("service=a")
    assert (found.matches, found.expected, found.wait) == (0, True, WaitingOptions().max_wait)
    found = w.broker.resolve("@no-route=reject service=a")
    assert (found.expected, found.wait) == (True, 0.0)
    found = w.broker.resolve("service=b")
    assert (found.expected, found.wait) == (False, WaitingOptions().no_route_timeout)


@in_world()
async def test_the_table_can_be_saved_with_all_it_takes(w: World, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_management, "CHUNK", 100)
    w.broker.expect([expected(3)])
    for number in (1, 2):
        await register(w, number, zone=str(number))
    requester = await w.requester()
    asked = request(STREAM, 1, asked_for(MANAGEMENT_SERVICE), b"table", n=100)
    told = [each for each in elements(await requester.ask(asked)) if each]
    saved = list(parse_routes(b"".join(told)))
    assert len(told) == 3
    assert [each.route_id for each in saved] == [UUID(int=n).bytes for n in (1, 2, 3)]
    assert [dict(each.tags)[ZONE] for each in saved] == ["1", "2", "1"]
    assert [each.expected for each in saved] == [False, False, True]
    assert saved[0].broker_id == w.broker.broker_id.bytes
    monkeypatch.setattr(_management, "CHUNK", 100_000)
    asked = request(STREAM, 3, asked_for(MANAGEMENT_SERVICE), b"table", n=100)
    (whole,) = [each for each in elements(await requester.ask(asked)) if each]
    assert list(parse_routes(whole)) == saved


def test_a_time_without_an_end_is_refused() -> None:
    for seconds in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="expected_seconds"):
            BrokerOptions(expected_seconds=seconds)
