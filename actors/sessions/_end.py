"""What both ends of a session have in common: messages in and out, the timer, the hooks.

An end has two addresses. Whoever wants to send through the session uses the *outer* one, which
stays the same for as long as the session lasts. The other end uses the *inner* one, which is
random; what comes there are frames. So nobody else need know how a session works, and what is
between the two ends sees one address of each.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    AddressLike,
    EmptyRoute,
    MailboxFull,
    Message,
    OnwardError,
    ProtocolError,
    Route,
    RouteTooLong,
    UnknownAddress,
    address as address_of,
)
from ...protocol.ockam import decode_message, encode_message
from ...protocol.sessions import (
    Acceptor,
    Action,
    Actions,
    Close,
    Closed,
    Data,
    Frame,
    Opener,
    SessionFrameError,
    SessionState,
    decode_frame,
    encode_frame,
)
from .._timer import Timer
from .._worker import Worker
from ._errors import SessionClosed, SessionDown, SessionLost
from ._kept import Kept
from ._options import SessionOptions, WhileDown
from ._statistics import SessionStatistics
from ._ways import Ways

__all__ = ["BAD_FRAME", "FOREIGN_FRAME", "Hook", "SessionEnd"]

Hook: TypeAlias = "Callable[[Any], object] | None"
"""Is called, on the loop, with the end of the session that something happened to. It must not
block; what it raises is logged. `None`: nothing is called."""

BAD_FRAME: Final = "bad session frame"
"""The reason of the dead letter that a message to the inner address becomes if it is no frame."""

FOREIGN_FRAME: Final = "frame of another session"
"""The reason of the dead letter that a frame becomes which is of another session, or of an
older handshake."""

_BATCH: Final = 64
_FULL_AGAIN: Final = 0.05
_UP: Final = SessionState.UP

_logger: Final = logging.getLogger("onward.actors.sessions")


class SessionEnd(Worker):
    """One end of a session. See `SessionClient` and `AcceptedSession`.

    Send to its address, and on from there: `node.request([session.address, "echo"], b"hi")`.

    Attributes:
        cause: Why it last went down, or is over, in a few words; empty if it never has.
    """

    _machine: Opener | Acceptor

    def __init__(
        self,
        options: SessionOptions,
        expose: Iterable[AddressLike],
        hooks: tuple[Hook, Hook, Hook],
    ) -> None:
        super().__init__()
        self._options = options
        self._token = b""
        self._way: Route = ()
        self._inner: Address
        self._ways = Ways(frozenset(map(address_of, expose)), options.max_returns)
        self._kept = Kept(options.max_kept, options.max_kept_bytes, options.keep_for)
        self._on_up, self._on_down, self._on_closed = hooks
        self._timer: Timer | None = None
        self._timer_at = 0.0
        self._unwatch: Callable[[], None] | None = None
        self._changed = asyncio.Event()
        self._flushing = False
        self._ups = self._downs = self._sent = self._received = 0
        self._refused = self._given_back = self._late = self._bad = 0
        self._round_trip: float | None = None

    # --- what users see -----------------------------------------------------------------

    @property
    def state(self) -> SessionState:
        """Where it is."""
        return self._machine.state

    @property
    def cause(self) -> str:
        """Why it last went down, or is over, in a few words; empty if it never has."""
        return self._machine.cause

    async def until_up(self, timeout: float = 30.0) -> None:
        """Wait until messages go through.

        Args:
            timeout: How long to wait, in seconds.

        Raises:
            SessionDown: It did not come up in time.
            SessionClosed: It is over.
        """
        try:
            async with asyncio.timeout(timeout):
                while self.state is not _UP:
                    if self.state >= SessionState.CLOSING:
                        raise SessionClosed(self.address, self.cause)
                    await self._changed.wait()
        except TimeoutError:
            raise SessionDown(self.address, f"not up in {timeout:g} s") from None

    async def until_closed(self) -> str:
        """Wait until the session is over; return why."""
        while self.state is not SessionState.CLOSED:
            await self._changed.wait()
        return self.cause

    async def close(self, reason: str = "closed") -> None:
        """Close the session, tell the other end, and stop this worker.

        It returns when the other end has confirmed, or was told `close_attempts` times.
        Idempotent.

        Args:
            reason: What the other end is told, in a few words.
        """
        self._act(self._machine.close(self._now(), reason))
        await self.until_closed()

    def statistics(self) -> SessionStatistics:
        """Return what is counted."""
        return SessionStatistics(
            state=self.state.name,
            cause=self.cause,
            epoch=self._machine.epoch,
            ups=self._ups,
            downs=self._downs,
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
        """Take a message for the other end, or a frame of its. Not to be overridden."""
        if message[0][0] == self._inner:
            self._take_frame(message)
        elif len(message[0]) < 2:
            self._give_back(message, EmptyRoute())
        elif self.state is _UP and not self._kept:
            self._pass_on(message)
        else:
            self._keep(message)

    def _pass_on(self, message: Message) -> None:
        """Send a message to the other end; keep it if the way turns out to be lost."""
        try:
            self._transmit(message)
        except UnknownAddress:
            self._lost("the first step of the way is gone")
            self._keep(message)
        except OnwardError as error:
            self._give_back(message, error)

    def _transmit(self, message: Message) -> None:
        onward, back, payload, _, context = message
        body = encode_message(Message(onward[1:], back, payload))
        frame = encode_frame(Data(self._token, body))
        self.node.check_payload(frame)
        self.route(Message(self._way, (self._inner,), frame, self.address, context))
        self._ways.note(back, self.node.is_ephemeral)
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
        """Send what was kept, a batch in each turn, so that nothing behind it fills up."""
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
                self._lost("the first step of the way is gone")
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
                raise SessionFrameError("it is for somebody behind this end")
            frame = decode_frame(message.payload)
            if isinstance(frame, Data | Close | Closed) and frame.token != self._token:
                self._too_late(message)
            elif isinstance(frame, Data):
                if self.state >= SessionState.CLOSING:
                    self._too_late(message)
                    return
                self._deliver(decode_message(frame.body), message)
            elif isinstance(frame, Close):
                self._answer(message, Closed(self._token))
                self._act(self._machine.told(frame.reason))
            elif isinstance(frame, Closed):
                self._act(self._machine.acked())
            else:
                self._take(frame, message)
        except ProtocolError:
            self._bad += 1
            self.node.dead_letter(message, BAD_FRAME)

    @abstractmethod
    def _take(self, frame: Frame, message: Message) -> None:
        """Take a frame that means something else to each end.

        Raises:
            SessionFrameError: It means nothing to this one.
        """

    def _too_late(self, message: Message) -> None:
        self._late += 1
        self.node.dead_letter(message, FOREIGN_FRAME)

    def _deliver(self, inner: Message, outer: Message) -> None:
        """Send on what came from the other end, as if this end had forwarded it."""
        self._received += 1
        onward, back = inner[0], inner[1]
        message = Message(onward, (self.address, *back), inner.payload, self.address, outer.context)
        try:
            if not onward:
                raise EmptyRoute
            if not self._ways.admits(onward):
                self._refused += 1
                self.node.dead_letter(message, "not exposed")
                return
            if len(back) >= MAX_ROUTE_LENGTH:
                raise RouteTooLong(len(back) + 1, MAX_ROUTE_LENGTH)
            self.route(message)
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _answer(self, message: Message, frame: Frame) -> None:
        """Answer a frame along the way it came; what cannot be sent, pings will notice."""
        if message.return_route:
            self._send(message.return_route, frame)

    def _send(self, way: Route, frame: Frame) -> None:
        sent = Message(way, (self._inner,), encode_frame(frame), self.address)
        try:
            self.route(sent)
        except OnwardError as error:
            self.node.dead_letter(sent, error)

    # --- the machine --------------------------------------------------------------------

    def _now(self) -> float:
        return self.node.loop.time()

    def _act(self, actions: Actions) -> None:
        for action in actions:
            self._do(action)
        if actions:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
        self._arm()

    def _do(self, action: Action) -> None:
        if action is Action.UP:
            self._ups += 1
            if self._kept:
                self._flush_after(0)
            self._call(self._on_up)
        elif action is Action.DOWN:
            self._downs += 1
            self._forget_link()
            self._call(self._on_down)
        elif action is Action.TELL:
            self._tell()
        elif action is Action.OVER:
            self._over()
        else:
            raise AssertionError(f"unexpected {action} of {self}")

    def _tell(self) -> None:
        if self._way:
            self._send(self._way, Close(self._token, self.cause))
        else:
            self._act(self._machine.acked())  # it has never been up: there is nobody to tell

    def _call(self, hook: Hook) -> None:
        if hook is not None:
            try:
                hook(self)
            except Exception:
                _logger.exception("a hook of the session %s failed", self.address)

    def _arm(self) -> None:
        """Have a timer for whatever is due first."""
        times = [at for at in (self._machine.wake_at, self._kept.due_at) if at is not None]
        if not times:
            return
        due = min(times)
        if self._timer is not None and self._timer.active:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self.after(max(0.0, due - self._now()), self._wake)

    def _wake(self) -> None:
        now = self._now()
        while (due := self._kept.due_at) is not None and due <= now:
            self._give_back(self._kept.take(), SessionDown(self.address, "kept for too long"))
        self._act(self._machine.tick(now))

    def _watch_link(self, first: Address) -> None:
        """Hear at once when the first step of the way stops, if it is a worker of this node."""
        self._forget_link()
        epoch = self._machine.epoch
        try:
            self._unwatch = self.node.watch(first, lambda: self._link_gone(epoch))
        except UnknownAddress:
            self._unwatch = None  # a rule resolves it each time, or it is gone: pings notice

    def _link_gone(self, epoch: int) -> None:
        if epoch == self._machine.epoch:
            self._unwatch = None
            self._lost("the first step of the way stopped")

    def _forget_link(self) -> None:
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    @abstractmethod
    def _lost(self, cause: str) -> None:
        """Tell the machine that the way is lost."""

    # --- the end ------------------------------------------------------------------------

    def _over(self) -> None:
        self._forget_link()
        self._fail_waiting(self.cause)
        while self._kept:
            self._give_back(self._kept.take(), SessionClosed(self.address, self.cause))
        self._call(self._on_closed)
        # Not at once: the other end may have to be told once more that we know.
        times = self._options.liveness
        self.after(times.close_interval * times.close_attempts, self.stop)

    def _fail_waiting(self, detail: str) -> None:
        """End the requests that went to the other end and have had no answer."""
        for mailbox in self._ways.take_waiting():
            self.node.fail_request(mailbox, SessionLost(self.address, detail))

    def on_stop(self) -> None:
        """Tell the other end, once, if the session is not over yet."""
        if self.state is not SessionState.CLOSED:
            actions = self._machine.close(self._now(), "stopped")
            if Action.TELL in actions and self._way:
                self._send(self._way, Close(self._token, self.cause))
            self._machine.acked()
            self._forget_link()
            self._fail_waiting(self.cause)
            while self._kept:
                self._give_back(self._kept.take(), SessionClosed(self.address, self.cause))
            self._call(self._on_closed)
            self._changed.set()
