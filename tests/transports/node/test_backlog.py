"""What a link keeps while it is not up: in order, bounded, and sent as fast as is read."""

from __future__ import annotations

import asyncio

from onward.protocol import Message, route
from onward.transports.node._backlog import Backlog
from tests.support.virtual import virtual_time


def message(size: int) -> Message:
    return Message(route("x"), (), bytes(size - 1))  # the address is the other byte


def test_the_number_of_messages_is_bounded() -> None:
    backlog = Backlog(2, 1000)
    assert [backlog.keep(message(1)) for _ in range(3)] == [True, True, False]
    assert len(backlog) == 2
    backlog.take()
    assert backlog.keep(message(1))


def test_their_bytes_are_bounded_and_one_alone_may_have_more() -> None:
    backlog = Backlog(10, 100)
    assert backlog.keep(message(200))
    assert not backlog.keep(message(1))
    backlog.take()
    assert backlog.keep(message(60))
    assert not backlog.keep(message(41))
    assert backlog.keep(message(40))
    assert [len(each.payload) for each in backlog.take_all()] == [59, 39]
    assert backlog.keep(message(100))


@virtual_time
async def test_it_is_sent_as_fast_as_is_read() -> None:
    backlog = Backlog(10, 1000)
    for size in (1, 2, 3):
        backlog.keep(message(size))
    loop = asyncio.get_running_loop()
    began = loop.time()
    written: list[tuple[int, float]] = []

    def write(each: Message) -> asyncio.Future[None] | None:
        written.append((len(each.payload), loop.time() - began))
        return asyncio.ensure_future(asyncio.sleep(1)) if len(written) == 2 else None

    await backlog.sent()  # nothing is being sent
    backlog.begin(loop)
    waiting = loop.create_task(backlog.sent())
    await backlog.send(write, lambda: False)
    assert written == [(0, 0.0), (1, 0.0), (2, 1.0)]
    assert not waiting.done()
    backlog.end()
    await waiting
    backlog.end()  # idempotent


@virtual_time
async def test_what_is_not_sent_stays() -> None:
    backlog = Backlog(10, 1000)
    backlog.keep(message(1))
    backlog.keep(message(2))
    written: list[Message] = []
    await backlog.send(written.append, lambda: bool(written))
    assert (len(written), len(backlog)) == (1, 1)
