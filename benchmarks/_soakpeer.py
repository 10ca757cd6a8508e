"""One end of a soak: an RSocket connection of raw frames on asyncio, and what it keeps of streams.

Run as a program it is a destination, in a process of its own so that it can be killed:

    python benchmarks/_soakpeer.py PORT SERVICE SEED      prints `ready` once it is registered

The first byte of a request's data says what is to become of it (`Fate`).
"""

from __future__ import annotations

import asyncio
import random
import sys
from abc import abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, cast

from _wire import (
    CANCEL,
    ERROR,
    KEEPALIVE,
    KEEPALIVE_RESPOND,
    PAYLOAD_NEXT,
    PAYLOAD_NEXT_COMPLETE,
    REQUEST_N,
    TYPE,
    Interaction,
    frame,
    frames_of,
    setup_frame,
)

__all__ = ["APPLICATION_ERROR", "Fate", "Peer"]

APPLICATION_ERROR: Final = 0x301
LONGEST_DELAY: Final = 0.05
"""In seconds: how long a slow answer takes at most."""
PAYLOAD: Final = 0x2800


class Fate(IntEnum):
    """What a destination does with a request."""

    ANSWER = ord("a")
    ANSWER_LATE = ord("l")
    FAIL = ord("f")
    FORGET = ord("n")


class Peer(asyncio.Protocol):
    """A connection to the broker.

    Args:
        name: The service name it registers.

    Attributes:
        ready: Done when the broker has taken the route; fails if it closes before.
        lost: Whether the connection has gone.
    """

    transport: asyncio.Transport

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)
        self.send(setup_frame(self.name) + frame(0, KEEPALIVE_RESPOND, bytes(8)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("the broker closed the connection"))

    def send(self, data: bytes) -> None:
        """Write frames, unless the connection has gone."""
        if not self.lost:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        end = 0
        for type_and_flags, stream_id, start, end in frames_of(data):
            kind = type_and_flags & TYPE
            if stream_id:
                self.on_frame(kind, type_and_flags, stream_id, data[start:end])
            elif kind == KEEPALIVE and not self.ready.done():
                self.ready.set_result(None)
            elif kind == ERROR:
                self.on_refused(data[start + 4 : end].decode(errors="replace"))
        self._rest = data[end:]

    @abstractmethod
    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        """Take a frame of a stream."""

    def on_refused(self, text: str) -> None:
        """Take an error of the whole connection."""
        raise AssertionError(f"the broker ended a connection: {text}")


@dataclass(slots=True)
class _Flow:
    """A stream this destination answers: elements left to send, and credit for them."""

    data: bytes
    left: int
    credit: int


class Destination(Peer):
    """Answers requests as their data says.

    Args:
        name: Its service.
        chance: Decides how late late answers are.
    """

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(name)
        self._chance = chance
        self._flows: dict[int, _Flow] = {}
        self._awaited: set[int] = set()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set_result(None)

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        if kind == Interaction.RESPONSE & TYPE:
            self._on_request(stream_id, _data_of(body))
        elif kind == Interaction.STREAM & TYPE:
            data = _data_of(body[4:])
            self._flows[stream_id] = _Flow(data, data[1], int.from_bytes(body[:4]))
            self._on_request(stream_id, data)
        elif kind == REQUEST_N:
            if flow := self._flows.get(stream_id):
                flow.credit += int.from_bytes(body)
                if stream_id not in self._awaited:
                    self._answer(stream_id, flow.data)
        elif kind in (CANCEL, ERROR):
            self._flows.pop(stream_id, None)
            self._awaited.discard(stream_id)

    def _on_request(self, stream_id: int, data: bytes) -> None:
        fate = Fate(data[0])
        if fate is Fate.FAIL:
            self._flows.pop(stream_id, None)
            self.send(frame(stream_id, ERROR, APPLICATION_ERROR.to_bytes(4) + b"as asked"))
        elif fate is Fate.ANSWER:
            self._answer(stream_id, data)
        else:
            self._awaited.add(stream_id)
            if fate is Fate.ANSWER_LATE:
                late = self._chance.uniform(0, LONGEST_DELAY)
                asyncio.get_running_loop().call_later(late, self._answer_late, stream_id, data)

    def _answer_late(self, stream_id: int, data: bytes) -> None:
        if stream_id in self._awaited:
            self._awaited.discard(stream_id)
            self._answer(stream_id, data)

    def _answer(self, stream_id: int, data: bytes) -> None:
        flow = self._flows.get(stream_id)
        if flow is None:
            self.send(frame(stream_id, PAYLOAD_NEXT_COMPLETE, data))
            return
        while flow.credit and flow.left:
            flow.credit -= 1
            flow.left -= 1
            last = PAYLOAD_NEXT if flow.left else PAYLOAD_NEXT_COMPLETE
            self.send(frame(stream_id, last, data))
        if not flow.left:
            del self._flows[stream_id]


def _data_of(body: bytes) -> bytes:
    """Return what follows the metadata."""
    return body[3 + int.from_bytes(body[:3]) :]


async def main() -> None:
    """Be a destination until the broker closes the connection."""
    port, name, seed = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    loop = asyncio.get_running_loop()
    chance = random.Random(seed)
    _, peer = await loop.create_connection(lambda: Destination(name, chance), "127.0.0.1", port)
    await peer.ready
    print("ready", flush=True)
    await peer.ended


if __name__ == "__main__":
    asyncio.run(main())
