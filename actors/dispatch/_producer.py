"""Producers: a window of messages that are not settled, and the outcome of each.

A `Producer` is attached to one name and has the credit that the name gives. An `AnonymousProducer`
says the name with each message, and has its window at any time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import RELEASED, Outcome, Share
from ...protocol.security import Principal
from ._access import UNAUTHORIZED, may_produce
from ._sender import Ended, Sender

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["AnonymousProducer", "Producer"]


class Producer(Sender):
    """A producer of a name.

    Attributes:
        name: The text of the name.
        number: Its number at this node.
        closed: Whether it has been closed.
    """

    def __init__(
        self, core: DispatchCore, state: NameState, number: int, share: Share | None = None
    ) -> None:
        super().__init__(core, number, state.name.text, share)
        self._state: Final = state

    @property
    def state(self) -> NameState:
        """The state of its name, which has its credit."""
        return self._state

    @property
    def credit(self) -> int:
        """The messages that it may send at once."""
        return 0 if self.closed else self._state.credit_of(self.number)

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

    async def exchange(self, payload: bytes, *, timeout: float | None = None) -> Ended:
        """Send a message as `send`, and return its outcome and the reply of its consumer."""
        deadline = self._check(payload, timeout)
        if not await self._has_credit(deadline):
            return RELEASED, None
        future: asyncio.Future[Ended] = self._core.node.loop.create_future()
        self._enter(payload, future, deadline)
        return await future

    async def send_settled(self, payload: bytes) -> None:
        """Send a pre-settled message, once there is credit: without a consumer it is dropped."""
        self._check(payload, None)
        await self._has_credit(None)
        self._enter(payload, None, None)

    def _enter(
        self, payload: bytes, future: asyncio.Future[Ended] | None, deadline: float | None
    ) -> None:
        arrival = self._arrival(payload, self._path(future), deadline)
        if not self._state.send(self.number, arrival):
            raise AssertionError("a send without credit")

    def _settled(self, send: int) -> None:
        del send  # its name gives the credit back

    def _detach(self) -> None:
        if self._core.attachments.gone(self.number):
            self._state.remove_producer(self.number)
            self._core.names.tidy(self._state)


class AnonymousProducer(Sender):
    """A producer that says the name with each message.

    It has its window at any time: a message to a name without a consumer goes along the chain of
    that name, and its credit comes back with its outcome.

    Args:
        core: The dispatcher.
        number: Its number at this node.
        window: Messages that it has sent and that have no outcome.
        principal: The principal that it sends for; `None` for this program itself.

    Attributes:
        last_sent: When it sent its last message, in seconds.
    """

    def __init__(
        self, core: DispatchCore, number: int, window: int, principal: Principal | None
    ) -> None:
        super().__init__(core, number, "an anonymous producer", core.share_of(principal))
        self._window: Final = window
        self._principal: Final = principal
        self.last_sent = 0.0

    @property
    def credit(self) -> int:
        """The messages that it may send at once."""
        return 0 if self.closed else self._window - len(self._open)

    async def send(self, to: str, payload: bytes, *, timeout: float | None = None) -> Outcome:
        """Send a message to a name, once there is credit, and wait for its outcome.

        Args:
            to: The name.
            payload: The payload.
            timeout: As of `Producer.send`.

        Raises:
            BadName: The name cannot be read.
            LimitReached: `DispatchOptions.max_waiting` sends wait for credit.
            ProducerClosed: It was closed before there was an outcome.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit of the node.
        """
        return (await self.exchange(to, payload, timeout=timeout))[0]

    async def exchange(self, to: str, payload: bytes, *, timeout: float | None = None) -> Ended:
        """Send a message as `send`, and return its outcome and the reply of its consumer."""
        name, deadline = self._core.parse(to), self._check(payload, timeout)
        if not may_produce(self._core.provisioning.semantics_of(name), self._principal):
            self._core.counts["senders without a role of the name"] += 1
            return UNAUTHORIZED, None
        if not await self._has_credit(deadline):
            return RELEASED, None
        future: asyncio.Future[Ended] = self._core.node.loop.create_future()
        path, self.last_sent = self._path(future), self._core.now()
        self._core.bind(name, self._arrival(payload, path, deadline))
        return await future

    async def send_settled(self, to: str, payload: bytes) -> None:
        """Send a pre-settled message to a name: without a consumer, or the role, it is dropped."""
        name = self._core.parse(to)
        self._check(payload, None)
        if not may_produce(self._core.provisioning.semantics_of(name), self._principal):
            self._core.counts["senders without a role of the name"] += 1
            return
        await self._has_credit(None)
        self.last_sent = self._core.now()
        self._core.bind(name, self._arrival(payload, None, None))

    def _settled(self, send: int) -> None:
        del send
        self.woken()

    def _detach(self) -> None:
        self._core.attachments.gone(self.number)
