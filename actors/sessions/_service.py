"""The service that starts the accepting ends of sessions, and those ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...protocol import Address, AddressLike, Message, OnwardError
from ...protocol.options import check_value
from ...protocol.sessions import (
    VERSION,
    Acceptor,
    Frame,
    OpenSession,
    Ping,
    Pong,
    SessionFrameError,
    SessionOpened,
    SessionRefused,
    decode_frame,
    encode_frame,
)
from .._worker import Worker
from ._end import BAD_FRAME, SessionEnd
from ._liveness import Hook
from ._options import SessionOptions, SessionServiceOptions
from ._statistics import SessionServiceStatistics

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["AcceptedSession", "SessionService"]

_OPTIONS: Final = SessionServiceOptions()
_SHORTEST: Final = 0.001
_logger: Final = logging.getLogger("onward.actors.sessions")


class AcceptedSession(SessionEnd):
    """The accepting end of a session, started by its service.

    Workers on its node send to its address, and on from there to addresses that the opening end
    exposes. Messages from the session have its address first on their return route.
    """

    def __init__(
        self,
        session: bytes,
        token: bytes,
        inner: Address,
        options: SessionOptions,
        expose: Iterable[AddressLike],
        hooks: tuple[Hook, Hook, Hook],
        over: Callable[[AcceptedSession], None],
    ) -> None:
        super().__init__(options, expose, hooks)
        self._session = session
        self._token = token
        self._inner = inner
        self._when_over = over
        self._machine = self._acceptor = Acceptor(options.liveness)

    @property
    def identity(self) -> bytes:
        """The identity of the session, chosen by the opening end."""
        return self._session

    def _take(self, frame: Frame, message: Message) -> None:
        if isinstance(frame, OpenSession):
            self._opened(frame, message)
        elif isinstance(frame, Ping):
            self._pinged(frame, message)
        else:
            raise SessionFrameError(f"{type(frame).__name__} to the accepting end")

    def _opened(self, frame: OpenSession, message: Message) -> None:
        before = self._acceptor.epoch
        actions = self._acceptor.opened(self._now(), frame.epoch)
        if actions is None or frame.session != self._session:
            self._too_late(message)
            return
        if frame.epoch > before:
            self._route = message.return_route
            self._watch_link(message.return_route[0])
        self._send(self._route, SessionOpened(self._session, frame.epoch, self._token))
        self._act(actions)

    def _pinged(self, frame: Ping, message: Message) -> None:
        actions = None
        if frame.token == self._token:
            actions = self._acceptor.heard(self._now(), frame.epoch)
        if actions is None:
            self._too_late(message)
            return
        self._answer(message, Pong(self._token, frame.epoch, frame.number))
        self._act(actions)

    def _lost(self, cause: str, epoch: int) -> None:
        self._act(self._acceptor.lost(epoch, cause))

    def _over(self) -> None:
        self._when_over(self)
        super()._over()

    def on_stop(self) -> None:
        """Inform the other end, once, if the session is not over yet."""
        self._when_over(self)
        super().on_stop()


class SessionService(Worker):
    """A service that starts a worker for each session, at an address that clients can reach.

    ```python
    await node.start(lambda: SessionService(expose=["echo"]), address="sessions")
    await node.listen("tcp://127.0.0.1:4000", expose=["sessions"])
    ```

    Args:
        expose: The local addresses that can be reached through a session; none by default.
        allow: The access control of handshakes; all are permitted by default.
        options: Its limits and times.
        on_up: Called with the `AcceptedSession` when the session comes up.
        on_down: Called when the session goes down.
        on_closed: Called when the session is over.
    """

    def __init__(
        self,
        *,
        expose: Iterable[AddressLike] = (),
        allow: AccessControl | None = None,
        options: SessionServiceOptions = _OPTIONS,
        on_up: Hook = None,
        on_down: Hook = None,
        on_closed: Hook = None,
    ) -> None:
        check_value("options", options, SessionServiceOptions)
        super().__init__()
        self._expose = tuple(expose)
        self._allow = allow
        self._options = options
        self._hooks = on_up, on_down, on_closed
        self._ends: dict[bytes, AcceptedSession] = {}
        self._closed: dict[bytes, None] = {}
        self._opened = self._refused = self._over = self._forgotten = self._bad = 0

    @property
    def sessions(self) -> tuple[AcceptedSession, ...]:
        """The open sessions, oldest first."""
        return tuple(self._ends.values())

    def statistics(self) -> SessionServiceStatistics:
        """Return the counters."""
        return SessionServiceStatistics(
            sessions=len(self._ends),
            opened=self._opened,
            refused=self._refused,
            closed=self._over,
            forgotten=self._forgotten,
            bad=self._bad,
        )

    def handle_message(self, message: Message) -> None:
        """Pass a handshake to the end of its session, which is started if need be."""
        try:
            frame = decode_frame(message.payload)
            if (
                not isinstance(frame, OpenSession)
                or not message.return_route
                or len(message[0]) > 1
            ):
                raise SessionFrameError("not a handshake")
        except SessionFrameError:
            self._bad += 1
            self.node.dead_letter(message, BAD_FRAME)
            return
        refusal = self._refusal(frame, message)
        if refusal is not None:
            self._refused += 1
            self._refuse(frame, message, *refusal)
            return
        end = self._ends.get(frame.session) or self._begin(frame)
        try:
            self.route(message.redirect(end._inner))
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _refusal(self, frame: OpenSession, message: Message) -> tuple[bool, str] | None:
        if frame.version != VERSION:
            return True, f"version {frame.version} is not spoken here"
        if frame.session in self._closed:
            return True, "the session is over"
        if not self._allows(message):
            return True, "denied"
        if frame.session not in self._ends and len(self._ends) >= self._options.max_sessions:
            return False, "too many sessions"
        return None

    def _allows(self, message: Message) -> bool:
        try:
            return self._allow is None or self._allow(message)
        except Exception:
            _logger.exception(
                "the access control of %s failed; it denies",
                self.address,
                extra={"event": "access.failed"},
            )
            return False

    def _refuse(self, frame: OpenSession, message: Message, final: bool, reason: str) -> None:
        answer = encode_frame(SessionRefused(frame.session, frame.epoch, final, reason))
        try:
            self.reply(message, answer)
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _begin(self, frame: OpenSession) -> AcceptedSession:
        session, node = self._options.session, self.node
        interval = min(max(frame.interval / 1000, _SHORTEST), self._options.max_interval)
        options = replace(session, liveness=replace(session.liveness, ping_interval=interval))
        inner = node.random_address()
        end = AcceptedSession(
            frame.session,
            node.random_address().value[:16],
            inner,
            options,
            self._expose,
            self._hooks,
            self._ended,
        )
        self.spawn(lambda: end, address=[node.random_address(), inner])
        self._ends[frame.session] = end
        self._opened += 1
        return end

    def _ended(self, end: AcceptedSession) -> None:
        """Remove an end from the table: its session is over, or its worker stops."""
        if self._ends.get(end.identity) is not end:
            return
        del self._ends[end.identity]
        if end._acceptor.forgotten:
            self._forgotten += 1
            return  # the other end may still be there, and shake hands again
        self._over += 1
        self._closed[end.identity] = None
        if len(self._closed) > self._options.max_closed:
            del self._closed[next(iter(self._closed))]
