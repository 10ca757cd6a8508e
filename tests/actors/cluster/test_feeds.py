"""The streams to peer brokers, which wait for changes of a log."""

from __future__ import annotations

import asyncio
from math import inf

from onward.actors.cluster._feeds import Feeds
from onward.protocol.cluster import RouteLog


async def test_streams_are_woken_in_the_order_in_which_they_wait() -> None:
    feeds = Feeds(RouteLog(bytes(16), 1), asyncio.get_running_loop().time)
    woken: list[int] = []

    async def wait(number: int) -> None:
        await feeds.wait(inf, wakes=True)
        woken.append(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            tasks.create_task(wait(number))
        await asyncio.sleep(0)  # each has begun to wait
        assert not woken
        feeds.wake()
    assert woken == [*range(100)]
