"""The five interactions, relayed both ways."""

from __future__ import annotations

from tests.support.rsocket_peer import (
    STREAM,
    C,
    asked_for,
    in_memory,
    payload,
    request,
    restamped,
    stream_of,
    world,
)

ASKED = asked_for("a")


@in_memory
async def test_elements_that_come_in_one_piece_are_all_relayed() -> None:
    async with world() as w:
        requester, destination = await w.pair()
        requester.send(request(STREAM, 1, ASKED, n=10))
        (got,) = await destination.received()
        answers = [payload(2, b"one"), payload(2, b"two"), payload(2, b"", C)]
        assert stream_of(got) == 2
        destination.send(*answers)
        assert await requester.received() == [restamped(each, 1) for each in answers]
        await w.settled()
