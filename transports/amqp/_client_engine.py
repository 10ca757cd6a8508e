"""The engine of a connection to a container: it logs in, and attaches links of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Final

from ._attaches import check_attach, write_attach
from ._deliveries import impl_of
from ._engine import CLIENT, AmqpEngine, LinkDetached
from ._options import AmqpOptions
from ._proton import AmqpLink, Proton, Session
from ._sasl import AMQP_HEADER, Mechanism

__all__ = ["ClientEngine", "Login"]


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials that a container is shown.

    Attributes:
        host: The name of the container's host.
        mechanism: The mechanism of SASL.
        name: The name, of PLAIN.
        password: The password, of PLAIN.
    """

    host: str
    mechanism: Mechanism = Mechanism.ANONYMOUS
    name: str = ""
    password: str = field(default="", repr=False)


MAX_CHANNEL: Final = 32767
"""The greatest number of a session in Proton."""


class ClientEngine(AmqpEngine):
    """One connection, of its client. It is opened at once.

    The node's own links are in one session. Each link of a circuit has another one, for as long as
    the container takes further sessions: what waits in a session holds back all of its links, and
    the ends of circuits are those of several clients.

    Args:
        proton: The module.
        container: The name of the own container.
        options: The limits.
        login: What the container is shown.
    """

    _mode: ClassVar[int] = CLIENT

    def __init__(self, proton: Proton, container: str, options: AmqpOptions, login: Login) -> None:
        self._login: Final = login
        self._session: Session
        # The link of each session of a circuit, which the container may not have answered yet.
        self._of_circuits: dict[Session, AmqpLink] = {}
        self._names = count(1)
        super().__init__(proton, container, options)

    def _prepare(self) -> None:
        # Proton reads the headers: that of SASL comes before that of the connection.
        self._header = AMQP_HEADER
        login, connection = self._login, self._connection
        self._transport.channel_max = min(self._options.max_links, MAX_CHANNEL)
        connection.hostname = login.host
        if login.mechanism is Mechanism.PLAIN:
            connection.user, connection.password = login.name, login.password
        sasl = self._transport.sasl()
        sasl.allowed_mechs(login.mechanism.value)
        # TLS is outside of Proton, which would take each connection for an insecure one.
        sasl.allow_insecure_mechs = True
        connection.open()
        self._session = connection.session()
        self._begin(self._session)

    def _end(self, session: Session) -> Iterator[LinkDetached]:
        link = self._of_circuits.pop(session, None)
        if link is not None:
            # What it has not answered ends with its session like the others.
            self._links[impl_of(link)] = link
        yield from super()._end(session)
        if session == self._session:
            # All links are in this one: the container is connected to anew.
            self.close("amqp:connection:forced", "the session was ended")

    def attach(self, address: str, *, receives: bool) -> AmqpLink:
        """Attach a link to an address of the container; `LinkAttached` is its answer."""
        link = self._named(self._session, address, receives=receives)
        if receives:
            link.max_message_size = self._options.max_message
        link.open()
        return link

    def link_as(self, address: str, attach: bytes, *, receives: bool) -> AmqpLink:
        """Return a link to an address of the container as another one was attached elsewhere.

        It is opened by the caller; `LinkAttached` is the answer then.

        Raises:
            Refused: The attach cannot be written.
        """
        items = check_attach(self.proton, attach, self.peer_max_frame, address)
        link = self._link_of_circuit(address, receives=receives)
        write_attach(link, items)
        (link.source if receives else link.target).address = address
        return link

    def _named(self, session: Session, address: str, *, receives: bool) -> AmqpLink:
        """Return a link to an address, with a name that no other one of the connection has."""
        name = f"onward-{next(self._names)}"
        link = session.receiver(name) if receives else session.sender(name)
        (link.source if receives else link.target).address = address
        return link

    def _link_of_circuit(self, address: str, *, receives: bool) -> AmqpLink:
        """Return a link in a new session, or in that of all if the container takes no more."""
        most = min(self._transport.channel_max, self._transport.remote_channel_max)
        if len(self._sessions) > most:
            return self._named(self._session, address, receives=receives)
        session = self._connection.session()
        self._begin(session)
        link = self._of_circuits[session] = self._named(session, address, receives=receives)
        return link

    def free(self, link: AmqpLink) -> None:
        """Give a link back that has ended at both ends, with the session of a circuit."""
        if impl_of(link) not in self._links:
            return
        session = link.session
        super().free(link)
        if self._of_circuits.pop(session, None) is not None:
            session.close()

    def release(self) -> None:
        """Give all of Proton's objects back, which refer to each other."""
        self._of_circuits.clear()
        super().release()
