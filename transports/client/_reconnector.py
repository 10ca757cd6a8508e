"""One connection of a client, kept by a task: made again after a loss, and moved between brokers.

A connection is never reopened: after its end, a new one is made. Defect 9 of the `rsocket`
package (0.4.20): its `reconnect` does not recover from a keepalive timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ...protocol import NotDelivered
from .._log import SeldomLogger, shown
from ._brokers import Brokers, KnownBroker

if TYPE_CHECKING:
    from ..streams._options import Backoff
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Reconnector"]

_logger = logging.getLogger("onward.transports.client")

CONTESTED: Final = 5.0
"""Upper bound of the first wait, in seconds, after another client has taken over the route id;
`Backoff.longest` if that is less. Otherwise two clients with one id would evict each other
constantly."""

_LAST: Final = 64
"""The attempt after which waits grow no more, as in `Backoff`."""

RETIRING: Final = 0.25
"""Seconds between two looks whether a connection that was moved has a request in flight still."""

Held: TypeAlias = "tuple[KnownBroker, ClientLink]"


class Reconnector:
    """The keeper of one connection; after a failure or loss it tries another broker.

    A connection *moves* when `move_to` is called. One without a route is made at the other broker
    first; the old one takes no new requests, and ends with its last one. A destination has one
    connection for its route id, so the old one ends first: only while nothing is in flight on it,
    and once the other broker is reached.

    Attributes:
        link: The connection, while it is open.
        broker: The broker of the connection, or the one that was tried last.
        leaving: Whether the connection moves just now because its broker refuses requests.
        retired: The connection that it has moved from, until its last request has ended.
        failure: Why the last attempt failed; empty after a success.
        connects: Connections made.
        failures: Attempts that failed.
        moves: Moves to another broker.
        refused: The brokers that have refused the client since it was last connected to them.
        unauthenticated: Those of them that have refused its credentials.
        over: Whether no other attempt will be made.

    Args:
        brokers: The brokers.
        make: Makes a connection, given its name; each with the same route id.
        options: Times.
        news: Called when `link`, `leaving` or `failure` has changed.
        log: The logger of failures.
        fixed_credentials: Whether each SETUP has the same credentials.
    """

    def __init__(
        self,
        brokers: Brokers,
        make: Callable[[str], ClientLink],
        options: ClientOptions,
        news: Callable[[], None],
        log: SeldomLogger,
        *,
        fixed_credentials: bool,
    ) -> None:
        self.link: ClientLink | None = None
        self.broker: KnownBroker | None = None
        self.leaving = False
        self.retired: ClientLink | None = None
        self.failure = ""
        self.connects = 0
        self.failures = 0
        self.moves = 0
        self.refused: set[str] = set()
        self.unauthenticated: set[str] = set()
        self.over = False
        self._lived = 0.0  # seconds that the last connection was open
        self._evicted = False
        self._told = False
        self._brokers = brokers
        self._make = make
        self._options = options
        self._news = news
        self._log = log
        self._fixed_credentials = fixed_credentials
        self._loop = asyncio.get_running_loop()
        self._wish: asyncio.Future[KnownBroker] = self._loop.create_future()
        self._retiring: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Keep the connection until cancelled; without `reconnect`, connect once."""
        try:
            if self._options.reconnect:
                await self._keep()
            else:
                await self._run_once()
        finally:
            if self._retiring is not None:
                self._retiring.cancel()
                await asyncio.wait({self._retiring})

    async def _keep(self) -> None:
        backoff = self._options.backoff
        attempt, bound = 0, 0.0
        while True:
            await self._once(self._brokers.choose(self._loop.time()))
            # The wait is reset after a connection that outlived it. It grows only while no other
            # broker is left to try, or connections are lost as fast as they are made.
            if self._lived > (backoff.longest if self._evicted else bound):
                attempt = 0
            many = len(self._brokers)
            if self._evicted:
                attempt = max(attempt, many * _attempt_of(backoff, CONTESTED))
            bound = backoff.bound(attempt // many)
            wait = backoff.wait(attempt // many)
            if self.shut_out:
                # The same credentials will most likely be refused again, and be counted there.
                wait = max(wait, backoff.longest / 2)
            elif not self._evicted and not self._lived:
                wait /= many  # each of them is tried once in a wait
            elsewhere = self._brokers.any_fit(self._loop.time())
            await asyncio.sleep(wait)
            if not elsewhere or self._lived:
                attempt += 1

    async def _run_once(self) -> None:
        """Try each broker until one accepts, and stop when that connection ends."""
        for broker in self._brokers:
            await self._once(broker)
            if self.connects:
                break
        self.over = True
        self._news()

    @property
    def shut_out(self) -> bool:
        """Whether each broker has refused the credentials, and these stay the same."""
        return self._fixed_credentials and self.unauthenticated >= self._brokers.uris

    # --- one connection -------------------------------------------------------------------------

    async def _once(self, broker: KnownBroker) -> None:
        """Connect to a broker, and wait for the end of the connection and of its successors."""
        self._lived = 0.0
        self._evicted = False
        held = await self._connect(broker)
        while held is not None:
            held = await self._use(*held)

    async def _connect(self, broker: KnownBroker) -> Held | None:
        """Make a connection; return `None` if that fails."""
        link = self._begin(broker)
        try:
            if await self._reach(broker, link, self._dial, self._set_up):
                return broker, link
        except BaseException:
            await self._end(broker, link)
            raise
        await self._end(broker, link)
        return None

    def _begin(self, broker: KnownBroker) -> ClientLink:
        broker.connections += 1
        self.broker = self.broker if self.link is not None else broker
        return self._make(broker.uri)

    async def _use(self, broker: KnownBroker, link: ClientLink) -> Held | None:
        """Wait for the end of a connection; return its successor if it moves."""
        self.link, self.broker = link, broker
        self._news()
        began = self._loop.time()
        ended = self._loop.create_task(link.ended())
        successor: Held | None = None
        try:
            while not ended.done() and successor is None:
                either: set[asyncio.Future[Any]] = {ended, self._wish}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if self._wish.done() and not ended.done():
                    successor = await self._move(link, self._wish.result())
                if self._wish.done():
                    self._wish = self._loop.create_future()
            if successor is None:
                ended.result()
                self._lived = self._loop.time() - began
                self._note_loss(broker, link)
        except BaseException:
            if successor is not None:
                await self._end(*successor)
            successor = None
            raise
        finally:
            self.link = None
            if successor is None:
                ended.cancel()
                await asyncio.wait({ended})
                await self._end(broker, link)
            else:
                broker.connections -= 1
                self.moves += 1
                self._retire(link, ended)
        return successor

    def _note_loss(self, broker: KnownBroker, link: ClientLink) -> None:
        self.failure = link.closed_reason
        self._evicted = link.taken_over
        if link.closing:
            return
        self._brokers.lost(broker, self._loop.time())
        if self._options.reconnect:
            self._tell_of_loss(broker, link)

    async def _end(self, broker: KnownBroker, link: ClientLink) -> None:
        broker.connections -= 1
        # Aborted and not drained: it has ended, or was not open.
        link.abort("closed")
        await link.drain(self._options.drain_timeout)
        self._news()

    # --- moving ---------------------------------------------------------------------------------

    @property
    def movable(self) -> bool:
        """Whether the connection can move to another broker."""
        link = self.link
        if link is None or not link.alive or self._wish.done() or self.retired is not None:
            return False
        return not (link.registers and link.core.streams)

    def move_to(self, broker: KnownBroker, *, leaving: bool = False) -> None:
        """Move the connection to another broker, if it can be reached.

        Args:
            broker: The other broker.
            leaving: Whether requests wait for the end of the move, as this one refuses them.
        """
        if not self._wish.done():
            self.leaving = leaving
            self._wish.set_result(broker)
            self._news()

    async def _move(self, link: ClientLink, broker: KnownBroker) -> Held | None:
        try:
            if link.registers:
                return await self._change(link, broker)
            return await self._connect(broker)
        finally:
            self.leaving = False
            self._news()

    async def _change(self, old: ClientLink, broker: KnownBroker) -> Held | None:
        """Reach another broker, end the connection, and register there."""
        link = self._begin(broker)
        opened = False
        try:
            if not await self._reach(broker, link, self._dial) or old.core.streams:
                return None
            self.link = None  # no request is sent by it any more
            old.leave()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.drain_timeout):
                    await old.gone.wait()
            opened = await self._reach(broker, link, self._set_up)
            return (broker, link) if opened else None
        finally:
            if not opened:
                await self._end(broker, link)

    def _retire(self, link: ClientLink, ended: asyncio.Task[None]) -> None:
        """End a connection with its last request."""
        self.retired = link
        self._retiring = self._loop.create_task(self._retired(link, ended))

    async def _retired(self, link: ClientLink, ended: asyncio.Task[None]) -> None:
        try:
            while link.core.streams and not ended.done():
                await asyncio.wait({ended}, timeout=RETIRING)
            link.leave()
            await asyncio.wait({ended}, timeout=self._options.drain_timeout)
        finally:
            self.retired = None
            ended.cancel()
            await asyncio.wait({ended})
            link.abort("closed")
            await link.drain(self._options.drain_timeout)

    # --- attempts -------------------------------------------------------------------------------

    async def _dial(self, broker: KnownBroker, link: ClientLink) -> None:
        await link.prepare()
        dialler = self._brokers.endpoint(broker).dialler
        link.redial_by(lambda: dialler.open(lambda: link))
        await dialler.open(lambda: link)

    async def _set_up(self, broker: KnownBroker, link: ClientLink) -> None:
        await link.open()
        self.refused.discard(broker.uri)
        self.unauthenticated.clear()
        self.failure = ""
        self.connects += 1
        self._brokers.connected(broker)

    async def _reach(
        self,
        broker: KnownBroker,
        link: ClientLink,
        *steps: Callable[[KnownBroker, ClientLink], Awaitable[None]],
    ) -> bool:
        """Make a connection by some steps; return whether they succeed in time."""
        timeout = self._options.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                for step in steps:
                    await step(broker, link)
        except TimeoutError:
            self.failure = f"no connection in {timeout:g} s"
        except OSError as error:
            self.failure = error.strerror or str(error) or type(error).__name__
        except ValueError as error:
            self.failure = str(error)  # a learned broker needs what the options do not have
        except NotDelivered as error:
            self._note_refusal(broker, link, error)
        else:
            return True
        self.failures += 1
        self._brokers.failed(broker, self._loop.time())
        if self._options.reconnect:
            self._tell_of_failure(broker, link)
        self._news()
        return False

    def _note_refusal(self, broker: KnownBroker, link: ClientLink, error: NotDelivered) -> None:
        self.failure = error.detail
        if link.unheard:
            self.failure += self._brokers.endpoint(broker).dialler.missing
        if link.refused:
            self.refused.add(broker.uri)
        if link.unauthenticated:
            self.unauthenticated.add(broker.uri)
        else:
            self.unauthenticated.discard(broker.uri)

    # --- the log --------------------------------------------------------------------------------

    def _tell_of_loss(self, broker: KnownBroker, link: ClientLink) -> None:
        if link.taken_over and not self._told:
            self._told = True
            _logger.error(
                "%s: another client has the route id of this one, and each takes the place of "
                "the other: give them ids of their own: %s",
                broker.uri,
                shown(link.closed_reason),
                extra={"event": "client.route_id_shared"},
            )
            return
        text = "%s: the connection is lost: %s"
        self._log.log(
            logging.WARNING,
            "lost",
            text,
            broker.uri,
            shown(link.closed_reason),
            extra={"event": "client.connection_lost"},
        )

    def _tell_of_failure(self, broker: KnownBroker, link: ClientLink) -> None:
        if link.unauthenticated:
            text = "%s: the broker refuses the credentials of the client: %s"
            self._log.log(
                logging.ERROR,
                "refused",
                text,
                broker.uri,
                shown(self.failure),
                extra={"event": "client.refused"},
            )
            return
        text = "%s: cannot connect: %s"
        self._log.log(
            logging.WARNING,
            "cannot connect",
            text,
            broker.uri,
            shown(self.failure),
            extra={"event": "client.not_connected"},
        )


def _attempt_of(backoff: Backoff, bound: float) -> int:
    """Return the first attempt that may wait up to a bound, or up to the longest wait."""
    wanted = min(bound, backoff.longest)
    return next((each for each in range(_LAST) if backoff.bound(each) >= wanted), _LAST)
