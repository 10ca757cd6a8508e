"""Cases: a receiver that accepts nothing stops its sender only, without a loss."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from ...actors import Node, WorkerStatistics
from ...protocol import AddressLike, DeliveryError, MailboxFull, Message, NotDelivered
from ._case import Case, case
from ._stage import EchoWorker, Stage, Stuck, expect

__all__ = ["PRESSURE"]

PRESSURE: Final[list[Case]] = []

_ROOM: Final = 100  # messages in the mailbox of a receiver that accepts none
_KIBI: Final = 1024
_PAYLOAD: Final = 16 * _KIBI
_MOST: Final = 64 * _KIBI * _KIBI
"""The bytes that may be between a sender and a receiver that accepts nothing."""

_SMALL: Final = 15_000
"""The small messages for a receiver that accepts none: more than a link keeps while it reads."""

_QUIET: Final = 0.25
_LOOKS: Final = 50
"""The seconds, and attempts, without a message accepted after which a path counts as full."""

_LONGEST: Final = 4.0
"""The seconds after which sending ends, full or not: less than any time after which a link gives
up a receiver."""


_Give: TypeAlias = Callable[[bytes], Awaitable[object]]
"""Sends a payload; raises `MailboxFull` if there is no room."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A path from a sender to a receiver that accepts nothing."""

    sender: Node
    receiver: Node
    route: list[AddressLike]
    stuck: Stuck
    cut: Callable[[], Awaitable[None]]
    """Ends the link, at the end of the receiver."""

    async def send(self, payload: bytes) -> None:
        """Send a message."""
        self.sender.send(self.route, payload)

    async def all_comes(self, stage: Stage, sent: list[bytes]) -> None:
        """Release the receiver; check that all messages arrive, once and in order."""
        self.stuck.go_on.set()
        came = [_number(payload) for payload in await stage.come(self.stuck, len(sent))]
        lost, more = len(set(sent) - set(came)), len(came) - len(set(came))
        expect(not lost and not more, f"of {len(sent)} messages {lost} were lost, {more} doubled")
        expect(came == sent or not stage.claims.ordered, "the order is another")
        letters = self.receiver.dead_letters
        expect(not letters.total, f"lost: {dict(letters.by_reason)}")


async def _there(stage: Stage) -> _Way:
    """Return a path from the connecting end."""
    stuck = await stage.stuck(stage.c, _ROOM)
    listener = await stage.listen(stage.c, "stuck")
    link = await stage.connect(stage.a, listener.uri)
    return _Way(stage.a, stage.c, [link, "stuck"], stuck, listener.close)


async def _back(stage: Stage) -> _Way:
    """Return a path from the accepting end."""
    stuck = await stage.stuck(stage.a, _ROOM)
    door = await stage.probe(stage.c, "door")
    listener = await stage.listen(stage.c, "door")
    link = await stage.connect(stage.a, listener.uri, "stuck")
    stage.a.send([link, "door"], b"")
    far = (await stage.next(door)).return_route[0]
    stop = partial(stage.a.stop_worker, link)
    return _Way(stage.c, stage.a, [far, "stuck"], stuck, stop)


async def _fill(give: _Give, size: int, most: int) -> list[bytes]:
    """Send numbered payloads until the path is full or `most` are sent; return the numbers.

    A single `MailboxFull` shows only that the sender is faster than the link. The path is full
    when there is no room any more.
    """
    sent: list[bytes] = []
    loop = asyncio.get_running_loop()
    looks, since = 0, loop.time()
    end = since + _LONGEST
    while len(sent) < most and loop.time() < end:
        number = b"%d" % len(sent)
        try:
            await give(number.ljust(size))
        except MailboxFull:
            if looks >= _LOOKS and loop.time() - since >= _QUIET:
                break
            looks += 1
            await asyncio.sleep(0.002 if looks > 1 else 0)
        else:
            sent.append(number)
            looks, since = 0, loop.time()
    return sent


def _number(payload: bytes) -> bytes:
    return payload.rstrip()


async def _slow_for_a_while(stage: Stage, way: _Way) -> None:
    sent = await _fill(way.send, 0, _SMALL)
    await way.all_comes(stage, sent)


async def _takes_nothing(stage: Stage, way: _Way) -> None:
    size = min(_PAYLOAD, stage.claims.max_payload)
    sent = await _fill(way.send, size, _MOST // size)
    text = f"{len(sent) * size} bytes are on the way to a worker that takes none"
    expect(len(sent) < _MOST // size, text)
    await way.all_comes(stage, sent)


async def _requests_that_wait(stage: Stage, way: _Way) -> None:
    asked: list[asyncio.Task[Message]] = []

    link = way.route[0]

    def mailbox() -> WorkerStatistics:
        return next(each for each in way.sender.statistics().workers if each.address == link)

    async def ask(payload: bytes) -> None:
        if mailbox().waiting >= mailbox().limit:
            raise MailboxFull(mailbox().address)  # a request might wait for room
        request = way.sender.request(way.route, payload, timeout=10 * stage.claims.patience)
        task = asyncio.create_task(request)
        await asyncio.sleep(0)  # the request is sent or refused now
        if task.done():
            await task
        asked.append(task)

    size = min(_PAYLOAD, stage.claims.max_payload)
    await _fill(ask, size, _MOST // size)
    queued = mailbox().waiting
    await way.cut()
    _, waiting = await asyncio.wait(asked, timeout=stage.claims.patience)
    for task in waiting:
        task.cancel()
    text = f"of {len(asked)} requests {len(waiting)} still wait, though the link is gone"
    expect(not waiting, text)
    errors = [task.exception() for task in asked]
    other = {type(each).__name__ for each in errors if not isinstance(each, DeliveryError)}
    expect(not other, f"requests ended with {', '.join(sorted(other))}")
    told = sum(isinstance(each, NotDelivered) for each in errors)
    behind = f"{queued} of {len(asked)} requests had not been sent"
    expect(told or not queued, f"{behind}, and no error is NotDelivered")
    letters = way.sender.dead_letters.total
    expect(letters or not queued, f"{behind}, and there is no dead letter")


@case(PRESSURE, "backpressure")
async def a_receiver_that_is_slow_for_a_while(stage: Stage) -> None:
    """A full mailbox holds its senders up, without loss or disorder."""
    await _slow_for_a_while(stage, await _there(stage))


@case(PRESSURE, "backpressure")
async def a_receiver_that_connected_and_is_slow(stage: Stage) -> None:
    """A full mailbox at the connecting end holds its senders up, without a loss."""
    await _slow_for_a_while(stage, await _back(stage))


@case(PRESSURE, "backpressure")
async def a_receiver_that_takes_nothing(stage: Stage) -> None:
    """A sender is stopped before 64 MiB are in transit to a receiver that accepts nothing."""
    await _takes_nothing(stage, await _there(stage))


@case(PRESSURE, "backpressure")
async def a_receiver_that_connected_and_takes_nothing(stage: Stage) -> None:
    """A sender at the accepting end is stopped in time too."""
    await _takes_nothing(stage, await _back(stage))


@case(PRESSURE, "backpressure", "connected")
async def requests_behind_a_full_way(stage: Stage) -> None:
    """When the link ends each request ends, and unsent ones are reported and counted."""
    await _requests_that_wait(stage, await _there(stage))


@case(PRESSURE, "backpressure", "connected")
async def requests_behind_a_full_way_back(stage: Stage) -> None:
    """When the connecting end stops each request to it ends, and unsent ones are reported."""
    await _requests_that_wait(stage, await _back(stage))


@case(PRESSURE, "backpressure", "many")
async def others_are_not_held_up(stage: Stage) -> None:
    """A link to a receiver that accepts nothing holds up no other link."""
    await stage.stuck(stage.c, _ROOM)
    await stage.c.start(EchoWorker, address="echo")
    listener = await stage.listen(stage.c, "stuck", "echo")
    held, free = [await stage.connect(stage.a, listener.uri) for _ in range(2)]
    way = _Way(stage.a, stage.c, [held, "stuck"], Stuck(), listener.close)
    size = min(_PAYLOAD, stage.claims.max_payload)
    await _fill(way.send, size, _MOST // size)
    for number in range(20):
        answer = await stage.ask(stage.a, [free, "echo"], b"%d" % number)
        expect(answer.payload == b"%d" % number, f"the answer is {answer.payload!r}")
