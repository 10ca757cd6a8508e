"""A socket with an engine and its links: what connections in both directions have in common.

Whatever has happened, by bytes of the peer or by a call of the dispatcher, what is to be sent is
written in one place, for as long as the socket takes it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, Protocol, cast

from .._log import SeldomLogger
from ._engine import AmqpEngine, Opened
from ._links import Links
from ._options import AmqpOptions
from ._proton import Proton

__all__ = ["PART", "AmqpStream", "StreamHost"]

_logger = logging.getLogger("onward.transports.amqp")

PART: Final = 64 * 1024
"""The bytes that are written at a time, and that may wait for the socket."""

LINGER: Final = 1.0
"""The seconds for which a peer may read the reason of the end before its connection is cut."""


class StreamHost(Protocol):
    """The worker of connections, as they know it."""

    @property
    def options(self) -> AmqpOptions:
        """The limits."""
        ...

    @property
    def proton(self) -> Proton:
        """The engine's module."""
        ...

    @property
    def seldom(self) -> SeldomLogger:
        """The log of events that peers cause."""
        ...


class AmqpStream(asyncio.Protocol):
    """A connection, of a client or to a container.

    Args:
        host: Its worker.
        engine: Its engine.

    Attributes:
        closed: The reason of its end; empty while it is open.
    """

    def __init__(self, host: StreamHost, engine: AmqpEngine) -> None:
        self.closed = ""
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._engine = engine
        self._links: Links | None = None
        self._transport: asyncio.Transport | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._in_turn = False
        self._woken = False
        self._paused = False
        self._gone: asyncio.Future[None] = self._loop.create_future()

    # --- the socket -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the peer to open the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(PART)
        self._set_timer("open", self._host.options.open_timeout, lambda: self.abort("not opened"))

    @property
    def transport(self) -> asyncio.Transport:
        """The socket."""
        if self._transport is None:
            raise AssertionError("the connection is not open")
        return self._transport

    def eof_received(self) -> bool:
        """Close the connection; there is nothing to say to a peer that has ended it."""
        self._engine.end_of_input()
        return False

    def pause_writing(self) -> None:
        """Write nothing until the peer has read, which it has to in time."""
        self._paused = True
        self._set_timer("write", self._host.options.write_timeout, lambda: self.abort("not read"))

    def resume_writing(self) -> None:
        """Go on with what is to be sent."""
        self._paused = False
        self._stop_timer("write")
        self._turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all that the peer had here."""
        self._end(self._engine.closed or "lost")
        self._stop_timers()
        self._gone.set_result(None)
        self._lost()

    @abstractmethod
    def _lost(self) -> None:
        """Receive the end of the socket."""

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
        """Handle what the peer asks for, and write what there is."""
        self._woken = False
        links = self._links
        if links is None:
            return
        self._in_turn = True
        try:
            self._work(links)
        except (UnicodeDecodeError, RecursionError, self._host.proton.ProtonException):
            # A text that is none, or values that are nested too deep: Proton finds it when they are
            # read.
            self._engine.close("amqp:decode-error")
        except Exception as error:  # noqa: BLE001 - one connection ends, not the listener
            self._fail(error)
        finally:
            self._in_turn = False
        self._flush(links)

    def _work(self, links: Links) -> None:
        for event in self._engine.events():
            if isinstance(event, Opened):
                self._opened()
            else:
                links.handle(event)

    def _opened(self) -> None:
        """Open the connection at this end."""
        self._stop_timer("open")
        self._engine.open()
        self._tick()

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

    def _fail(self, error: Exception) -> None:
        """End the connection after an error inside, of which the peer is told nothing."""
        text = "a connection of AMQP has failed: %s"
        self._host.seldom.log(
            logging.ERROR,
            "failed",
            text,
            type(error).__name__,
            extra={"event": "amqp.connection_failed"},
        )
        _logger.debug(text, "", exc_info=error, extra={"event": "amqp.connection_failed"})
        self._engine.close("amqp:internal-error")
        self._wake()

    # --- the end --------------------------------------------------------------------------------

    def _write(self, data: bytes) -> None:
        if data:
            self.transport.write(data)

    def _close(self, reason: str) -> None:
        """Close the socket, once the peer has read what was written."""
        if self.closed:
            return
        self._end(reason)
        if reason in ("closed", "lost"):
            self.transport.close()
            return
        # A socket that is closed with unread input resets the connection, and what was written
        # is lost. So what comes is read and ignored for a while.
        try:
            if self.transport.can_write_eof():
                self.transport.write_eof()
        except OSError:
            # The peer has reset it, which the loop has not seen yet.
            self.transport.abort()
            return
        self._set_timer("linger", LINGER, self.transport.abort)

    def abort(self, reason: str) -> None:
        """Cut the connection."""
        self._end(reason)
        self.transport.abort()

    async def gone(self) -> None:
        """Wait for the end of the socket."""
        await asyncio.shield(self._gone)

    def _end(self, reason: str) -> None:
        """Give up what the peer had at the dispatcher, once."""
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
