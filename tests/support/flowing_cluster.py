"""Clients that have streams and channels of many elements, over any asyncio transport.

Each destination numbers the elements that it sends, and each requester those of a channel. Both
check that what comes is in order and within the credit.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Final
from uuid import UUID

from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CANCEL,
    CHANNEL,
    ERROR,
    IS_IT_ALIVE,
    KEEPALIVE,
    MULTICAST,
    PAYLOAD,
    REQUEST_N,
    STREAM,
    UNICAST,
    C,
    N,
    asked_for,
    cancel,
    composite,
    frame,
    kind_of,
    payload,
    request,
    request_n,
    route_setup,
    setup,
    split,
    stream_of,
)

__all__ = [
    "CREDIT",
    "DESTINATIONS",
    "ELEMENTS",
    "Caller",
    "Client",
    "Destination",
    "Tally",
]

ELEMENTS: Final = 60
CREDIT: Final = 8
"""Elements that either end requests at a time, when half of them have come."""
DESTINATIONS: Final = 4
"""Destinations with numbers in a row, of which each call may name one that says nothing."""
MUTE: Final = 5.0
"""Seconds after which a call that one destination does not answer is cancelled."""


class Client(asyncio.Protocol):
    """A connection to a broker."""

    transport: asyncio.Transport

    def __init__(self, number: int, service: str) -> None:
        self.number = number
        self.loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self.loop.create_future()
        self.lost = False
        self._service = service
        self._rest = b""
        self._alive: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        route = composite((BROKER_FRAME, route_setup(UUID(int=self.number), self._service)))
        self.send(setup(route), IS_IT_ALIVE)
        self._stay()

    def _stay(self) -> None:
        self.send(IS_IT_ALIVE)
        self._alive = self.loop.call_later(15, self._stay)

    def send(self, *frames: bytes) -> None:
        if not self.lost:
            self.transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        frames, self._rest = split(self._rest + data)
        for raw in frames:
            if stream_of(raw):
                self.on_frame(kind_of(raw), raw[7] << 8 | raw[8], stream_of(raw), raw[9:])
            elif kind_of(raw) == KEEPALIVE:
                if raw[8] & 0x80:
                    self.send(frame(0, KEEPALIVE, 0, raw[9:]))
                elif not self.ready.done():
                    self.ready.set_result(None)

    def on_frame(self, kind: int, flags: int, stream_id: int, body: bytes) -> None:
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self._alive is not None:
            self._alive.cancel()
        if not self.ready.done():
            self.ready.cancel()

    def leave(self) -> None:
        self.transport.abort()


@dataclass(slots=True)
class Flow:
    """A stream or a channel as its destination has it.

    Attributes:
        credit: Elements that it may send.
        left: Elements to send; of a channel, those that it has got and not answered.
        mute: Whether it says nothing at all.
        sent: Elements that it has sent.
        got: Elements of a channel that it has got.
        open: Whether there may be more of them.
        granted: Elements that it has requested of the requester and not got.
    """

    credit: int
    left: int
    mute: bool
    sent: int = 0
    got: int = 0
    open: bool = False
    granted: int = 0


class Destination(Client):
    """A destination that sends numbered elements: of a channel, one for each that it gets."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "flows")
        self.flows: dict[int, Flow] = {}

    def on_frame(self, kind: int, flags: int, stream_id: int, body: bytes) -> None:
        if kind in (STREAM, CHANNEL):
            data = body[7 + int.from_bytes(body[4:7]) :]
            left = data[0] if kind == STREAM else 1
            mute = data[1] == 1 + self.number % DESTINATIONS
            flow = Flow(int.from_bytes(body[:4]), left, mute)
            flow.open = kind == CHANNEL and not flags & C
            self.flows[stream_id] = flow
        elif (known := self.flows.get(stream_id)) is None:
            return
        elif kind == REQUEST_N:
            known.credit += int.from_bytes(body)
        elif kind == PAYLOAD:
            if flags & N:
                known.left += 1
                known.got += 1
                known.granted -= 1
                assert known.granted >= 0
                assert int.from_bytes(body[:2]) == known.got
            known.open = known.open and not flags & C
        else:
            assert kind in (CANCEL, ERROR)
            del self.flows[stream_id]
            return
        self._go_on(stream_id, self.flows[stream_id])

    def _go_on(self, stream_id: int, flow: Flow) -> None:
        if flow.mute:
            return
        if flow.open and flow.granted <= CREDIT // 2:
            flow.granted += CREDIT
            self.send(request_n(stream_id, CREDIT))
        while flow.credit and flow.left:
            flow.credit -= 1
            flow.left -= 1
            flow.sent += 1
            element = self.number.to_bytes(4) + flow.sent.to_bytes(2)
            self.send(payload(stream_id, element))
        if not flow.left and not flow.open:
            self.send(payload(stream_id, flags=C))
            del self.flows[stream_id]


@dataclass(slots=True)
class Call:
    """A stream or a channel as its requester has it.

    Attributes:
        kind: Its kind, as text.
        began: When it was sent.
        last: When the last frame of it came.
        came: The number of the last element of each destination.
        credit: Elements that it may still get.
        to_send: Elements of a channel that have not been sent.
        may_send: Credit for them.
        sent: Elements of a channel that have been sent.
        open: Whether it has not sent its last one.
    """

    kind: str
    began: float
    last: float
    came: Counter[int] = field(default_factory=Counter[int])
    credit: int = CREDIT
    to_send: int = 0
    may_send: int = 0
    sent: int = 0
    open: bool = False


@dataclass(slots=True)
class Tally:
    """How calls have ended, and the longest times of any.

    Attributes:
        ends: The number of calls by kind and end.
        longest: The longest time from a call to a frame of it.
        gap: The longest time between two frames.
        whole: By kind and end, the elements of the calls of each destination.
    """

    ends: Counter[str] = field(default_factory=Counter[str])
    longest: float = 0.0
    gap: float = 0.0
    whole: list[tuple[str, list[int]]] = field(default_factory=list[tuple[str, list[int]]])


class Caller(Client):
    """A requester of streams and channels."""

    def __init__(self, number: int, tally: Tally) -> None:
        super().__init__(number, f"caller-{number}")
        self.tally = tally
        self.calls: dict[int, Call] = {}
        self._ids = count(1, 2)

    def ask_any(self, chance: random.Random) -> None:
        """Begin a call of a random kind; one that a destination does not answer is cancelled."""
        kind = chance.choice((STREAM, CHANNEL))
        merged = chance.random() < 0.7
        mute = chance.randint(1, DESTINATIONS) if merged and chance.random() < 0.2 else 0
        elements = ELEMENTS if chance.random() < 0.7 else chance.randint(1, ELEMENTS)
        stream_id = self.ask(kind, elements, merged=merged, mute=mute)
        if mute:
            self.loop.call_later(MUTE, self.cancel, stream_id)

    def ask(self, kind: int, elements: int, *, merged: bool, mute: int = 0) -> int:
        """Begin a call, and return its stream.

        Args:
            kind: STREAM or CHANNEL.
            elements: The elements, of a channel in each direction.
            merged: Whether all destinations get it.
            mute: One of them that says nothing, by its turn from 1; 0 for none.
        """
        stream_id = next(self._ids)
        name = ("multicast " if merged else "") + ("stream" if kind == STREAM else "channel")
        now = self.loop.time()
        self.calls[stream_id] = call = Call(name, now, now)
        flags = 0
        if kind == CHANNEL:
            call.to_send = elements - 1
            call.open = elements > 1
            flags = 0 if call.open else C
        wanted = asked_for("flows", MULTICAST if merged else UNICAST)
        data = bytes((elements, mute))
        self.send(request(kind, stream_id, wanted, data, n=CREDIT, flags=flags))
        return stream_id

    def on_frame(self, kind: int, flags: int, stream_id: int, body: bytes) -> None:
        call = self.calls.get(stream_id)
        if call is None:
            return
        self._note(call)
        if kind == ERROR:
            self._end(stream_id, f"error {int.from_bytes(body[:4]):#x} {body[4:].decode()}")
        elif kind == PAYLOAD:
            if flags & N:
                assert call.credit > 0
                call.credit -= 1
                source, number = int.from_bytes(body[:4]), int.from_bytes(body[4:6])
                assert number == call.came[source] + 1, (call, source, number)
                call.came[source] = number
                if call.credit <= CREDIT // 2:
                    call.credit += CREDIT
                    self.send(request_n(stream_id, CREDIT))
            if flags & C:
                if call.open:
                    self.send(payload(stream_id, flags=C))
                self._end(stream_id, "complete")
        elif kind == REQUEST_N:
            call.may_send += int.from_bytes(body)
            self._send_on(stream_id, call)
        else:
            assert kind == CANCEL
            call.open = False

    def _send_on(self, stream_id: int, call: Call) -> None:
        while call.open and call.may_send and call.to_send:
            call.may_send -= 1
            call.to_send -= 1
            call.sent += 1
            self.send(payload(stream_id, call.sent.to_bytes(2)))
        if call.open and not call.to_send:
            call.open = False
            self.send(payload(stream_id, flags=C))

    def _note(self, call: Call) -> None:
        """Note a frame of a call."""
        now = self.loop.time()
        self.tally.gap = max(self.tally.gap, now - call.last)
        self.tally.longest = max(self.tally.longest, now - call.began)
        call.last = now

    def cancel(self, stream_id: int) -> None:
        if call := self.calls.get(stream_id):
            self.send(cancel(stream_id))
            if call.open:
                self.send(payload(stream_id, flags=C))
            self._end(stream_id, "cancelled")

    def _end(self, stream_id: int, how: str) -> None:
        call = self.calls.pop(stream_id)
        self.tally.ends[f"{call.kind}: {how}"] += 1
        self.tally.whole.append((f"{call.kind}: {how}", sorted(call.came.values())))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for stream_id in tuple(self.calls):
            self._end(stream_id, "left")
