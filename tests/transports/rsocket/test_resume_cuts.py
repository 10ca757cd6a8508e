"""A recorded run through the broker, cut after each of its bytes.

The requester and the destination each have a session. A run is cut once, on one of the two sockets,
after a number of bytes in one direction. The applications at both ends see what they see in the run
without a cut.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.protocol.rsocket import (
    Event,
    Frame,
    FrameType,
    ResumableConnection,
    Resumed,
    ResumeLimits,
    Role,
    Setup,
)
from tests.support.counts import exhaustive, times
from tests.support.rsocket_peer import *
from tests.support.rsocket_sessions import TOKEN, resumable

OTHER = bytes(range(16, 32))
EVERY = times(7, 1)
"""Cuts are this many bytes apart."""
Seen = list[tuple[int, int, bytes]]


class Client:
    """A client with a session, whose socket is cut after a number of bytes.

    Attributes:
        seen: The frames of streams that it has received: stream, type and flags, the rest.
        received: Bytes of the broker that it has read.
        written: Bytes that it has written.

    Args:
        w: The broker.
        token: Its resume token.
        metadata: The metadata of its SETUP.
        cut_in: The number of bytes read after which the socket is lost; -1: never.
        cut_out: The number of bytes written, likewise.
    """

    def __init__(
        self, w: World, token: bytes, metadata: bytes | None, cut_in: int = -1, cut_out: int = -1
    ) -> None:
        self.core = ResumableConnection(Role.CLIENT, None, ResumeLimits(), now=0.0)
        self.core.send_setup(Setup(token=token, metadata=metadata))
        self.seen: Seen = []
        self.received = self.written = 0
        self.cuts = 0
        self._world = w
        self._cut_in, self._cut_out = cut_in, cut_out
        self._peer = w.connect()

    async def turn(self) -> bool:
        """Write what is to be written and read what has come; return whether there was anything."""
        out = b"" if self.core.suspended else bytes(self.core.data_to_send())
        moved = await self._write(out)
        await self._world.loop.idle()
        data, self._peer.transport.delivered = self._peer.transport.delivered, bytearray()
        return await self._read(bytes(data)) or moved

    async def _write(self, out: bytes) -> bool:
        if 0 <= self._cut_out - self.written < len(out):
            out = out[: self._cut_out - self.written]
            self._cut_out = -1
            self._send(out)
            await self._lose()
            return True
        self._send(out)
        return bool(out)

    def _send(self, out: bytes) -> None:
        self.written += len(out)
        if out:
            self._peer.send(out)

    async def _read(self, data: bytes) -> bool:
        cut = 0 <= self._cut_in - self.received < len(data)
        if cut:
            data = data[: self._cut_in - self.received]
            self._cut_in = -1
        self.received += len(data)
        for event in self.core.receive_data(data, 0.0):
            self._take(event)
        if cut:
            await self._lose()
        return bool(data) or cut

    def _take(self, event: Event) -> None:
        if isinstance(event, Resumed):
            for each in event.again:
                self._send(bytes(each))
            return
        assert isinstance(event, Frame), event
        if event.stream_id:
            self.seen.append((event.stream_id, event.word, bytes(event.raw[6:])))
            self.answer(event)

    def answer(self, frame: Frame) -> None:
        """Answer a request; a stream and a channel with three elements."""
        stream = frame.stream
        if frame.type == FrameType.REQUEST_RESPONSE:
            self.core.send_payload(stream, b"answer", complete=True)
        elif frame.type == FrameType.REQUEST_STREAM:
            for number in range(2):
                self.core.send_payload(stream, b"%d" % number)
            self.core.send_payload(stream, b"2", complete=True)
        elif frame.type == FrameType.REQUEST_CHANNEL:
            self.core.send_payload(stream, b"first")
            self.core.send_request_n(stream, 2)
        elif frame.type == FrameType.PAYLOAD and not stream.requester and not stream.closed:
            self.core.send_payload(stream, b"last", complete=True)

    async def _lose(self) -> None:
        self.cuts += 1
        self._peer.die()
        assert self.core.suspend(0.0)
        await self._world.loop.idle()
        self._peer = self._world.connect()
        self._peer.send(self.core.send_resume())


async def run(w: World, cut: tuple[str, str, int] | None = None) -> tuple[Client, Client]:
    """Run four interactions between two clients, with one cut or none."""
    cuts = {side: {"cut_in": -1, "cut_out": -1} for side in ("front", "back")}
    if cut is not None:
        side, direction, at = cut
        cuts[side][direction] = at
    route = composite((BROKER_FRAME, route_setup(UUID(int=5), "a")))
    back = Client(w, OTHER, route, **cuts["back"])
    await pump(back)
    front = Client(w, TOKEN, None, **cuts["front"])
    await pump(back, front)
    kinds = (
        FrameType.REQUEST_RESPONSE,
        FrameType.REQUEST_FNF,
        FrameType.REQUEST_STREAM,
        FrameType.REQUEST_CHANNEL,
    )
    for kind in kinds:
        while front.core.suspended:
            assert await pump(back, front)
        stream = front.core.open(kind)
        front.core.send_request(stream, b"data", asked_for("a"), initial_n=10)
        await pump(back, front)
        if kind is FrameType.REQUEST_CHANNEL:
            front.core.send_payload(stream, b"more", complete=True)
            await pump(back, front)
    return front, back


async def pump(*clients: Client) -> bool:
    moved = False
    while any([await each.turn() for each in clients]):
        moved = True
    return moved


def whole() -> tuple[Client, Client]:
    """Run without a cut."""
    made: list[tuple[Client, Client]] = []

    @in_memory
    async def go() -> None:
        async with world(options=resumable()) as w:
            made.append(await run(w))

    go()
    return made[0]


@pytest.mark.parametrize("side", ["front", "back"])
@pytest.mark.parametrize("direction", ["cut_in", "cut_out"])
def test_a_cut_after_every_byte(side: str, direction: str) -> None:
    front, back = whole()
    assert front.cuts == back.cuts == 0
    assert len(front.seen) >= 7
    assert len(back.seen) >= 5
    client = front if side == "front" else back
    total = client.received if direction == "cut_in" else client.written
    # The broker has a session once it has read the SETUP, which comes first.
    first = (
        len(client.core.setup.serialize()) if direction == "cut_out" and client.core.setup else 0
    )
    assert total > first + 50

    @in_memory
    async def go(at: int) -> None:
        async with world(options=resumable()) as w:
            cut_front, cut_back = await run(w, (side, direction, at))
            assert cut_front.cuts + cut_back.cuts == 1, at
            assert cut_front.seen == front.seen, at
            assert cut_back.seen == back.seen, at
            assert not cut_front.core.streams
            assert not cut_back.core.streams

    for at in range(first, total, EVERY):
        go(at)


@pytest.mark.parametrize("size", [0, *exhaustive(1, 20, 40)])
@in_world(options=resumable())
async def test_a_cut_within_setup(w: World, size: int) -> None:
    """There is no session yet: RESUME is refused, and the client begins anew."""
    client = Client(w, TOKEN, None, cut_out=size)
    with pytest.raises(AssertionError, match="no such session"):
        await pump(client)
