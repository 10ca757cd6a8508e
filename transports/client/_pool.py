"""The connections of a client, each kept by a task.

A connection is never reopened: after its end, a new one is made. Defect 9 of the `rsocket`
package (0.4.20): its `reconnect` does not recover from a keepalive timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...protocol import LinkDown, NotDelivered
from .._log import SeldomLogger, shown
from ._errors import CredentialsRefused

if TYPE_CHECKING:
    from ..streams._options import Backoff
    from ._dial import BrokerEndpoint
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Pool", "Reconnector"]

_logger = logging.getLogger("onward.transports.client")

CONTESTED: Final = 5.0
"""Upper bound of the first wait, in seconds, after another client has taken over the route id;
`Backoff.longest` if that is less. Otherwise two clients with one id would evict each other
constantly."""

_LAST: Final = 64
"""The attempt after which waits grow no more, as in `Backoff`."""


class Reconnector:
    """The keeper of one connection; after a failure or loss it tries the next broker.

    Attributes:
        link: The connection, while it is open.
        failure: Why the last attempt failed; empty after a success.
        connects: Connections made.
        failures: Attempts that failed.
        refused: The brokers that have refused the client since it was last connected to them.
        unauthenticated: Those of them that have refused its credentials.
        over: Whether no other attempt will be made.

    Args:
        places: The endpoints of the brokers.
        first: The index of the endpoint to begin with.
        make: Makes a connection, given its name; each with the same route id.
        options: Times.
        news: Called when `link` or `failure` has changed.
        log: The logger of failures.
        fixed_credentials: Whether each SETUP has the same credentials.
    """

    def __init__(
        self,
        places: Sequence[BrokerEndpoint],
        first: int,
        make: Callable[[str], ClientLink],
        options: ClientOptions,
        news: Callable[[], None],
        log: SeldomLogger,
        *,
        fixed_credentials: bool,
    ) -> None:
        self.link: ClientLink | None = None
        self.failure = ""
        self.connects = 0
        self.failures = 0
        self.refused: set[str] = set()
        self.unauthenticated: set[str] = set()
        self.over = False
        self._lived = 0.0  # seconds that the last connection was open
        self._evicted = False
        self._told = False
        self._places = places
        self._uris = {place.uri for place in places}
        self._at = first
        self._make = make
        self._options = options
        self._news = news
        self._log = log
        self._fixed_credentials = fixed_credentials

    async def run(self) -> None:
        """Keep the connection until cancelled; without `reconnect`, connect once."""
        if not self._options.reconnect:
            await self._run_once()
            return
        backoff = self._options.backoff
        attempt, bound = 0, 0.0
        while True:
            await self._once(self._place())
            # The wait is reset after a connection that outlived it. It grows only while connections
            # fail, or are lost as fast as they are made.
            if self._lived > (backoff.longest if self._evicted else bound):
                attempt = 0
            if self._evicted:
                attempt = max(attempt, _attempt_of(backoff, CONTESTED))
            bound = _bound_of(backoff, attempt)
            wait = backoff.wait(attempt)
            if self.shut_out:
                # The same credentials will most likely be refused again, and be counted there.
                wait = max(wait, backoff.longest / 2)
            await asyncio.sleep(wait)
            attempt += 1
            self._at += 1

    async def _run_once(self) -> None:
        """Try each broker until one accepts, and stop when that connection ends."""
        for _ in self._places:
            await self._once(self._place())
            if self.connects:
                break
            self._at += 1
        self.over = True
        self._news()

    @property
    def shut_out(self) -> bool:
        """Whether each broker has refused the credentials, and these stay the same."""
        return self._fixed_credentials and self.unauthenticated == self._uris

    def _place(self) -> BrokerEndpoint:
        return self._places[self._at % len(self._places)]

    async def _once(self, place: BrokerEndpoint) -> None:
        """Connect to an endpoint, and wait for the end of the connection."""
        link = self._make(place.uri)
        self._lived = 0.0
        self._evicted = False
        try:
            if await self._open(place, link):
                began = link.loop.time()
                await link.ended()
                self._lived = link.loop.time() - began
                self.failure = link.closed_reason
                self._evicted = link.taken_over
                if not link.closing and self._options.reconnect:
                    self._tell_of_loss(place, link)
        finally:
            self.link = None
            # Aborted and not drained: it has ended, or was not open.
            link.abort("closed")
            await link.drain(self._options.drain_timeout)
            self._news()

    def _tell_of_loss(self, place: BrokerEndpoint, link: ClientLink) -> None:
        if link.taken_over and not self._told:
            self._told = True
            _logger.error(
                "%s: another client has the route id of this one, and each takes the place of "
                "the other: give them ids of their own: %s",
                place.uri,
                shown(link.closed_reason),
                extra={"event": "client.route_id_shared"},
            )
            return
        text = "%s: the connection is lost: %s"
        self._log.log(
            logging.WARNING,
            "lost",
            text,
            place.uri,
            shown(link.closed_reason),
            extra={"event": "client.connection_lost"},
        )

    async def _open(self, place: BrokerEndpoint, link: ClientLink) -> bool:
        timeout = self._options.connect_timeout
        try:
            async with asyncio.timeout(timeout):
                await link.prepare()
                link.redial_by(lambda: place.dialler.open(lambda: link))
                await place.dialler.open(lambda: link)
                await link.open()
        except TimeoutError:
            self.failure = f"no connection in {timeout:g} s"
        except OSError as error:
            self.failure = error.strerror or str(error) or type(error).__name__
        except NotDelivered as error:
            self.failure = error.detail
            if link.unheard:
                self.failure += place.dialler.missing
            if link.refused:
                self.refused.add(place.uri)
            if link.unauthenticated:
                self.unauthenticated.add(place.uri)
            else:
                self.unauthenticated.discard(place.uri)
        else:
            self.link = link
            self.refused.discard(place.uri)
            self.unauthenticated.clear()
            self.failure = ""
            self.connects += 1
            self._news()
            return True
        self.failures += 1
        if self._options.reconnect:
            self._tell_of_failure(place, link)
        self._news()
        return False

    def _tell_of_failure(self, place: BrokerEndpoint, link: ClientLink) -> None:
        if link.unauthenticated:
            text = "%s: the broker refuses the credentials of the client: %s"
            self._log.log(
                logging.ERROR,
                "refused",
                text,
                place.uri,
                shown(self.failure),
                extra={"event": "client.refused"},
            )
            return
        text = "%s: cannot connect: %s"
        self._log.log(
            logging.WARNING,
            "cannot connect",
            text,
            place.uri,
            shown(self.failure),
            extra={"event": "client.not_connected"},
        )


class Pool:
    """The connections of a client.

    Attributes:
        keepers: The keepers of the connections.

    Args:
        places: The endpoints of the brokers. Connections begin with different ones, if possible.
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
        self._uris = {place.uri for place in places}
        self._changed = asyncio.Event()
        self._turn = 0
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        log = SeldomLogger(_logger)
        self.keepers = [
            Reconnector(
                places,
                number,
                _bound(make, self.news),
                options,
                self.news,
                log,
                fixed_credentials=fixed_credentials,
            )
            for number, make in enumerate(makers)
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
        return self._uris <= {uri for keeper in self.keepers for uri in keeper.refused}

    def _down(self) -> LinkDown:
        """Return the error for the lack of any connection."""
        refused = {uri for keeper in self.keepers for uri in keeper.unauthenticated}
        kind = CredentialsRefused if self._uris <= refused else LinkDown
        return kind("the broker", self._reasons())

    def _reasons(self) -> str:
        reasons = {keeper.failure for keeper in self.keepers if keeper.failure}
        return "; ".join(sorted(reasons)) or "no answer"

    def alive(self) -> list[ClientLink]:
        """Return the open connections."""
        links = [keeper.link for keeper in self.keepers]
        return [link for link in links if link is not None and link.alive]

    async def take(self) -> ClientLink:
        """Wait for a usable connection; return the one with the fewest open streams.

        One with a suspected broker comes last. Equal ones take turns.

        Raises:
            CredentialsRefused: All brokers have refused the credentials, and these stay the same.
            LinkDown: The client is being closed, or has lost its connections and makes no others.
        """
        while True:
            if self._closing:
                raise LinkDown("the broker", "the client is closed")
            links = [link for link in self.alive() if link.usable]
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

    async def close(self) -> None:
        """Drain and close all connections, and make no new ones. Idempotent."""
        self._closing = True
        self.news()
        timeout = self._options.drain_timeout
        await asyncio.gather(*(link.drain(timeout) for link in self.alive()))
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _load(link: ClientLink) -> tuple[bool, int]:
    return link.suspicion.suspected(), len(link.core.streams)


def _bound_of(backoff: Backoff, attempt: int) -> float:
    """Return the longest that a wait may be, in seconds."""
    return min(backoff.longest, backoff.first * 2.0 ** min(attempt, _LAST))


def _attempt_of(backoff: Backoff, bound: float) -> int:
    """Return the first attempt that may wait up to a bound, or up to the longest wait."""
    wanted = min(bound, backoff.longest)
    return next((each for each in range(_LAST) if _bound_of(backoff, each) >= wanted), _LAST)


def _bound(
    make: Callable[[str, Callable[[], None]], ClientLink], news: Callable[[], None]
) -> Callable[[str], ClientLink]:
    return lambda name: make(name, news)
