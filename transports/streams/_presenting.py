"""Opened connections of links that show credentials before the wire begins."""

from __future__ import annotations

import asyncio

from ...protocol.ockam import CREDENTIALS, BadHeader, read_header, write_header
from .._log import shown
from ._pending import PendingConnection

__all__ = ["PresentingConnection"]


class PresentingConnection(PendingConnection):
    """A connection that has sent its credentials, and waits for the answer.

    Args:
        credentials: The content of an authentication entry.

    Attributes:
        accepted: A future for the acceptance, or an `OSError` if the peer refuses.
    """

    def __init__(self, credentials: bytes) -> None:
        super().__init__()
        self._header = write_header(credentials)
        self.accepted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the credentials."""
        super().connection_made(transport)
        self.transport.write(self._header)
        self._header = b""

    def data_received(self, data: bytes) -> None:
        """Read the answer; what follows it is kept for the wire."""
        super().data_received(data)
        if self.accepted.done():
            return
        came = self.take()
        try:
            found = read_header(came)
        except BadHeader:
            unasked = "the peer asks for no credentials"
            self._fail(
                unasked if came[0] != CREDENTIALS else "the peer does not speak this protocol"
            )
            return
        if found is None:
            self._came.append(came)
            return
        text, size = found
        if text:
            refusal = shown(text.decode("utf-8", "replace"))
            self._fail(f"the peer refuses the credentials: {refusal}")
            return
        if came[size:]:
            self._came.append(came[size:])
        self.accepted.set_result(None)

    def eof_received(self) -> None:
        """Fail if there was no answer."""
        super().eof_received()
        self._fail("the peer closed the connection without an answer to the credentials")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if there was no answer, or forward the loss."""
        super().connection_lost(exc)
        self._fail("the connection was lost before an answer to the credentials")

    def _fail(self, text: str) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(ConnectionError(text))
