"""A destination of a soak, in its own process so that it can be killed.

    python benchmarks/_soakdestination.py URI SERVICE SEED LEASE

It prints `ready` once it is registered. Whenever they have changed it prints its counts as a JSON
object: the requests without an answer so far, by kind, and other errors.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Final

from _soakpeer import CREDIT, MARK, Fate, Peer, dial
from _wire import (
    CANCEL,
    COMPLETE,
    ERROR,
    NEXT,
    PAYLOAD,
    PAYLOAD_COMPLETE,
    PAYLOAD_NEXT,
    PAYLOAD_NEXT_COMPLETE,
    REQUEST_N,
    TYPE,
    Interaction,
    frame,
    lease_frame,
)

__all__: list[str] = []

APPLICATION_ERROR: Final = 0x301
LONGEST_DELAY: Final = 0.05
"""The maximum delay of a late answer, in seconds."""
REPORTING: Final = 0.2
"""Seconds between two checks of the counts."""
LEASED, LEASE_TIME = 30, 0.25
"""The requests of a lease, and the seconds between two leases."""

RESPONSE, FORGET, STREAM, CHANNEL = (int(each) & TYPE for each in Interaction)


@dataclass(slots=True)
class _Flow:
    """A stream or a channel that this destination answers.

    Attributes:
        data: The data with which each element begins.
        credit: Elements that the requester has requested.
        left: Elements to send; of a channel, elements received and not yet answered.
        open: Whether the requester may send more.
        granted: Elements that the requester of a channel may send.
        sent: Elements sent so far.
    """

    data: bytes
    credit: int
    left: int
    open: bool = False
    granted: int = 0
    sent: int = 0


class Destination(Peer):
    """A destination that answers requests as their data says, and each element of a channel.

    The elements of a stream or a channel have its process id and their number behind the data.

    Args:
        name: The service name.
        chance: The source of random delays.
        lease: Whether it leases its requests.
    """

    def __init__(self, name: str, chance: random.Random, *, lease: bool) -> None:
        super().__init__(name, lease=lease)
        self._chance = chance
        self._leased = 0
        self._flows: dict[int, _Flow] = {}
        self._awaited: set[int] = set()
        self.counts: Counter[str] = Counter()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._lease:
            self._renew()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set_result(None)

    def on_push(self, body: bytes) -> None:
        self._count("push", body[-2:])

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        if kind in (RESPONSE, FORGET, STREAM, CHANNEL):
            if self._lease:
                self._leased -= 1
                if self._leased < 0:
                    self.counts["wrong: a request that is not leased"] += 1
            self._on_request(kind, type_and_flags, stream_id, body)
        elif kind == REQUEST_N:
            if flow := self._flows.get(stream_id):
                flow.credit += int.from_bytes(body)
                self._go_on(stream_id)
        elif kind == PAYLOAD:
            self._on_element(stream_id, type_and_flags)
        elif kind in (CANCEL, ERROR):
            self._flows.pop(stream_id, None)
            self._awaited.discard(stream_id)

    def _on_request(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        if kind == FORGET:
            self._count("fire-and-forget", _data_of(body)[:2])
            return
        data = _data_of(body if kind == RESPONSE else body[4:])
        fate = Fate(data[0])
        if fate is Fate.FAIL:
            self.send(frame(stream_id, ERROR, APPLICATION_ERROR.to_bytes(4) + b"as asked"))
            return
        if kind == STREAM:
            self._flows[stream_id] = _Flow(data, int.from_bytes(body[:4]), data[1])
        elif kind == CHANNEL:
            more = not type_and_flags & COMPLETE
            self._flows[stream_id] = _Flow(data, int.from_bytes(body[:4]), 1, more)
        if fate is Fate.ANSWER:
            self._answer(stream_id, data)
        else:
            self._awaited.add(stream_id)
            if fate is Fate.ANSWER_LATE:
                late = self._chance.uniform(0, LONGEST_DELAY)
                asyncio.get_running_loop().call_later(late, self._answer_late, stream_id, data)

    def _on_element(self, stream_id: int, type_and_flags: int) -> None:
        flow = self._flows.get(stream_id)
        if flow is None:
            return  # cancelled while the requester's last frame was in transit
        if type_and_flags & NEXT:
            flow.granted -= 1
            flow.left += 1
            if flow.granted < 0:
                self.counts["wrong: an element of a channel beyond the credit"] += 1
        if type_and_flags & COMPLETE:
            flow.open = False
        self._go_on(stream_id)

    def _answer_late(self, stream_id: int, data: bytes) -> None:
        if stream_id in self._awaited:
            self._awaited.discard(stream_id)
            self._answer(stream_id, data)

    def _answer(self, stream_id: int, data: bytes) -> None:
        if stream_id in self._flows:
            self._go_on(stream_id)
        else:
            self.send(frame(stream_id, PAYLOAD_NEXT_COMPLETE, data))

    def _go_on(self, stream_id: int) -> None:
        """Send elements within the credit of the requester, and grant it credit on a channel."""
        if stream_id in self._awaited:
            return
        flow = self._flows[stream_id]
        if flow.open and flow.granted <= CREDIT // 2:
            flow.granted += CREDIT
            self.send(frame(stream_id, REQUEST_N, struct.pack(">I", CREDIT)))
        while flow.credit and flow.left:
            flow.credit -= 1
            flow.left -= 1
            flow.sent += 1
            last = not flow.left and not flow.open
            element = flow.data + MARK.pack(os.getpid(), flow.sent)
            self.send(frame(stream_id, PAYLOAD_NEXT_COMPLETE if last else PAYLOAD_NEXT, element))
            if last:
                del self._flows[stream_id]
                return
        if not flow.left and not flow.open:
            self.send(frame(stream_id, PAYLOAD_COMPLETE, b""))
            del self._flows[stream_id]

    def _count(self, kind: str, marks: bytes) -> None:
        """Count a request without an answer by its kind and its first two bytes."""
        when = "counted " if marks[0] == Fate.COUNT else ""
        self.counts[f"{when}{'multicast ' if marks[1] else ''}{kind}"] += 1

    def _renew(self) -> None:
        self._leased += LEASED
        self.send(lease_frame(round(LEASE_TIME * 2000), LEASED))
        if not self.lost:
            asyncio.get_running_loop().call_later(LEASE_TIME, self._renew)


def _data_of(body: bytes) -> bytes:
    """Return the data after the metadata."""
    return body[3 + int.from_bytes(body[:3]) :]


async def main() -> None:
    """Run a destination until the broker closes the connection."""
    uri, name, seed, lease = sys.argv[1:]
    destination = Destination(name, random.Random(seed), lease=lease == "lease")
    await dial(uri, destination)
    print("ready", flush=True)
    told: Counter[str] = Counter()
    while not destination.ended.done():
        if told != destination.counts:
            told = destination.counts.copy()
            print(json.dumps(told), flush=True)
        await asyncio.wait((destination.ended,), timeout=REPORTING)


if __name__ == "__main__":
    asyncio.run(main())
