"""Cases: who takes nothing stops who sends, and nobody else; nothing grows without a bound."""

from __future__ import annotations

import asyncio
from typing import Final

from ...protocol import MailboxFull
from ._case import Case, case
from ._stage import Echo, Stage, expect

__all__ = ["PRESSURE"]

PRESSURE: Final[list[Case]] = []

_ROOM: Final = 10  # messages in the mailbox of who takes none
_KIBI: Final = 1024
_PAYLOAD: Final = 16 * _KIBI
_MOST: Final = 64 * _KIBI * _KIBI
"""Bytes that may be between a sender and a receiver that takes nothing."""


@case(PRESSURE, "backpressure")
async def a_receiver_that_is_slow_for_a_while(stage: Stage) -> None:
    """A mailbox that is full holds its senders up, and nothing is lost or out of order."""
    stuck = await stage.stuck(_ROOM)
    link = await stage.link("stuck")
    sent = [b"%d" % number for number in range(500)]
    for payload in sent:
        stage.a.send([link, "stuck"], payload)
    await stage.until(lambda: stuck.in_hand, "nothing came")
    await asyncio.sleep(0.05)  # for the mailbox to fill; if it does not, nothing is shown
    stuck.go_on.set()
    came = await stage.come(stuck, len(sent))
    expect(sorted(came) == sorted(sent), "not everything came, or something twice")
    expect(came == sent or not stage.claims.ordered, "the order is another")
    expect(not stage.c.dead_letters.total, f"lost: {dict(stage.c.dead_letters.by_reason)}")


@case(PRESSURE, "backpressure")
async def a_receiver_that_takes_nothing(stage: Stage) -> None:
    """A sender is told that a receiver takes nothing before 64 MiB are on the way to it."""
    await stage.stuck(_ROOM)
    link = await stage.link("stuck")
    payload = bytes(min(_PAYLOAD, stage.claims.max_payload))
    taken = 0
    try:
        while taken < _MOST:
            stage.a.send([link, "stuck"], payload)
            taken += len(payload)
            if taken % (50 * len(payload)) == 0:
                await asyncio.sleep(0.001)
    except MailboxFull:
        return
    raise AssertionError(f"{taken} bytes are on the way to a worker that takes none")


@case(PRESSURE, "backpressure", "many")
async def others_are_not_held_up(stage: Stage) -> None:
    """A link whose receiver takes nothing holds up no other link."""
    stuck = await stage.stuck(_ROOM)
    await stage.c.start(Echo, address="echo")
    listener = await stage.listen(stage.c, "stuck", "echo")
    held, free = [await stage.connect(stage.a, listener.uri) for _ in range(2)]
    for _ in range(500):
        stage.a.send([held, "stuck"], b"x")
    await stage.until(lambda: stuck.in_hand, "nothing came")
    for number in range(20):
        answer = await stage.ask(stage.a, [free, "echo"], b"%d" % number)
        expect(answer.payload == b"%d" % number, f"the answer is {answer.payload!r}")
