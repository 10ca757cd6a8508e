"""New credentials for a connection, before those that it has shown expire."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from ...actors.broker import MANAGEMENT_SERVICE
from ...protocol import OnwardError
from ...protocol.broker import ID_SIZE, Dialect
from .._log import shown
from ._metadata import address_metadata

if TYPE_CHECKING:
    from ._credentials import ClientCredentials
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Prolonging"]

_logger = logging.getLogger("onward.transports.client")

PART: Final = 0.8
"""The part of the time left after which new credentials are shown."""

LEAST: Final = 1.0
"""The time left, in seconds, below which nothing is tried any more."""


class Prolonging:
    """The task that keeps the credentials of one connection valid.

    It asks the broker how long they are valid. A broker that does not know of credentials answers
    with an error, and is not asked again.

    Args:
        link: The connection.
        credentials: The function that returns new credentials.
        options: The dialect, and the time for an answer.
    """

    def __init__(
        self, link: ClientLink, credentials: ClientCredentials, options: ClientOptions
    ) -> None:
        self._link = link
        self._credentials = credentials
        self._timeout = options.connect_timeout
        # The reference dialect has no place for the hint, which only other brokers need.
        hint = "@no-route=reject " if options.dialect is Dialect.SPECIFICATION else ""
        destination = f"{hint}service={MANAGEMENT_SERVICE}"
        self._question = address_metadata(
            destination, bytes(ID_SIZE), None, "authenticate", (), options
        )

    async def run_until(self, gone: asyncio.Event) -> None:
        """Keep the credentials valid until an event."""
        prolonging = asyncio.create_task(self.run())
        try:
            await gone.wait()
        finally:
            prolonging.cancel()
            await asyncio.wait({prolonging})

    async def run(self) -> None:
        """Show new credentials each time that most of the time left is over, until cancelled."""
        link = self._link
        try:
            until = await self._ask(b"")
        except (OnwardError, TimeoutError) as error:
            _logger.debug(
                "%s: how long are credentials valid? %s",
                link.name,
                error,
                extra={"event": "client.credentials_unread"},
            )
            return
        while until is not None and until - link.time() > LEAST:
            await asyncio.sleep((until - link.time()) * PART)
            try:
                until = await self._ask(await self._credentials.entry(link.name))
            except (OnwardError, TimeoutError) as error:
                why = shown(str(error) or type(error).__name__)
                _logger.warning(
                    "%s: the credentials are not prolonged: %s",
                    link.name,
                    why,
                    extra={"event": "client.credentials_not_prolonged"},
                )

    async def _ask(self, entry: bytes) -> float | None:
        """Return the time on the loop's clock at which the credentials expire, or `None`.

        Args:
            entry: The entry of new credentials; empty for none.

        Raises:
            OnwardError: There is no answer.
            TimeoutError: There is none in time.
        """
        link = self._link
        asked_at = link.time()
        asked = link.request(b"", entry + self._question)
        try:
            async with asyncio.timeout(self._timeout):
                answer = await asked.answer
        finally:
            asked.cancel()
        try:
            told: Any = json.loads(answer.data)
            return asked_at + float(told["expires_in"])
        except (KeyError, TypeError, ValueError):
            return None
