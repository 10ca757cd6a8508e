"""One connection of a client of AMQP: a socket, the SASL layer, the engine, and the links.

Bytes go to the SASL layer until the client is accepted, and to the engine from then on. Whatever
has happened, by bytes of the client or by a call of the dispatcher, what is to be sent is written
in one place, for as long as the socket takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from ...actors.security import Authentication
from ...protocol.security import (
    ANONYMOUS,
    MAX_PASSWORD,
    MAX_USERNAME,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    UserPassword,
)
from .._log import SeldomLogger
from ._engine import AmqpEngine, Opened
from ._links import Links
from ._options import AmqpOptions
from ._port import DispatchPort
from ._proton import Proton
from ._sasl import Mechanism, SaslCredentials, SaslError, SaslServer, SaslState

__all__ = ["AmqpConnection", "AmqpHost"]

_logger = logging.getLogger("onward.transports.amqp")

PART: Final = 64 * 1024
"""The bytes that are written at a time, and that may wait for the socket."""

LINGER: Final = 1.0
"""The seconds for which a client may read the reason of the end before its connection is cut."""


class AmqpHost(Protocol):
    """The server, as its connections know it."""

    @property
    def options(self) -> AmqpOptions:
        """The limits."""
        ...

    @property
    def port(self) -> DispatchPort:
        """The dispatcher."""
        ...

    @property
    def proton(self) -> Proton:
        """The engine's module."""
        ...

    @property
    def container(self) -> str:
        """The name of the server's container."""
        ...

    @property
    def authentication(self) -> Authentication | None:
        """The authentication of clients; `None` admits each that can connect."""
        ...

    @property
    def seldom(self) -> SeldomLogger:
        """The log of events that peers cause."""
        ...

    def dropped(self, reason: str) -> None:
        """Count a message that was dropped."""
        ...

    def ended(self, connection: AmqpConnection) -> None:
        """Forget a connection that is closed."""
        ...


class AmqpConnection(asyncio.Protocol):
    """A connection.

    Args:
        host: The server.
        identity: The client, as its transport has verified it.
        private: Whether passwords may be sent: with TLS, or on the loopback interface.

    Attributes:
        identity: As given.
        closed: The reason of its end; empty while it is open.
        principal: The client; `None` before it is known.
    """

    def __init__(self, host: AmqpHost, identity: PeerIdentity, *, private: bool) -> None:
        self.identity = identity
        self.closed = ""
        self.principal: Principal | None = None
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._sasl = SaslServer(_mechanisms(host.authentication, identity, private=private))
        self._engine = AmqpEngine(host.proton, host.container, host.options)
        self._links: Links | None = None
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._in_turn = False
        self._woken = False
        self._paused = False
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # --- the socket -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client to open the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(PART)
        self._set_timer("open", self._host.options.open_timeout, lambda: self.abort("not opened"))

    @property
    def transport(self) -> asyncio.Transport:
        """The socket."""
        if self._transport is None:
            raise AssertionError("the connection is not open")
        return self._transport

    def data_received(self, data: bytes) -> None:
        """Read what the client sends."""
        if self.closed:
            return
        if self._sasl.state is SaslState.ACCEPTED:
            self._engine.receive(data)
            self._turn()
            return
        try:
            credentials = self._sasl.receive(data)
        except SaslError as error:
            self._refuse(error.condition)
            return
        self._write(self._sasl.data_to_send())
        if credentials is not None:
            # What follows waits in the socket, not here.
            self.transport.pause_reading()
            self._task = self._loop.create_task(self._authenticate(credentials))
        elif self._sasl.state is SaslState.REFUSED:
            self._refuse("not authenticated")

    def eof_received(self) -> bool:
        """Close the connection; there is nothing to say to a client that has ended it."""
        self._engine.end_of_input()
        return False

    def pause_writing(self) -> None:
        """Write nothing until the client has read, which it has to in time."""
        self._paused = True
        self._set_timer("write", self._host.options.write_timeout, lambda: self.abort("not read"))

    def resume_writing(self) -> None:
        """Go on with what is to be sent."""
        self._paused = False
        self._stop_timer("write")
        self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all that the client had here."""
        self._end(self._engine.closed or "lost")
        self._stop_timers()
        if self._task is not None:
            self._task.cancel()
        self._gone.set_result(None)
        self._host.ended(self)

    # --- the client -----------------------------------------------------------------------------

    async def _authenticate(self, shown: SaslCredentials) -> None:
        try:
            principal = await self._principal_of(shown)
        except NotAuthenticated:
            # The client is not told why.
            principal = None
        if self.closed:
            return
        self.transport.resume_reading()
        self._sasl.decide(principal is not None)
        if principal is None:
            self._refuse("not authenticated")
            return
        self.principal = principal
        self._write(self._sasl.data_to_send())
        host = self._host
        self._links = Links(
            self._engine, host.port, host.options, principal, self._wake, host.dropped
        )
        self._expire()
        self._engine.receive(self._sasl.behind())
        self._turn()

    async def _principal_of(self, shown: SaslCredentials) -> Principal:
        authentication = self._host.authentication
        if authentication is None:
            return ANONYMOUS
        if shown.acts_as not in ("", shown.name):
            raise NotAuthenticated("another identity")
        credentials: Credentials | None = None
        if shown.mechanism is Mechanism.PLAIN:
            sizes = len(shown.name.encode()), len(shown.password.encode())
            if sizes[0] > MAX_USERNAME or sizes[1] > MAX_PASSWORD:
                raise NotAuthenticated("bad credentials")
            credentials = UserPassword(shown.name, shown.password)
        return await authentication.authenticate(credentials, self.identity)

    def _expire(self) -> None:
        """End the connection when the credentials expire."""
        authentication, principal = self._host.authentication, self.principal
        if authentication is not None and principal is not None and principal.expires is not None:
            left = principal.expires - authentication.time()
            self._set_timer("credentials", left, lambda: self.withdraw("the credentials expired"))

    def check_again(self) -> None:
        """End the connection if its client is not admitted after a reload."""
        authentication, principal = self._host.authentication, self.principal
        if authentication is None or principal is None:
            return
        self.principal = authentication.readmit(principal, self.identity)
        if self.principal is None:
            self.withdraw("the credentials were withdrawn")

    def withdraw(self, description: str) -> None:
        """Close the connection of a client that may not go on."""
        self.shut("amqp:unauthorized-access", description)

    def shut(self, condition: str, description: str = "") -> None:
        """Close the connection with a reason."""
        if self._links is None or self._paused:
            self.abort(condition)
            return
        self._engine.close(condition, description)
        self._turn()

    # --- turns ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Send what there is, after the turn in which it was said."""
        if not self._woken and not self._in_turn and not self.closed:
            self._woken = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Handle what the client asks for, and write what there is."""
        self._woken = False
        links = self._links
        if links is None:
            return
        self._in_turn = True
        try:
            self._work(links)
        except (UnicodeDecodeError, self._host.proton.ProtonException):
            # A text that is none, which Proton finds when it is read.
            self._engine.close("amqp:decode-error")
        except Exception as error:  # noqa: BLE001 - one connection ends, not the listener
            self._report(error)
            self._engine.close("amqp:internal-error")
        finally:
            self._in_turn = False
        self._flush(links)

    def _work(self, links: Links) -> None:
        for event in self._engine.events():
            if isinstance(event, Opened):
                self._stop_timer("open")
                self._engine.open()
                self._tick()
            else:
                links.handle(event)

    def _flush(self, links: Links) -> None:
        while not self._paused and (data := self._engine.data_to_send(PART)):
            self.transport.write(data)
        if self._paused:
            return
        if self._engine.closed:
            self._close(self._engine.closed)
        else:
            links.resume()

    def _tick(self) -> None:
        """Pass the time to the engine: it ends a silent connection, and keeps this end alive."""
        due = self._engine.tick(self._loop.time())
        if due:
            self._set_timer("idle", due - self._loop.time(), self._ticked)

    def _ticked(self) -> None:
        self._tick()
        self._turn()

    def _report(self, error: Exception) -> None:
        text = "a connection of AMQP has failed: %s"
        self._host.seldom.log(
            logging.ERROR,
            "failed",
            text,
            type(error).__name__,
            extra={"event": "amqp.connection_failed"},
        )
        _logger.debug(text, "", exc_info=error, extra={"event": "amqp.connection_failed"})

    # --- the end --------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        if data:
            self.transport.write(data)

    def _refuse(self, reason: str) -> None:
        self._write(self._sasl.data_to_send())
        self._close(reason)

    def _close(self, reason: str) -> None:
        """Close the socket, once the client has read what was written."""
        if self.closed:
            return
        self._end(reason)
        if reason in ("closed", "lost"):
            self.transport.close()
            return
        # A socket that is closed with unread input resets the connection, and what was written
        # is lost. So what comes is read and ignored for a while.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._set_timer("linger", LINGER, self.transport.abort)

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        self._end(reason)
        self.transport.abort()

    async def gone(self) -> None:
        """Wait for the end of the socket."""
        await asyncio.shield(self._gone)

    def _end(self, reason: str) -> None:
        """Give up what the client had at the dispatcher, once."""
        if self.closed:
            return
        self.closed = reason
        self._stop_timers()
        links, self._links = self._links, None
        if links is not None:
            links.lost()
        self._engine.release()

    def _set_timer(self, name: str, seconds: float, function: Callable[[], object]) -> None:
        self._stop_timer(name)
        self._timers[name] = self._loop.call_later(max(seconds, 0), function)

    def _stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _stop_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()


def _mechanisms(
    authentication: Authentication | None, identity: PeerIdentity, *, private: bool
) -> list[Mechanism]:
    """Return what is offered to a client."""
    if authentication is None:
        return [Mechanism.ANONYMOUS]
    offered: list[Mechanism] = []
    if identity.digest:
        offered.append(Mechanism.EXTERNAL)
    if private:
        offered.append(Mechanism.PLAIN)
    return [*offered, Mechanism.ANONYMOUS]
