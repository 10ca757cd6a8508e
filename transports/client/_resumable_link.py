"""A connection to a broker with a session that is resumed after a loss of its socket."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from ...actors.broker import Handlers
from ...protocol import OnwardError
from ...protocol.rsocket import (
    Closed,
    Event,
    ResumableConnection,
    Resumed,
    ResumeLimits,
    Role,
    Setup,
)
from ..rsocket._ws_socket import give_up
from ._credentials import ClientCredentials
from ._link import ClientLink
from ._options import ClientOptions

if TYPE_CHECKING:
    from ..streams._options import Backoff

__all__ = ["ResumableClientLink"]

_logger = logging.getLogger("onward.transports.client")

TOKEN_SIZE: Final = 16
"""Bytes of a resume token, which are random."""


class ResumableClientLink(ClientLink):
    """A connection to a broker that outlasts its socket, for the time of the session's limits.

    While it is suspended it takes no requests; those that are in flight go on after it is resumed.

    Args:
        name: The URI of the broker, for the log.
        metadata: The metadata of the SETUP; `None` for none.
        handlers: The handlers of requests of the broker.
        credentials: The credentials for the SETUP.
        options: The limits.
        resume: The limits of the session.
        news: Called when `usable` or `alive` may have changed.
    """

    def __init__(
        self,
        name: str,
        metadata: bytes | None,
        handlers: Handlers,
        credentials: ClientCredentials,
        options: ClientOptions,
        resume: ResumeLimits,
        news: Callable[[], None],
    ) -> None:
        super().__init__(name, metadata, handlers, credentials, options, news)
        self._machine = ResumableConnection(Role.CLIENT, options.limits, resume, now=self.now)
        self.core = self._machine
        self._grants = options.lease
        self._backoff: Backoff = options.backoff
        self._connect_timeout = options.connect_timeout
        self._redial: Callable[[], Awaitable[object]] | None = None
        self._resuming: asyncio.Task[None] | None = None
        self._next: asyncio.Transport | None = None  # a socket that waits for RESUME_OK
        self._decided = asyncio.Event()  # whether that has come, or will not come

    def redial_by(self, dial: Callable[[], Awaitable[object]]) -> None:
        """Set the function that connects to the same broker again, with this as the protocol."""
        self._redial = dial

    def send_setup(self, setup: Setup) -> None:
        """Send SETUP with a resume token, and a KEEPALIVE."""
        # Identification Token Handling: "Tokens should not be predictable by an attacking 3rd
        # party".
        super().send_setup(replace(setup, token=os.urandom(TOKEN_SIZE)))

    def send_keepalive(self) -> None:
        """Send a KEEPALIVE that the broker has to answer, unless the session is suspended."""
        if not self._machine.suspended:
            super().send_keepalive()

    # --- the loss of the socket -----------------------------------------------------------------

    @property
    def _can_suspend(self) -> bool:
        """Whether the loss of the socket now suspends the session."""
        return (
            self.ready and not self.closing and not self.closed_reason and self._redial is not None
        )

    def eof_received(self) -> bool:
        """Wait for the loss of the socket, which follows."""
        return False if self._can_suspend else super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Suspend the session, or end everything that used this connection."""
        if self._can_suspend and self._machine.suspend(self.time()):
            self._on_suspended()
        else:
            super().connection_lost(exc)

    def _on_suspended(self) -> None:
        """Begin to resume the session, or have the task go on that does."""
        self._transport = self._next = None
        self.write_paused = False
        self.take_later()
        self.suspicion.end()
        self._decided.set()
        if self.leases is not None:
            self.leases.end()
            self.leases = None
        self.news()
        if self._resuming is None:
            _logger.info("%s: suspended", self.name, extra={"event": "client.session_suspended"})
            self._resuming = self.loop.create_task(self._resume())

    def _on_timer(self) -> None:
        """Suspend the session of a broker that is silent for its lifetime; or as `ClientLink`."""
        transport = self._transport
        silent = self.core.silence(self.time()) >= 1
        if transport is not None and silent and self._can_suspend:
            give_up(transport)
            self.connection_lost(None)
        else:
            super()._on_timer()

    # --- another socket ---------------------------------------------------------------------------

    async def _resume(self) -> None:
        """Connect again until the session is resumed or its time is over."""
        attempt = 0
        while self._machine.suspended:
            left = (self._machine.get_timer() or 0.0) - self.time()
            if left <= 0:
                self.end_core(self._machine.handle_timer(self.time()))
                break
            await self._try_once(min(left, self._connect_timeout))
            if self._machine.suspended:
                await asyncio.sleep(min(left, self._backoff.wait(attempt)))
                attempt += 1
        self._resuming = None
        if self.core.closed:
            self._finish()

    def _finish(self) -> None:
        """End everything that used this connection: its session is not resumed. Idempotent."""
        super().connection_lost(None)

    async def _try_once(self, timeout: float) -> None:
        """Connect once, and wait for the answer to RESUME."""
        redial = self._redial
        if redial is None:
            raise AssertionError("only a session with a broker is suspended")
        self._decided.clear()
        try:
            async with asyncio.timeout(timeout):
                await redial()
                await self._decided.wait()
        except (OSError, OnwardError) as error:  # a TimeoutError is an OSError
            _logger.debug(
                "%s: not resumed: %s",
                self.name,
                error or type(error).__name__,
                extra={"event": "client.session_not_resumed"},
            )
        finally:
            unanswered, self._next = self._next, None
            if unanswered is not None:
                give_up(unanswered)
                self._machine.suspend(self.time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket; send RESUME over it if the session is suspended."""
        if not self._machine.suspended:
            super().connection_made(transport)
            return
        self._next = cast(asyncio.Transport, transport)
        self._next.write(self._machine.send_resume())

    def _on_event(self, event: Event) -> None:
        """Go on over the new socket after RESUME_OK; otherwise as `ClientLink`."""
        if type(event) is not Resumed:
            super()._on_event(event)
            return
        transport, self._next = self._next, None
        setup = self.core.setup
        if transport is None or setup is None:
            raise AssertionError("RESUME was sent over a socket, after SETUP over another")
        self._transport = transport
        transport.set_write_buffer_limits(*self._marks)
        for each in event.again:
            transport.write(each)
        self._decided.set()
        _logger.info("%s: resumed", self.name, extra={"event": "client.session_resumed"})
        self.set_up(setup, self._grants)
        self.flush_soon()
        self._on_room()

    def _on_core_closed(self, event: Closed) -> None:
        """End the users of the streams, and the wait for the answer to RESUME."""
        super()._on_core_closed(event)
        self._decided.set()

    # --- the end ----------------------------------------------------------------------------------

    async def drain(self, timeout: float) -> None:
        """Close it as `ClientLink`; a suspended session ends at once."""
        self.closing = True
        resuming, self._resuming = self._resuming, None
        if resuming is not None:
            resuming.cancel()
            await asyncio.wait({resuming})
            self.abort("closed")
            self._finish()
        await ClientLink.drain(self, timeout)  # mypyc has no `super` in coroutines
