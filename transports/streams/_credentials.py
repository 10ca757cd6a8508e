"""The credentials that a connecting side shows: a client in SETUP, a link in its header."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from ...protocol import NotDelivered
from ...protocol.security import (
    BadCredentials,
    BearerToken,
    Credentials,
    CustomCredentials,
    UserPassword,
    format_credentials,
)

__all__ = ["CredentialsSource", "ShownCredentials"]

_logger = logging.getLogger("onward.transports.client")

CredentialsSource: TypeAlias = Credentials | Callable[[], Awaitable[Credentials]]
"""Credentials, or an asynchronous function that returns those of a new connection."""

_KINDS: Final = (UserPassword, BearerToken, CustomCredentials)


class ShownCredentials:
    """The credentials of each new connection.

    Attributes:
        fixed: Whether each connection has the same.

    Args:
        source: The credentials, or the function that returns them; `None` for none.

    Raises:
        BadCredentials: The credentials are too long, or empty.
        ValueError: The source is neither.
    """

    def __init__(self, source: CredentialsSource | None) -> None:
        self._ask: Callable[[], Awaitable[Credentials]] | None = None
        self._content = b""
        if isinstance(source, _KINDS):
            self._content = format_credentials(source)
        elif callable(source):
            self._ask = source
        elif source is not None:
            raise ValueError(
                "credentials= takes UserPassword, BearerToken, CustomCredentials or a function, "
                f"not {type(source).__name__}"
            )
        self.fixed = self._ask is None

    async def content(self, peer: str) -> bytes:
        """Return the content of the authentication entry of a new connection; empty for none.

        Args:
            peer: The peer that they are for.

        Raises:
            NotDelivered: The function has failed, or has returned no credentials.
        """
        if self._ask is None:
            return self._content
        try:
            return _content_of(await self._ask())
        except BadCredentials as error:
            raise NotDelivered(peer, str(error)) from None
        except Exception as error:
            # The text of the error may have parts of the credentials.
            _logger.debug(
                "the function for credentials has failed",
                exc_info=True,
                extra={"event": "client.credentials_failed"},
            )
            name = type(error).__name__
            raise NotDelivered(peer, f"there are no credentials: {name}") from error


def _content_of(credentials: Credentials) -> bytes:
    kind: type = type(credentials)  # a function may return anything
    if not issubclass(kind, _KINDS):
        raise TypeError(f"{kind.__name__} are no credentials")
    return format_credentials(credentials)
