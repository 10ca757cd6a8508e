"""New credentials for a connection, before those that it has shown expire."""

from __future__ import annotations

import asyncio
import json
import logging
from abc import ABC, abstractmethod
from typing import Any, Final

from ...protocol import OnwardError
from .._log import shown

__all__ = ["CredentialsKeeper"]

_logger = logging.getLogger("onward.transports.client")

PART: Final = 0.8
"""The part of the time left after which new credentials are shown."""

LEAST: Final = 1.0
"""The time left, in seconds, below which nothing is tried any more."""


class CredentialsKeeper(ABC):
    """The task that keeps the credentials of one connection valid.

    It asks the broker how long they are valid. A broker that does not know of credentials answers
    with an error, and is not asked again.

    Attributes:
        name: The name of the connection, for the log.
    """

    name: str

    @abstractmethod
    def time(self) -> float:
        """Return the time on the loop's clock, in seconds."""

    @abstractmethod
    async def ask(self, *, anew: bool) -> bytes:
        """Send the request that asks for the validity, and return the data of the answer.

        Args:
            anew: Whether to show new credentials in it.

        Raises:
            OnwardError: There is no answer, or there are no credentials.
            TimeoutError: There is no answer in time.
        """

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
        try:
            until = await self._until(anew=False)
        except (OnwardError, TimeoutError) as error:
            _logger.debug(
                "%s: how long are credentials valid? %s",
                self.name,
                error,
                extra={"event": "client.credentials_unread"},
            )
            return
        while until is not None and until - self.time() > LEAST:
            await asyncio.sleep((until - self.time()) * PART)
            try:
                until = await self._until(anew=True)
            except (OnwardError, TimeoutError) as error:
                why = shown(str(error) or type(error).__name__)
                _logger.warning(
                    "%s: the credentials are not prolonged: %s",
                    self.name,
                    why,
                    extra={"event": "client.credentials_not_prolonged"},
                )

    async def _until(self, *, anew: bool) -> float | None:
        """Return the time on the loop's clock at which the credentials expire, or `None`."""
        asked_at = self.time()
        answer = await self.ask(anew=anew)
        try:
            told: Any = json.loads(answer)
            return asked_at + float(told["expires_in"])
        except (KeyError, TypeError, ValueError):
            return None
