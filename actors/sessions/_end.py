"""The part common to both ends of a session: messages in and out, the timer, the hooks.

An end has two addresses. Workers send through the session by the *outer* one, which stays the same
as long as the session lasts. The other end sends frames to the *inner* one, which is random. So
other workers need not know how a session works, and workers between the two ends see one address of
each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Iterable
from typing import ClassVar, Final

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    AddressLike,
    Context,
    EmptyRoute,
    MailboxFull,
    Message,
    OnwardError,
    Outside,
    ProtocolError,
    Route,
    RouteTooLong,
    UnknownAddress,
)
from ...protocol.ockam import decode_message, encode_message
from ...protocol.sessions import (
    Action,
    Close,
    CloseAck,
    Frame,
    SessionData,
    SessionFrameError,
    SessionState,
    decode_frame,
    encode_frame,
)
from ..routing._given import check_payload, several
from ..runtime._policy import MailboxOptions, Overflow
from ._errors import SessionClosed, SessionDown, SessionLost
from ._liveness import Hook, LivenessWorker
from ._options import SessionOptions, WhileDown
from ._pending import PendingMessages
from ._return_routes import ReturnRoutes
from ._statistics import SessionStatistics

__all__ = ["BAD_FRAME", "FOREIGN_FRAME", "SessionEnd"]

BAD_FRAME: Final = "bad session frame"
"""Dead-letter reason of a message to the inner address that is not a frame."""

FOREIGN_FRAME: Final = "frame of another session"
"""Dead-letter reason of a frame of another session, or of an older handshake."""

_BATCH: Final = 64
_FULL_AGAIN: Final = 0.05
_UP: Final = SessionState.UP


class SessionEnd(LivenessWorker):
    """One end of a session. See `SessionClient` and `AcceptedSession`.

    Send to its address, and on from there: `node.request([session.address, "echo"], b"hi")`.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(
        self,
        options: SessionOptions,
        expose: Iterable[AddressLike],
        hooks: tuple[Hook, Hook, Hook],
    ) -> None:
        super().__init__(*hooks)
        self._options = options
        self._token = b""
        self._route: Route = ()
        self._inner: Address
        self._returns = ReturnRoutes(frozenset(several("expose", expose)), options.max_returns)
        self._kept = PendingMessages(options.max_kept, options.max_kept_bytes, options.keep_for)
        self._flushing = False
        self._stopping = False
        self._sent = self._received = 0
        self._refused = self._given_back = self._late = self._bad = 0
        self._round_trip: float | None = None

    # --- the public part ----------------------------------------------------------------

    def statistics(self) -> SessionStatistics:
        """Return the counters."""
        return SessionStatistics(
            state=self.state.name,
            cause=self.cause,
            epoch=self._machine.epoch,
            ups=self.ups,
            downs=self.downs,
            sent=self._sent,
            received=self._received,
            refused=self._refused,
            kept=len(self._kept),
            given_back=self._given_back,
            late=self._late,
            bad=self._bad,
            round_trip=self._round_trip,
        )

    # --- messages -----------------------------------------------------------------------

    def handle_message(self, message: Message) -> None:
        """Pass a message on to the other end, or process its frame. Not to be overridden."""
        if message[0][0] == self._inner:
            self._take_frame(message)
        elif len(message[0]) < 2:
            self._give_back(message, EmptyRoute())
        elif self.state is _UP and not self._kept:
            self._pass_on(message)
        else:
            self._keep(message)

    def _pass_on(self, message: Message) -> None:
        """Send a message to the other end; keep it if the route turns out to be lost."""
        try:
            self._transmit(message)
        except UnknownAddress:
            self._lost("the first hop of the route is gone", self._machine.epoch)
            self._keep(message)
        except OnwardError as error:
            self._give_back(message, error)

    def _transmit(self, message: Message) -> None:
        onward, back, payload, _, context = message
        body = encode_message(Message(onward[1:], back, payload))
        frame = encode_frame(SessionData(self._token, body))
        check_payload(frame, self.node.limits)
        if context is not None and context.outside is not None:
            # The route is this end's. The other node's part is in the frame, and the other end
            # decides about it.
            context = context._replace(outside=None)
        self.route(Message(self._route, (self._inner,), frame, self.address, context))
        self._returns.note(back, self.node.parts.table.is_request)
        self._sent += 1

    def _keep(self, message: Message) -> None:
        if self.state >= SessionState.CLOSING:
            self._give_back(message, SessionClosed(self.address, self.cause))
        elif self._options.while_down is WhileDown.REFUSE and self.state is not _UP:
            self._give_back(message, SessionDown(self.address, self.cause))
        elif not self._kept.put(message, self._now()):
            self._give_back(message, SessionDown(self.address, f"{len(self._kept)} are kept"))
        else:
            self._arm()

    def _give_back(self, message: Message, error: OnwardError) -> None:
        self._given_back += 1
        self.node.lose(message, error)

    def _flush(self) -> None:
        """Send the kept messages, a batch in each turn, so that no mailbox behind it fills up."""
        self._flushing = False
        for _ in range(_BATCH):
            if self.state is not _UP or not self._kept:
                return
            until = self._kept.due_at or 0.0
            message = self._kept.take()
            try:
                self._transmit(message)
            except MailboxFull:
                self._kept.put_back(message, until)
                self._flush_after(_FULL_AGAIN)
                return
            except UnknownAddress:
                self._kept.put_back(message, until)
                self._lost("the first hop of the route is gone", self._machine.epoch)
                return
            except OnwardError as error:
                self._give_back(message, error)
        self._flush_after(0)

    def _flush_after(self, seconds: float) -> None:
        if not self._flushing:
            self._flushing = True
            self.after(seconds, self._flush)

    # --- frames -------------------------------------------------------------------------

    def _take_frame(self, message: Message) -> None:
        try:
            if len(message[0]) > 1:
                raise SessionFrameError("it is for an address behind this end")
            frame = decode_frame(message.payload)
            if isinstance(frame, SessionData | Close | CloseAck) and frame.token != self._token:
                self._too_late(message)
            elif isinstance(frame, SessionData):
                if self.state >= SessionState.CLOSING:
                    self._too_late(message)
                    return
                self._deliver(decode_message(frame.body), message)
            elif isinstance(frame, Close):
                self._answer(message, CloseAck(self._token))
                self._act(self._machine.told(frame.reason))
            elif isinstance(frame, CloseAck):
                self._act(self._machine.acked())
            else:
                self._take(frame, message)
        except ProtocolError:
            self._bad += 1
            self.node.dead_letter(message, BAD_FRAME)

    @abstractmethod
    def _take(self, frame: Frame, message: Message) -> None:
        """Process a frame that has another meaning at each end.

        Raises:
            SessionFrameError: The frame has no meaning at this one.
        """

    def _too_late(self, message: Message) -> None:
        self._late += 1
        self.node.dead_letter(message, FOREIGN_FRAME)

    def _deliver(self, inner: Message, outer: Message) -> None:
        """Send on a message from the other end, as if this end had forwarded it."""
        self._received += 1
        onward, back = inner[0], inner[1]
        context = self._of_outside(onward, outer.context)
        message = Message(onward, (self.address, *back), inner.payload, self.address, context)
        try:
            if not onward:
                raise EmptyRoute
            if not self._returns.admits(onward):
                self._refused += 1
                self.node.dead_letter(message, "not exposed")
                return
            if len(back) >= MAX_ROUTE_LENGTH:
                raise RouteTooLong(len(back) + 1, MAX_ROUTE_LENGTH)
            self.route(self.node.parts.guards.pass_on(message))
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _of_outside(self, onward: Route, context: Context | None) -> Context | None:
        """Return the context of a message from the other end.

        A message from another node may go to exposed addresses, and where the link lets it.
        """
        if context is None or context.outside is None:
            return context
        allows, exposes = context.outside.allows, self._returns.exposes

        def may(address: Address) -> bool:
            return exposes(address) or allows(address)

        given = 0 if self._returns.is_back(onward) else len(onward) - 1
        return context._replace(outside=Outside(given, may))

    def _answer(self, message: Message, frame: Frame) -> None:
        """Answer a frame along its return route; if that fails, pings detect it."""
        if message.return_route:
            self._send(message.return_route, frame)

    def _send(self, route: Route, frame: Frame) -> None:
        sent = Message(route, (self._inner,), encode_frame(frame), self.address)
        try:
            self._route_now(sent)
        except OnwardError as error:
            self.node.dead_letter(sent, error)

    # --- the machine --------------------------------------------------------------------

    def _came_up(self) -> None:
        if self._kept:
            self._flush_after(0)

    def _tell(self) -> None:
        if self._route:
            self._send(self._route, Close(self._token, self.cause))
        else:
            self._act(self._machine.acked())  # it has never been up: no other end to inform

    def _due_at(self) -> float | None:
        times = [at for at in (self._machine.wake_at, self._kept.due_at) if at is not None]
        return min(times, default=None)

    def _wake(self) -> None:
        now = self._now()
        while (due := self._kept.due_at) is not None and due <= now:
            self._give_back(self._kept.take(), SessionDown(self.address, "kept for too long"))
        super()._wake()

    # --- the end ------------------------------------------------------------------------

    def _over(self) -> None:
        self._fail_waiting(self.cause)
        while self._kept:
            self._give_back(self._kept.take(), SessionClosed(self.address, self.cause))
        if not self._stopping:
            # Not at once: a repeated close of the other end may need one more answer.
            times = self._options.liveness
            self.after(times.close_interval * times.close_attempts, self.stop)

    def _fail_waiting(self, detail: str) -> None:
        """Fail the requests that went to the other end and have no reply yet."""
        for mailbox in self._returns.take_waiting():
            self.node.fail_request(mailbox, SessionLost(self.address, detail))

    def on_stop(self) -> Awaitable[None] | None:
        """Inform the other end, once, if the session is not over yet."""
        self._end()
        return None

    def _end(self) -> None:
        self._stopping = True
        if self.state is not SessionState.CLOSED:
            actions = self._machine.close(self._now(), "stopped")
            if Action.TELL in actions and self._route:
                self._send(self._route, Close(self._token, self.cause))
            self._machine.acked()
            self._do(Action.OVER)
            self._tell_waiting()
