"""One connection of AMQP 1.0, without I/O: bytes in, events out; calls in, bytes out.

Proton's engine does the work. Around it are the header, the limits of sessions and links, and the
texts of errors: what Proton tells a client of its own errors may hold a copy of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final, NamedTuple, TypeAlias

from ._deliveries import Pointer, impl_of, load_binding
from ._ended_sessions import EndedSessions
from ._options import AmqpOptions
from ._proton import LOCAL_UNINIT, AmqpLink, Collector, Condition, Event, Proton, Session
from ._sasl import AMQP_HEADER

__all__ = [
    "CLIENT",
    "AmqpEngine",
    "DeliveryChanged",
    "EngineEvent",
    "Flowed",
    "LinkAttached",
    "LinkDetached",
    "Opened",
]

MAX_TEXT: Final = 256
"""Most characters of the name and of the description of an error."""

LINK_EVENTS: Final = frozenset(
    (
        "on_link_flow",
        "on_link_remote_close",
        "on_link_remote_detach",
        "on_link_remote_open",
    )
)
"""Events of Proton that are of a link, by the names of their methods."""

SESSION_FRAMES: Final = 256
"""The frames that a client may send in a session before they are read, at most."""

MAX_INCOMING: Final = 4 * 1024 * 1024
"""The bytes of all sessions of a connection that may wait to be read, beside `LEAST_FRAMES`."""

LEAST_FRAMES: Final = 2
"""The frames that it may send at least, however many sessions there are."""

_NO_LIMIT: Final = (1 << 32) - 1
"""The bytes of a frame of AMQP, of which the size is told in 4 bytes."""

CLIENT: Final = 1
SERVER: Final = 2
"""Modes of a Proton transport: one that begins, and one that waits for the header of a client."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The client has opened the connection."""


@dataclass(frozen=True, slots=True)
class LinkAttached:
    """The client attaches a link, which is to be answered."""

    link: AmqpLink


@dataclass(frozen=True, slots=True)
class LinkDetached:
    """The client has detached a link, closed it, or ended its session.

    Its Proton object is given back with `AmqpEngine.free`.

    Attributes:
        link: The link.
        closed: Whether it is closed, and not only detached.
        ended: Whether its session has ended with it, so that there is no answer.
    """

    link: AmqpLink
    closed: bool = True
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Flowed:
    """The client has given credit to a link, or asked for a drain."""

    link: AmqpLink


class DeliveryChanged(NamedTuple):
    """A delivery has come on, or its state has. There is one for each message, hence a tuple.

    Attributes:
        link: The pointer to its link.
        delivery: The pointer to it, which holds until the next event is asked for.
    """

    link: Pointer
    delivery: Pointer


EngineEvent: TypeAlias = Opened | LinkAttached | LinkDetached | Flowed | DeliveryChanged


class AmqpEngine:
    """One connection, of its server; see `ClientEngine` for the other end.

    Args:
        proton: The module.
        container: The name of the server's container, which the client is told.
        options: The limits.

    Attributes:
        proton: As given.
        opened: Whether the client has opened the connection.
        closed: The condition by which the connection ends; empty while it is open. If the peer has
            closed it, it has ended by `closed`.
        told: The condition with which the peer has closed it; empty for none.
    """

    def __init__(self, proton: Proton, container: str, options: AmqpOptions) -> None:
        self.opened = False
        self.closed = ""
        self.told = ""
        self.proton = proton
        self._options = options
        self._header = b""
        self._refused_header = b""
        self.binding: Final = load_binding()
        self._links: dict[Pointer, AmqpLink] = {}
        self._sessions: dict[Session, None] = {}
        self._ended: Final = EndedSessions(self.binding)
        self._collector: Collector = proton.Collector()
        self._connection = proton.Connection()
        self._connection.container = container
        self._connection.collect(self._collector)
        self._transport = proton.Transport(self._mode)
        # Proton writes warnings to the standard error output, as many as a peer causes.
        self._transport.tracer = _ignore
        self._transport.max_frame_size = options.max_frame
        self._transport.channel_max = options.max_sessions - 1
        # AMQP 1.0, part 2, section 2.4.5: "the value in idle-time-out SHOULD be half the peer's
        # actual timeout threshold"; Proton does that itself.
        self._transport.idle_timeout = options.idle_timeout
        self._prepare()
        self._transport.bind(self._connection)

    _mode: ClassVar[int] = SERVER

    def _prepare(self) -> None:
        """Prepare the connection before its first byte."""

    # --- bytes ----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Read bytes. What they say is in `events`."""
        if self.closed:
            return
        if len(self._header) < len(AMQP_HEADER):
            data = self._read_header(data)
        while data and (room := self._transport.capacity()) > 0:
            try:
                self._transport.push(data[:room])
            except self.proton.ProtonException:
                break
            data = data[room:]

    def _read_header(self, data: bytes) -> bytes:
        """Check the header of a connection, and return what Proton is to read."""
        missing = len(AMQP_HEADER) - len(self._header)
        self._header += data[:missing]
        if not AMQP_HEADER.startswith(self._header):
            # AMQP 1.0, part 2, section 2.2: "If the requested protocol version is not supported,
            # the server MUST send a protocol header with a supported protocol version and then
            # close the socket."
            self._refused_header = AMQP_HEADER
            self.closed = "amqp:connection:framing-error"
            return b""
        return self._header + data[missing:] if len(self._header) == len(AMQP_HEADER) else b""

    def data_to_send(self, most: int) -> bytes:
        """Return what has to be sent, of at most as many bytes; nothing if that is all."""
        if self._refused_header:
            made, self._refused_header = self._refused_header, b""
            return made
        size = min(self._transport.pending(), most)
        if size < 0 and not self.closed:
            # Nothing is written any more, and the event of that may come too late to be seen.
            self._fail()
        if size <= 0 or self._header != AMQP_HEADER:
            return b""
        made = bytes(self._transport.peek(size) or b"")
        self._transport.pop(len(made))
        return made

    def unsent(self) -> int:
        """Return the bytes of deliveries that Proton has not begun to write."""
        # To ask for the bytes that are pending would have Proton begin with one more message.
        return sum(map(self.binding.unsent, self._sessions))

    def tick(self, now: float) -> float:
        """Pass the time on, and return when to do so again, in seconds; 0 if not at all."""
        return self._transport.tick(now)

    @property
    def peer_max_frame(self) -> int:
        """The bytes of a frame that the peer takes."""
        return self._transport.remote_max_frame_size or _NO_LIMIT

    # --- calls ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the connection at this end."""
        self._connection.open()

    def condition(self, name: str, description: str) -> Condition:
        """Return the reason of an end or of a rejection."""
        # AMQP 1.0, part 1, section 1.6.21: a symbol is "values from a constrained domain", in
        # ASCII.
        named = name.encode("ascii", "replace").decode()[:MAX_TEXT] or "amqp:internal-error"
        # In Proton's calls a text ends at its first NUL.
        text = description.replace("\0", " ").encode("utf-8", "replace").decode()[:MAX_TEXT]
        # Proton sends a frame also to a peer that takes none of this size.
        room = max(0, self.peer_max_frame - len(named) - MAX_TEXT // 2)
        text = text.encode()[:room].decode(errors="ignore")
        return self.proton.Condition(named.replace("\0", "?"), text or None)

    def close(self, condition: str = "", description: str = "") -> None:
        """Close the connection, with the reason if there is one."""
        if self.closed:
            return
        self.closed = condition or "closed"
        if condition:
            self._connection.condition = self.condition(condition, description)
        self._connection.open()
        self._connection.close()

    def end_of_input(self) -> None:
        """Record that the client sends nothing more."""
        self.closed = self.closed or "lost"

    @cached_property
    def stray_link(self) -> AmqpLink:
        """A link of no connection.

        It stands for one that is gone: the dispatcher may know its end for a while, and a session
        that has ended is kept until nothing refers to its links.
        """
        return self.proton.Connection().session().sender("stray")

    def free(self, link: AmqpLink) -> None:
        """Give a link back that has ended at both ends."""
        if self._links.pop(impl_of(link), None) is not None:
            link.free()

    def release(self) -> None:
        """Give all of Proton's objects back, which refer to each other."""
        self._links.clear()
        self._sessions.clear()
        self._transport.unbind()
        self._connection.free()
        # Without a transport no link counts as attached any more.
        self._ended.clear()

    # --- events ---------------------------------------------------------------------------------

    def events(self) -> Iterator[EngineEvent]:
        """Yield what has happened, in order."""
        links, next_delivery = self._links, self.binding.next_delivery
        while True:
            if (changed := next_delivery(self._collector)) is not None:
                if changed[0] in links:
                    yield DeliveryChanged(*changed)
                self._collector.pop()
                continue
            if (event := self._collector.peek()) is None:
                break
            kind = event.type.method
            if kind in LINK_EVENTS:
                yield from self._link_events(kind, event)
            elif kind == "on_connection_remote_open":
                self.opened = True
                yield Opened()
            elif kind == "on_connection_remote_close":
                found = self._connection.remote_condition
                self.told = "" if found is None else (found.name or "")[:MAX_TEXT]
                self.close()
            elif kind == "on_session_remote_open":
                self._begin(event.session)
            elif kind == "on_session_remote_close":
                yield from self._end(event.session)
            elif kind == "on_transport_error":
                self._fail()
            self._collector.pop()
        if self._transport.capacity() < 0:
            # Proton reads nothing more. If it has given no reason, a frame was none, and it does
            # not tell the client.
            self.close("amqp:connection:framing-error")

    def _link_events(self, kind: str, event: Event) -> Iterator[EngineEvent]:
        if kind == "on_link_remote_open":
            if self._attach(event.link):
                yield LinkAttached(event.link)
        elif impl_of(event.link) in self._links:
            if kind == "on_link_flow":
                yield Flowed(event.link)
            else:
                yield LinkDetached(event.link, kind == "on_link_remote_close")

    def _begin(self, session: Session) -> None:
        # There are no more of them than there are channels, which Proton sees to.
        self._sessions[session] = None
        self._share_room()
        session.open()

    def _share_room(self) -> None:
        """Share among the sessions what may wait in them to be read.

        That of a link that goes through waits until the other end has read; all else is read at
        once.
        """
        if not self._sessions:
            return
        frame = self._options.max_frame
        most = min(SESSION_FRAMES * frame, MAX_INCOMING // len(self._sessions))
        for each in self._sessions:
            each.incoming_capacity = max(LEAST_FRAMES * frame, most)

    def _end(self, session: Session) -> Iterator[LinkDetached]:
        for link in [each for each in self._links.values() if each.session == session]:
            yield LinkDetached(link, ended=True)
            # Proton frees the links of a session with it, so that each has to be freed before.
            self.free(link)
        if self._sessions.pop(session, self) is None:
            session.close()
            session.free()
            if not self._ended.add(session):
                self.close("amqp:resource-limit-exceeded", "too many ended sessions")
            self._share_room()

    def _attach(self, link: AmqpLink) -> bool:
        if self.closed or impl_of(link) in self._links:
            return False
        # A link of this end is in answer to its own attach, and was counted before.
        if link.state & LOCAL_UNINIT and len(self._links) >= self._options.max_links:
            self.close("amqp:resource-limit-exceeded", "too many links")
            return False
        self._links[impl_of(link)] = link
        return True

    def _fail(self) -> None:
        """Replace the text of an error of Proton, which may have a copy of the input."""
        found = self._transport.condition
        name = (found.name if found is not None else None) or "amqp:connection:framing-error"
        self.closed = self.closed or name
        self._transport.condition = self.proton.Condition(name, None)


def _ignore(_transport: object, _line: str) -> None:
    """Receive a line of Proton's own log: what counts of it comes as an event."""
