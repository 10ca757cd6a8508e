"""The connections of a client: kept up each by a task of its own, and given out in turn.

Defect 9 of the `rsocket` package (0.4.20): its `reconnect` does not recover from a time-out of
the keepalive. So a connection is never reopened here. When it ends, a new one is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...protocol import LinkDown, NotDelivered
from .._log import SeldomLogger, shown
from ._dial import dial

if TYPE_CHECKING:
    from ._link import ClientLink
    from ._options import ClientOptions, Place

__all__ = ["Keeper", "Pool"]

_logger = logging.getLogger("onward.transports.client")


class Keeper:
    """One connection, kept up: when it fails or is lost, the next broker is tried.

    Attributes:
        link: The connection, while there is one.
        failure: Why the last attempt failed; empty while it has not.
        connects: How often it has connected.
        failures: How often an attempt has failed.

    Args:
        places: The brokers.
        first: Which of them to begin with.
        make: Makes a connection, given its name; each with the same route id.
        options: Times.
        news: Called when `link` or `failure` has changed.
        log: For what goes wrong.
    """

    def __init__(
        self,
        places: Sequence[Place],
        first: int,
        make: Callable[[str], ClientLink],
        options: ClientOptions,
        news: Callable[[], None],
        log: SeldomLogger,
    ) -> None:
        self.link: ClientLink | None = None
        self.failure = ""
        self.connects = 0
        self.failures = 0
        self._places = places
        self._at = first
        self._make = make
        self._options = options
        self._news = news
        self._log = log

    async def run(self) -> None:
        """Keep the connection up, until cancelled."""
        loop = asyncio.get_running_loop()
        backoff = self._options.backoff
        attempt = 0
        while True:
            place = self._places[self._at % len(self._places)]
            began = loop.time()
            await self._once(place)
            # One that lived for long was in order, and so probably is the next.
            attempt = 0 if loop.time() - began > backoff.longest else attempt
            await asyncio.sleep(backoff.wait(attempt))
            attempt += 1
            self._at += 1

    async def _once(self, place: Place) -> None:
        """Connect, and wait for the end of it."""
        link = self._make(place.uri)
        try:
            if await self._open(place, link):
                await link.gone.wait()
                self.failure = link.reason
                if not link.closing:
                    text = "%s: the connection is lost: %s"
                    self._log.log(logging.WARNING, "lost", text, place.uri, shown(link.reason))
        finally:
            self.link = None
            # Cut off here, and not drained: it is over, or has not begun.
            link.abort("closed")
            await link.close(self._options.drain_timeout)
            self._news()

    async def _open(self, place: Place, link: ClientLink) -> bool:
        timeout = self._options.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                await dial(place, link)
                await link.open()
        except TimeoutError:
            self.failure = f"no connection in {timeout:g} s"
        except OSError as error:
            self.failure = error.strerror or str(error) or type(error).__name__
        except NotDelivered as error:
            self.failure = error.detail
        else:
            self.link = link
            self.failure = ""
            self.connects += 1
            self._news()
            return True
        self.failures += 1
        text = "%s: cannot connect: %s"
        self._log.log(logging.WARNING, "cannot connect", text, place.uri, shown(self.failure))
        self._news()
        return False


class Pool:
    """The connections of a client.

    Attributes:
        keepers: What keeps them up.

    Args:
        places: The brokers. Connections begin with different ones, as far as there are.
        makers: Make a connection each, given its name.
        options: Times.
    """

    def __init__(
        self,
        places: Sequence[Place],
        makers: Sequence[Callable[[str, Callable[[], None]], ClientLink]],
        options: ClientOptions,
    ) -> None:
        self._options = options
        self._changed = asyncio.Event()
        self._turn = 0
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        log = SeldomLogger(_logger)
        self.keepers = [
            Keeper(places, number, _bound(make, self.news), options, self.news, log)
            for number, make in enumerate(makers)
        ]

    def news(self) -> None:
        """Wake those who wait for a connection to look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def open(self) -> None:
        """Begin to connect, and wait for the first connection.

        Raises:
            LinkDown: None was there in `connect_timeout`. Nothing is left of the attempts.
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(keeper.run()) for keeper in self.keepers]
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                while not self.alive():
                    await self._changed.wait()
        except TimeoutError:
            reasons = {keeper.failure for keeper in self.keepers if keeper.failure}
            await self.close()
            raise LinkDown("the broker", "; ".join(sorted(reasons)) or "no answer") from None
        except BaseException:
            await self.close()
            raise

    def alive(self) -> list[ClientLink]:
        """Return the connections there are."""
        links = [keeper.link for keeper in self.keepers]
        return [link for link in links if link is not None and link.alive]

    async def take(self) -> ClientLink:
        """Wait for a connection that takes a request now, each in its turn.

        Raises:
            LinkDown: The client is being closed.
        """
        while True:
            if self._closing:
                raise LinkDown("the broker", "the client is closed")
            links = [link for link in self.alive() if link.usable]
            if links:
                self._turn += 1
                return links[self._turn % len(links)]
            await self._changed.wait()

    async def close(self) -> None:
        """Close all connections in order, and make no new ones. Idempotent."""
        self._closing = True
        self.news()
        timeout = self._options.drain_timeout
        await asyncio.gather(*(link.close(timeout) for link in self.alive()))
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bound(
    make: Callable[[str, Callable[[], None]], ClientLink], news: Callable[[], None]
) -> Callable[[str], ClientLink]:
    return lambda name: make(name, news)
