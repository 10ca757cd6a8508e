"""The connections of a client, and their spreading over brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...protocol import LinkDown
from .._log import SeldomLogger
from ._brokers import Brokers
from ._discovery import Discovery, LearnedUris, learns
from ._errors import CredentialsRefused
from ._reconnector import Reconnector

if TYPE_CHECKING:
    from ._dial import BrokerEndpoint
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Pool"]

_logger = logging.getLogger("onward.transports.client")


class Pool:
    """The connections of a client.

    Attributes:
        brokers: The brokers.
        keepers: The keepers of the connections.

    Args:
        places: The endpoints of the brokers that the program has named.
        makers: For each connection, a function that makes it, given its name.
        options: Times.
        fixed_credentials: Whether each SETUP has the same credentials.
    """

    def __init__(
        self,
        places: Sequence[BrokerEndpoint],
        makers: Sequence[Callable[[str, Callable[[], None]], ClientLink]],
        options: ClientOptions,
        *,
        fixed_credentials: bool,
    ) -> None:
        self._options = options
        self.brokers = Brokers(places, options)
        self._discovery: Discovery | None = None
        if learns(options):
            uris = LearnedUris(places, options)
            self._discovery = Discovery(self.brokers, uris, options, self.alive, self._identify)
        self._changed = asyncio.Event()
        self._turn = 0
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        log = SeldomLogger(_logger)
        fixed = fixed_credentials
        self.keepers = [
            Reconnector(
                self.brokers,
                _bound(make, self.news),
                options,
                self.news,
                log,
                fixed_credentials=fixed,
            )
            for make in makers
        ]

    def news(self) -> None:
        """Wake the requests that wait for a connection."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def open(self) -> None:
        """Start the keepers, and wait for the first connection.

        Raises:
            CredentialsRefused: All brokers have refused the credentials.
            LinkDown: No connection was open in `connect_timeout`, or all brokers have refused the
                client. The keepers are stopped.
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(keeper.run()) for keeper in self.keepers]
        if self._options.reconnect:
            self._tasks.append(loop.create_task(self._spread()))
        if self._discovery is not None:
            self._tasks.append(loop.create_task(self._discovery.run(lambda: self._changed)))
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                while not self.alive():
                    if self._hopeless():
                        raise self._down()
                    await self._changed.wait()
        except TimeoutError:
            reasons = self._reasons()
            await self.close()
            raise LinkDown("the broker", reasons) from None
        except BaseException:
            await self.close()
            raise

    def _hopeless(self) -> bool:
        """Return whether no connection can be expected."""
        if all(keeper.over for keeper in self.keepers):
            return True
        # A broker that has refused will refuse again.
        return self.brokers.uris <= {uri for keeper in self.keepers for uri in keeper.refused}

    def _down(self) -> LinkDown:
        """Return the error for the lack of any connection."""
        refused = {uri for keeper in self.keepers for uri in keeper.unauthenticated}
        kind = CredentialsRefused if self.brokers.uris <= refused else LinkDown
        return kind("the broker", self._reasons())

    def _reasons(self) -> str:
        reasons = {keeper.failure for keeper in self.keepers if keeper.failure}
        return "; ".join(sorted(reasons)) or "no answer"

    def alive(self) -> list[ClientLink]:
        """Return the open connections."""
        links = [keeper.link for keeper in self.keepers]
        return [link for link in links if link is not None and link.alive]

    def _staying(self) -> list[ClientLink]:
        """Return the open connections, without those that are being replaced.

        A request waits for that rather than being refused by the broker that is left.
        """
        links = [keeper.link for keeper in self.keepers if not keeper.leaving]
        return [link for link in links if link is not None and link.alive]

    async def take(self) -> ClientLink:
        """Wait for a usable connection; return the one with the fewest open streams.

        One with a suspected broker comes last, and one that leaves its broker not at all. Equal
        ones take turns.

        Raises:
            CredentialsRefused: All brokers have refused the credentials, and these stay the same.
            LinkDown: The client is being closed, or has lost its connections and makes no others.
        """
        while True:
            if self._closing:
                raise LinkDown("the broker", "the client is closed")
            links = [link for link in self._staying() if link.usable]
            if len(links) == 1:
                return links[0]
            if links:
                self._turn += 1
                at = self._turn % len(links)
                return min((*links[at:], *links[:at]), key=_load)
            if all(keeper.over or keeper.shut_out for keeper in self.keepers):
                raise self._down()
            await self._changed.wait()

    def obstacle(self) -> str:
        """Return why no connection is usable."""
        links = self.alive()
        if not links:
            return f"there is no connection: {self._reasons()}"
        if all(link.full for link in links):
            return "the brokers do not read as fast as they are sent to"
        return "the brokers have leased no more requests"

    # --- spreading ------------------------------------------------------------------------------

    def _identify(self, link: ClientLink, broker_id: bytes) -> None:
        for keeper in self.keepers:
            if keeper.link is link and keeper.broker is not None:
                keeper.broker.broker_id = broker_id

    def drains(self, link: ClientLink) -> None:
        """Move a connection to another broker, as its own refuses requests and is about to stop."""
        loop = asyncio.get_running_loop()
        for keeper in self.keepers:
            broker = keeper.broker
            if keeper.link is link and broker is not None:
                self.brokers.drains(broker, loop.time())
                other = self.brokers.choose(loop.time())
                if keeper.movable and other is not broker and not other.misses(loop.time()):
                    keeper.move_to(other, leaving=True)

    async def _spread(self) -> None:
        """Move connections, each at a random moment, as long as that spreads them better."""
        options = self._options
        loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(options.brokers.rebalance):
                    await self._changed.wait()
            await asyncio.sleep(options.backoff.random() * options.brokers.rebalance)
            movable = {keeper.broker: keeper for keeper in self.keepers if keeper.movable}
            brokers = [broker for broker in movable if broker is not None]
            move = self.brokers.wanted_move(brokers, loop.time())
            if move is not None:
                movable[move[0]].move_to(move[1])

    async def close(self) -> None:
        """Drain and close all connections, and make no new ones. Idempotent."""
        self._closing = True
        self.news()
        timeout = self._options.drain_timeout
        retired = [keeper.retired for keeper in self.keepers if keeper.retired is not None]
        await asyncio.gather(*(link.drain(timeout) for link in (*self.alive(), *retired)))
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _load(link: ClientLink) -> tuple[bool, int]:
    return link.suspicion.suspected(), len(link.core.streams)


def _bound(
    make: Callable[[str, Callable[[], None]], ClientLink], news: Callable[[], None]
) -> Callable[[str], ClientLink]:
    return lambda name: make(name, news)
