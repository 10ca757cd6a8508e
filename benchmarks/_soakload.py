"""The requesters of a soak: each request's end is awaited, counted and checked."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from _soakpeer import Fate, Peer
from _wire import (
    CANCEL,
    COMPLETE,
    ERROR,
    NEXT,
    REQUEST_N,
    STREAM_ID,
    Interaction,
    Routing,
    frame,
    request_frame,
    shard_frame,
)

__all__ = ["PATIENCE", "SERVICE", "Requester", "Tally"]

SERVICE: Final = "soak"
USERS: Final = 50
PATIENCE: Final = 20.0
"""Seconds after which a request that nobody cancels is overdue. The broker waits 5 for a route."""
CREDIT: Final = 8
REMEMBERED: Final = 10_000
"""Streams remembered as ended by us: what comes for them was on its way."""
MOST_ELEMENTS: Final = 60
SIZES: Final = (8, 8, 8, 64, 1024, 20_000)
FATES: Final = (Fate.ANSWER,) * 12 + (Fate.ANSWER_LATE,) * 4 + (Fate.FAIL, Fate.FORGET)

PAYLOAD: Final = 0x2800


@dataclass(slots=True)
class Tally:
    """What became of all requests.

    Attributes:
        sent: By kind.
        ends: By kind and how it ended: `answered`, an error's code, `cancelled` by the
            requester, or `left`: the requester closed its connection meanwhile.
        wrong: What should not have happened.
    """

    sent: Counter[str] = field(default_factory=Counter[str])
    ends: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    wrong: Counter[str] = field(default_factory=Counter[str])

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return self.sent.total() - self.ends.total()


@dataclass(slots=True)
class _Call:
    kind: str
    data: bytes
    due: float
    merged: bool
    credit: int = 1
    left: int = 1


class Requester(Peer):
    """A connection that asks, and may leave at any time.

    Args:
        name: The service it registers, which nobody asks for.
        tally: Of all requesters.
        chance: Decides what is asked.
    """

    def __init__(self, name: str, tally: Tally, chance: random.Random) -> None:
        super().__init__(name)
        self._tally = tally
        self._chance = chance
        self._next = 1
        self._calls: dict[int, _Call] = {}
        self._ended: deque[int] = deque(maxlen=REMEMBERED)
        self._kinds: tuple[tuple[str, int, Callable[[bytes], bytes]], ...] = (
            ("response", 8, _asks(Interaction.RESPONSE)),
            ("stream", 3, _asks(Interaction.STREAM)),
            ("fire-and-forget", 3, _asks(Interaction.FIRE_AND_FORGET)),
            ("shard response", 3, self._shard),
            ("multicast response", 2, _asks(Interaction.RESPONSE, Routing.MULTICAST)),
            ("multicast stream", 1, _asks(Interaction.STREAM, Routing.MULTICAST)),
            ("multicast fire-and-forget", 1, _asks(Interaction.FIRE_AND_FORGET, Routing.MULTICAST)),
        )
        self._weights = [weight for _, weight, _ in self._kinds]

    def ask(self) -> None:
        """Send a request of some kind, and perhaps cancel it soon."""
        chance = self._chance
        kind, _, make = chance.choices(self._kinds, self._weights)[0]
        fate = chance.choice(FATES)
        elements = chance.randint(1, MOST_ELEMENTS)
        size = chance.choice(SIZES) if "stream" not in kind else 8
        data = bytes([fate, elements]) + bytes(size)
        stream_id, self._next = self._next, self._next + 2
        written = bytearray(make(data))
        written[STREAM_ID.start : STREAM_ID.stop] = stream_id.to_bytes(4)
        self._tally.sent[kind] += 1
        self.send(bytes(written))
        if "forget" in kind:
            self._tally.ends[kind, "sent"] += 1
            return
        loop = asyncio.get_running_loop()
        call = _Call(kind, data, loop.time() + PATIENCE, "multicast" in kind)
        if "stream" in kind:
            call.credit, call.left = CREDIT, elements
        self._calls[stream_id] = call
        if fate is Fate.FORGET or chance.random() < 0.05:
            loop.call_later(chance.uniform(0, 0.2), self._cancel, stream_id)

    def on_frame(self, kind: int, type_and_flags: int, stream_id: int, body: bytes) -> None:
        call = self._calls.get(stream_id)
        if call is None:
            if stream_id not in self._ended:
                self._tally.wrong["a frame of a stream that has ended"] += 1
            return
        if kind == ERROR:
            self._end(stream_id, f"error {int.from_bytes(body[:4]):#x}", remember=False)
            return
        if kind != PAYLOAD:
            self._tally.wrong[f"frame type {kind >> 10:#x}"] += 1
            return
        if type_and_flags & NEXT:
            self._on_element(stream_id, call, body)
        if type_and_flags & COMPLETE:
            if not call.merged and call.left:
                self._tally.wrong[f"{call.kind}: complete before the last element"] += 1
            self._end(stream_id, "answered", remember=False)

    def overdue(self, now: float) -> list[str]:
        """Return the kinds of the requests that should have ended."""
        return [call.kind for call in self._calls.values() if call.due < now]

    def on_refused(self, text: str) -> None:
        self._tally.wrong[f"the broker ended a connection: {text}"] += 1

    def leave(self) -> None:
        """Close the connection, with whatever is open on it."""
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

    def _on_element(self, stream_id: int, call: _Call, body: bytes) -> None:
        if not call.credit or (not call.left and not call.merged):
            self._tally.wrong[f"{call.kind}: an element too many"] += 1
            return
        if body != call.data:
            self._tally.wrong[f"{call.kind}: other data than sent"] += 1
        call.credit -= 1
        call.left = max(0, call.left - 1)
        if call.credit <= CREDIT // 2 and "stream" in call.kind:
            call.credit += CREDIT
            self.send(frame(stream_id, REQUEST_N, struct.pack(">I", CREDIT)))

    def _cancel(self, stream_id: int) -> None:
        if stream_id in self._calls:
            self.send(frame(stream_id, CANCEL, b""))
            self._end(stream_id, "cancelled")

    def _end(self, stream_id: int, how: str, *, remember: bool = True) -> None:
        call = self._calls.pop(stream_id)
        self._tally.ends[call.kind, how] += 1
        if remember:
            self._ended.append(stream_id)

    def _shard(self, data: bytes) -> bytes:
        return shard_frame(SERVICE, "user", str(self._chance.randrange(USERS)), data)


def _asks(interaction: Interaction, routing: Routing = Routing.UNICAST) -> Callable[[bytes], bytes]:
    def make(data: bytes) -> bytes:
        return request_frame(SERVICE, data, interaction, routing, elements=CREDIT)

    return make
