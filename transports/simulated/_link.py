"""Links of the simulated network, and the listener that accepts them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...actors import LimitReached
from ...protocol import (
    Address,
    Context,
    LinkDown,
    MailboxFull,
    Message,
    OnwardError,
)
from ..node._link import Link
from ..streams._listening import ListeningWorker
from ._path import NetworkPath

if TYPE_CHECKING:
    from ._faults import Faults
    from ._network import Membership, SimulatedNetwork

__all__ = ["DiallingLink", "SimulatedLink", "SimulatedListenerWorker"]


class SimulatedLink(Link):
    """One end of a connection between two simulated nodes.

    Args:
        place: The place of its node.
        expose: The addresses that the other end may send to.
        faults: The faults in each direction; those between the two nodes by default.
    """

    def __init__(
        self, place: Membership, expose: frozenset[Address], faults: Faults | None = None
    ) -> None:
        super().__init__(expose=expose)
        self.scheme = "simulated"
        self._faults = faults
        self._place = place
        self._network = place.network
        self._peer: SimulatedLink | None = None
        self._path: NetworkPath | None = None  # to the other end
        self._not_before = 0.0  # arrival time of the last message that keeps the order
        self._on_the_way = 0  # messages in transit, or in the other end's inbox
        self._latest = 0  # the highest message number that has arrived here
        self._inbox: deque[Message] = deque()  # arrived while a mailbox here was full
        self._held = False
        self._ended = False  # no more messages, in either direction
        self._end: str | None = None  # why the other end has ended, while the inbox is not empty
        self._room: asyncio.Future[None] | None = None
        place.links[self] = None

    def join(self, peer: SimulatedLink) -> None:
        """Connect this end to its other end. Called once at each end."""
        self._peer = peer
        self._path = self._network.path(self._place.name, peer._place.name, self._faults)

    @property
    def over(self) -> bool:
        """Whether the link has ended."""
        return self._ended

    @property
    def ends(self) -> tuple[str, str]:
        """The names of the two nodes."""
        return self._place.name, "" if self._peer is None else self._peer._place.name

    # --- to the other end -----------------------------------------------------------------

    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Put a message in transit; return an awaitable while too many are."""
        if self._ended or self._path is None:
            self.undelivered(message, self.down())
            return None
        onward, back, payload, _, context = message
        trace = None if context is None else context.trace
        kept = None if trace is None else Context(trace=trace)
        self._not_before, count = self._path.send(
            Message(onward, back, payload, None, kept), self._not_before, self._came
        )
        self._on_the_way += count
        return self._until_room() if self._on_the_way >= self._network.options.window else None

    def down(self) -> LinkDown:
        """Return the error for messages that cannot be sent."""
        return LinkDown(self.address, "the link was closed")

    async def _until_room(self) -> None:
        self._room = self.node.loop.create_future()
        await self._room

    def _came(self, number: int, message: Message) -> None:
        """Deliver a message of this end to the other end, if that is there."""
        path, peer = self._path, self._peer
        if path is None or peer is None:
            raise AssertionError("unexpected message of a link that is not up")
        if self._place.crashed or peer._ended:
            path.gone += 1
            path.note("gone", number, message)
        elif path.cut_off:
            path.cut_short += 1
            path.note("cut", number, message)
        else:
            path.arrived += 1
            if number < peer._latest:
                path.overtaken += 1
                path.note("overtaken", number, message)
            else:
                peer._latest = number
                path.note("arrived", number, message)
            if peer._held or peer._inbox:
                peer._inbox.append(message)
                return
            peer.arrive((message,))
        self._taken()

    def _taken(self) -> None:
        self._on_the_way -= 1
        if self._room is not None and self._on_the_way <= self._network.options.window // 2:
            self._make_room()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # --- from the other end ---------------------------------------------------------------

    def hold(self) -> None:
        """Leave arriving messages in the inbox, where they count for the other end's window."""
        self._held = True

    def release(self) -> None:
        """Deliver the messages in the inbox, and arriving ones directly."""
        self._held = False
        while self._peer is not None and self._inbox and not self._held:
            self.arrive((self._inbox.popleft(),))
            self._peer._taken()
        if self._end is not None and not self._inbox and not self._held:
            self.when_delivered(partial(self._close, self._end))

    # --- the end --------------------------------------------------------------------------

    def on_stop(self) -> Awaitable[None] | None:
        """Close this end, and the other one once it has received what is in transit."""
        del self._place.links[self]
        if not self._ended:
            self._ended = True
            self._tell_the_other_end()
        while self._inbox:
            self.node.dead_letter(self._inbox.popleft(), MailboxFull.reason)
        super().on_stop()
        return None

    def _tell_the_other_end(self) -> None:
        path, peer = self._path, self._peer
        if path is None or peer is None:
            return
        now = self.node.loop.time()
        detected_at = now + self._network.options.detection
        if path.cut_off:
            peer.will_fall_silent(detected_at)
        else:
            when = max(now + path.latency(), self._not_before)
            self._network.clockwork.at(when, self._notice_came, path, peer, detected_at)

    def _notice_came(self, path: NetworkPath, peer: SimulatedLink, detected_at: float) -> None:
        """Notify the other end of the end of this one, unless the notice is lost."""
        if path.cut_off or self._place.crashed:
            peer.will_fall_silent(max(detected_at, self._network.clockwork.loop.time()))
        else:
            peer._learn_of_the_end("the other end closed it")

    def will_fall_silent(self, when: float) -> None:
        """Schedule the detection, at a time of the loop's clock, of the loss of the other end."""
        self._network.clockwork.at(when, self._learn_of_the_end, "the other end is silent")

    def _learn_of_the_end(self, why: str) -> None:
        if self._ended or self._place.crashed:
            return
        if self._inbox or self._held:
            self._end = why
        else:
            self.when_delivered(partial(self._close, why))

    def _close(self, why: str) -> None:
        if self._ended or self._place.crashed:
            return
        self._ended = True
        peer = self._peer
        source = "" if peer is None else peer._place.name
        kind = "detected" if peer is not None and peer._place.crashed else "closed"
        self._network.clockwork.note(kind, source, self._place.name)
        self._make_room()
        self.lost(why)
        self.stop()

    def crashed(self, detected_at: float) -> None:
        """Stop without notice, as its node has crashed; the other end detects it later."""
        self._ended = True
        if self._peer is not None:
            self._peer.will_fall_silent(detected_at)


class DiallingLink(SimulatedLink):
    """The end of the node that connects. It keeps messages until the link is up.

    Args:
        place: The place of its node.
        host: The host name to connect to.
        expose: The addresses that the other end may send to.
        faults: The faults in each direction; those between the two nodes by default.

    Attributes:
        host: The host name to connect to.
        error: Why the link never came up, if so.
    """

    def __init__(
        self, place: Membership, host: str, expose: frozenset[Address], faults: Faults | None = None
    ) -> None:
        super().__init__(place, expose, faults)
        self.host = host
        self.error: LinkDown | None = None
        self._abandoned = asyncio.Event()

    def abandon(self) -> None:
        """Stop waiting for a partition to end: the caller of `connect` was cancelled."""
        self._abandoned.set()

    async def on_start(self) -> None:
        """Connect. If that fails, the kept messages fail with `LinkDown`."""
        try:
            await self._connect()
        except LinkDown as error:
            self._network.clockwork.note("refused", self._place.name, self.host)
            self.error = error
            self._give_up()
            self.stop()
        except BaseException:
            # Stopped meanwhile, so `on_stop` is not called.
            self._place.links.pop(self, None)
            self._give_up()
            raise

    def _give_up(self) -> None:
        if not self._ended:
            self._ended = True
            self._tell_the_other_end()  # which may exist and be up

    def down(self) -> LinkDown:
        """Return the error for messages that cannot be sent."""
        return self.error or super().down()

    async def _connect(self) -> None:
        network, here = self._network, self._place.name
        listener = network.listener(self.host)
        if listener is None:
            # A refusal takes the time of a message in each direction.
            await asyncio.sleep(2 * (self._faults or network.faults).latency[0])
            raise LinkDown(self.host, "there is no listener")
        there = listener.place.name
        forth = network.path(here, there, self._faults)
        back = network.path(there, here, self._faults)
        deadline = self.node.loop.time() + network.options.connect_timeout
        await self._ask(forth, back, deadline)
        if network.listener(self.host) is not listener:
            raise LinkDown(self.host, "there is no listener")
        try:
            peer = listener.accept(self)
        except OnwardError as error:
            raise LinkDown(self.host, str(error)) from error
        self.join(peer)
        while not await _crossed(back):
            await self._ask(forth, back, deadline)  # the answer was lost, so ask again
        if self._ended or peer._ended:
            raise LinkDown(self.host, "the other end closed it")
        network.clockwork.note("connected", here, there)

    async def _ask(self, forth: NetworkPath, back: NetworkPath, deadline: float) -> None:
        """Reach the other end; retry while a partition loses the request.

        Raises:
            LinkDown: The time for connecting is over.
        """
        await self._until_open(forth, back, deadline)
        while not await _crossed(forth):
            await self._until_open(forth, back, deadline)

    async def _until_open(self, forth: NetworkPath, back: NetworkPath, deadline: float) -> None:
        options, loop = self._network.options, self.node.loop
        while forth.cut_off or back.cut_off:
            left = deadline - loop.time()
            if left <= 0:
                raise LinkDown(self.host, f"no answer in {options.connect_timeout:g} s")
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, options.connect_retry)):
                    await self._abandoned.wait()
            if self._abandoned.is_set():
                raise LinkDown(self.host, "it was given up")


async def _crossed(path: NetworkPath) -> bool:
    """Wait for the latency of a message, and return whether it arrived."""
    await asyncio.sleep(path.latency())
    return not path.cut_off


class SimulatedListenerWorker(ListeningWorker):
    """The worker that owns a host name; its children are the accepted ends of links."""

    def __init__(
        self,
        place: Membership,
        host: str,
        expose: frozenset[Address],
        on_closed: Callable[[Address], object],
    ) -> None:
        super().__init__(on_closed)
        self.uri = f"sim://{host}"
        self.place = place
        self.host = host
        self._expose = expose

    @property
    def _network(self) -> SimulatedNetwork:
        return self.place.network

    def on_start(self) -> None:
        """Claim the host name.

        Raises:
            OSError: The name is in use.
        """
        if self._network.hosts.setdefault(self.host, self) is not self:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), self.host)

    def on_stop(self) -> None:
        """Release the host name."""
        self._network.hosts.pop(self.host, None)
        self._on_closed(self.address)

    def accept(self, peer: SimulatedLink) -> SimulatedLink:
        """Make and return the accepting end of a link.

        Raises:
            OnwardError: The listener is stopping, or a limit of the node is reached.
        """
        most = self._network.options.max_links
        if len(self.place.links) >= most:
            raise LimitReached("max_links", most)
        link = SimulatedLink(self.place, self._expose, peer._faults)
        link.join(peer)
        try:
            self.spawn(lambda: link)
        except OnwardError:
            del self.place.links[link]
            raise
        return link
