"""Peer links in memory, with delays, cuts and stalls, for tests on the virtual clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from onward.actors.broker import Handlers, Interaction, Request
from onward.actors.cluster import ElementReceiver, PeerConnection, PeerHandlers, PeerRefused
from onward.protocol import Address, LinkDown, LinkLost, OnwardError
from onward.protocol.broker import BrokerInfo
from onward.protocol.cluster import LinkRole

LIFETIME = 5.0
"""The seconds of silence after which a link is lost."""


class PeerNetwork:
    """The brokers that listen, by URI, and the links between them.

    Attributes:
        delay: The seconds that everything takes from one end of a link to the other.
        delays: The same for links of a dialler, by its URI, where it differs.
        unreachable: The pairs (dialler's URI, dialled URI) between which nothing goes.
        links: The links that are open, each by the end of its dialler.
        dials: The URIs that were dialled, in order.
    """

    def __init__(self, delay: float = 0.001) -> None:
        self.delay = delay
        self.delays: dict[str, float] = {}
        self.unreachable: set[tuple[str, str]] = set()
        self.links: list[MemoryLink] = []
        self.dials: list[tuple[str, str]] = []
        self._listeners: dict[str, PeerHandlers] = {}
        self._numbers = count(1)

    def listen(self, uri: str, handlers: PeerHandlers) -> None:
        """Have a broker listen at a URI."""
        self._listeners[uri] = handlers

    def withdraw(self, uri: str) -> None:
        """Have nothing listen at a URI any more, as when a broker is killed; its links end."""
        self._listeners.pop(uri, None)
        for link in tuple(self.links):
            if uri in link.uris:
                link.cut("the connection was reset")

    def connect_from(self, own: str) -> Callable[[str, PeerHandlers], Awaitable[PeerConnection]]:
        """Return the function by which the broker at a URI dials."""

        async def connect(uri: str, handlers: PeerHandlers) -> PeerConnection:
            self.dials.append((own, uri))
            await asyncio.sleep(self.delays.get(own, self.delay))
            if (own, uri) in self.unreachable:
                await asyncio.sleep(60)  # a firewall that drops
            listener = self._listeners.get(uri)
            if listener is None:
                raise LinkDown(uri, "refused")
            # A frame carries what was sent, and not what the sender has by now.
            setup = handlers.info
            listener.greet(setup)
            link = MemoryLink(self, next(self._numbers), (own, uri), handlers, listener)
            link.far.info = setup
            link.info = listener.info
            answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def answer() -> None:
                try:
                    link.take()
                except PeerRefused as error:
                    link.close(error.reason, error.reason)
                    answered.set_exception(error)
                else:
                    answered.set_result(None)

            link.far.post(answer)
            try:
                link.far.take()
            except PeerRefused as error:
                link.far.close(error.reason, error.reason)  # the answer is on its way before
            try:
                await answered
            except asyncio.CancelledError:
                # Given up, as by a broker that stops: its socket is closed.
                link.cut("the connection was reset")
                raise
            return link

        return connect

    def cut(self, one: str, other: str, *, silently: bool = False) -> None:
        """Cut the links between two URIs, and let none come up until `heal`.

        Args:
            one: The URI of a broker.
            other: The URI of another one.
            silently: Whether the ends only notice it after `LIFETIME`.
        """
        self.unreachable |= {(one, other), (other, one)}
        for link in tuple(self.links):
            if set(link.uris) == {one, other}:
                if silently:
                    link.hang()
                else:
                    link.cut("the connection was reset")

    def heal(self) -> None:
        """Let all brokers reach each other again."""
        self.unreachable.clear()

    def between(self, one: str, other: str) -> list[MemoryLink]:
        """Return the open links between two URIs, each by the end of its dialler."""
        return [link for link in self.links if set(link.uris) == {one, other}]


class MemoryLink:
    """One end of a link; it implements `PeerConnection`.

    Attributes:
        info: The BROKER_INFO of the other end.
        open: Whether it is open.
        far: The other end.
        sent: The elements and answers that went to the other end, with the route of their request.
        stalled: Whether credit that is given here stays here, as of a receiver that hangs.
        closed: Reason and text of `close`, if it was called at this end.
    """

    info: BrokerInfo
    java = False
    role = LinkRole.MESH

    def __init__(
        self,
        network: PeerNetwork,
        number: int,
        uris: tuple[str, str],
        handlers: PeerHandlers,
        far: PeerHandlers | MemoryLink,
    ) -> None:
        self.network = network
        self.number = number
        self.uris = uris
        self.own = handlers
        self.open = True
        self.dialled = not isinstance(far, MemoryLink)
        self.address = Address(0, b"link-%d-%s" % (number, b"out" if self.dialled else b"in"))
        self.peer = uris[1 if self.dialled else 0]
        self.round_trip = 2 * network.delay
        self.in_flight = 0
        self.busy = False
        self.sent: list[tuple[str, bytes]] = []
        self.stalled = False
        self.closed: tuple[str, str] | None = None
        self._handlers: Handlers | None = None
        self._taken = False
        self._hangs = False
        self._last = 0.0
        self._posted: deque[Callable[[], object]] = deque()
        self._over: set[Callable[[], None]] = set()
        if isinstance(far, MemoryLink):
            self.far = far
        else:
            network.links.append(self)
            self.far = MemoryLink(network, number, uris, far, self)

    def take(self) -> None:
        """Finish the handshake of this end."""
        self._handlers = self.own.on_connected(self)
        self._taken = True

    def post(self, action: Callable[[], object]) -> None:
        """Have the other end do something after the delay, in order."""
        loop = asyncio.get_running_loop()
        if not self.open or self._hangs:
            return
        # Timers of one moment have no order: the actions have one of their own.
        self._posted.append(action)
        delay = self.network.delays.get(self.uris[0], self.network.delay)
        self._last = max(self._last, loop.time() + delay)
        loop.call_at(self._last, self._deliver)

    def _deliver(self) -> None:
        action = self._posted.popleft()
        if self.far.open and not self.far._hangs:
            action()

    # --- PeerConnection -----------------------------------------------------------------------

    async def request(self, route: str, data: bytes) -> bytes:
        """Send a request/response."""
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        outlet = _Outlet(self, route)
        lost = outlet.lost = self._watch(lambda: outlet.end(LinkLost(self.peer)))
        outlet.answered = answer
        self.sent.append((route, data))
        self.post(lambda: self.far.serve(Interaction.RESPONSE, route, data, outlet))
        try:
            return await answer
        finally:
            self._over.discard(lost)

    def subscribe(
        self, route: str, data: bytes, credit: int, receiver: ElementReceiver
    ) -> MemoryStream:
        """Send a request/stream."""
        if not self.open:
            raise LinkLost(self.peer)
        outlet = _Outlet(self, route, receiver)
        outlet.lost = self._watch(lambda: outlet.end(LinkLost(self.peer)))
        stream = MemoryStream(self, outlet)
        self.sent.append((route, data))
        self.post(lambda: self.far.serve(Interaction.STREAM, route, data, outlet, credit))
        return stream

    def close(self, reason: str, text: str) -> None:
        """Close the link."""
        if self.open:
            self.closed = (reason, text)
            self.post(lambda: self.far.end(text))
            self.end(reason)

    # --- the other end ------------------------------------------------------------------------

    def serve(
        self, interaction: Interaction, route: str, data: bytes, outlet: _Outlet, credit: int = 0
    ) -> None:
        """Serve a request of the other end."""
        if self._handlers is None:
            raise AssertionError("a request before the handshake has ended")
        outlet.server = self
        handling = self._handlers.start(interaction, Request(data, route=route), outlet)
        outlet.handling = handling
        if credit:
            handling.credit(credit)
        self._watch(handling.cancel)

    def _watch(self, action: Callable[[], None]) -> Callable[[], None]:
        self._over.add(action)
        return action

    def end(self, reason: str) -> None:
        """End this end of the link."""
        if not self.open:
            return
        self.open = False
        if self in self.network.links:
            self.network.links.remove(self)
        over, self._over = self._over, set()
        for action in over:
            action()
        if self._taken:
            self.own.on_lost(self, reason)

    def cut(self, reason: str) -> None:
        """Cut the link: both ends notice at once."""
        self.end(reason)
        self.far.end(reason)

    def hang(self) -> None:
        """Deliver nothing more; each end notices after `LIFETIME`."""
        loop = asyncio.get_running_loop()
        for end in (self, self.far):
            end._hangs = True
            loop.call_later(LIFETIME, end.end, "no KEEPALIVE")


class MemoryStream:
    """A requested stream; it implements `ElementStream`."""

    def __init__(self, link: MemoryLink, outlet: _Outlet) -> None:
        self._link = link
        self._outlet = outlet

    def request_n(self, n: int) -> None:
        """Request more elements."""
        if self._link.stalled:
            self._outlet.owed += n
            return
        n, self._outlet.owed = n + self._outlet.owed, 0
        self._link.post(lambda: self._outlet.credit(n))

    def cancel(self) -> None:
        """Cancel the stream."""
        self._outlet.over = True
        self._link.post(self._outlet.cancel)


class _Outlet:
    """The requester's end at the server; what it is given crosses the link."""

    def __init__(
        self, link: MemoryLink, route: str, receiver: ElementReceiver | None = None
    ) -> None:
        self._link = link
        self._route = route
        self._receiver = receiver
        self.answered: asyncio.Future[bytes] | None = None
        self.lost: Callable[[], None] | None = None
        self.server: MemoryLink | None = None
        self.handling: Any = None
        self.over = False
        self.owed = 0

    def _back(self, action: Callable[[], None]) -> None:
        if self.server is None:
            raise AssertionError("an answer before the request")
        self.server.post(action)

    def element(self, data: bytes, metadata: bytes | None, *, complete: bool) -> None:
        """Send an element back."""
        if self.server is not None:
            self.server.sent.append((self._route, data))
        self._back(lambda: self._take(data))
        if complete and self._receiver is not None:
            self.complete()

    def _take(self, data: bytes) -> None:
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(data)
        elif self._receiver is not None and not self.over:
            self._receiver.element(data)

    def complete(self) -> None:
        """End the response."""
        self._back(lambda: self.end(None))

    def error(self, code: int, text: str) -> None:
        """End with an error."""
        self._back(lambda: self.end(LinkDown(f"{code:#x}", text), text))

    def end(self, error: OnwardError | None, text: str = "") -> None:
        """Tell the requester of the end, once."""
        if self.lost is not None:
            self._link._over.discard(self.lost)
        if self.answered is not None and not self.answered.done():
            self.answered.set_exception(error or LinkDown(self._route, "no answer"))
        if self._receiver is not None and not self.over:
            self.over = True
            self._receiver.ended(text or ("" if error is None else str(error)))

    def request_n(self, n: int) -> None:
        """Refuse: there are no channels."""
        raise AssertionError("unexpected request_n")

    def cancel_input(self) -> None:
        """Refuse: there are no channels."""
        raise AssertionError("unexpected cancel_input")

    def credit(self, n: int) -> None:
        """Give the handler credit."""
        if self.handling is not None:
            self.handling.credit(n)

    def cancel(self) -> None:
        """Cancel the handler."""
        if self.handling is not None:
            self.handling.cancel()
