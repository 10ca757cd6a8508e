"""One socket that speaks the node-to-node wire.

The first message of a tick of the loop is written at once, all others of that tick together at
its end: at most two writes for however many messages. The rest is limits: the time for the
peer's first byte and for each frame, the bytes of frames that are not finished, the bytes
waiting to be written, and how long they may wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from ...protocol import BadPreamble, LinkDown
from ...protocol.ockam import PREAMBLE, WireConnection
from ..streams._endpoint import endpoint_of, ends_of
from ..streams._tls import certified_names, reason_of
from ._owner import Owner

if TYPE_CHECKING:
    from ...protocol import Message, WireError
    from ..streams._options import StreamOptions

__all__ = ["Unfinished", "WireSocket"]

# A dead host is noticed after about two minutes of silence, where the system lets us say so.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

# RFC 8446 section 5.1: the content types `alert` and `handshake`.
_OF_TLS: Final = frozenset({0x15, 0x16})


SLICE: Final = 16 * 1024
"""Bytes of a read that are taken apart at a time. Those of long routes take some milliseconds."""

TURN: Final = 256
TURN_BYTES: Final = 1024 * 1024
"""Messages, and bytes read, after which a connection lets others have their turn: it is read again
in the next pass of the loop. A loop may read a socket many times in one pass. Heartbeats and
messages that cannot be used count too, and those with long routes as many: see `effort`. A turn
ends with a slice, so it may have as many of the smallest as make a slice: some 1300. Each
connection has one in a pass."""


class Unfinished:
    """What the unfinished frames of several sockets take together.

    Args:
        limit: How many bytes they may.

    Attributes:
        limit: As given.
        used: How many they do.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class _Wire(WireConnection):
    __slots__ = ()

    @property
    def unfinished(self) -> int:
        """Bytes kept of a frame that is not complete."""
        return len(self._buffer)


class WireSocket(asyncio.Protocol):
    """The socket and the wire's state of one connection.

    Args:
        owner: Whom to tell.
        options: The limits.
        loop: The loop it runs on.
        unfinished: What it shares a limit of unfinished frames with; if not given, one frame
            is the limit.
        name: Says who is at the other end.

    Attributes:
        wire: The state of the wire, with its counts.
        bytes_in: Bytes read.
        bytes_out: Bytes given to the socket.
        peer: Who is at the other end, once connected; for TCP its `host:port`.
        ends: Where this end is and where the other, once connected, as both ends see it.
        names: Those in its certificate, if it was verified.
        in_doubt: Messages given to the socket that were, when the connection was lost, perhaps
            not written: those since it was last seen with nothing to write.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_behind",
        "_behind_at",
        "_deadline",
        "_drained",
        "_ending",
        "_flush_due",
        "_flushed",
        "_frame_began",
        "_frame_timer",
        "_gone",
        "_held",
        "_loop",
        "_name",
        "_options",
        "_owner",
        "_paused",
        "_reason",
        "_shut",
        "_then",
        "_transport",
        "_turn_bytes",
        "_turn_due",
        "_turn_left",
        "_unfinished",
        "_unfinished_all",
        "_unsent",
        "_unusable",
        "_written",
        "bytes_in",
        "bytes_out",
        "ends",
        "in_doubt",
        "names",
        "peer",
        "wire",
    )

    def __init__(
        self,
        owner: Owner,
        options: StreamOptions,
        loop: asyncio.AbstractEventLoop,
        unfinished: Unfinished | None = None,
        name: Callable[[asyncio.BaseTransport], str] = endpoint_of,
    ) -> None:
        self.wire = _Wire(options.wire_limits, own=owner.address)
        self.bytes_in = 0
        self.bytes_out = 0
        self._unusable = 0
        self.peer = ""
        self.ends = ("", "")
        self.names: tuple[str, ...] = ()
        self._name = name
        self._owner = owner
        self._options = options
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None  # while above the high water
        self._flush_due = False
        self._batch = 0  # bytes taken since the last write
        self._reason = ""
        self._unfinished = 0  # bytes of the frame that is not complete
        self._unfinished_all = unfinished or Unfinished(4 + options.max_frame)
        self._frame_began = 0.0
        self._frame_timer: asyncio.TimerHandle | None = None
        self._held = False
        self._paused = False
        # What was read and has its turn in a later pass, from `_behind_at` of the first on. `None`:
        # the socket is read. So it is no more than was on its way when reading was paused.
        self._behind: deque[bytes] | None = None
        self._behind_at = 0
        # What is to be done once that has had its turns: the peer has closed, or it is all over.
        self._then: list[Callable[[], None]] = []
        self._turn_due = False
        self._turn_left = TURN
        self._turn_bytes = TURN_BYTES
        # How many messages had been taken at the last write, and those certainly written.
        self._flushed = 0
        self._written = 0
        self._unsent = 0
        self._aborted = False
        self._shut = False  # nothing more is taken to be sent, or kept of what is read
        self._ending = False  # what is left is written, and then it is over
        self._gone: asyncio.Future[None] | None = None  # while somebody waits for the end
        self.in_doubt = 0

    # --- for the link ---------------------------------------------------------------------

    def send(self, message: Message) -> Awaitable[None] | None:
        """Take a message; it is written at once or at the end of this tick of the loop.

        Returns:
            What to await before sending more if too much waits to be written, or `None`.

        Raises:
            LinkDown: The socket is closed.
            PayloadTooBig: The message does not fit into a frame.
            AddressError: An address of a route is out of range.
            RouteTooLong: A route has too many addresses.
        """
        if self._shut:  # what was read before may still have its turns, so the wire is open
            raise LinkDown(self.peer, self._reason or "the connection is closing")
        self._batch += self.wire.send(message)
        if not self._flush_due:
            # The first message of a tick goes out at once, so that one alone does not wait.
            self.flush()
            self._flush_due = True
            self._loop.call_soon(self._end_of_tick)
        elif self._batch > self._options.high_water:
            self.flush()
        if self._drained is not None:
            return self._until_drained(self._drained)
        return None

    def flush(self) -> None:
        """Write what has been taken."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # what is left is given back when the connection is lost
        self._batch = 0
        data = self.wire.data_to_send()
        if not data:
            return
        if self._written != self._flushed:
            self._note_written(transport)
        self._flushed = self.wire.sent
        self.bytes_out += len(data)
        try:
            transport.write(data)
        except Exception as error:  # noqa: BLE001 - of the loop's implementation
            # How much of it was written is not known, so nothing may follow it.
            self.abort(f"writing failed: {type(error).__name__}: {error}")
            return
        waiting = transport.get_write_buffer_size()
        if not waiting:
            self._written = self._flushed
        elif waiting > self._options.max_pending:
            self.abort(f"more than {self._options.max_pending} bytes wait to be written")

    def _note_written(self, transport: asyncio.Transport) -> None:
        if not transport.get_write_buffer_size():
            self._written = self._flushed

    def _end_of_tick(self) -> None:
        self._flush_due = False
        if self._batch:
            self.flush()
        elif self._written != self._flushed:
            transport = self._transport
            if transport is not None and not transport.is_closing():
                self._note_written(transport)

    @property
    def sent(self) -> int:
        """Messages given to the socket or, while the connection lasts, about to be."""
        return self.wire.sent - self._unsent

    @property
    def silent(self) -> bool:
        """Whether the peer has not said a word."""
        return not self.bytes_in

    @property
    def pending(self) -> int:
        """Bytes taken and not yet written."""
        written = self._transport.get_write_buffer_size() if self._transport else 0
        return self._batch + written

    def close(self, reason: str) -> None:
        """Close the socket once everything is written; at most `write_timeout` later.

        What was read before has its turns until then, held or not; what is read later is ignored.
        """
        self._reason = self._reason or reason
        transport = self._transport
        if transport is None:
            return
        if not transport.is_closing():
            self.flush()
            transport.close()
        self._end()

    def _end(self) -> None:
        """Take nothing more; what is left has so long to be written."""
        if not self._ending:
            self._ending = True
            self._shut_down()
            self._set_deadline(self._options.write_timeout, "the peer does not read")

    def _shut_down(self) -> None:
        """Take nothing more, either way; what was read and put off has its turns before."""
        self._shut = True
        if self._behind is None:
            self.wire.close()
        else:
            self._next_turn_soon()

    async def closed(self) -> None:
        """Wait until the socket has gone; at most `drain_timeout`, then close it at once."""
        if self._transport is None:
            return
        gone = self._gone = self._loop.create_future()
        try:
            async with asyncio.timeout(self._options.drain_timeout):
                await asyncio.shield(gone)
        except TimeoutError:
            self.abort("the peer does not read")
            await gone
        except asyncio.CancelledError:
            self.abort("the peer does not read")
            raise

    def abort(self, reason: str) -> None:
        """Close the socket now; what has not been written is lost. What was read has its turns."""
        self._reason = self._reason or reason
        self._shut_down()
        if self._transport is not None and not self._aborted:
            self._aborted = True
            if not self._transport.is_closing():
                self._note_written(self._transport)
            self._transport.abort()

    def hold(self) -> None:
        """Stop reading."""
        self._held = True
        self._look_at_reading()

    def release(self) -> None:
        """Read again."""
        self._held = False
        self._frame_began = self._loop.time()  # the peer could not finish it before
        if self._behind is not None:
            self._next_turn_soon()
        self._look_at_reading()

    def _look_at_reading(self) -> None:
        paused = self._held or self._behind is not None
        transport = self._transport
        if paused is self._paused or transport is None or transport.is_closing():
            return
        self._paused = paused
        if paused:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # --- for the loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the peer, and give it some time to do the same."""
        self._transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=self._options.high_water)
        self.peer = self._name(made)
        self.ends = ends_of(made)
        self.names = certified_names(made.get_extra_info("peercert"))
        _tune(made.get_extra_info("socket"))
        self.flush()
        timeout = self._options.preamble_timeout
        self._set_deadline(timeout, f"the peer said nothing for {timeout:g} s")
        self._owner.socket_open(self)

    def data_received(self, data: bytes) -> None:
        """Read messages, a turn of them; the first error closes the socket."""
        size = len(data)
        self.bytes_in += size
        if self._behind is not None:  # read before the transport knew that it is paused
            if not self._shut:
                self._behind.append(data)
            return
        if size <= SLICE and not self._held:  # as most reads are: `_take_turn` without its loop
            self._take(data)
            if self._turn_left > 0 and self._turn_bytes > 0:
                return
            data = b""
        self._behind = deque((data,) if data else ())
        if self._take_turn(self._behind):
            self._look_at_reading()

    def _take_turn(self, behind: deque[bytes]) -> bool:
        """Take as much of what was read as makes a turn; return whether there is another turn."""
        try:
            while behind and self._turn_left > 0 and self._turn_bytes > 0:
                if self._held and not self._shut:
                    break
                self._take(self._slice_of(behind))
        except BaseException:
            self._behind = None  # what came behind could be anything
            raise
        if behind or self._turn_left <= 0 or self._turn_bytes <= 0:
            self._next_turn_soon()
            return True
        self._behind = None
        return False

    def _slice_of(self, behind: deque[bytes]) -> bytes:
        """Return the next bytes that were read, and forget them."""
        data, at = behind[0], self._behind_at
        if at + SLICE < len(data):
            self._behind_at = at + SLICE
            return data[at : at + SLICE]
        behind.popleft()
        self._behind_at = 0
        return data[at:]

    def _next_turn_soon(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        behind = self._behind
        if behind is None or (self._held and not self._shut):
            return  # when it is released
        self._turn_left, self._turn_bytes = TURN, TURN_BYTES
        try:
            self._take_turn(behind)
        except BaseException:
            self.abort("what was read could not be handled")
            raise
        finally:
            if self.wire.closed:  # what was read is wrong, so the rest means nothing
                self._behind = None
            if self._behind is None:
                self._after_turns()
            self._look_at_reading()

    def _after_turns(self) -> None:
        """Do what was to be done once all that was read has had its turns."""
        while self._then:
            self._then.pop(0)()
        if self._shut:
            self.wire.close()

    def _after_rest(self, then: Callable[[], None]) -> None:
        """Do what ends the connection once all that was read has had its turns, held or not."""
        if self._behind is None:
            then()
            return
        self._then.append(then)
        self._shut_down()

    def _take(self, data: bytes) -> None:
        wire = self.wire
        greeted, before = wire.greeted, wire.effort
        messages = wire.receive_data(data, self._owner.stamp)
        self._turn_left -= wire.effort - before
        self._turn_bytes -= len(data)
        if not greeted and wire.greeted:
            self._clear_deadline()
            self._owner.socket_ready(self)
        if messages:
            self._owner.deliver(messages)
        if wire.unusable != self._unusable:
            self._owner.passed_over(wire.unusable - self._unusable)
            self._unusable = wire.unusable
        if wire.error is not None:
            self.abort(_explained(wire.error))
        unfinished = wire.unfinished
        if unfinished or self._unfinished:
            self._note_unfinished(unfinished, len(data))

    def eof_received(self) -> None:
        """Close too: a connection that goes one way only carries no answers."""
        self.flush()  # before the loop closes it
        self._after_rest(self._on_eof)

    def _on_eof(self) -> None:
        self.wire.receive_eof()
        self._reason = self._reason or str(self.wire.error or "the peer closed the connection")
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the link, once it has all that was read."""
        self._after_rest(partial(self._on_lost, exc))

    def _on_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        self.wire.close()
        self._note_unfinished(0, 0)
        self.resume_writing()
        reason = self._reason or (reason_of(exc) if exc else "") or "the connection was lost"
        self._give_back(reason)
        if exc is not None or self._aborted:
            self.in_doubt = self._flushed - self._written
        self._transport = None
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        self._owner.socket_closed(self, reason)

    def _give_back(self, reason: str) -> None:
        """Give back what was taken and not written."""
        data = self.wire.data_to_send()
        self._unsent = self.wire.sent - self._flushed
        if self._unsent:
            reader = WireConnection(self.wire.limits)
            greeting = PREAMBLE if self.bytes_out else b""  # else it is in the data
            self._owner.not_sent(reader.receive_data(greeting + data), reason)

    def _note_unfinished(self, size: int, came: int) -> None:
        before, self._unfinished = self._unfinished, size
        if size and (not before or size < before + came):
            # Another frame than before. One timer for all of them: it looks when it is due.
            self._frame_began = self._loop.time()
            if self._frame_timer is None:
                self._watch_frame()
        shared = self._unfinished_all
        shared.used += size - before
        if shared.used > shared.limit and size > before:
            self.abort(f"more than {shared.limit} bytes of unfinished frames")

    def _watch_frame(self) -> None:
        self._frame_timer = None
        if not self._unfinished:
            return
        timeout = self._options.frame_timeout
        now = self._loop.time()
        left = timeout if self._held or self._behind else self._frame_began + timeout - now
        if left > 0:
            self._frame_timer = self._loop.call_later(left, self._watch_frame)
        else:
            self.abort(f"a frame was not finished within {timeout:g} s")

    def pause_writing(self) -> None:
        """Note that the socket is slow; the link stops sending."""
        self._drained = self._loop.create_future()
        self._watch_writing(None)

    def _watch_writing(self, before: int | None) -> None:
        """Close the socket if nothing was written since the last look."""
        transport = self._transport
        waiting = 0 if transport is None else transport.get_write_buffer_size()
        timeout = self._options.write_timeout
        if before is not None and waiting >= before:
            self.abort("the peer does not read")
        else:  # while the socket is slow the link writes nothing more, so it shrinks
            self._clear_deadline()
            self._deadline = self._loop.call_later(timeout, self._watch_writing, waiting)

    def resume_writing(self) -> None:
        """Note that the socket has caught up."""
        drained, self._drained = self._drained, None
        if drained is not None:
            if not self._ending:
                self._clear_deadline()
            if not drained.done():
                drained.set_result(None)

    @staticmethod
    async def _until_drained(drained: asyncio.Future[None]) -> None:
        # Shielded: a worker that is cancelled must not cancel what others wait for.
        await asyncio.shield(drained)

    def _set_deadline(self, seconds: float, reason: str) -> None:
        self._clear_deadline()
        self._deadline = self._loop.call_later(seconds, self.abort, reason)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _explained(error: WireError) -> str:
    """Say what a peer does that does not speak our wire, where that is known."""
    if isinstance(error, BadPreamble) and error.value in _OF_TLS:
        return f"{error}: it speaks TLS, and this is a connection without"
    return str(error)


def _tune(sock: socket.socket | None) -> None:
    if sock is None:
        return
    # A socket that is closed already refuses; the loop will say so soon enough.
    with contextlib.suppress(OSError):
        # A batch is one write: waiting for more would only add delay.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
