"""Cases: links and listeners end as they should, and release all resources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final

from ...actors import Node
from ...actors.testing import Probe
from ...protocol import Address, DeliveryError, InDoubt, NotDelivered
from ._case import Case, case
from ._left import Resources
from ._stage import EchoWorker, Stage, Stuck, expect

__all__ = ["ENDS"]

ENDS: Final[list[Case]] = []

_LAST: Final = 30
_LARGE: Final = 1024 * 1024
"""The messages sent before a link is stopped, and their size: more bytes than a system buffers."""

_TIMES: Final = 10
_TO_NOBODY: Final = 3000  # messages without a receiver: more than a mailbox and a link's queue hold
_LATER: Final = 1_000_000
_numbers: Final = count(_LATER)


async def _asked(stage: Stage, link: Address, stuck: Stuck) -> asyncio.Task[object]:
    """Return a request that a worker is handling and does not answer."""
    request = stage.a.request([link, "stuck"], b"", timeout=10 * stage.claims.patience)
    asked: asyncio.Task[object] = asyncio.create_task(request)
    await stage.until(lambda: stuck.in_hand, "the request did not come")
    return asked


async def _in_doubt(stage: Stage, asked: asyncio.Task[object]) -> None:
    """Check that a request that was delivered ends with `InDoubt`."""
    done, _ = await asyncio.wait([asked], timeout=stage.claims.patience)
    if not done:
        asked.cancel()
        raise AssertionError("the request still waits, though the link is gone")
    error = asked.exception()
    text = f"the request ended with {error!r}, and it may have been handled: that is InDoubt"
    expect(isinstance(error, InDoubt), text)


@case(ENDS, "connected")
async def nobody_listens(stage: Stage) -> None:
    """Connecting without a listener fails with `NotDelivered`."""
    listener = await stage.listen(stage.c)
    await listener.close()
    try:
        await stage.connect(stage.a, listener.uri)
    except NotDelivered:
        return
    except TimeoutError:
        raise AssertionError("connecting without a listener takes for ever") from None
    raise AssertionError("a link without a listener came up")


@case(ENDS)
async def a_place_that_is_taken(stage: Stage) -> None:
    """A second listener at the same place is an `OSError`."""
    stage.may_fail = True  # the listener that does not start
    listener = await stage.listen(stage.c)
    try:
        await stage.listen(stage.b, at=listener.uri)
    except OSError:
        return
    raise AssertionError(f"two listen at {listener.uri}")


@case(ENDS)
async def a_place_that_is_free_again(stage: Stage) -> None:
    """A listener can be closed repeatedly, and then its place is free for another."""
    listener = await stage.listen(stage.c)
    await listener.close()
    await listener.close()
    expect(not stage.c.has(listener.address), "the listener's worker is still there")
    await stage.b.start(EchoWorker, address="echo")
    again = await stage.listen(stage.b, "echo", at=listener.uri)
    link = await stage.connect(stage.a, again.uri)
    answer = await stage.ask(stage.a, [link, "echo"], b"hi")
    expect(answer.payload == b"hi", f"the answer is {answer.payload!r}")


@case(ENDS, "connected")
async def a_listener_that_closes(stage: Stage) -> None:
    """A listener that closes ends its links; a request that was delivered ends, in doubt."""
    stuck = await stage.stuck(stage.c)
    listener = await stage.listen(stage.c, "stuck")
    link = await stage.connect(stage.a, listener.uri)
    asked = await _asked(stage, link, stuck)
    await listener.close()
    await _in_doubt(stage, asked)
    if not stage.claims.reconnects:
        await stage.until(lambda: not stage.a.has(link), "the other end is still there")


@case(ENDS, "connected")
async def a_node_that_stops(stage: Stage) -> None:
    """A node that stops ends its links; a request that was delivered ends, in doubt."""
    stuck = await stage.stuck(stage.c)
    link = await stage.link("stuck")
    asked = await _asked(stage, link, stuck)
    stuck.go_on.set()  # else the node would wait for it; it answers nothing
    await stage.c.stop()
    await _in_doubt(stage, asked)
    if not stage.claims.reconnects:
        await stage.until(lambda: not stage.a.has(link), "the other end is still there")


@case(ENDS)
async def a_link_that_stops(stage: Stage) -> None:
    """A link can be stopped; a later request over it ends with `NotDelivered`."""
    await stage.c.start(EchoWorker, address="echo")
    link = await stage.link("echo")
    await stage.ask(stage.a, [link, "echo"], b"")
    await stage.a.stop_worker(link)
    expect(not stage.a.has(link), "its worker is still there")
    try:
        await stage.ask(stage.a, [link, "echo"], b"")
    except NotDelivered:
        return
    except DeliveryError as error:
        raise AssertionError(f"the error is {error!r}") from None
    raise AssertionError("it was answered")


@case(ENDS, "connected", "reliable")
async def the_last_message(stage: Stage) -> None:
    """Messages sent over a link before it was stopped arrive; then the other end stops too."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    stage.a.send([link, "c1"], b"first")
    far = (await stage.next(target)).return_route[0]
    await _all_arrives(stage, stage.a, link, target)
    await stage.until(lambda: not stage.c.has(far), "the other end is still there")


@case(ENDS, "connected", "reliable")
async def the_last_message_back(stage: Stage) -> None:
    """Messages sent over the accepting end before it was stopped arrive too."""
    door, target = await stage.probe(stage.c, "door"), await stage.probe(stage.a, "a1")
    listener = await stage.listen(stage.c, "door")
    link = await stage.connect(stage.a, listener.uri, "a1")
    stage.a.send([link, "door"], b"")
    far = (await stage.next(door)).return_route[0]
    stage.c.send([far, "a1"], b"first")
    await stage.next(target)
    await _all_arrives(stage, stage.c, far, target)


async def _all_arrives(stage: Stage, node: Node, link: Address, target: Probe) -> None:
    """Send more than a system buffers, stop the link at once, and check that all arrives."""
    size = min(_LARGE, stage.claims.max_payload)
    for number in range(_LAST):
        node.send([link, *target.addresses], (b"%d" % number).ljust(size))
    await node.stop_worker(link)
    came = [payload.rstrip() for payload in (await stage.come(target, 1 + _LAST))[1:]]
    expect(set(came) == {b"%d" % number for number in range(_LAST)}, "others came")


@case(ENDS)
async def nothing_comes_after_the_end(stage: Stage) -> None:
    """After a listener has closed, no more messages come over its links."""
    target = await stage.probe(stage.c, "c1")
    listener = await stage.listen(stage.c, "c1")
    link = await stage.connect(stage.a, listener.uri)
    stage.a.send([link, "c1"], b"before")
    await stage.next(target)
    await listener.close()
    for _ in range(10):
        with suppress(DeliveryError):  # the close may be known already
            stage.a.send([link, "c1"], b"after")
    if stage.a.has(link):
        await stage.a.stop_worker(link)  # after it has sent them
    await stage.c.start(EchoWorker, address="echo")
    again = await stage.connect(stage.a, (await stage.listen(stage.c, "echo")).uri)
    await stage.ask(stage.a, [again, "echo"], b"")  # takes as long as a message
    expect(len(target.messages) == 1, "a message came by a link of a listener that was closed")


@case(ENDS, "connected")
async def links_that_come_and_go(stage: Stage) -> None:
    """A link that was stopped releases all resources, while its nodes go on."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")

    async def come_and_go() -> None:
        link = await stage.connect(stage.a, listener.uri)
        await stage.ask(stage.a, [link, "echo"], b"")
        await stage.a.stop_worker(link)

    await _leaves_nothing(stage, come_and_go)


@case(ENDS, "connected")
async def connections_that_fail(stage: Stage) -> None:
    """A failed connection attempt releases all resources."""
    listener = await stage.listen(stage.c)
    await listener.close()

    async def fail() -> None:
        with suppress(NotDelivered):
            await stage.connect(stage.a, listener.uri)

    await _leaves_nothing(stage, fail)


async def _leaves_nothing(stage: Stage, act: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action; check that no resources accumulate after the first time."""

    def workers() -> int:
        return sum(node.statistics(workers=False).worker_count for node in (stage.a, stage.c))

    number = workers()

    async def act_and_wait() -> None:
        await act()
        await stage.until(
            lambda: workers() <= number, lambda: f"{workers() - number} more workers are left"
        )

    await act_and_wait()
    before = Resources()
    for _ in range(_TIMES):
        await act_and_wait()
    await stage.settle(before)


@case(ENDS, "connected", "reconnects")
async def a_link_that_comes_back(stage: Stage) -> None:
    """A link reconnects to a listener that was away, and keeps its address."""
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "echo")
    link = await stage.connect(stage.a, listener.uri)
    await stage.ask(stage.a, [link, "echo"], b"1")
    await listener.close()
    await stage.listen(stage.c, "echo", at=listener.uri)
    end = asyncio.get_running_loop().time() + stage.claims.patience
    while True:
        try:
            answer = await stage.a.request([link, "echo"], b"2", timeout=stage.claims.patience)
        except DeliveryError as error:
            late = asyncio.get_running_loop().time() > end
            expect(not late, f"the link did not come back: {error!r}")
            await asyncio.sleep(0.01)
        else:
            expect(answer.payload == b"2", f"the answer is {answer.payload!r}")
            return


@case(ENDS, "connected", "reconnects")
async def what_is_sent_to_nobody(stage: Stage) -> None:
    """A message sent while the other end is away, and does not come back, is a dead letter."""
    stuck = await stage.stuck(stage.c)
    listener = await stage.listen(stage.c, "stuck")
    link = await stage.connect(stage.a, listener.uri)
    asked = await _asked(stage, link, stuck)
    await listener.close()
    await _in_doubt(stage, asked)
    refused = 0
    for number in range(_TO_NOBODY):
        try:
            stage.a.send([link, "stuck"], b"%d" % number)
        except DeliveryError:
            refused += 1
        if number % 100 == 0:
            await asyncio.sleep(0)
    await stage.a.stop()
    lost = _TO_NOBODY - refused - stage.a.dead_letters.total
    expect(not lost, f"of {_TO_NOBODY} messages without a receiver {lost} vanished")


@case(ENDS, "connected", "reconnects", "reliable")
async def nothing_comes_twice(stage: Stage) -> None:
    """A message sent during a reconnect arrives once or not at all."""
    target = await stage.probe(stage.c, "c1")
    listener = await stage.listen(stage.c, "c1")
    link = await stage.connect(stage.a, listener.uri)
    for number in range(300):
        if number == 100:
            await stage.come(target, 100)
            await listener.close()
        if number == 200:
            await stage.listen(stage.c, "c1", at=listener.uri)
        with suppress(DeliveryError):
            stage.a.send([link, "c1"], b"%d" % number)
        if number % 10 == 0:
            await asyncio.sleep(0)
    await stage.until(lambda: _last(stage, link, target), "the link did not come back")
    came = [int(payload) for payload in target.payloads]
    expect(len(set(came)) == len(came), f"{len(came) - len(set(came))} messages came twice")
    expect(came == sorted(came) or not stage.claims.ordered, "the order is another")


def _last(stage: Stage, link: Address, target: Probe) -> bool:
    """Send messages until one has arrived over the new connection."""
    with suppress(DeliveryError):
        stage.a.send([link, *target.addresses], b"%d" % next(_numbers))
    return int(target.messages[-1].payload) >= _LATER


@case(ENDS)
async def nothing_is_left(stage: Stage) -> None:
    """After its nodes have stopped, a transport has no task, timer or socket left."""
    # This is checked after every case. Here more could be left than usual.
    await stage.c.start(EchoWorker, address="echo")
    listeners = [await stage.listen(stage.c, "echo") for _ in range(_copies(stage))]
    for listener in listeners:
        link = await stage.connect(stage.a, listener.uri)
        stage.a.send([link, "echo"], b"on the way")
    connecting = asyncio.create_task(stage.connect(stage.b, listeners[-1].uri))
    await asyncio.sleep(0)
    await stage.stop()
    await asyncio.gather(connecting, return_exceptions=True)  # up, or failed


def _copies(stage: Stage) -> int:
    """Return the number of places to listen at: one, if each URI is the same."""
    return 3 if stage.claims.ephemeral or stage.place() != stage.place() else 1
