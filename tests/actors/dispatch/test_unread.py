"""Messages in the mailbox of a consumer that stops: they are released, as it has not read them."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.dispatch import (
    DISPATCH,
    Dispatcher,
    DispatchOptions,
    ProducerClosed,
    Received,
)
from onward.actors.runtime._stopping import stop_within
from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    Hold,
    Last,
    Outcome,
    Reliability,
    Retry,
    RoutingPattern,
    Semantics,
    Settlement,
)
from tests.support.workers import Echo, Gate, Recorder, start_worker


class Slow:
    """A handler that takes a long time, and what it has begun."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []

    async def __call__(self, delivery: Received) -> None:
        self.begun.append(delivery.payload)
        await sleep(1_000)


async def sent(dispatcher: Dispatcher, messages: int) -> list[asyncio.Task[Outcome]]:
    producer = await dispatcher.produce("orders")
    sends = [asyncio.create_task(producer.send(b"%d" % each)) for each in range(messages)]
    await sleep(0.1)
    return sends


async def test_what_no_handler_has_begun_is_released_as_the_dispatcher_stops(node: Node) -> None:
    dispatcher = await Dispatcher.attach(node)
    handlers = Slow(), Slow()
    for each in handlers:
        await dispatcher.consume("orders", each)
    sends = await sent(dispatcher, 6)
    assert [each.begun for each in handlers] == [[b"0"], [b"1"]]
    await node.stop_worker(DISPATCH)
    assert await asyncio.gather(*sends) == [MODIFIED] * 2 + [RELEASED] * 4
    assert [each.begun for each in handlers] == [[b"0"], [b"1"]]


async def test_what_is_released_as_the_dispatcher_stops_goes_to_no_other_worker(
    node: Node,
) -> None:
    dispatcher = await Dispatcher.attach(node)
    await dispatcher.consume("orders", Slow())
    sends = await sent(dispatcher, 2)
    gate = await start_worker(node, Gate(), "gate")
    await dispatcher.consume("orders", "gate")
    await node.stop_worker(DISPATCH)
    assert await asyncio.gather(*sends) == [MODIFIED, RELEASED]
    assert gate.messages == []


async def test_a_multicast_that_another_worker_has_is_in_doubt_as_the_dispatcher_stops(
    node: Node,
) -> None:
    semantics = Semantics(pattern=RoutingPattern.MULTICAST)
    dispatcher = await Dispatcher.attach(node, DispatchOptions(default=semantics))
    await dispatcher.consume("orders", Slow())
    recorder = await start_worker(node, Recorder(), "recorder")
    sends = await sent(dispatcher, 1)
    await dispatcher.consume("orders", "recorder")
    sends += await sent(dispatcher, 1)
    await node.stop_worker(DISPATCH)
    assert await sends[0] == MODIFIED
    with pytest.raises(ProducerClosed):
        await sends[1]
    assert len(recorder.messages) == 1


async def test_a_multicast_that_no_handler_has_begun_is_released_as_the_dispatcher_stops(
    node: Node,
) -> None:
    semantics = Semantics(pattern=RoutingPattern.MULTICAST)
    dispatcher = await Dispatcher.attach(node, DispatchOptions(default=semantics))
    handlers = Slow(), Slow()
    for each in handlers:
        await dispatcher.consume("orders", each)
    sends = await sent(dispatcher, 2)
    await node.stop_worker(DISPATCH)
    assert await asyncio.gather(*sends) == [MODIFIED, RELEASED]
    assert [each.begun for each in handlers] == [[b"0"], [b"0"]]


async def test_what_is_on_disk_stays_there_as_the_dispatcher_stops(
    node: Node, tmp_path: Path
) -> None:
    hold = Retry(hold=Hold(messages=9, disk=True))
    semantics = Semantics(
        undeliverable=(hold, Last.RELEASE), reliability=Reliability(settle=Settlement.AT_ONCE)
    )
    options = DispatchOptions(hold_file=str(tmp_path / "held.db"), default=semantics)
    dispatcher = await Dispatcher.attach(node, options)
    await dispatcher.consume("orders", Slow())
    sends = await sent(dispatcher, 3)
    await node.stop_worker(DISPATCH)
    assert await asyncio.gather(*sends) == [ACCEPTED] * 3
    dispatcher = await Dispatcher.attach(node, options)
    recorder = Slow()
    await dispatcher.consume("orders", recorder)
    await dispatcher.consume("orders", recorder)
    await dispatcher.consume("orders", recorder)
    await sleep(1)
    assert sorted(recorder.begun) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("handler", [False, True])
async def test_what_a_consumer_that_stops_has_not_read_goes_to_another_one(
    handler: bool, node: Node
) -> None:
    dispatcher = await Dispatcher.attach(node)
    if handler:
        consumer = await dispatcher.consume("orders", Slow())
        (address,) = consumer._record.route
    else:
        address = (await start_worker(node, Gate(), "gate")).address
        await dispatcher.consume("orders", "gate")
    sends = await sent(dispatcher, 3)
    await start_worker(node, Echo(), "echo")
    await dispatcher.consume("orders", "echo")
    # In front of what waits, as when a node stops.
    cell = node.parts.table.cell(address)
    await stop_within(cell, node.loop.time() + 1, drain=False)
    assert await asyncio.gather(*sends) == [MODIFIED, ACCEPTED, ACCEPTED]
