"""The link between one identity of a node and one of another node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ...actors.identity import Router
from ...protocol import IDENTITY, Address, MailboxFull, Message, NotExposed
from ...protocol.identity import Identity, short_text
from ..node._link import Link

__all__ = ["Correspondent"]


class Correspondent(Link):
    """The link between one identity of this node and one elsewhere.

    It is a transport that has the router for a connection: exposure, return routes, limits on what
    waits, error replies and the event log are those of any link. It lasts over the connections of
    the nodes between, and ends when another one needs its place.

    Args:
        own: The identity at this end: the node, or an engine of it.
        identity: The identity at the other end.
        router: The router of the node.
        expose: The addresses of the node that the other end may send to. Engines are as well.
        passes: Whether a message of the other end, with so many bytes, may be sent on to another
            identity from here; by default none.
        passes_back: Whether an answer of the other end, with so many bytes, may go on to the
            identity that has asked; by default any.
    """

    __slots__ = (
        "_greatest",
        "_is_copy",
        "_passes",
        "_passes_back",
        "_refused_copies",
        "_router",
        "_size",
        "identity",
        "own",
    )

    scheme = "identity"

    def __init__(
        self,
        own: Identity,
        identity: Identity,
        router: Router,
        expose: frozenset[Address],
        passes: Callable[[Identity, Address, int], bool] = lambda _by, _to, _size: False,
        passes_back: Callable[[Identity, Identity, int], bool] = lambda _by, _to, _size: True,
    ) -> None:
        super().__init__(expose=expose)
        self.own: Final = own
        self.identity: Final = identity
        self._router: Final = router
        self._passes: Final = passes
        self._passes_back: Final = passes_back
        # Of the payload of the message that is coming; else the greatest that has come, as what a
        # worker here passes on later is one of those.
        self._size = 0
        self._greatest = 0
        self._is_copy = False
        self._refused_copies = 0

    @property
    def ends(self) -> tuple[str, str]:
        """The names of this end and of the other one."""
        return short_text(self.own), short_text(self.identity)

    def _is_exposed(self, address: Address) -> bool:
        if self._router.engines.at(address) is not None or super()._is_exposed(address):
            return True
        return address[0] == IDENTITY and self._passes(self.identity, address, self._size)

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Give a message to the router, which signs it."""
        return self._router.outgoing.carry(self.own, self.identity, message, self.undelivered)

    def receive(self, message: Message) -> None:
        """Deliver a message that the router has verified, as a transport receives it."""
        self._size = size = len(message[2])
        self._greatest = max(self._greatest, size)
        onward = message[0]
        to = self.node.parts.table.worker_at(onward[0]) if onward else None
        if isinstance(to, Correspondent) and not self._passes_back(
            self.identity, to.identity, size
        ):
            self.node.lose(message, NotExposed(onward[0]))
            return
        try:
            self.arrive((message,))
        finally:
            self._size = self._greatest

    def receive_copy(self, message: Message) -> bool:
        """Deliver a copy of a publication; return false if its mailbox has no room."""
        before = self._refused_copies
        self._is_copy = True
        try:
            self.receive(message)
        finally:
            self._is_copy = False
        return self._refused_copies == before

    def _wait_or_lose(self, message: Message, full: MailboxFull) -> None:
        if self._is_copy:
            # It would wait without a limit, as the node that publishes is not held up.
            self._refused_copies += 1
            self.node.dead_letter(message, full)
        else:
            super()._wait_or_lose(message, full)

    def on_stop(self) -> Awaitable[None] | None:
        """Forget what is resolved to this link: another one takes its place."""
        self._router.links.forget(self.identity)
        return super().on_stop()

    def way_lost(self, detail: str) -> None:
        """End the requests that were sent to the other end, as the way to it is lost."""
        self.lost(detail)
