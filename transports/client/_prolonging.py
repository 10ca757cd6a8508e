"""New credentials for a connection of a client, before those that it has shown expire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...actors.broker import MANAGEMENT_SERVICE
from ...protocol.broker import ID_SIZE, Dialect
from ..rsocket._prolonging import CredentialsKeeper
from ._metadata import address_metadata

if TYPE_CHECKING:
    from ._credentials import ClientCredentials
    from ._link import ClientLink
    from ._options import ClientOptions

__all__ = ["Prolonging"]


class Prolonging(CredentialsKeeper):
    """The task that keeps the credentials of a client's connection valid.

    Args:
        link: The connection.
        credentials: The function that returns new credentials.
        options: The dialect, and the time for an answer.
    """

    def __init__(
        self, link: ClientLink, credentials: ClientCredentials, options: ClientOptions
    ) -> None:
        self.name = link.name
        self._link = link
        self._credentials = credentials
        self._timeout = options.connect_timeout
        # The reference dialect has no place for the hint, which only other brokers need.
        hint = "@no-route=reject " if options.dialect is Dialect.SPECIFICATION else ""
        destination = f"{hint}service={MANAGEMENT_SERVICE}"
        self._question = address_metadata(
            destination, bytes(ID_SIZE), None, "authenticate", (), options
        )

    def time(self) -> float:
        """Return the time on the loop's clock, in seconds."""
        return self._link.time()

    async def ask(self, *, anew: bool) -> bytes:
        """Send the request that asks for the validity, and return the data of the answer."""
        entry = await self._credentials.entry(self.name) if anew else b""
        asked = self._link.request(b"", entry + self._question)
        try:
            async with asyncio.timeout(self._timeout):
                return (await asked.answer).data
        finally:
            asked.cancel()
