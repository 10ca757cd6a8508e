"""The frames of circuits on their way to neighbours, and those that wait for a slow link."""

from __future__ import annotations

from asyncio import Future
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import DELIVERY, Address, MailboxFull, Message, OnwardError
from ...protocol.dispatch import CircuitCondition, circuit_address
from ..runtime._room import SenderLine, join
from ..runtime._room_elsewhere import hand_over_later

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink
    from ._circuit_table import CircuitTable
    from ._core import DispatchCore

__all__ = ["CircuitSending", "Far"]


class Far(NamedTuple):
    """A side of a circuit that is at a neighbour.

    Attributes:
        link: The link to it.
        label: The label that the circuit has on that link: `TOKEN_SIZE` random bytes.
    """

    link: str
    label: bytes


class _Frame(NamedTuple):
    """A frame that waits.

    Attributes:
        to: The side to which it goes.
        message: The message with it.
        sender: The end of this node that has sent it, if it is of one.
    """

    to: Far
    message: Message
    sender: CircuitLink | None


class CircuitSending:
    """The sender of frames to neighbours.

    A frame that came over a link waits with that link, which holds back its peer. One of an end of
    this node waits in a queue of the link that it goes over: see `CircuitLink.waiting`.

    Args:
        core: The dispatcher.
        table: The circuits.
    """

    def __init__(self, core: DispatchCore, table: CircuitTable) -> None:
        self._core: Final = core
        self._table: Final = table
        self._queues: Final[dict[str, deque[_Frame]]] = {}
        self._lines: Final[dict[str, SenderLine]] = {}

    def send(self, to: Far, data: bytes, sender: CircuitLink | None, came: Message | None) -> None:
        """Send a frame to a neighbour; a circuit that it cannot be sent of is lost.

        Args:
            to: The side to which it goes.
            data: The frame.
            sender: The end of this node that has sent it, if it is of one.
            came: The message that it came in, if it came over a link.
        """
        core = self._core
        link = core.topology.links.get(to.link)
        if link is None:
            self._table.side_lost(to, CircuitCondition.ROUTE_LOST)
            return
        onward = (link, core.address, Address(DELIVERY, circuit_address(to.label)))
        message = Message(onward, (), data, None, None)
        if came is None and to.link in self._queues:
            self._wait(_Frame(to, message, sender))
            return
        try:
            core.node.parts.router.dispatch(message)
        except MailboxFull as full:
            if came is None:
                self._wait(_Frame(to, message, sender))
            else:
                self._wait_with_link(to, full, came)
        except OnwardError:
            self._table.side_lost(to, CircuitCondition.ROUTE_LOST)

    def _wait_with_link(self, to: Far, full: MailboxFull, came: Message) -> None:
        cell = self._core.node.parts.table.cell_at(self._core.address)
        try:
            if cell is None:
                raise full
            hand_over_later(cell, full, came)
        except OnwardError:
            self._table.side_lost(to, CircuitCondition.TOO_SLOW)

    def forget(self, link: str) -> None:
        """Forget the frames that wait for a link that is lost."""
        queue = self._queues.pop(link, None)
        line = self._lines.pop(link, None)
        if line is not None:
            line.future.cancel()
        while queue:
            _left(queue.popleft())

    def _wait(self, frame: _Frame) -> None:
        sender, size = frame.sender, len(frame.message.payload)
        if sender is not None:
            if sender.waiting + size > self._table.limits.max_waiting:
                self._table.side_lost(frame.to, CircuitCondition.TOO_SLOW)
                return
            sender.waiting += size
        queue = self._queues.get(frame.to.link)
        if queue is not None:
            queue.append(frame)
            return
        self._queues[frame.to.link] = deque([frame])
        self._pump(frame.to.link)

    def _pump(self, link: str) -> None:
        """Give a link the frames that wait, as long as it has room."""
        queue = self._queues[link]
        while queue:
            try:
                self._core.node.parts.router.dispatch(queue[0].message)
            except MailboxFull as full:
                if full.room is not None and full.room.may_wait:
                    line = None
                    try:
                        line = join(full.room)
                    except OnwardError:
                        self._table.side_lost(queue[0].to, CircuitCondition.TOO_SLOW)
                    else:
                        full.room.intake.refused -= 1  # it waits instead
                    if line is not None:
                        self._lines[link] = line
                        line.future.add_done_callback(partial(self._moved, link))
                        return
                else:
                    self._table.side_lost(queue[0].to, CircuitCondition.TOO_SLOW)
            except OnwardError:
                self._table.side_lost(queue[0].to, CircuitCondition.ROUTE_LOST)
            self._leave(queue.popleft())
        del self._queues[link]

    def _moved(self, link: str, future: Future[None]) -> None:
        """Go on after a frame has been taken, or cannot be."""
        line = self._lines.get(link)
        if future.cancelled() or line is None or line.future is not future:
            return
        del self._lines[link]
        frame = self._queues[link].popleft()
        if future.exception() is not None:
            self._table.side_lost(frame.to, CircuitCondition.ROUTE_LOST)
        self._leave(frame)
        self._pump(link)

    def _leave(self, frame: _Frame) -> None:
        sender = _left(frame)
        if sender is not None and not sender.waiting:
            self._table.soon(sender.has_room)
            self._table.run()


def _left(frame: _Frame) -> CircuitLink | None:
    """Count a frame as waiting no more; return its sender."""
    if frame.sender is not None:
        frame.sender.waiting -= len(frame.message.payload)
    return frame.sender
