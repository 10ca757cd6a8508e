"""What producers have in common: sends that wait for credit, and for their outcomes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import AddressLike, Message
from ...protocol.dispatch import MODIFIED, Outcome, Share
from ...protocol.options import check_timeout
from .._errors import LimitReached
from ..routing._given import check_payload
from ._arrival import Arrival, ProducerPath
from ._errors import ProducerClosed

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["Ended", "Sender"]

Ended = tuple[Outcome, Message | None]
"""The outcome of a message, and the reply of its consumer."""


class Sender(ABC):
    """A producer, without the names that it sends to.

    Args:
        core: The dispatcher.
        number: Its number at this node.
        name: The text of its name, for errors.
        share: What its source has at this node; `None`: it is the program itself.

    Attributes:
        name: The text of its name, or a word for it.
        number: Its number at this node.
        closed: Whether it has been closed.
        share: What its source has at this node.
    """

    def __init__(
        self, core: DispatchCore, number: int, name: str, share: Share | None = None
    ) -> None:
        self.name: Final = name
        self.number: Final = number
        self.closed = False
        self._reason = ""
        self.share: Final = share
        self._core: Final = core
        self._sends = 0
        self._open: Final[dict[int, asyncio.Future[Ended] | None]] = {}
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._drains: Final[list[asyncio.Future[None]]] = []
        self._unwatch: Callable[[], None] | None = None

    @property
    @abstractmethod
    def credit(self) -> int:
        """The messages that it may send at once."""

    @property
    def state(self) -> NameState | None:
        """The state of its name, which has its credit; `None` of an anonymous producer."""
        return None

    @property
    def unsettled(self) -> int:
        """The messages that it has sent and that have no outcome yet."""
        return len(self._open)

    async def drain(self, *, timeout: float | None = None) -> bool:
        """Wait until each message that it was given has been sent and has its outcome.

        Args:
            timeout: Most time to wait, in seconds; `None` for no limit.

        Returns:
            Whether nothing is left.

        Raises:
            ProducerClosed: It was closed before.
        """
        deadline = self._deadline(timeout)
        while self._open or self._waiting:
            future: asyncio.Future[None] = self._core.node.loop.create_future()
            self._drains.append(future)
            try:
                left = None if deadline is None else max(0.0, deadline - self._core.now())
                async with asyncio.timeout(left):
                    await future
            except TimeoutError:
                return False
            finally:
                if future in self._drains:
                    self._drains.remove(future)
        return True

    def close(self) -> None:
        """Detach it. Messages that it has sent go on; their sends raise `ProducerClosed`."""
        self.detach("")

    # --- for the dispatcher -----------------------------------------------------------------

    def detach(self, reason: str) -> None:
        """Detach it for a reason, which its sends raise."""
        if self.closed:
            return
        self._reason = reason
        if self._unwatch is not None:
            self._unwatch()
        self._detach()
        self.closed = True
        futures = [*self._open.values(), *self._waiting, *self._drains]
        for future in futures:
            if future is not None and not future.done():
                future.set_exception(self._error())
        self._open.clear()
        self._waiting.clear()

    def _error(self) -> ProducerClosed:
        return ProducerClosed(self.name, self._reason)

    def stop(self) -> None:
        """Close it, since the dispatcher stops."""
        self.close()

    def end_with(self, owner: AddressLike) -> None:
        """Close it once a worker has stopped.

        Raises:
            UnknownAddress: There is no such worker.
        """
        self._unwatch = self._core.node.watch(owner, self.close)

    def ended(self, path: ProducerPath, outcome: Outcome | None, answer: Message | None) -> None:
        """Receive the outcome of a message."""
        if path.send not in self._open:
            return
        future = self._open.pop(path.send)
        self._settled(path.send)
        if future is not None and not future.done():
            future.set_result((outcome or MODIFIED, answer))
        self._look_at_drains()

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

    @abstractmethod
    def _detach(self) -> None:
        """Remove it from the dispatcher."""

    @abstractmethod
    def _settled(self, send: int) -> None:
        """Receive word that a message has its outcome."""

    def _look_at_drains(self) -> None:
        if self._open or self._waiting:
            return
        for future in self._drains:
            if not future.done():
                future.set_result(None)

    def _check(self, payload: bytes, timeout: float | None) -> float | None:
        """Check a message; return its deadline."""
        check_payload(payload, self._core.node.limits)
        return self._deadline(timeout)

    def _deadline(self, timeout: float | None) -> float | None:
        if timeout is None:
            return None
        check_timeout(timeout)
        return self._core.now() + timeout

    async def _has_credit(self, deadline: float | None) -> bool:
        """Wait for credit; return whether it came in time."""
        if self.closed:
            raise self._error()
        if self.credit and not self._waiting:
            return True
        most = self._core.options.max_waiting
        if len(self._waiting) >= most:
            raise LimitReached("sends that wait for credit", most)
        future: asyncio.Future[None] = self._core.node.loop.create_future()
        self._waiting.append(future)
        unused = True
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - self._core.now())
                try:
                    async with asyncio.timeout(left):
                        await asyncio.shield(future)
                except TimeoutError:
                    return False
                if self.closed:
                    # It was woken and then closed, in the same turn.
                    raise self._error()
                if self.credit:
                    unused = False
                    return True
                # Another send was faster: it stays in its place.
                again: asyncio.Future[None] = self._core.node.loop.create_future()
                self._waiting[self._waiting.index(future)] = again
                future = again
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
            if unused and future.done() and not self.closed:
                # It was woken and given up in the same turn: the credit is another's.
                self.woken()
            self._core.schedule.soon(self._look_at_drains)

    def _path(self, future: asyncio.Future[Ended] | None) -> ProducerPath | None:
        """Return the path back of a message; `None` if it is pre-settled."""
        if future is None:
            return None
        self._sends += 1
        self._open[self._sends] = future
        return ProducerPath(self.number, self._sends)

    def _arrival(
        self, payload: bytes, path: ProducerPath | None, deadline: float | None
    ) -> Arrival:
        return Arrival(
            Message((), (), payload, None, None),
            path is None,
            self._core.identity(),
            self.number,
            path,
            until=deadline,
            deadline=deadline,
            share=self.share,
        )
