"""How a client learns of the other brokers of a cluster.

A broker of a cluster has a service that answers with the list of its brokers, each as the
BROKER_INFO that it tells of itself. A client asks each broker once when it has connected to it,
and then one of them from time to time.

What is learned decides where credentials and requests are sent. So a list counts only if the broker
was authenticated, or if the program has given patterns; and no broker in it is used that would be
less well protected than those the program has named.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ...protocol import OnwardError
from ...protocol._pattern import uri_matcher
from ...protocol.broker import ID_SIZE, Dialect
from ...protocol.cluster import CLIENTS_SERVICE, ClusterFrameError, PeerInfo, parse_infos
from ..streams._tls import TlsOptions
from ._dial import is_secure, parse_place
from ._metadata import address_metadata

if TYPE_CHECKING:
    from ._brokers import Brokers
    from ._dial import BrokerEndpoint
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Discovery", "LearnedUris", "learns"]

_logger = logging.getLogger("onward.transports.client")

LESS_SECURE: Final = "less secure"
NOT_ALLOWED: Final = "not allowed"
NO_URI: Final = "no URI of a broker"

GAP: Final = 1.0
"""Least time between two questions of a client, in seconds."""


class LearnedUris:
    """The decision which brokers may be used that the client was told of.

    Args:
        named: The endpoints of the brokers that the program has named.
        options: The patterns and the TLS.
    """

    def __init__(self, named: Sequence[BrokerEndpoint], options: ClientOptions) -> None:
        self._options = options
        self._patterns = [uri_matcher(each) for each in options.brokers.allowed]
        self._secure = any(is_secure(each.uri, options) for each in named)
        self._hosts = {_host(each.uri) for each in named} - {None}
        tls = options.tls
        named_by_certificate = isinstance(tls, TlsOptions) and (tls.authority or tls.server_name)
        self._any_host = bool(named_by_certificate)

    def believes(self, link: ClientLink) -> bool:
        """Whether what the broker of a connection tells counts."""
        return bool(self._patterns) or link.authenticated

    def refusal(self, uri: str) -> str:
        """Return the reason for which a URI must not be used; empty if it may be."""
        secure = is_secure(uri, self._options)
        if self._secure and not secure:
            return LESS_SECURE
        if self._patterns:
            allowed = any(matches(uri) for matches in self._patterns)
        elif not secure:
            return LESS_SECURE
        else:
            allowed = self._any_host or _host(uri) in self._hosts
        if not allowed:
            return NOT_ALLOWED
        try:
            parse_place(uri, self._options)
        except (ValueError, OSError):
            return NO_URI
        return ""


def _host(uri: str) -> str | None:
    try:
        return urlsplit(uri).hostname
    except ValueError:
        return None


class Discovery:
    """The questions for the other brokers, and what is made of the answers.

    Attributes:
        failed: Questions without an answer that could be read.

    Args:
        brokers: The brokers that the client knows.
        uris: The decision which others may be used.
        options: Times and limits.
        alive: Returns the open connections.
        identify: Called with a connection and the id of its broker.
    """

    def __init__(
        self,
        brokers: Brokers,
        uris: LearnedUris,
        options: ClientOptions,
        alive: Callable[[], list[ClientLink]],
        identify: Callable[[ClientLink, bytes], None],
    ) -> None:
        self.failed = 0
        self._brokers = brokers
        self._uris = uris
        self._options = options
        self._alive = alive
        self._identify = identify
        self._asked: set[ClientLink] = set()
        self._next = 0.0
        self._question = address_metadata(
            f"@no-route=reject service={CLIENTS_SERVICE}", bytes(ID_SIZE), None, "", (), options
        )

    async def run(self, changed: Callable[[], asyncio.Event]) -> None:
        """Ask until cancelled.

        Args:
            changed: Returns the event that is set with the next change of the connections.
        """
        loop = asyncio.get_running_loop()
        while True:
            news = changed()
            link = self._due(loop.time())
            if link is None:
                left = self._next - loop.time()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if left > 0 else self._options.brokers.refresh):
                        await news.wait()
            else:
                await self._ask(link, loop)
                await asyncio.sleep(GAP)

    def _due(self, now: float) -> ClientLink | None:
        """Return the connection to the broker that is to be asked now."""
        links = [each for each in self._alive() if each.usable and self._uris.believes(each)]
        self._asked.intersection_update(links)
        new = [each for each in links if each not in self._asked]
        if new:
            return new[0]
        if not links or now < self._next:
            return None
        return links[int(self._options.backoff.random() * len(links))]

    async def _ask(self, link: ClientLink, loop: asyncio.AbstractEventLoop) -> None:
        options = self._options
        self._asked.add(link)
        part = 1 - options.backoff.random() / 2
        self._next = loop.time() + part * options.brokers.refresh
        try:
            infos = await self._answer(link)
        except (OnwardError, TimeoutError) as error:
            self.failed += 1
            _logger.debug(
                "%s: tells of no other brokers: %s",
                link.name,
                error or type(error).__name__,
                extra={"event": "client.brokers_unknown"},
            )
            return
        if infos:
            # The broker that was asked is the first.
            self._identify(link, infos[0].broker_id)
            self._brokers.learn(infos, loop.time(), self._uris.refusal)

    async def _answer(self, link: ClientLink) -> list[PeerInfo]:
        """Return the brokers that a broker knows, itself as the first.

        Raises:
            OnwardError: There is no answer, or it is no such list.
            TimeoutError: There is none in time.
        """
        limits = self._options.brokers
        asked = link.request(b"", self._question)
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                answer = await asked.answer
        finally:
            asked.cancel()
        if len(answer.data) > limits.max_list:
            raise ClusterFrameError(f"a list of brokers of more than {limits.max_list} bytes")
        # What is more than the client may know is ignored later: the list is bounded by its bytes.
        return parse_infos(answer.data, limits.max_list)


def learns(options: ClientOptions) -> bool:
    """Whether a client with these options asks for other brokers at all."""
    brokers = options.brokers
    asks = brokers.learn or bool(brokers.allowed)
    return asks and options.reconnect and options.dialect is Dialect.SPECIFICATION
