"""The connecting side of stream transports: of links of nodes, and of RSocket clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ._endpoint import Endpoint
from ._pending import secure
from ._tls import TlsOptions, client_context
from ._tls_context import TlsContext

if TYPE_CHECKING:
    from ._credentials import ShownCredentials

__all__ = ["Dialler"]

P = TypeVar("P", bound=asyncio.Protocol)


class Dialler:
    """An endpoint to connect to, with the TLS context, which follows its files.

    Args:
        endpoint: The endpoint.
        tls: The encryption; `None` for none.
        tls_timeout: Time for the TLS handshake, in seconds.

    Attributes:
        endpoint: The endpoint.
        credentials: The credentials that each connection of a link shows first; `None` for none.

    Raises:
        OSError: A certificate cannot be read.
        ValueError: A certificate is wrong, or the name that the peer's must have is unknown.
    """

    def __init__(
        self, endpoint: Endpoint, tls: TlsOptions | ssl.SSLContext | None, tls_timeout: float
    ) -> None:
        self.endpoint = endpoint
        self.credentials: ShownCredentials | None = None
        self._timeout = tls_timeout
        self._context = None if tls is None else TlsContext(tls, client_context)
        named = tls.server_name if isinstance(tls, TlsOptions) else None
        self._host = named or endpoint.host
        self._anonymous = isinstance(tls, TlsOptions) and tls.certificate is None
        nameless = self._host is None
        if self._context is not None and self._context.current.check_hostname and nameless:
            raise ValueError(f"TLS to {endpoint.peer} needs TlsOptions(server_name=...)")

    async def open(self, make: Callable[[], P]) -> P:
        """Connect, perform the handshakes, and return the protocol of the connection.

        Args:
            make: Makes the protocol.

        Raises:
            OSError: The connection cannot be opened, or a handshake failed.
        """
        early = await self.endpoint.open(asyncio.get_running_loop())
        try:
            if self._context is not None:
                self._context.refresh()
                context = self._context.current
                early = await secure(early, context, self._timeout, host=self._host)
            return await self.endpoint.begin(early, make)
        except ConnectionResetError as error:
            early.transport.abort()
            raise ConnectionError(f"{error}{self.missing}") from error
        except BaseException:
            early.transport.abort()
            raise

    @property
    def missing(self) -> str:
        """A hint why a peer closed without a word: it may require TLS or a certificate."""
        if self._context is None:
            return "; it may want TLS"
        return "; it may want a certificate of ours" if self._anonymous else ""
