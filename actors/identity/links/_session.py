"""A session with another node: its keys and numbers, and the queue of what it sends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from ....protocol import LinkDown, MailboxFull, OnwardError, Route
from ....protocol.identity import Identity, LinkChannel, LinkFailure, short_text
from ..._errors import Expired
from ..._worker import Worker
from ...runtime._room import Room, SenderLine, join

__all__ = ["MAX_HANDSHAKE_MESSAGES", "MAX_WAITING", "Failed", "Session", "Waiting"]

MAX_WAITING: Final = 1000
"""Frames to one node that wait for room at its link. Beyond: senders wait."""

MAX_HANDSHAKE_MESSAGES: Final = 16
"""Messages of handshakes to one node that wait for room at its link. Beyond: not sent, and counted:
the node asks on and on, and takes no answer."""

Failed = Callable[[OnwardError], object]
"""Receives the reason for which a record was certainly not handed over."""


class Waiting(NamedTuple):
    """A record that waits for room at the link.

    Attributes:
        data: The record; or a frame, or a message of a handshake.
        is_record: Whether it is a record, which is sealed when its turn comes, so that no number is
            left out for what has expired until then.
        failed: Receives the reason if it is certainly not handed over.
        expiry: When it is of no use any more, in Unix milliseconds; `None` for never.
    """

    data: bytes
    is_record: bool
    failed: Failed
    expiry: int | None = None


class Session:
    """A session with another node.

    Records are sealed in the order in which they are sent, as their numbers have to rise. One that
    waits is sealed, or dropped if it has expired, when its turn comes. That which is the next one
    for the link is sealed already, as is what the link itself has taken. Messages of handshakes go
    before the records that wait, so that they are in time, and all that waits is sealed by the new
    keys.

    Args:
        node: The node.
        worker: The worker that sends.
        route: The route to the router of the node.
        channel: The keys and numbers.
        dialled: Whether this node has dialled.
        number: A number that no other session of this node has.
        sealed: Called after each record, with the reason if the channel has ended.
        is_late: Whether an expiry is past; what has waited until then is dropped, and counted.

    Attributes:
        node: The node.
        channel: The keys and numbers.
        dialled: Whether this node has dialled.
        began: Whether this node has begun the last handshake. Where there are two links, both nodes
            keep the same one by that.
        number: Its number.
        greets_by: The time by which the other node has to greet, in seconds of the loop.
        is_greeted: Whether the other node has greeted, so that it takes messages.
        waiting: What waits for room.
    """

    __slots__ = (
        "_before",
        "_is_late",
        "_line",
        "_pump",
        "_room",
        "_route",
        "_sealed",
        "_worker",
        "began",
        "channel",
        "dialled",
        "greets_by",
        "is_greeted",
        "node",
        "number",
        "waiting",
    )

    def __init__(
        self,
        node: Identity,
        worker: Worker,
        route: Route,
        channel: LinkChannel,
        dialled: bool,
        number: int,
        sealed: Callable[[Session, str], object],
        is_late: Callable[[int], bool],
    ) -> None:
        self.node: Final = node
        self.channel = channel
        self.dialled: Final = dialled
        self.began = dialled
        self.number: Final = number
        self.greets_by = 0.0
        self.is_greeted = False
        self.waiting: Final[deque[Waiting]] = deque()
        self._before: LinkChannel | None = None
        self._worker: Final = worker
        self._route: Final = route
        self._sealed: Final = sealed
        self._is_late: Final = is_late
        self._pump: asyncio.Task[None] | None = None
        self._line: SenderLine | None = None
        self._room: Final[list[asyncio.Future[None]]] = []

    def renew(self, channel: LinkChannel, *, began: bool) -> None:
        """Use another channel. What the other node has sent by the one before it comes first.

        Args:
            channel: The channel.
            began: Whether this node has begun the handshake.
        """
        self._before, self.channel, self.began = self.channel, channel, began

    def send(
        self, record: bytes, failed: Failed, expiry: int | None = None
    ) -> Awaitable[None] | None:
        """Send a record.

        Args:
            record: The record.
            failed: Receives the reason if it is certainly not handed over.
            expiry: When it is of no use any more, in Unix milliseconds; `None` for never.

        Returns:
            `None`, or what to wait for before the next record, as many wait for room.
        """
        if self._pump is None:
            try:
                frame = self.channel.seal(record)
            except OnwardError as error:
                failed(LinkDown(short_text(self.node), str(error)))
                self._sealed(self, str(error))
                return None
            self.put(frame, failed)
            self._sealed(self, "")
        else:
            self.waiting.append(Waiting(record, True, failed, expiry))
        if len(self.waiting) < MAX_WAITING:
            return None
        room: asyncio.Future[None] = self._worker.node.loop.create_future()
        self._room.append(room)
        return room

    def put(self, frame: bytes, failed: Failed) -> None:
        """Send a frame at once, or behind those that wait."""
        if self._pump is None:
            try:
                self._worker.send(self._route, frame)
            except OnwardError as error:
                error.lost = None
            else:
                return
            self._pump = self._worker.node.loop.create_task(self._run())
        self.waiting.append(Waiting(frame, False, failed))

    def put_handshake(self, message: bytes, failed: Failed) -> bool:
        """Send a message of a handshake at once, or behind those that wait, and before records.

        Returns:
            Whether it is sent or waits: not if `MAX_HANDSHAKE_MESSAGES` wait.
        """
        waiting = sum(not each.is_record for each in self.waiting)
        if waiting >= MAX_HANDSHAKE_MESSAGES:
            return False
        if self._pump is None:
            self.put(message, failed)
            return True
        # The first of all is on its way to the link, and is sealed if it is a record.
        first = bool(self.waiting) and self.waiting[0].is_record
        self.waiting.insert(waiting + first, Waiting(message, False, failed))
        return True

    async def _run(self) -> None:
        """Send what waits, one after the other, with room for each."""
        while self.waiting:
            data, is_record, failed, expiry = self.waiting[0]
            if expiry is not None and self._is_late(expiry):
                self._go_on()
                failed(Expired(short_text(self.node), "it has waited for room at the link"))
                continue
            if is_record:
                try:
                    data = self.channel.seal(data)
                except OnwardError as error:
                    self._sealed(self, str(error))  # the session is closed, with all that waits
                    return
                self._sealed(self, "")
            try:
                await self._send_wait(data)
            except OnwardError as error:
                error.lost = None
                self._go_on()
                failed(error)
            else:
                self._go_on()
        self._pump = None

    def _go_on(self) -> None:
        """Leave the first of those that wait behind."""
        self.waiting.popleft()
        if self._room and len(self.waiting) < MAX_WAITING:
            self._make_room()

    async def _send_wait(self, frame: bytes) -> None:
        """Send a frame, with room for it; `_line` says meanwhile whether the link has taken it."""
        try:
            self._worker.send(self._route, frame)
        except MailboxFull as full:
            room: Room | None = full.room
            if room is None or not room.may_wait:
                raise
            full.lost = None
        else:
            return
        line = self._line = join(room)
        if line is not None:
            try:
                await line.future
            except asyncio.CancelledError:
                line.leave()
                raise
            finally:
                self._line = None
        room.intake.refused -= 1  # it has waited instead

    def _make_room(self) -> None:
        for each in self._room:
            if not each.done():
                each.set_result(None)
        self._room.clear()

    def open(self, frame: bytes) -> bytes | LinkFailure:
        """Return the record of a frame, or why it has none."""
        if self._before is not None:
            record = self._before.open(frame)
            if not isinstance(record, LinkFailure):
                return record
            self._before = None  # what comes from now on is of the channel after it
        return self.channel.open(frame)

    def close(self) -> None:
        """End it: what waits was certainly not handed over."""
        if self._line is not None and not self._line.messages:
            self.waiting.popleft()  # the link has taken it, and the pump has not had its turn
        if self._pump is not None:
            self._pump.cancel()
            self._pump = None
        waiting = list(self.waiting)
        self.waiting.clear()
        self._make_room()
        error = LinkDown(short_text(self.node), "the link to the node has ended")
        for each in waiting:
            each.failed(error)
