"""The common part of the ends of circuits of Python programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from ...protocol.dispatch import DetachKind, Reattach
from ._errors import CircuitClosed

if TYPE_CHECKING:
    from ._circuit_link import CircuitLink


class CircuitProgramEnd:
    """The common part of both kinds of ends, a `CircuitLinkEnd`.

    Attributes:
        name: The name.
        link: What it calls.
        properties: What the other end has told; empty before the circuit is there.
        closed: Why there is no circuit any more; `None` as long as there is one, or may be again.
    """

    def __init__(self, link: CircuitLink) -> None:
        self.name: Final = link.name.text
        self.link: Final = link
        self.properties = b""
        self.closed: CircuitClosed | None = None
        self._waits: Final[set[asyncio.Future[None]]] = set()

    async def __aenter__(self) -> Self:
        """Return it."""
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Close the circuit."""
        self.close()

    async def ready_to_use(self) -> None:
        """Wait until the circuit is there; one that is given up before is closed.

        Raises:
            CircuitClosed: It was refused.
        """
        try:
            await self._until(lambda: self.link.attached)
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self, condition: str = "", description: str = "") -> None:
        """Close the circuit for good. What is unsettled is in doubt. Idempotent.

        Args:
            condition: The reason that the other end is told, as a word.
            description: The reason as a text.
        """
        self.link.detach(closed=True, condition=condition, description=description)

    async def _until(self, found: Callable[[], bool]) -> None:
        while True:
            if found():
                return
            if self.closed is not None:
                raise self.closed
            wait = asyncio.get_running_loop().create_future()
            self._waits.add(wait)
            try:
                await wait
            finally:
                self._waits.discard(wait)

    def _wake(self) -> None:
        for wait in self._waits:
            if not wait.done():
                wait.set_result(None)

    def attached(self, properties: bytes) -> None:
        """Record that the circuit is there."""
        self.properties = properties
        self._wake()

    def refused(self, condition: str, description: str) -> None:
        """Record that there is no circuit."""
        self._over(CircuitClosed(self.name, None, condition, description))

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        """Record that there is no circuit any more."""
        if not again:
            self._over(CircuitClosed(self.name, how, condition, description))
        elif self.link.reattach is not Reattach.RESUME:
            self._forget()
        self._wake()

    def ready(self) -> None:
        """Go on sending."""
        self._wake()

    def flow(self, credit: int, drain: bool) -> None:
        """Go on sending: there is credit."""
        del credit, drain
        self._wake()

    def drained(self, credit: int) -> None:
        """Record that the credit is gone."""
        del credit
        self._wake()

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        """Receive nothing: a producer gets no delivery."""

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        """Receive nothing: the deliveries of a consumer have the states that it gives."""

    def unresolved(self, tag: bytes) -> None:
        """Receive nothing: it is the consumer that says what it knows."""

    def _over(self, closed: CircuitClosed) -> None:
        if self.closed is None:
            self.closed = closed
        self._forget()
        self._wake()

    def _forget(self) -> None:
        """Forget the deliveries of a circuit that is gone."""
