"""A load of raw frames of several kinds, in a closed loop or at a fixed rate.

`_rawload.py` is for frames of one kind. Here each frame is parsed. That costs this process more,
but it can follow streams of many elements, fire-and-forget, multicast, and the time that each
request took.

A request is *done* when its answer is complete or, if it has none, when all its destinations have
received it.

At a fixed rate requests are sent when they are due, however slow the answers are. The time of each
counts from when it was due, not from when it was sent. So a stall of the broker counts for all the
requests that it delays: there is no coordinated omission.
"""

from __future__ import annotations

import array
import select
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from _rawload import RECEIVE_SIZE, SERVICE, TIMEOUT, Window, connect
from _wire import (
    CANCEL,
    COMPLETE,
    ERROR,
    KEEPALIVE,
    NEXT,
    REQUEST_N,
    STREAM_ID,
    TYPE,
    Interaction,
    Routing,
    element_frame,
    frame,
    frames_of,
    numbers,
    request_frame,
    stamp,
)

__all__ = ["ELEMENTS", "MixedLoad", "Rated", "Refused", "Scenario", "open_mixed_load"]

ELEMENTS = 100
"""Elements of a stream; also the credit its requester gives."""

NUMBER_SIZE = 4
"""The size of a request's number, at the start of its data."""

PAYLOAD = 0x2800
REQUEST_TYPES = {kind & TYPE: kind for kind in Interaction}
FIRST_STREAM_ID, LAST_STREAM_ID = 1, 0x7FFFFFFF


class Refused(RuntimeError):
    """An error in answer to a request, with its code and text."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of request, its destinations and its load.

    Attributes:
        name: The name in tables.
        interaction: Response, stream of `ELEMENTS`, or fire-and-forget.
        routing: Unicast or multicast.
        destinations: The number of destinations.
        size: Bytes of data of a request, of an answer, and of each element.
        in_flight: Requests in flight in a closed loop.
    """

    name: str
    interaction: Interaction = Interaction.RESPONSE
    routing: Routing = Routing.UNICAST
    destinations: int = 1
    size: int = 64
    in_flight: int = 64

    @property
    def uniform(self) -> bool:
        """Whether it is a unicast request/response, the only kind in `_rawload.py`."""
        return self.interaction is Interaction.RESPONSE and self.routing is Routing.UNICAST


class Rated(NamedTuple):
    """A window at a fixed rate: the seconds of each request, and the share that failed."""

    took: list[float]
    refused: float


class _Board:
    """The requests of a window that are done, and the time of each."""

    def __init__(self, requests: int, needed: int, *, lenient: bool = False) -> None:
        self.pending = requests
        self.lenient = lenient
        """Whether an error frame ends a request; otherwise it ends the run."""
        self.refused = 0
        self.now = 0.0
        self.fresh = 0
        """Requests done since this was last reset."""
        self.done_at = array.array("d", bytes(8 * requests))
        self._missing = array.array("B", bytes([needed]) * requests)

    def done(self, number: int) -> None:
        """Count an answer of a request, or its receipt by one more destination."""
        missing = self._missing[number]
        if not missing:
            raise RuntimeError(f"request {number} was answered or taken too often")
        self._missing[number] = missing - 1
        if missing == 1:
            self.done_at[number] = self.now
            self.pending -= 1
            self.fresh += 1


class _Peer(ABC):
    """A connection to the broker, with a buffer in each direction."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = connect(port, name)
        # A blocking send to a broker that does not read would stop us from reading.
        self.socket.setblocking(False)
        self.unsent: deque[memoryview] = deque()
        self._rest = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> bytes:
        """Return the bytes received, which may end within a frame."""
        chunk = self.socket.recv(RECEIVE_SIZE)
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        return self._rest + chunk

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send as much as the socket accepts, and keep the rest."""
        self.unsent.append(memoryview(data))
        if len(self.unsent) == 1:
            self.flush()

    def flush(self) -> None:
        """Send the kept bytes, as far as the socket accepts them."""
        while self.unsent:
            first = self.unsent[0]
            try:
                sent = self.socket.send(first)
            except BlockingIOError:
                return
            if sent < len(first):
                self.unsent[0] = first[sent:]
                return
            self.unsent.popleft()

    @abstractmethod
    def receive(self, board: _Board) -> None:
        """Handle the frames received."""


class _Destination(_Peer):
    """A destination that answers each request at once."""

    def __init__(self, port: int, data: bytes) -> None:
        super().__init__(port, SERVICE)
        answer = element_frame(data, complete=True)
        element = element_frame(data, complete=False)
        self._answers = {
            Interaction.RESPONSE & TYPE: (answer, 1),
            Interaction.STREAM & TYPE: (element * (ELEMENTS - 1) + answer, ELEMENTS),
        }
        self._forgotten = Interaction.FIRE_AND_FORGET & TYPE
        self._frame_size = len(answer)
        self._data_size = len(data)

    def receive(self, board: _Board) -> None:
        data = self.read()
        answers: list[bytes | bytearray] = []
        end = 0
        for type_and_flags, stream_id, begin, end in frames_of(data):
            kind = type_and_flags & TYPE
            if kind == self._forgotten:
                start = end - self._data_size
                board.done(int.from_bytes(data[start : start + NUMBER_SIZE]))
            elif kind in self._answers:
                answers.append(self._answer(kind, stream_id))
            elif kind == KEEPALIVE:  # a broker asks a quiet destination whether it is there
                answers.append(frame(0, KEEPALIVE, data[begin:end]))
            elif kind not in (REQUEST_N, CANCEL):
                raise RuntimeError(f"not a request: type and flags {type_and_flags:#06x}")
        self._rest = data[end:]
        if answers:
            self.write(b"".join(answers))

    def _answer(self, kind: int, stream_id: int) -> bytes | bytearray:
        frames, count = self._answers[kind]
        octets = stream_id.to_bytes(4)
        if count == 1:
            return frames[:3] + octets + frames[7:]
        written = bytearray(frames)
        for place, offset in enumerate(STREAM_ID):
            written[offset :: self._frame_size] = octets[place : place + 1] * count
        return written


class _Requester(_Peer):
    """A requester; the stream id of a request gives its number in the window."""

    def __init__(self, port: int, scenario: Scenario) -> None:
        super().__init__(port, "requester")
        data = bytes(NUMBER_SIZE) + b"x" * (scenario.size - NUMBER_SIZE)
        self._request = request_frame(
            SERVICE, data, scenario.interaction, scenario.routing, elements=ELEMENTS
        )
        self._number = range(
            len(self._request) - scenario.size, len(self._request) - scenario.size + NUMBER_SIZE
        )
        self._answered = scenario.interaction is not Interaction.FIRE_AND_FORGET
        self._elements = ELEMENTS if scenario.interaction is Interaction.STREAM else 1
        self._next = FIRST_STREAM_ID
        self._frames = memoryview(b"")
        self._seen = array.array("B")

    def prepare(self, requests: int) -> None:
        """Build the frames of a window of this number of requests."""
        self._first, self._next = self._next, self._next + 2 * requests
        if self._next > LAST_STREAM_ID:
            raise RuntimeError("this connection has used up its stream ids")
        stream_ids = numbers(array.array("I", range(self._first, self._next, 2))).tobytes()
        frames = stamp(self._request, stream_ids, STREAM_ID)
        octets = numbers(array.array("I", range(requests))).tobytes()
        for place, offset in enumerate(self._number):
            frames[offset :: len(self._request)] = octets[place::NUMBER_SIZE]
        self._frames = memoryview(frames)
        self._seen = array.array("B", bytes(requests))

    def send(self, requests: int) -> None:
        """Send the next requests."""
        end = requests * len(self._request)
        self.write(self._frames[:end])
        self._frames = self._frames[end:]

    def receive(self, board: _Board) -> None:
        data = self.read()
        first, seen, elements = self._first, self._seen, self._elements
        end = 0
        for type_and_flags, stream_id, start, end in frames_of(data):
            number = (stream_id - first) >> 1
            if type_and_flags & TYPE == ERROR:
                if not board.lenient:
                    code = int.from_bytes(data[start : start + 4])
                    raise Refused(f"{code:#06x} {data[start + 4 : end].decode(errors='replace')}")
                board.refused += 1
                board.done(number)
                continue
            if type_and_flags & TYPE != PAYLOAD or not self._answered or number < 0:
                raise RuntimeError(f"not an answer: type and flags {type_and_flags:#06x}")
            if type_and_flags & NEXT:
                seen[number] += 1
            if type_and_flags & COMPLETE:
                if seen[number] != elements:
                    raise RuntimeError(f"{seen[number]} elements of {elements}")
                board.done(number)
        self._rest = data[end:]


@dataclass(frozen=True, slots=True)
class MixedLoad:
    """A requester and destinations, connected to a broker."""

    scenario: Scenario
    _requester: _Requester
    _destinations: list[_Destination]

    def run(self, requests: int) -> Window:
        """Keep `in_flight` requests in flight until `requests` are done.

        Raises:
            Refused: The broker answered with an error.
            RuntimeError: A frame is unexpected, a request is done too often, the broker
                closed a connection, or nothing was received for `TIMEOUT`.
        """
        board = self._start(requests)
        unsent = requests
        started = time.perf_counter()
        room = self.scenario.in_flight
        while board.pending:
            if room and unsent:
                count = min(room, unsent)
                self._requester.send(count)
                unsent -= count
                room -= count
            if not self._receive(board, TIMEOUT):
                raise RuntimeError(f"no frame came for {TIMEOUT} s")
            room += board.fresh
            board.fresh = 0
        return Window(requests, time.perf_counter() - started)

    def run_at(self, rate: float, seconds: float) -> Rated:
        """Send `rate` requests a second for some seconds, and measure the time of each.

        Raises:
            RuntimeError: As in `run`; errors of the broker are only counted.
        """
        requests = max(1, round(rate * seconds))
        board = self._start(requests, lenient=True)
        sent = 0
        started = time.perf_counter()
        while board.pending:
            now = time.perf_counter() - started
            due = min(requests, int(now * rate) + 1)
            if due > sent:
                self._requester.send(due - sent)
                sent = due
            wait = TIMEOUT
            if sent < requests:
                wait = max(0.0, sent / rate - (time.perf_counter() - started))
            if not self._receive(board, wait) and wait == TIMEOUT:
                raise RuntimeError(f"no frame came for {TIMEOUT} s")
        took = [at - started - number / rate for number, at in enumerate(board.done_at)]
        return Rated(took, board.refused / requests)

    def _start(self, requests: int, *, lenient: bool = False) -> _Board:
        forgotten = self.scenario.interaction is Interaction.FIRE_AND_FORGET
        self._requester.prepare(requests)
        needed = self.scenario.destinations if forgotten else 1
        return _Board(requests, needed, lenient=lenient)

    def _receive(self, board: _Board, timeout: float) -> bool:
        # select(2) waits for microseconds; epoll's milliseconds are too coarse for a rate.
        peers: list[_Peer] = [self._requester, *self._destinations]
        blocked = [peer for peer in peers if peer.unsent]
        ready, writable, _ = select.select(peers, blocked, [], timeout)
        board.now = time.perf_counter()
        for peer in writable:
            peer.flush()
        for peer in ready:
            peer.receive(board)
        return bool(ready or writable)


@contextmanager
def open_mixed_load(port: int, scenario: Scenario) -> Generator[MixedLoad]:
    """Connect a requester and the destinations to the broker at 127.0.0.1:`port`.

    If the broker answers the first requests with errors, such as for lack of multicast, `run`
    raises. Call this while few files are open: select(2) takes descriptors below 1024.
    """
    peers: list[socket.socket] = []
    try:
        destinations: list[_Destination] = []
        for _ in range(scenario.destinations):
            destinations.append(_Destination(port, b"y" * scenario.size))
            peers.append(destinations[-1].socket)
        requester = _Requester(port, scenario)
        peers.append(requester.socket)
        yield MixedLoad(scenario, requester, destinations)
    finally:
        for peer in peers:
            peer.close()
