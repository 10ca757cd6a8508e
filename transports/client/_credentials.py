"""The credentials of a client, in its SETUP."""

from __future__ import annotations

from ...protocol.rsocket import composite_entry
from ...protocol.security import AUTHENTICATION_MIME
from ..streams._credentials import CredentialsSource, ShownCredentials

__all__ = ["ClientCredentials", "CredentialsSource"]


class ClientCredentials(ShownCredentials):
    """The entry of credentials in each SETUP of a client."""

    async def entry(self, broker: str) -> bytes:
        """Return the entry of composite metadata for a new connection; empty for none.

        Raises:
            NotDelivered: The function has failed, or has returned no credentials.
        """
        content = await self.content(broker)
        return composite_entry(AUTHENTICATION_MIME, content) if content else b""
