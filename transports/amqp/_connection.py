"""One connection of a client of AMQP: a socket, the SASL layer, the engine, and the links.

Bytes go to the SASL layer until the client is accepted, and to the engine from then on.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

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
from ._engine import AmqpEngine
from ._links import Links
from ._port import DispatchPort
from ._sasl import Mechanism, SaslCredentials, SaslError, SaslServer, SaslState
from ._stream import AmqpStream, StreamHost

__all__ = ["AmqpConnection", "AmqpHost"]


class AmqpHost(StreamHost, Protocol):
    """The server, as its connections know it."""

    @property
    def port(self) -> DispatchPort:
        """The dispatcher."""
        ...

    @property
    def container(self) -> str:
        """The name of the server's container."""
        ...

    @property
    def authentication(self) -> Authentication | None:
        """The authentication of clients; `None` admits each that can connect."""
        ...

    def dropped(self, reason: str) -> None:
        """Count a message that was dropped."""
        ...

    def ended(self, connection: AmqpConnection) -> None:
        """Forget a connection that is closed."""
        ...


class AmqpConnection(AmqpStream):
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
        super().__init__(host, AmqpEngine(host.proton, host.container, host.options))
        self.identity = identity
        self.principal: Principal | None = None
        self._server = host
        self._sasl = SaslServer(_mechanisms(host.authentication, identity, private=private))
        self._task: asyncio.Task[None] | None = None

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

    def _refuse(self, reason: str) -> None:
        self._write(self._sasl.data_to_send())
        self._close(reason)

    def _lost(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._server.ended(self)

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
        host = self._server
        self._links = Links(
            self._engine,
            host.port,
            host.options,
            principal,
            self._wake,
            host.dropped,
            self._fail,
        )
        self._expire()
        self._engine.receive(self._sasl.behind())
        self._turn()

    async def _principal_of(self, shown: SaslCredentials) -> Principal:
        authentication = self._server.authentication
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
        authentication, principal = self._server.authentication, self.principal
        self._stop_timer("credentials")
        if authentication is not None and principal is not None and principal.expires is not None:
            left = principal.expires - authentication.time()
            self._set_timer("credentials", left, lambda: self.withdraw("the credentials expired"))

    def check_again(self) -> None:
        """End the connection if its client is another one after a reload, or is not admitted."""
        authentication, principal = self._server.authentication, self.principal
        if authentication is None or principal is None or self.closed:
            return
        now = authentication.readmit(principal, self.identity)
        if now is None:
            self.withdraw("the credentials were withdrawn")
        elif not now.is_same(principal) or now.roles != principal.roles:
            # Its links were let in with the roles of before.
            self.withdraw("the roles have changed")
        else:
            self.principal = now
            self._expire()

    def withdraw(self, description: str) -> None:
        """Close the connection of a client that may not go on."""
        self.shut("amqp:unauthorized-access", description)


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
