"""A load of request/response in raw frames, cheap enough to keep a broker busy.

One destination and a number of requesters, each with its own socket, run in this process. The
requesters keep a fixed number of requests in flight; the destination answers each request at once.
Frames are built before the measured window. All frames of a kind have one length, so a chunk of a
thousand frames is checked and answered with a few strided slices: the work for a chunk hardly
depends on its number of frames.

A `Shape` defines the frames, so that a broker with another protocol gets the same load from the
same code.

Every answer is checked: its length, type and flags when it is received, and at the end of the
window that each stream was answered exactly once. An error frame ends the run.
"""

from __future__ import annotations

import array
import os
import selectors
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from _wire import (
    KEEPALIVE,
    KEEPALIVE_RESPOND,
    STREAM_ID,
    columns,
    element_frame,
    frame,
    numbers,
    request_frame,
    setup_frame,
    stamp,
)

__all__ = [
    "DATA",
    "RECEIVE_SIZE",
    "SERVICE",
    "TIMEOUT",
    "Load",
    "Shape",
    "Window",
    "connect",
    "cpu_seconds",
    "open_load",
    "rsocket_shape",
]

SERVICE = "bench"
DATA = b"x" * 64
"""The data of each request and of each answer."""

TIMEOUT = 20.0
"""Seconds without any frame after which the run fails."""

RECEIVE_SIZE = 1 << 18


class Window(NamedTuple):
    """The requests of one window, and its wall time in seconds."""

    requests: int
    seconds: float


class Sent(NamedTuple):
    """A frame as its sender writes it, and as its receiver reads it behind the broker.

    `number` and `arrived_number` are the positions of the request's number in the two. `same` are
    the positions at which every frame that is received has to equal `arrived`.
    """

    written: bytes
    number: range
    arrived: bytes
    arrived_number: range
    same: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """The protocol of a load.

    Attributes:
        request: The frame from the requester to the destination.
        answer: The frame from the destination to the requester.
        numbers: The first number of a request, and the step to the next.
        connect: Opens a connection to a port for a service name, or a requester's name.
        keep_alive: Called with the destination's connection before each window, if given.
        text: Whether numbers are written in hexadecimal digits.
    """

    request: Sent
    answer: Sent
    numbers: tuple[int, int]
    connect: Callable[[int, str], socket.socket]
    text: bool = False
    keep_alive: Callable[[socket.socket], None] | None = None

    def octets(self, given: array.array[int]) -> bytes:
        """Return the encoded numbers."""
        octets = numbers(given).tobytes()
        return octets.hex().encode() if self.text else octets

    def read(self, octets: bytes) -> array.array[int]:
        """Return the decoded numbers."""
        return numbers(bytes.fromhex(octets.decode()) if self.text else octets)


def rsocket_shape(data: bytes = DATA) -> Shape:
    """Return the shape of request/response with this data in both directions."""
    request, answer = request_frame(SERVICE, data), element_frame(data, complete=True)
    same = (*range(3), 7, 8)  # length, type and flags
    return Shape(
        Sent(request, STREAM_ID, request, STREAM_ID, same),
        Sent(answer, STREAM_ID, answer, STREAM_ID, same),
        (1, 2),
        connect,
        keep_alive=exchange_keepalive,
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, user and system."""
    try:
        # The CPU clock of a process, as clock_getcpuclockid(3) numbers it, in nanoseconds.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        # In clock ticks, mostly 10 ms. The name of the command may contain spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(port: int, name: str, route_id: bytes = b"") -> socket.socket:
    """Open a connection to a broker and register a route with this service name.

    Args:
        port: The port of the broker.
        name: The service name.
        route_id: The id of the route, 16 bytes; a new one by default.
    """
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(setup_frame(name, route_id=route_id))
    try:
        # KEEPALIVE is answered after the frames before it, so the route is registered by then.
        exchange_keepalive(connection)
    except RuntimeError:
        connection.close()
        raise
    return connection


def exchange_keepalive(connection: socket.socket) -> None:
    """Send KEEPALIVE on a connection without traffic, and receive the answer.

    A broker asks a destination that was quiet for KEEPALIVE, in the middle of a window.
    """
    position = bytes(8)
    answer = frame(0, KEEPALIVE, position)
    connection.sendall(frame(0, KEEPALIVE_RESPOND, position))
    if (received := connection.recv(len(answer), socket.MSG_WAITALL)) != answer:
        raise RuntimeError(f"not an answer to KEEPALIVE: {received!r}")


class _Peer:
    """A connection to the broker that receives frames of one kind only."""

    def __init__(self, port: int, name: str, shape: Shape, expected: Sent) -> None:
        self.socket = shape.connect(port, name)
        self._expected = expected
        self._rest: list[bytes] = []
        self._kept = 0

    def _receive_frames(self) -> bytes:
        """Receive data and return its whole frames."""
        chunk = self.socket.recv(RECEIVE_SIZE)
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        expected = self._expected.arrived
        size = len(expected)
        self._rest.append(chunk)
        self._kept += len(chunk)
        if self._kept < size:
            return b""
        data = b"".join(self._rest)
        count = len(data) // size
        frames, rest = data[: count * size], data[count * size :]
        self._rest, self._kept = [rest], len(rest)
        for offset in self._expected.same:
            if frames[offset::size] != expected[offset : offset + 1] * count:
                raise RuntimeError(f"not the frames expected: {data[: 2 * size]!r}")
        return frames


class _Destination(_Peer):
    """A destination that answers every request with the answer's data."""

    def __init__(self, port: int, shape: Shape) -> None:
        super().__init__(port, SERVICE, shape, shape.request)
        self._answer = shape.answer
        self._keep_alive = shape.keep_alive

    def keep_alive(self) -> None:
        """Show the broker that the destination is there."""
        if self._keep_alive is not None:
            self._keep_alive(self.socket)

    def receive(self) -> None:
        """Answer the requests received."""
        frames = self._receive_frames()
        given = columns(frames, len(self._expected.arrived), self._expected.arrived_number)
        self.socket.sendall(stamp(self._answer.written, given, self._answer.number))


class _Requester(_Peer):
    """A requester that keeps `in_flight` requests in flight until all prepared are answered."""

    def __init__(self, port: int, name: str, shape: Shape, in_flight: int) -> None:
        super().__init__(port, name, shape, shape.answer)
        self._shape = shape
        self._in_flight = in_flight
        self._next, self._step = shape.numbers
        self._numbers = array.array("I")
        self._octets = b""
        self._requests = memoryview(b"")
        self._answers: list[bytes] = []
        self.pending = 0
        """Requests of the window that are not answered yet."""

    def prepare(self, count: int) -> None:
        """Build the frames of a window of `count` requests."""
        request = self._shape.request
        end = self._next + self._step * count
        self._numbers = array.array("I", range(self._next, end, self._step))
        self._next = end
        octets = self._shape.octets(self._numbers)
        self._requests = memoryview(stamp(request.written, octets, request.number))
        self._answers = []
        self.pending = count

    def start(self) -> None:
        """Send the first requests."""
        self.send(self._in_flight)

    def receive(self) -> None:
        """Receive answers, and send as many requests."""
        self.send(self.answered())

    def answered(self) -> int:
        """Receive answers; return how many."""
        frames = self._receive_frames()
        size = len(self._expected.arrived)
        count = len(frames) // size
        # Of large frames only the numbers are kept, to limit the memory of a window.
        self._answers.append(columns(frames, size, self._expected.arrived_number))
        self.pending -= count
        return count

    def check(self) -> None:
        """Compare the numbers of the answers with those of the requests."""
        answered = self._shape.read(b"".join(self._answers))
        if sorted(answered) != self._numbers.tolist():
            raise RuntimeError("a stream was not answered exactly once")

    def send(self, count: int) -> None:
        """Send requests of the window, as far as there are any left."""
        end = count * len(self._shape.request.written)
        self.socket.sendall(self._requests[:end])
        self._requests = self._requests[end:]


@dataclass(frozen=True, slots=True)
class Load:
    """Requesters and a destination, connected to a broker.

    Attributes:
        requesters: Each has its own connection and its share of the requests in flight.
        destination: The destination.
    """

    requesters: list[_Requester]
    destination: _Destination
    _selector: selectors.BaseSelector

    def run(self, requests: int) -> Window:
        """Send a number of requests and wait for their answers.

        Args:
            requests: At least one for each requester; rounded down to a multiple of them.

        Raises:
            RuntimeError: A frame is not the one expected, a stream was not answered exactly
                once, the broker closed a connection, or nothing was received for `TIMEOUT`.
        """
        share = requests // len(self.requesters)
        for requester in self.requesters:
            requester.prepare(share)
        self.destination.keep_alive()
        started = time.perf_counter()
        for requester in self.requesters:
            requester.start()
        while any(requester.pending for requester in self.requesters):
            ready = self._selector.select(TIMEOUT)
            if not ready:
                raise RuntimeError(f"no frame came for {TIMEOUT} s")
            for key, _ in ready:
                key.data.receive()
        seconds = time.perf_counter() - started
        for requester in self.requesters:
            requester.check()
        return Window(share * len(self.requesters), seconds)

    def run_at(self, requests: int, rate: float) -> list[float]:
        """Send requests of one requester at a fixed rate.

        A request counts from when it was due, so that whatever stalls is charged for all that had
        to wait. Answers come in the order of the requests, as each broker handles them in turn.

        Args:
            requests: How many.
            rate: Requests for each second.

        Returns:
            The seconds until each answer, in order.

        Raises:
            RuntimeError: As for `run`.
        """
        requester, sent, took = self.requesters[0], 0, list[float]()
        requester.prepare(requests)
        self.destination.keep_alive()
        started = time.perf_counter()
        while requester.pending:
            passed = time.perf_counter() - started
            due = min(requests, int(passed * rate) + 1)
            requester.send(due - sent)
            sent = due
            wait = TIMEOUT if sent == requests else max(0.0, sent / rate - passed)
            for key, _ in self._selector.select(wait):
                if key.data is not requester:
                    key.data.receive()
                    continue
                count = requester.answered()
                now = time.perf_counter() - started
                took += [now - (len(took) + each) / rate for each in range(count)]
        requester.check()
        return took


@contextmanager
def open_load(
    port: int, *, requesters: int, in_flight: int, shape: Shape | None = None
) -> Generator[Load]:
    """Connect a destination and requesters to the broker at 127.0.0.1:`port`.

    Args:
        port: The port of the broker's listener.
        requesters: The number of connections that send requests.
        in_flight: Requests in flight of all requesters together.
        shape: The protocol and the data; request/response by RSocket with `DATA` by default.
    """
    shape = shape or rsocket_shape()
    destination = _Destination(port, shape)
    senders = [
        _Requester(port, f"requester-{n}", shape, in_flight // requesters)
        for n in range(requesters)
    ]
    with selectors.DefaultSelector() as selector:
        for peer in (destination, *senders):
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        try:
            yield Load(senders, destination, selector)
        finally:
            for peer in (destination, *senders):
                peer.socket.close()
