"""Cases: links and listeners end as they should, and leave nothing behind."""

from __future__ import annotations

import asyncio
from typing import Final

from ...protocol import Address, DeliveryError, InDoubt, NotDelivered
from ._case import Case, case
from ._stage import Echo, Stage, Stuck, expect

__all__ = ["ENDS"]

ENDS: Final[list[Case]] = []


async def _asked(stage: Stage, link: Address, stuck: Stuck) -> asyncio.Task[object]:
    """Have a request be in the hands of a worker that does not answer."""
    request = stage.a.request([link, "stuck"], b"", timeout=10 * stage.claims.patience)
    asked: asyncio.Task[object] = asyncio.create_task(request)
    await stage.until(lambda: stuck.in_hand, "the request did not come")
    return asked


async def _in_doubt(stage: Stage, asked: asyncio.Task[object]) -> None:
    """Expect a request that was handed over to end, as one that may have been handled."""
    done, _ = await asyncio.wait([asked], timeout=stage.claims.patience)
    if not done:
        asked.cancel()
        raise AssertionError("the request still waits, though the link is gone")
    error = asked.exception()
    text = f"the request ended with {error!r}, and it may have been handled: that is InDoubt"
    expect(isinstance(error, InDoubt), text)


@case(ENDS, "connected")
async def nobody_listens(stage: Stage) -> None:
    """To connect where nobody listens fails, and certainly nothing was delivered."""
    listener = await stage.listen(stage.c)
    await listener.close()
    try:
        await stage.connect(stage.a, listener.uri)
    except NotDelivered:
        return
    except TimeoutError:
        raise AssertionError("connecting to nobody takes for ever") from None
    raise AssertionError("a link to nobody came up")


@case(ENDS)
async def a_place_that_is_taken(stage: Stage) -> None:
    """Where somebody listens nobody else can: that is an `OSError`."""
    stage.may_fail = True  # the listener that does not start
    listener = await stage.listen(stage.c)
    try:
        await stage.listen(stage.b, at=listener.uri)
    except OSError:
        return
    raise AssertionError(f"two listen at {listener.uri}")


@case(ENDS)
async def a_place_that_is_free_again(stage: Stage) -> None:
    """A listener can be closed again and again, and then another can have its place."""
    listener = await stage.listen(stage.c)
    await listener.close()
    await listener.close()
    expect(not stage.c.has(listener.address), "the listener's worker is still there")
    await stage.b.start(Echo, address="echo")
    again = await stage.listen(stage.b, "echo", at=listener.uri)
    link = await stage.connect(stage.a, again.uri)
    answer = await stage.ask(stage.a, [link, "echo"], b"hi")
    expect(answer.payload == b"hi", f"the answer is {answer.payload!r}")


@case(ENDS, "connected")
async def a_listener_that_closes(stage: Stage) -> None:
    """A listener takes its links with it; a request that was handed over ends, in doubt."""
    stuck = await stage.stuck()
    listener = await stage.listen(stage.c, "stuck")
    link = await stage.connect(stage.a, listener.uri)
    asked = await _asked(stage, link, stuck)
    await listener.close()
    await _in_doubt(stage, asked)
    if not stage.claims.reconnects:
        await stage.until(lambda: not stage.a.has(link), "the other end is still there")


@case(ENDS, "connected")
async def a_node_that_stops(stage: Stage) -> None:
    """A node that stops ends its links; a request that was handed over ends, in doubt."""
    stuck = await stage.stuck()
    link = await stage.link("stuck")
    asked = await _asked(stage, link, stuck)
    stuck.go_on.set()  # or the node would wait for it; it answers nothing
    await stage.c.stop()
    await _in_doubt(stage, asked)
    if not stage.claims.reconnects:
        await stage.until(lambda: not stage.a.has(link), "the other end is still there")


@case(ENDS)
async def a_link_that_stops(stage: Stage) -> None:
    """A link can be stopped; who asks over it then is told that nothing was delivered."""
    await stage.c.start(Echo, address="echo")
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
    """What was sent over a link before it was stopped arrives; then the other end stops too."""
    target = await stage.probe(stage.c, "c1")
    link = await stage.link("c1")
    stage.a.send([link, "c1"], b"first")
    far = (await stage.next(target)).return_route[0]
    for number in range(100):
        stage.a.send([link, "c1"], b"%d" % number)
    await stage.a.stop_worker(link)
    came = await stage.come(target, 101)
    expect(set(came[1:]) == {b"%d" % number for number in range(100)}, "others came")
    await stage.until(lambda: not stage.c.has(far), "the other end is still there")


@case(ENDS, "connected", "reconnects")
async def a_link_that_comes_back(stage: Stage) -> None:
    """A link to a listener that went away and came back works again, at the same address."""
    await stage.c.start(Echo, address="echo")
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


@case(ENDS)
async def nothing_is_left(stage: Stage) -> None:
    """When its nodes have stopped there is no task, no timer and no socket left of a transport."""
    # That is looked at after every case. Here there is more to leave than usual.
    await stage.c.start(Echo, address="echo")
    listeners = [await stage.listen(stage.c, "echo") for _ in range(_copies(stage))]
    for listener in listeners:
        link = await stage.connect(stage.a, listener.uri)
        stage.a.send([link, "echo"], b"on the way")
    connecting = asyncio.create_task(stage.connect(stage.b, listeners[-1].uri))
    await asyncio.sleep(0)
    await stage.stop()
    await asyncio.gather(connecting, return_exceptions=True)  # it may have come up, or not


def _copies(stage: Stage) -> int:
    """Return how many places there are to listen at: one, if each URI is the same."""
    return 3 if stage.claims.ephemeral or stage.place() != stage.place() else 1
