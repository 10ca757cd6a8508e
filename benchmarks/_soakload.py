"""The requesters of a soak. The end of each request is awaited, counted and checked."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from _soakpeer import CREDIT, MARK, Fate, Peer
from _wire import (
    CANCEL,
    COMPLETE,
    ERROR,
    NEXT,
    NO_ROUTE,
    PAYLOAD,
    PAYLOAD_COMPLETE,
    PAYLOAD_NEXT,
    REQUEST_N,
    SHARD_KEY,
    STICKY_ROUTE_KEY,
    STREAM_ID,
    Hint,
    Interaction,
    Routing,
    frame,
    hinted_frame,
    push_frame,
    request_frame,
)

__all__ = ["PATIENCE", "RARE", "SERVICE", "Late", "Requester", "Tally"]

SERVICE: Final = "soak"
RARE: Final = "soak-rare"
"""A service that is registered only now and then: its requests wait."""
USERS: Final = 50
PATIENCE: Final = 20.0
"""Seconds after which a request without an end is late. The broker waits 5 for a route.

A late stream or channel is slow if a frame of it has come within as long, and otherwise stuck, as
any other late request is. One with several destinations takes up to 60 round trips between the
requester and them, as each REQUEST_N is for 8 of up to 240 elements."""
WAITS: Final = (b"reject", b"0.5", b"3")
"""The no-route hints of requests to the rare service."""
REMEMBERED: Final = 10_000
"""Streams remembered as ended by the requester: frames for them may be in transit."""
MOST_ELEMENTS: Final = 60
SIZES: Final = (8, 8, 8, 64, 1024, 20_000)
FATES: Final = (Fate.ANSWER,) * 12 + (Fate.ANSWER_LATE,) * 4 + (Fate.FAIL, Fate.FORGET)
CANCELLED: Final = 0.05
"""Share of the requests that are cancelled though they will be answered."""
FLAGS: Final = range(7, 9)
"""The positions of type and flags in a frame with its length before it."""


@dataclass(slots=True)
class Tally:
    """The counts of all requests and of their ends.

    Attributes:
        sent: Requests that have an end, by kind.
        ends: By kind and end: `answered`, an error's code, `cancelled` by the
            requester, or `left`: the requester closed its connection before.
        told: Requests without an answer, by kind; destinations count those received.
        wrong: Errors, by text.
        slow: Late streams and channels of which frames still came, by kind.
    """

    sent: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    told: Counter[str] = field(default_factory=Counter[str])
    wrong: Counter[str] = field(default_factory=Counter[str])
    slow: Counter[str] = field(default_factory=Counter[str])

    @property
    def open(self) -> int:
        """The number of requests that have not ended."""
        return self.sent.total() - self.ends.total()


@dataclass(slots=True)
class _Call:
    """A request that has not ended.

    Attributes:
        kind: Its kind.
        data: Its data; each answer has to be equal to it, or to begin with it.
        began: When it was sent.
        last: When a frame of it has come last.
        merged: Whether several destinations answer, each with all elements.
        credit: Elements that the destination may send.
        left: Elements that the destination has yet to send.
        flows: Whether it is a stream or a channel, which needs credit.
        to_send: Elements of a channel that have not been sent.
        may_send: Credit from the destination of a channel.
        open: Whether the requester's direction of a channel is open.
        came: The number of the last element of each destination, by its process id.
        slow: Whether it was counted as slow.
        stuck: Whether it was counted as stuck.
    """

    kind: str
    data: bytes
    began: float
    last: float
    merged: bool
    credit: int = 1
    left: int = 1
    flows: bool = False
    to_send: int = 0
    may_send: int = 0
    open: bool = False
    came: Counter[int] = field(default_factory=Counter[int])
    slow: bool = False
    stuck: bool = False

    def described(self, now: float) -> str:
        """Return what a reader of the log needs to see why it has not ended."""
        text = f"{self.kind}, {now - self.began:.1f} s old, last frame {now - self.last:.1f} s ago"
        if not self.flows:
            return text
        most = f" of {self.data[1]} each" if self.merged else f" of {self.data[1]}"
        came = ", ".join(f"{count} from {pid}" for pid, count in self.came.items())
        text += f"; elements: {came or 'none'}{most}, credit for {self.credit}"
        if self.kind.endswith("channel"):
            ended = "" if self.open else ", ended"
            text += f"; to send: {self.to_send}, credit for {self.may_send}{ended}"
        return text


class Late(NamedTuple):
    """A late request that was not counted as it is now.

    Attributes:
        kind: Its kind.
        stuck: Whether nothing of it comes any more; otherwise it is slow.
        text: What is known of it.
        destinations: The process ids of the destinations from which elements have come.
    """

    kind: str
    stuck: bool
    text: str
    destinations: tuple[int, ...]


class _Kind(NamedTuple):
    name: str
    weight: int
    make: Callable[[bytes], bytes]


class Requester(Peer):
    """A connection that sends requests and may close at any time.

    Args:
        name: The service it registers, which gets no requests.
        tally: The counts of all requesters.
        chance: The source of random requests.
    """

    def __init__(self, name: str, tally: Tally, chance: random.Random) -> None:
        super().__init__(name)
        self._tally = tally
        self._chance = chance
        self._next = 1
        self._calls: dict[int, _Call] = {}
        self._ended: deque[int] = deque(maxlen=REMEMBERED)
        self._kinds = (
            _Kind("response", 8, _asks(Interaction.RESPONSE)),
            _Kind("stream", 3, _asks(Interaction.STREAM)),
            _Kind("channel", 3, _asks(Interaction.CHANNEL)),
            _Kind("fire-and-forget", 3, _asks(Interaction.FIRE_AND_FORGET)),
            _Kind("push", 1, _pushes(Routing.UNICAST)),
            _Kind("shard response", 3, self._shard),
            _Kind("sticky response", 2, self._sticky),
            _Kind("response that waits", 1, self._waits),
            _Kind("multicast response", 2, _asks(Interaction.RESPONSE, Routing.MULTICAST)),
            _Kind("multicast stream", 1, _asks(Interaction.STREAM, Routing.MULTICAST)),
            _Kind("multicast channel", 1, _asks(Interaction.CHANNEL, Routing.MULTICAST)),
            _Kind(
                "multicast fire-and-forget",
                1,
                _asks(Interaction.FIRE_AND_FORGET, Routing.MULTICAST),
            ),
            _Kind("multicast push", 1, _pushes(Routing.MULTICAST)),
        )
        self._weights = [kind.weight for kind in self._kinds]

    def ask(self) -> None:
        """Send a request of a random kind, and cancel some of them soon."""
        chance = self._chance
        name, _, make = chance.choices(self._kinds, self._weights)[0]
        merged = name.startswith("multicast")
        if name.endswith(("forget", "push")):
            data = bytes([Fate.ANSWER, merged]) + bytes(chance.choice(SIZES))
            self._tell(name, make(data))
            return
        fate = chance.choice(FATES)
        elements = chance.randint(1, MOST_ELEMENTS)
        flows = name.endswith(("stream", "channel"))
        data = bytes([fate, elements]) + bytes(8 if flows else chance.choice(SIZES))
        loop = asyncio.get_running_loop()
        now = loop.time()
        call = _Call(name, data, now, now, merged)
        written = bytearray(make(data))
        if flows:
            call.credit, call.left, call.flows = CREDIT, elements, True
        if name.endswith("channel"):
            call.to_send = elements - 1
            call.open = bool(call.to_send)
            if not call.open:
                written[FLAGS.stop - 1] |= COMPLETE
        stream_id = self._take_id(written)
        self._tally.sent[name] += 1
        self._calls[stream_id] = call
        self.send(bytes(written))
        if fate is Fate.FORGET or chance.random() < CANCELLED:
            loop.call_later(chance.uniform(0, 0.2), self._cancel, stream_id)

    def tell_counted(self) -> None:
        """Send one fire-and-forget and one push that destinations count separately."""
        data = bytes([Fate.COUNT, 0])
        make = _asks(Interaction.FIRE_AND_FORGET)
        self._tell("counted fire-and-forget", make(data))
        self._tell("counted push", push_frame(SERVICE, data))

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        call = self._calls.get(stream_id)
        if call is None:
            if stream_id not in self._ended:
                self._tally.wrong["a frame of a stream that has ended"] += 1
            return
        call.last = asyncio.get_running_loop().time()
        if kind == ERROR:
            self._end(stream_id, f"error {int.from_bytes(body[:4]):#x}", remember=False)
        elif kind == PAYLOAD:
            if type_and_flags & NEXT:
                self._on_element(stream_id, call, body)
            if type_and_flags & COMPLETE:
                self._on_complete(stream_id, call)
        elif kind == REQUEST_N and call.kind.endswith("channel"):
            call.may_send += int.from_bytes(body)
            self._send_elements(stream_id, call)
        elif kind == CANCEL and call.kind.endswith("channel"):
            if not call.merged:
                self._tally.wrong[f"{call.kind}: cancelled"] += 1
            call.open = False
        else:
            self._tally.wrong[f"{call.kind}: frame type {kind >> 10:#x}"] += 1

    def late(self, now: float) -> list[Late]:
        """Return the requests that have become late, or stuck, since the last call."""
        found: list[Late] = []
        for call in self._calls.values():
            if call.stuck or now - call.began <= PATIENCE:
                continue
            call.stuck = not call.flows or now - call.last > PATIENCE
            if call.stuck or not call.slow:
                call.slow = True
                found.append(Late(call.kind, call.stuck, call.described(now), tuple(call.came)))
        return found

    def waits(self) -> bool:
        """Whether there is a request that has not ended and is not stuck."""
        return any(not call.stuck for call in self._calls.values())

    def on_refused(self, text: str) -> None:
        self._tally.wrong[f"the broker ended a connection: {text}"] += 1

    def leave(self) -> None:
        """Close the connection with all its open requests."""
        for stream_id in list(self._calls):
            self._end(stream_id, "left")
        if self._chance.random() < 0.5:
            self.transport.abort()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for stream_id in list(self._calls):
            self._tally.wrong["the broker closed the connection"] += 1
            self._end(stream_id, "left")

    def _tell(self, name: str, written: bytes) -> None:
        """Send a request without an answer."""
        self._tally.told[name] += 1
        stamped = bytearray(written)
        if not name.endswith("push"):
            self._take_id(stamped)
        self.send(bytes(stamped))

    def _take_id(self, written: bytearray) -> int:
        """Stamp a request with the next stream id, and return the id."""
        stream_id, self._next = self._next, self._next + 2
        written[STREAM_ID.start : STREAM_ID.stop] = stream_id.to_bytes(4)
        return stream_id

    def _on_element(self, stream_id: int, call: _Call, body: bytes) -> None:
        if not call.credit or (not call.left and not call.merged):
            self._tally.wrong[f"{call.kind}: an element too many"] += 1
            return
        data = body[: -MARK.size] if call.flows else body
        if data != call.data:
            self._tally.wrong[f"{call.kind}: other data than sent"] += 1
        elif call.flows:
            pid, number = MARK.unpack_from(body, len(data))
            if number != call.came[pid] + 1:
                self._tally.wrong[f"{call.kind}: an element out of order"] += 1
            call.came[pid] = number
        call.credit -= 1
        call.left = max(0, call.left - 1)
        if call.flows and call.credit <= CREDIT // 2:
            call.credit += CREDIT
            self.send(frame(stream_id, REQUEST_N, struct.pack(">I", CREDIT)))

    def _on_complete(self, stream_id: int, call: _Call) -> None:
        if not call.merged and (call.left or call.open):
            self._tally.wrong[f"{call.kind}: complete before the last element"] += 1
        if call.open:
            # All destinations have ended; the requester has to end the other direction.
            self.send(frame(stream_id, PAYLOAD_COMPLETE, b""))
        self._end(stream_id, "answered", remember=call.open)

    def _send_elements(self, stream_id: int, call: _Call) -> None:
        """Send elements of a channel within the credit of the destination."""
        if not call.open:
            return
        while call.may_send and call.to_send:
            call.may_send -= 1
            call.to_send -= 1
            self.send(frame(stream_id, PAYLOAD_NEXT, call.data))
        if not call.to_send:
            call.open = False
            self.send(frame(stream_id, PAYLOAD_COMPLETE, b""))

    def _cancel(self, stream_id: int) -> None:
        if call := self._calls.get(stream_id):
            self.send(frame(stream_id, CANCEL, b""))
            if call.open:  # CANCEL ends only the destination's direction
                self.send(frame(stream_id, PAYLOAD_COMPLETE, b""))
            self._end(stream_id, "cancelled")

    def _end(self, stream_id: int, how: str, *, remember: bool = True) -> None:
        call = self._calls.pop(stream_id)
        self._tally.ends[call.kind, how] += 1
        if remember:
            self._ended.append(stream_id)

    def _shard(self, data: bytes) -> bytes:
        hint = Hint(SHARD_KEY, b"user", Routing.SHARD)
        return hinted_frame(SERVICE, data, hint, str(self._chance.randrange(USERS)))

    def _sticky(self, data: bytes) -> bytes:
        hint = Hint(STICKY_ROUTE_KEY, b"user")
        return hinted_frame(SERVICE, data, hint, str(self._chance.randrange(USERS)))

    def _waits(self, data: bytes) -> bytes:
        return hinted_frame(RARE, data, Hint(NO_ROUTE, self._chance.choice(WAITS)))


def _asks(interaction: Interaction, routing: Routing = Routing.UNICAST) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        return request_frame(SERVICE, data, interaction, routing, elements=CREDIT)

    return make


def _pushes(routing: Routing) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        return push_frame(SERVICE, data[:2], routing)

    return make
