"""The credentials of a client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ...protocol import NotDelivered
from ...protocol.rsocket import composite_entry
from ...protocol.security import (
    AUTHENTICATION_MIME,
    BadCredentials,
    BearerToken,
    Credentials,
    CustomCredentials,
    UserPassword,
    format_credentials,
)

__all__ = ["ClientCredentials", "CredentialsSource"]

_logger = logging.getLogger("onward.transports.client")

CredentialsSource: TypeAlias = Credentials | Callable[[], Awaitable[Credentials]]
"""Credentials, or an asynchronous function that returns those of a new connection."""

_KINDS: Final = (UserPassword, BearerToken, CustomCredentials)


class ClientCredentials:
    """The entry of credentials in each SETUP of a client.

    Attributes:
        fixed: Whether each SETUP has the same credentials.

    Args:
        source: The credentials, or the function that returns them; `None` for none.

    Raises:
        BadCredentials: The credentials are too long, or empty.
        ValueError: The source is neither.
    """

    def __init__(self, source: CredentialsSource | None) -> None:
        self._ask: Callable[[], Awaitable[Credentials]] | None = None
        self._entry = b""
        if isinstance(source, _KINDS):
            self._entry = _entry_of(source)
        elif callable(source):
            self._ask = source
        elif source is not None:
            raise ValueError(
                "credentials= takes UserPassword, BearerToken, CustomCredentials or a function, "
                f"not {type(source).__name__}"
            )
        self.fixed = self._ask is None

    async def entry(self, broker: str) -> bytes:
        """Return the entry of composite metadata for a new connection; empty for none.

        Raises:
            NotDelivered: The function has failed, or has returned no credentials.
        """
        if self._ask is None:
            return self._entry
        try:
            return _entry_of(await self._ask())
        except BadCredentials as error:
            raise NotDelivered(broker, str(error)) from None
        except Exception as error:
            # The text of the error may have parts of the credentials.
            _logger.debug(
                "the function for credentials has failed",
                exc_info=True,
                extra={"event": "client.credentials_failed"},
            )
            name = type(error).__name__
            raise NotDelivered(broker, f"there are no credentials: {name}") from error


def _entry_of(credentials: Credentials) -> bytes:
    kind: type = type(credentials)  # a function may return anything
    if not issubclass(kind, _KINDS):
        raise TypeError(f"{kind.__name__} are no credentials")
    return composite_entry(AUTHENTICATION_MIME, format_credentials(credentials))
