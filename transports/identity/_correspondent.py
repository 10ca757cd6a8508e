"""The link between one identity of a node and one of another node."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ...actors.identity import Relays, Router
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
        relays: The relays of the node, for what goes on to other identities from here.
    """

    __slots__ = (
        "_is_copy",
        "_is_of_domain",
        "_refused_copies",
        "_relay",
        "_router",
        "_sender",
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
        relays: Relays,
    ) -> None:
        super().__init__(expose=expose)
        self.own: Final = own
        self.identity: Final = identity
        self._router: Final = router
        self._relay: Final = relays.service.clear
        self._sender: Address | None = None  # of the message that is given to the router
        self._is_copy = False
        self._is_of_domain = False
        self._refused_copies = 0

    @property
    def ends(self) -> tuple[str, str]:
        """The names of this end and of the other one."""
        return short_text(self.own), short_text(self.identity)

    def _is_exposed(self, address: Address) -> bool:
        if self._router.engines.at(address) is not None or super()._is_exposed(address):
            return True
        return address[0] == IDENTITY and self._relay.passes(self.identity, address)

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Send a message to the other end, as any link; note which worker has sent it."""
        self._sender = message[3]
        return super().handle_message(message)

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Give a message to the router, which signs it; what came from elsewhere is relayed."""
        own, to = self.own, self.identity
        context, by = message[4], self._correspondent_at(self._sender)
        # An answer of a domain has no node to rate or to charge, and comes once.
        is_admitted = by is not None and not by.answers_for_domain()
        if by is None and context is not None and context.outside is not None:
            by = self._correspondent_at(self.node.parts.table.link_on(message[1]))
        if by is None:
            return self._router.outgoing.carry(own, to, message, self.undelivered)
        return self._relay.carry(
            by.identity, own, to, message, self.undelivered, is_admitted=is_admitted
        )

    def _correspondent_at(self, address: Address | None) -> Correspondent | None:
        worker = None if address is None else self.node.parts.table.worker_at(address)
        return worker if isinstance(worker, Correspondent) else None

    def receive(self, message: Message) -> None:
        """Deliver a message that the router has verified, as a transport receives it."""
        onward = message[0]
        to = self._correspondent_at(onward[0]) if onward else None
        if to is not None and not self._relay.passes_back(self.identity, to.identity):
            self.node.lose(message, NotExposed(onward[0]))
            return
        self.arrive((message,))

    def receive_answer(self, message: Message) -> None:
        """Deliver the one answer of a domain, also to an identity elsewhere that has asked."""
        self._is_of_domain = True
        self.arrive((message,))

    def answers_for_domain(self) -> bool:
        """Whether the other end is a domain, and neither a node nor an engine at a known one."""
        return self._is_of_domain and self._router.home(self.identity) is None

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
