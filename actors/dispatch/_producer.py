"""Producers of a name: a window of messages that are not settled, and the outcome of each."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from ...protocol import Message
from ...protocol.dispatch import MODIFIED, RELEASED, Outcome, ProducerWindows
from ...protocol.options import check_timeout
from .._errors import LimitReached
from ..routing._given import check_payload
from ._arrival import Arrival, ProducerWay
from ._errors import ProducerClosed

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["Producer"]

_Ended = tuple[Outcome, Message | None]


class Producer:
    """A producer of a name.

    Attributes:
        name: The text of the name.
        number: Its number at this node.
        state: The state of the name.
        closed: Whether it has been closed.
    """

    def __init__(self, core: DispatchCore, state: NameState, number: int) -> None:
        self.name: Final = state.name.text
        self.number: Final = number
        self.state: Final = state
        self.closed = False
        self._core: Final = core
        self._sends = 0
        self._open: Final[dict[int, tuple[asyncio.Future[_Ended] | None, ProducerWindows]]] = {}
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()

    @property
    def credit(self) -> int:
        """The messages that it may send at once."""
        return 0 if self.closed else self.state.windows.credit(self.number)

    @property
    def unsettled(self) -> int:
        """The messages that it has sent and that have no outcome yet."""
        return len(self._open)

    async def send(self, payload: bytes, *, timeout: float | None = None) -> Outcome:
        """Send a message, once there is credit, and wait for its outcome.

        Args:
            payload: The payload.
            timeout: Time after which it is not worth handling any more, in seconds; `None` for no
                limit. Its outcome is then released, or modified if a consumer has it.

        Raises:
            LimitReached: `DispatchOptions.max_waiting` sends wait for credit.
            ProducerClosed: It was closed before there was an outcome.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit of the node.
        """
        return (await self.exchange(payload, timeout=timeout))[0]

    async def exchange(self, payload: bytes, *, timeout: float | None = None) -> _Ended:
        """Send a message as `send`, and return its outcome and the reply of its consumer."""
        deadline = self._deadline(timeout)
        check_payload(payload, self._core.node.limits)
        if not await self._has_credit(deadline):
            return RELEASED, None
        future: asyncio.Future[_Ended] = self._core.node.loop.create_future()
        self._enter(payload, future, deadline)
        return await future

    async def send_settled(self, payload: bytes) -> None:
        """Send a pre-settled message, once there is credit: without a consumer it is dropped."""
        check_payload(payload, self._core.node.limits)
        await self._has_credit(None)
        self._enter(payload, None, None)

    def close(self) -> None:
        """Detach it. Messages that it has sent go on; their sends raise `ProducerClosed`."""
        if self.closed:
            return
        self._core.remove_producer(self)
        self.closed = True
        for ended, _ in self._open.values():
            if ended is not None and not ended.done():
                ended.set_exception(ProducerClosed(self.name))
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ProducerClosed(self.name))
        self._open.clear()
        self._waiting.clear()

    # --- for the dispatcher -----------------------------------------------------------------

    def ended(self, way: ProducerWay, outcome: Outcome | None, answer: Message | None) -> None:
        """Receive the outcome of a message."""
        found = self._open.pop(way.send, None)
        if found is None:
            return
        future, windows = found
        changes = windows.settled(self.number)
        if windows is self.state.windows:
            self._core.credit_changes(changes)
        if future is not None and not future.done():
            future.set_result((outcome or MODIFIED, answer))

    def woken(self) -> None:
        """Receive word that there may be credit."""
        left = self.credit
        for future in self._waiting:
            if left <= 0:
                return
            if not future.done():
                future.set_result(None)
                left -= 1

    # --- sending ----------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        check_timeout(timeout)
        return self._core.now() + timeout

    async def _has_credit(self, deadline: float | None) -> bool:
        """Wait for credit; return whether it came in time."""
        if self.closed:
            raise ProducerClosed(self.name)
        if self.credit and not self._waiting:
            return True
        most = self._core.options.max_waiting
        if len(self._waiting) >= most:
            raise LimitReached("sends that wait for credit", most)
        future: asyncio.Future[None] = self._core.node.loop.create_future()
        self._waiting.append(future)
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - self._core.now())
                try:
                    await asyncio.wait_for(asyncio.shield(future), left)
                except TimeoutError:
                    return False
                if self.credit:
                    return True
                # Another send was faster: it stays in its place.
                again: asyncio.Future[None] = self._core.node.loop.create_future()
                self._waiting[self._waiting.index(future)] = again
                future = again
        finally:
            if future in self._waiting:
                self._waiting.remove(future)

    def _enter(
        self, payload: bytes, future: asyncio.Future[_Ended] | None, deadline: float | None
    ) -> None:
        settled = future is None
        windows = self.state.windows
        changes = windows.sent(self.number, settled=settled)
        if changes is None:
            raise AssertionError("a send without credit")
        self._core.credit_changes(changes)
        way = None
        if not settled:
            self._sends += 1
            way = ProducerWay(self.number, self._sends)
            self._open[self._sends] = future, windows
        self.state.bind(
            Arrival(
                Message((), (), payload, None, None),
                settled,
                self._core.identity(),
                self.number,
                way,
                until=deadline,
                deadline=deadline,
            )
        )
