"""Mailboxes of requests: one for each, with an address nobody can guess.

An answer finds its request by the address it comes to, so that requests need no numbers.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Final

from ..protocol import (
    LOCAL,
    Address,
    Context,
    MailboxFull,
    Message,
    NodeStopped,
    OnwardError,
    RequestTimeout,
    Route,
    format_route,
)
from ._cell import RoomLater, Target
from ._errors import TooManyRequests

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["RandomAddresses", "Reply", "Requests"]

_BYTES: Final = 16
_CHUNK: Final = 64


class RandomAddresses:
    """Local addresses of 32 hexadecimal digits from the system's random source.

    Asking the system for 64 at once costs a sixtieth each. Safe from any thread.
    """

    __slots__ = ("_ready",)

    def __init__(self) -> None:
        self._ready: deque[Address] = deque()

    def take(self) -> Address:
        """Return an address that has never been used."""
        try:
            return self._ready.popleft()
        except IndexError:
            digits = os.urandom(_BYTES * _CHUNK).hex().encode("ascii")
            made = [
                Address(LOCAL, digits[at : at + 2 * _BYTES])
                for at in range(0, len(digits), 2 * _BYTES)
            ]
            address = made.pop()
            self._ready.extend(made)
            return address


class Reply(Target):
    """The mailbox of one request: it takes one answer."""

    __slots__ = ("_node", "future")

    def __init__(self, node: Node, future: asyncio.Future[Message]) -> None:
        self.queue = None
        self.limit = 0
        self.scheduled = False
        self.future = future
        self._node = node

    def put(self, message: Message) -> None:
        """Take the answer; a second one becomes a dead letter."""
        if self._node.on_loop_thread():
            self._settle(message)
        else:
            self._node.call_on_loop(lambda: self._settle(message))

    def _settle(self, message: Message) -> None:
        if self.future.done():
            self._node.dead_letter(message, LATE_ANSWER)
        else:
            self.future.set_result(message)


LATE_ANSWER: Final = "late answer"
"""The reason of the dead letter that an answer nobody waits for any more becomes."""


class Requests:
    """The requests of a node that wait for an answer."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: dict[Address, Reply] = {}
        # Given up and not answered; as a dict, for its order.
        self._given_up: dict[Address, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, address: Address) -> bool:
        return address in self._waiting

    def is_late(self, address: Address) -> bool:
        """Tell whether the address is that of a request given up not long ago."""
        return address in self._given_up

    async def request(
        self,
        onward: Route,
        payload: bytes,
        timeout: float,
        source: Address | None,
        context: Context | None,
    ) -> Message:
        """Send a message and wait for what comes back. See `Node.request`."""
        node, waiting = self._node, self._waiting
        if len(waiting) >= node.limits.requests:
            raise TooManyRequests(format_route(onward), f"{node.limits.requests} wait")
        loop = node.loop
        future: asyncio.Future[Message] = loop.create_future()
        address = node.random_address()
        waiting[address] = node.table[address] = Reply(node, future)
        timer = loop.call_later(timeout, _expire, future, onward, timeout)
        try:
            message = Message(onward, (address,), payload, source, context)
            try:
                node.route(message)
            except RoomLater as full:
                await _put_in_time(full, future)
            return await future
        finally:
            timer.cancel()
            del waiting[address]
            node.table.pop(address, None)
            if not future.done() or future.cancelled() or future.exception() is not None:
                self._give_up(address)

    def fail(self, address: Address, error: OnwardError) -> bool:
        """Raise an error where a request waits for its answer; say whether one does."""
        reply = self._waiting.get(address)
        if reply is None or reply.future.done():
            return False
        reply.future.set_exception(error)
        return True

    def fail_all(self, name: str) -> None:
        """Fail every request that still waits: the node stops."""
        for reply in list(self._waiting.values()):
            if not reply.future.done():
                reply.future.set_exception(NodeStopped(name, "while an answer was due"))

    def _give_up(self, address: Address) -> None:
        given_up = self._given_up
        given_up[address] = None
        if len(given_up) > self._node.limits.late_answers:
            del given_up[next(iter(given_up))]


async def _put_in_time(full: RoomLater, future: asyncio.Future[Message]) -> None:
    """Wait for room as long as the request may last.

    Raises:
        MailboxFull: There was none in time. Unlike a timeout after the message was handed
            over, this leaves no doubt.
    """
    while True:
        room = asyncio.ensure_future(full.cell.room())
        try:
            await asyncio.wait((room, future), return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                raise MailboxFull(full.cell.address, "no room in time")
            room.result()
        finally:
            room.cancel()
        try:
            full.cell.put(full.message)
        except RoomLater as again:
            full = again
        else:
            return


def _expire(future: asyncio.Future[Message], onward: Route, timeout: float) -> None:
    if not future.done():
        future.set_exception(RequestTimeout(format_route(onward), f"{timeout:g} s"))
