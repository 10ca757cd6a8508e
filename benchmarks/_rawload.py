"""A load of request/response made of raw frames, cheap enough to keep a broker busy.

One destination and a number of requesters, each a socket of its own, all in this process. The
requesters keep a fixed number of requests in flight; the destination answers each request at
once. Frames are built before the measured window. All frames of a kind have one length, so a
chunk of a thousand frames is checked, and answered, by a few slices with a stride: the work for
a chunk hardly depends on how many frames are in it.

The frames are put together here from the RSocket and broker specifications, not with Onward's
codec: the load must not change when the codec does.

Every answer is checked: its length, type and flags as it comes, and at the end of the window
that each stream was answered exactly once. An error frame ends the run.
"""

from __future__ import annotations

import array
import os
import selectors
import socket
import struct
import sys
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["DATA", "Load", "Window", "cpu_seconds", "open_load"]

SERVICE = "bench"
DATA = b"x" * 64
"""The data of each request and of each answer."""

TIMEOUT = 20.0
"""Seconds without any frame after which the run is given up."""

COMPOSITE = b"message/x.rsocket.composite-metadata.v0"
BROKER_FRAME = b"message/x.rsocket.broker.frame.v0"
OCTETS = b"application/octet-stream"

ROUTE_SETUP_HEADER = bytes.fromhex("000000010400")
UNICAST_ADDRESS_HEADER = bytes.fromhex("000000011480")
SERVICE_NAME = 0x81

# Frame type (6 bits) and flags (10 bits), RSocket 1.0, "Frame Types".
SETUP_WITH_METADATA = 0x0500
KEEPALIVE_RESPOND = 0x0C80
KEEPALIVE = 0x0C00
REQUEST_RESPONSE_WITH_METADATA = 0x1100
PAYLOAD_NEXT_COMPLETE = 0x2860

# Where the bytes of these fields are in a frame with its length before it.
LENGTH = range(3)
STREAM_ID = range(3, 7)
TYPE_AND_FLAGS = range(7, 9)

SELDOM = 600_000
"""In milliseconds: the broker is to wait so long for KEEPALIVE, which the load does not send."""

RECEIVE_SIZE = 1 << 18


class Window(NamedTuple):
    """What one window saw: how many requests, in how many seconds of wall time."""

    requests: int
    seconds: float


def cpu_seconds(pid: int) -> float:
    """Return the CPU time a process has used so far, user and system, of all its threads.

    It is counted in clock ticks, mostly 10 ms: a window has to take a hundred times that.
    """
    # The name of the command, in parentheses, may have spaces in it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def frame(stream_id: int, type_and_flags: int, body: bytes) -> bytes:
    """Return a frame with its length before it."""
    header = struct.pack(">IH", stream_id, type_and_flags)
    return _length(header + body) + header + body


def setup_frame(name: str) -> bytes:
    """Return SETUP with a ROUTE_SETUP in its composite metadata."""
    metadata = _broker_entry(
        ROUTE_SETUP_HEADER + uuid.uuid4().bytes + bytes([len(name)]) + name.encode()
    )
    version = struct.pack(">HH", 1, 0)
    keepalive = struct.pack(">II", SELDOM, SELDOM)
    mime_types = b"".join(bytes([len(each)]) + each for each in (COMPOSITE, OCTETS))
    return frame(
        0, SETUP_WITH_METADATA, version + keepalive + mime_types + _length(metadata) + metadata
    )


def request_frame() -> bytes:
    """Return REQUEST_RESPONSE with a unicast ADDRESS in its composite metadata."""
    name = SERVICE.encode()
    tags = bytes([SERVICE_NAME, len(name)]) + name
    metadata = _broker_entry(UNICAST_ADDRESS_HEADER + uuid.uuid4().bytes + tags)
    return frame(0, REQUEST_RESPONSE_WITH_METADATA, _length(metadata) + metadata + DATA)


def _broker_entry(broker_frame: bytes) -> bytes:
    return bytes([len(BROKER_FRAME) - 1]) + BROKER_FRAME + _length(broker_frame) + broker_frame


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(3, "big")


class _Peer:
    """One connection to the broker, on which all frames received are of one kind."""

    def __init__(self, port: int, name: str, expected: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expected = expected
        self._rest = b""
        # A KEEPALIVE is answered after the frames before it: then the route is set up.
        position = bytes(8)
        answer = frame(0, KEEPALIVE, position)
        self.socket.sendall(setup_frame(name) + frame(0, KEEPALIVE_RESPOND, position))
        if (received := self.socket.recv(len(answer), socket.MSG_WAITALL)) != answer:
            raise RuntimeError(f"not an answer to KEEPALIVE: {received!r}")

    def _receive_frames(self) -> bytes:
        """Receive what there is and return the whole frames of it."""
        chunk = self.socket.recv(RECEIVE_SIZE)
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        data = self._rest + chunk
        size = len(self._expected)
        end = len(data) - len(data) % size
        frames, self._rest = data[:end], data[end:]
        count = end // size
        for offset in (*LENGTH, *TYPE_AND_FLAGS):
            if frames[offset::size] != self._expected[offset : offset + 1] * count:
                raise RuntimeError(f"not the frames expected: {data[: 2 * size]!r}")
        return frames


class _Destination(_Peer):
    """Answers every request with `DATA`."""

    def __init__(self, port: int) -> None:
        super().__init__(port, SERVICE, request_frame())
        self._answer = frame(0, PAYLOAD_NEXT_COMPLETE, DATA)

    def receive(self) -> None:
        """Answer the requests that are there."""
        frames = self._receive_frames()
        size, answer_size = len(self._expected), len(self._answer)
        answers = bytearray(self._answer * (len(frames) // size))
        for offset in STREAM_ID:
            answers[offset::answer_size] = frames[offset::size]
        self.socket.sendall(answers)


class _Requester(_Peer):
    """Keeps `in_flight` requests in flight until those prepared are answered."""

    def __init__(self, port: int, name: str, in_flight: int) -> None:
        super().__init__(port, name, frame(0, PAYLOAD_NEXT_COMPLETE, DATA))
        self._in_flight = in_flight
        self._request = request_frame()
        self._next_stream_id = 1
        self._stream_ids = array.array("I")
        self._requests = memoryview(b"")
        self._answers: list[bytes] = []
        self.pending = 0
        """Requests of the window that are not answered yet."""

    def prepare(self, count: int) -> None:
        """Build the frames of a window of so many requests."""
        end = self._next_stream_id + 2 * count
        self._stream_ids = array.array("I", range(self._next_stream_id, end, 2))
        self._next_stream_id = end
        self._requests = memoryview(_with_stream_ids(self._request * count, self._stream_ids))
        self._answers = []
        self.pending = count

    def start(self) -> None:
        """Send the first requests."""
        self._send(self._in_flight)

    def receive(self) -> None:
        """Take the answers that are there, and send as many requests."""
        frames = self._receive_frames()
        count = len(frames) // len(self._expected)
        self._answers.append(frames)
        self.pending -= count
        self._send(count)

    def check(self) -> None:
        """Hold the stream ids of the answers against those of the requests."""
        answers = b"".join(self._answers)
        if sorted(_stream_ids(answers, len(self._expected))) != self._stream_ids.tolist():
            raise RuntimeError("a stream was not answered exactly once")

    def _send(self, count: int) -> None:
        end = count * len(self._request)
        self.socket.sendall(self._requests[:end])
        self._requests = self._requests[end:]


def _with_stream_ids(frames: bytes, stream_ids: array.array[int]) -> bytearray:
    """Return the frames, all of one length, with these stream ids."""
    size = len(frames) // len(stream_ids)
    written = bytearray(frames)
    octets = _big_endian(stream_ids).tobytes()
    for place, offset in enumerate(STREAM_ID):
        written[offset::size] = octets[place::4]
    return written


def _stream_ids(frames: bytes, size: int) -> array.array[int]:
    """Return the stream ids of frames that are all of one length."""
    octets = bytearray(len(frames) // size * 4)
    for place, offset in enumerate(STREAM_ID):
        octets[place::4] = frames[offset::size]
    return _big_endian(array.array("I", bytes(octets)))


def _big_endian(numbers: array.array[int]) -> array.array[int]:
    swapped = numbers[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped


@dataclass(frozen=True, slots=True)
class Load:
    """Requesters and a destination, connected to a broker.

    Attributes:
        requesters: Each has its own connection and its share of the requests in flight.
    """

    requesters: list[_Requester]
    _selector: selectors.BaseSelector

    def run(self, requests: int) -> Window:
        """Send so many requests, spread over the requesters, and wait for all answers.

        Raises:
            RuntimeError: A frame is not the one expected, a stream was not answered exactly
                once, the broker closed a connection, or nothing came for `TIMEOUT`.
        """
        share = requests // len(self.requesters)
        for requester in self.requesters:
            requester.prepare(share)
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


@contextmanager
def open_load(port: int, *, requesters: int, in_flight: int) -> Generator[Load]:
    """Connect a destination and so many requesters to the broker at 127.0.0.1:`port`.

    Args:
        port: Of the broker's RSocket listener.
        requesters: How many connections send requests.
        in_flight: Requests in flight, of all of them together.
    """
    destination = _Destination(port)
    senders = [
        _Requester(port, f"requester-{n}", in_flight // requesters) for n in range(requesters)
    ]
    with selectors.DefaultSelector() as selector:
        for peer in (destination, *senders):
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        try:
            yield Load(senders, selector)
        finally:
            for peer in (destination, *senders):
                peer.socket.close()
