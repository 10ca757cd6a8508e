"""The `memory` transport: links without sockets between nodes of one process.

It keeps the rules of `tcp`, exposure and back-pressure included, and connects nodes on different
loops. For tests, a link can be cut, frozen and half-closed.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

from ...protocol import Address, Context, LinkDown, Message
from .._base import Transport
from ..streams._listening import Listeners, ListeningWorker, WorkerListener
from ._link import Link

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["MemoryLink", "MemoryListener", "MemoryTransport"]

T = TypeVar("T")

WINDOW: Final = 1000
"""The number of messages in transit at which a link stops handling its mailbox."""

_listening: Final[dict[str, MemoryListenerWorker]] = {}
"""The listeners of this process by name. The methods used on it are atomic."""


class MemoryLink(Link):
    """One end of a connection between two nodes of this process.

    Args:
        expose: The addresses that the other end may send to.
    """

    scheme = "memory"

    def __init__(self, *, expose: frozenset[Address]) -> None:
        super().__init__(expose=expose)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._peer: MemoryLink | None = None
        self._way: deque[Message] = deque()  # in transit; the other end empties it
        self._pull_due = False
        self._frozen = False
        self._ended = False  # this end sends nothing more
        self._held = False
        self._room: asyncio.Future[None] | None = None

    def on_start(self) -> None:
        """Store the node's loop."""
        self._loop = self.node.loop

    def on_stop(self) -> None:
        """Close this end, and the other one once it has received what is in transit."""
        self.half_close()
        super().on_stop()

    def join(self, peer: MemoryLink) -> None:
        """Connect this end to its other end. Called once at each end."""
        self._peer = peer

    @property
    def ends(self) -> tuple[str, str]:
        """The names of this end and the other, each with its node and address."""
        peer = self._peer
        return _end_of(self), "" if peer is None else _end_of(peer)

    # --- faults ---------------------------------------------------------------------------

    def freeze(self) -> None:
        """Hold back the messages that this end sends, until `thaw`."""
        self._frozen = True

    def thaw(self) -> None:
        """Release the messages that `freeze` held back, in order."""
        self._frozen = False
        self._have_pulled()

    def cut(self) -> None:
        """Break the connection; messages in transit in either direction are lost."""
        self._way.clear()
        self._ended = True
        if self._peer is not None:
            self._peer._call(self._peer._was_cut)
        self._was_cut()

    def half_close(self) -> None:
        """Stop sending. The other end stops once it has received what was sent."""
        self._ended = True
        self._have_pulled()

    # --- transit --------------------------------------------------------------------------

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Put a message in transit; return an awaitable while too many are."""
        if self._ended:
            self.undelivered(message, LinkDown(self.address, "the link was closed"))
            return None
        onward, back, payload, _, context = message
        trace = None if context is None else context.trace
        kept = None if trace is None else Context(trace=trace)
        self._way.append(Message(onward, back, payload, None, kept))
        self._have_pulled()
        return self._until_room() if len(self._way) >= WINDOW else None

    async def _until_room(self) -> None:
        self._room = self.node.loop.create_future()
        await self._room

    def _have_pulled(self) -> None:
        """Schedule the other end's `_pull`, unless it is scheduled already."""
        # The flag is a hint that needs no lock. It is cleared before the queue is emptied, so a
        # message that is appended while the flag is set is taken too.
        if self._peer is not None and not self._pull_due and not self._frozen:
            self._pull_due = True
            self._peer._call(self._peer._pull)

    def _pull(self) -> None:
        peer = self._peer
        if peer is None or self._held:
            return
        peer._pull_due = False
        if peer._frozen:
            return
        for _ in range(WINDOW):  # bounded, so that other callbacks of the loop run
            if not peer._way or self._held:
                break
            # One by one: when a mailbox is full, the rest stays in transit.
            self.arrive((peer._way.popleft(),))
        if peer._way and not self._held:
            peer._have_pulled()
        if len(peer._way) < WINDOW // 2:
            peer._call(peer._make_room)
        if peer._ended and not peer._way:
            self._was_cut()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _was_cut(self) -> None:
        self._ended = True
        self._make_room()
        self.lost("the connection was cut")
        if self.node.has(self.address):
            self.finish()

    def hold(self) -> None:
        """Leave the other end's messages in transit."""
        self._held = True

    def release(self) -> None:
        """Receive the other end's messages again."""
        self._held = False
        self._pull()

    def _call(self, action: Any) -> None:
        """Schedule a call on this end's loop, from either loop."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if loop is running:
            loop.call_soon(action)
        else:
            loop.call_soon_threadsafe(action)


class MemoryListenerWorker(ListeningWorker):
    """The worker that owns a name; its children are the links it has accepted."""

    def __init__(
        self, name: str, expose: frozenset[Address], on_closed: Callable[[Address], object]
    ) -> None:
        super().__init__(on_closed)
        self.uri = f"memory://{name}"
        self.name = name
        self._expose = expose

    def on_start(self) -> None:
        """Claim the name.

        Raises:
            OSError: The name is in use.
        """
        if _listening.setdefault(self.name, self) is not self:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), self.name)

    def on_stop(self) -> None:
        """Release the name."""
        if _listening.get(self.name) is self:
            del _listening[self.name]
        self._on_closed(self.address)

    async def accept(self, peer: MemoryLink) -> MemoryLink:
        """Make and return the accepting end of a link. Called on this node's loop."""
        link = MemoryLink(expose=self._expose)
        link.join(peer)
        await self.start_child(lambda: link)
        return link


class MemoryListener(WorkerListener[MemoryListenerWorker]):
    """A name that links can connect to: a `Listener`."""


class MemoryTransport(Transport):
    """A transport within one process: `node.listen("memory://b")`, `node.connect("memory://b")`."""

    scheme: ClassVar[str] = "memory"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._listeners = Listeners(node, MemoryListener)
        self._links: list[MemoryLink] = []

    async def listen(
        self, uri: str, *, expose: frozenset[Address] = frozenset(), **options: Any
    ) -> MemoryListener:
        """Accept connections to a name.

        Raises:
            OSError: The name is in use in this process.
            NodeStopped: The node stopped meanwhile.
            ValueError: The URI is not `memory://name`.
            TypeError: An option is given; this transport has none.
        """
        name = _name(uri, options)
        return await self._listeners.start(
            MemoryListenerWorker(name, expose, self._listeners.forget)
        )

    async def connect(
        self, uri: str, *, expose: frozenset[Address] = frozenset(), **options: Any
    ) -> Address:
        """Connect to a name.

        Raises:
            LinkDown: There is no listener of that name.
            ValueError: The URI is not `memory://name`.
            TypeError: An option is given; this transport has none.
        """
        listener = _listening.get(_name(uri, options))
        if listener is None:
            raise LinkDown(uri, "there is no listener")
        link = MemoryLink(expose=expose)
        address = await self.node.start(lambda: link)
        peer = await _on_loop(listener.node.loop, listener.accept(link))
        link.join(peer)
        self._links = [each for each in self._links if self.node.has(each.address)]
        self._links.append(link)
        return address

    def link(self, address: Address) -> MemoryLink:
        """Return the link that `connect` returned the address of, to inject faults.

        Raises:
            LookupError: There is no such link.
        """
        for link in self._links:
            if link.address == address:
                return link
        raise LookupError(address)

    async def stop(self) -> None:
        """Close every listener and link."""
        await self._listeners.close()
        for link in self._links:
            if self.node.has(link.address):
                await self.node.stop_worker(link.address)


def _end_of(link: MemoryLink) -> str:
    return f"{link.node.name}/{link.address}"


def _name(uri: str, options: dict[str, Any]) -> str:
    if options:
        raise TypeError(f"no such option: {', '.join(sorted(options))}")
    parts = urlsplit(uri)
    if parts.scheme != "memory" or not parts.netloc or parts.path or parts.query:
        raise ValueError(f"{uri!r} is not memory://name")
    return parts.netloc


async def _on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    if loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
