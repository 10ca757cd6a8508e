"""The recent events of a broker, and their readers."""

from __future__ import annotations

import asyncio

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerEvent, BrokerOptions
from onward.actors.monitoring import EventRing


def event(number: int = 0) -> BrokerEvent:
    return BrokerEvent("joined", float(number))


async def ring(node: Node, limit: int = 3) -> EventRing:
    return EventRing(await Broker.attach(node, BrokerOptions(management=False)), limit)


async def test_readers_get_the_events_from_now_on(node: Node) -> None:
    kept = await ring(node)
    kept.add(event(1))
    readers = [kept.read(), kept.read()]
    waiting = [asyncio.ensure_future(each.next()) for each in readers]
    await asyncio.sleep(0)
    waiting[0].cancel()  # the end of one reader is not that of the others
    await asyncio.sleep(0)
    kept.add(event(2))
    (found,) = await waiting[1]
    assert (found.number, found.event.at, found.missed) == (2, 2.0, 0)


async def test_a_reader_begins_after_the_event_that_it_has_had(node: Node) -> None:
    kept = await ring(node)
    for number in range(1, 4):
        kept.add(event(number))
    assert [each.number for each in await kept.read(1).next()] == [2, 3]


async def test_a_slow_reader_is_told_how_many_it_has_lost(node: Node) -> None:
    kept = await ring(node)
    reader = kept.read(0)
    for number in range(1, 8):
        kept.add(event(number))
    found = await reader.next()
    assert [(each.number, each.missed) for each in found] == [(5, 4), (6, 0), (7, 0)]


async def test_what_was_lost_before_the_ring_counts_too(node: Node) -> None:
    kept = await ring(node)
    kept.add(event(1))
    kept.add(event(5), missed=3)
    found = await kept.read(0).next()
    assert [(each.number, each.missed) for each in found] == [(1, 0), (5, 3)]


async def test_a_number_of_another_run_begins_with_the_events_from_now_on(node: Node) -> None:
    kept = await ring(node)
    kept.add(event(1))
    reader = kept.read(1000)
    kept.add(event(2))
    assert [each.number for each in await reader.next()] == [2]


async def test_many_events_come_in_parts(node: Node) -> None:
    kept = await ring(node, limit=1000)
    for number in range(250):
        kept.add(event(number))
    reader = kept.read(0)
    assert [len(await reader.next()) for _ in range(3)] == [100, 100, 50]


async def test_the_ring_keeps_what_happens_at_its_broker(node: Node) -> None:
    broker = await Broker.attach(node)
    kept = EventRing(broker)
    kept.start()
    worker = await node.start(Worker, address="w")
    reader = kept.read()
    broker.register(worker, service="orders").withdraw()
    first = await reader.next()
    kinds = [each.event.kind for each in first]
    if len(kinds) < 2:
        kinds += [each.event.kind for each in await reader.next()]
    assert kinds == ["joined", "left"]
    await kept.stop()
    await kept.stop()
    assert not broker.events.watched
