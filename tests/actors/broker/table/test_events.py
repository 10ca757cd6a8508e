"""What is told of a broker, and to whom."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import LimitReached
from onward.actors.broker import BrokerEvent, Events, Subscription


def events(count: int) -> list[BrokerEvent]:
    return [BrokerEvent("joined", float(number)) for number in range(count)]


async def taken(subscription: Subscription, count: int) -> list[tuple[float, int]]:
    got = [await anext(subscription) for _ in range(count)]
    return [(event.at, event.missed) for event in got]


async def test_each_subscription_gets_each_event_from_its_start_on() -> None:
    hub = Events(10, 10)
    assert not hub.watched
    first, second, third = events(3)
    hub.emit(first)
    with hub.subscribe() as one:
        assert hub.watched
        hub.emit(second)
        with hub.subscribe() as two:
            hub.emit(third)
            assert await taken(two, 1) == [(2.0, 0)]
        assert await taken(one, 2) == [(1.0, 0), (2.0, 0)]
    assert not hub.watched
    assert len(hub) == 0


async def test_who_does_not_keep_up_loses_the_oldest_and_is_told_how_many() -> None:
    hub = Events(10, 3)
    with hub.subscribe() as watching:
        for event in events(7):
            hub.emit(event)
        assert await taken(watching, 2) == [(4.0, 4), (5.0, 0)]
        for event in events(4):
            hub.emit(event)
        assert await taken(watching, 3) == [(1.0, 2), (2.0, 0), (3.0, 0)]


async def test_an_event_wakes_who_waits_for_it() -> None:
    hub = Events(10, 3)
    with hub.subscribe() as watching:
        waiting = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(1)
        for event in events(2):
            hub.emit(event)
        assert (await waiting).at == 0.0
        assert await taken(watching, 1) == [(1.0, 0)]


async def test_one_that_waits_can_be_given_up() -> None:
    hub = Events(10, 3)
    with hub.subscribe() as watching:
        waiting = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        hub.emit(events(1)[0])
        assert await taken(watching, 1) == [(0.0, 0)]


async def test_the_end_comes_after_what_is_kept() -> None:
    hub = Events(10, 3)
    watching, waiting = hub.subscribe(), hub.subscribe()
    for event in events(2):
        hub.emit(event)
    await taken(waiting, 2)
    ends = asyncio.ensure_future(anext(waiting, None))
    await asyncio.sleep(1)
    hub.end()
    assert await ends is None
    assert [event.at async for event in watching] == [0.0, 1.0]
    watching.close()


async def test_what_is_closed_gives_nothing_more() -> None:
    hub = Events(10, 3)
    watching = hub.subscribe()
    hub.emit(events(1)[0])
    watching.close()
    assert [event async for event in watching] == []
    watching.close()


def test_watchers_are_limited() -> None:
    hub = Events(1, 3)
    watching = hub.subscribe()
    with pytest.raises(LimitReached, match="watchers of the broker"):
        hub.subscribe()
    watching.close()
    hub.subscribe()
