"""Two resumable connections wired in memory, with a loss of the wire wherever it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onward.protocol.rsocket import (
    FOLLOWS,
    ConnectionLimits,
    Event,
    Frame,
    FrameType,
    ResumableConnection,
    Resume,
    Resumed,
    ResumeLimits,
    Role,
    Setup,
)

TOKEN: Final = bytes(range(16))
SETUP: Final = Setup(token=TOKEN)

Happened = tuple[str, int, int, bytes]
"""The side that accepted a frame, the stream, type and flags, and the bytes after them."""


class Wire:
    """A client and a server of one session, and the bytes under way between them.

    Attributes:
        client: The client.
        server: The server.
        seen: The frames of streams that either side has accepted, in order for each side.
        delivered: Bytes that have arrived, at both sides together.
        losses: How often the wire was lost.
        refused: Whether the server has refused to resume the session.
    """

    def __init__(
        self,
        answer: Callable[[ResumableConnection, Frame], None],
        *,
        cut_at: int = -1,
        resume: ResumeLimits = ResumeLimits(),  # noqa: B008 - frozen
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.client = ResumableConnection(Role.CLIENT, limits, resume, now=0.0)
        self.server = ResumableConnection(Role.SERVER, limits, resume, now=0.0)
        self.client.send_setup(SETUP)
        self.server.receive_data(bytes(self.client.data_to_send()), 0.0)
        self.seen: dict[Role, list[Happened]] = {Role.CLIENT: [], Role.SERVER: []}
        self.delivered = 0
        self.losses = 0
        self._answer = answer
        self._cut_at = cut_at
        self._under_way = {Role.CLIENT: bytearray(), Role.SERVER: bytearray()}

    def pump(self) -> None:
        """Carry everything to both sides, until neither has anything to send."""
        while self._collect():
            for target in (self.server, self.client):
                source = Role.CLIENT if target is self.server else Role.SERVER
                data = self._under_way[source]
                while data:
                    size = len(data)
                    if self.delivered < self._cut_at < self.delivered + size:
                        size = self._cut_at - self.delivered
                    chunk = bytes(data[:size])
                    del data[:size]
                    self.delivered += size
                    self.take(target, target.receive_data(chunk, 1.0))
                    if self.delivered == self._cut_at:
                        self._cut_at = -1
                        self.lose()

    def _collect(self) -> bool:
        for side in (self.client, self.server):
            data = side.data_to_send()
            if not side.suspended:
                self._under_way[side.role] += data
        return any(self._under_way.values())

    def lose(self) -> None:
        """Lose the wire with all that is under way, and resume the session over another one."""
        self.losses += 1
        for data in self._under_way.values():
            data.clear()
        assert self.client.suspend(1.0)
        assert self.server.suspend(1.0)
        entrance = ResumableConnection(Role.SERVER, None, ResumeLimits(), now=1.0)
        (frame,) = entrance.receive_data(self.client.send_resume(), 1.0)
        assert isinstance(frame, Frame)
        resume = Resume.parse(frame)
        assert resume.token == TOKEN
        for each in self.server.accept_resume(resume, 1.0):
            self._under_way[Role.SERVER] += each

    def take(self, side: ResumableConnection, events: list[Event]) -> None:
        """Record what a side has accepted, and have it answer."""
        for event in events:
            if isinstance(event, Resumed):
                for each in event.again:
                    self._under_way[side.role] += each
                continue
            assert isinstance(event, Frame), event
            if event.stream_id:
                content = bytes(event.raw[6:])
                self.seen[side.role].append((side.role.value, event.stream_id, event.word, content))
                self._answer(side, event)


def answer(side: ResumableConnection, frame: Frame) -> None:
    """Answer a request with its data; a stream or channel with two elements and the end."""
    stream = frame.stream
    if side.role is Role.CLIENT:
        if frame.type == FrameType.REQUEST_N:
            side.send_payload(stream, b"last", complete=True)
        elif stream.kind == FrameType.REQUEST_CHANNEL and bytes(frame.data or b"") == b"1":
            side.send_request_n(stream, 1)
        return
    if frame.type == FrameType.REQUEST_N:
        side.send_payload(stream, b"", complete=True)
    elif not frame.word & FOLLOWS and stream.peer is None:
        stream.peer = "answered"
        if stream.kind == FrameType.REQUEST_RESPONSE:
            side.send_payload(stream, bytes(frame.data or b""), b"metadata", complete=True)
        elif stream.kind != FrameType.REQUEST_FNF:
            for number in range(2):
                side.send_payload(stream, b"%d" % number)
            if stream.kind == FrameType.REQUEST_CHANNEL:
                side.send_request_n(stream, 1)
