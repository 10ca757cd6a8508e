"""The socket of one connection in the node-to-node protocol.

The first message in a tick of the loop is written at once, the others together at the end of the
tick: at most two writes for any number of messages. Limits apply to the time for the peer's first
byte and for each frame, the bytes of unfinished frames, the bytes that wait to be written, and
the time that they may wait.
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
from ...protocol._principal import PeerIdentity
from ...protocol.ockam import PREAMBLE, WireConnection
from ..streams._endpoint import endpoint_of, ends_of
from ..streams._tls import certified, reason_of
from ._owner import Owner

if TYPE_CHECKING:
    from ...protocol import Message, WireError
    from ..streams._options import StreamOptions

__all__ = ["Unfinished", "WireSocket"]

_UNKNOWN: Final = PeerIdentity()

# With these a dead host is noticed after about two minutes of silence, where they are supported.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}

# RFC 8446 section 5.1: the content types `alert` and `handshake`.
_OF_TLS: Final = frozenset({0x15, 0x16})


SLICE: Final = 16 * 1024
"""The bytes of a read that are parsed at a time. With long routes that takes some milliseconds."""

TURN: Final = 256
TURN_BYTES: Final = 1024 * 1024
"""The messages, and bytes read, of one turn of a connection. It continues in the next pass of the
loop; a loop may read a socket many times in one pass. Heartbeats and unusable messages count too,
and a message with a long route counts as several: see `effort`. A turn ends with a slice, so it
may have as many of the smallest messages as fit into a slice: about 1300."""


class Unfinished:
    """The bytes of unfinished frames of several sockets, with a common limit.

    Args:
        limit: The maximum of bytes.

    Attributes:
        limit: The maximum of bytes.
        used: The current bytes.
    """

    __slots__ = ("limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0


class _Wire(WireConnection):
    __slots__ = ()

    @property
    def unfinished(self) -> int:
        """Bytes kept of an incomplete frame."""
        return len(self._buffer)


class WireSocket(asyncio.Protocol):
    """One connection: its socket and the state of its protocol.

    Args:
        owner: The link that receives the callbacks.
        options: The limits.
        loop: The event loop.
        unfinished: The shared limit on unfinished frames. Without it the limit is one frame.
        identity: The peer of an accepted connection, as the acceptor has verified it.

    Attributes:
        wire: The protocol state, with its counts.
        bytes_in: Bytes read.
        bytes_out: Bytes written to the socket.
        peer: The peer's name, once connected: `host:port` for TCP.
        ends: The names of this end and the other, once connected, the same two at both ends.
        identity: The peer, once connected, as the socket and the TLS handshake have verified it.
        in_doubt: Messages that may not have been written when the connection was lost: those
            since the write buffer was last empty.
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
        "identity",
        "in_doubt",
        "peer",
        "wire",
    )

    def __init__(
        self,
        owner: Owner,
        options: StreamOptions,
        loop: asyncio.AbstractEventLoop,
        unfinished: Unfinished | None = None,
        identity: PeerIdentity = _UNKNOWN,
    ) -> None:
        self.wire = _Wire(options.wire_limits, own=owner.address)
        self.bytes_in = 0
        self.bytes_out = 0
        self._unusable = 0
        self.identity = identity
        self.peer = identity.peer
        self.ends = ("", "")
        self._owner = owner
        self._options = options
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None  # while above the high water
        self._flush_due = False
        self._batch = 0  # bytes accepted since the last write
        self._reason = ""
        self._unfinished = 0  # bytes of the incomplete frame
        self._unfinished_all = unfinished or Unfinished(4 + options.max_frame)
        self._frame_began = 0.0
        self._frame_timer: asyncio.TimerHandle | None = None
        self._held = False
        self._paused = False
        # Bytes read that wait for a later turn, the first of them from `_behind_at` on. `None`
        # while the socket is read, so they are at most those in flight when reading was paused.
        self._behind: deque[bytes] | None = None
        self._behind_at = 0
        # Called after these turns: the peer has closed, or the connection is lost.
        self._then: list[Callable[[], None]] = []
        self._turn_due = False
        self._turn_left = TURN
        self._turn_bytes = TURN_BYTES
        # The count of messages at the last write, and of those certainly written.
        self._flushed = 0
        self._written = 0
        self._unsent = 0
        self._aborted = False
        self._shut = False  # nothing more is accepted for sending, or kept when read
        self._ending = False  # the rest is written, then the socket closes
        self._gone: asyncio.Future[None] | None = None  # while `closed` waits
        self.in_doubt = 0

    # --- for the link ---------------------------------------------------------------------

    def send(self, message: Message) -> Awaitable[None] | None:
        """Send a message: now, or at the end of this tick of the loop.

        Returns:
            An awaitable to wait for before sending more if too much is unwritten, or `None`.

        Raises:
            LinkDown: The socket is closed.
            PayloadTooBig: The message does not fit into a frame.
            AddressError: An address of a route is out of range.
            RouteTooLong: A route has too many addresses.
        """
        if self._shut:  # the wire stays open while bytes read earlier wait for their turns
            raise LinkDown(self.peer, self._reason or "the connection is closing")
        self._batch += self.wire.send(message)
        if not self._flush_due:
            # The first message of a tick is written at once, so that a single one does not wait.
            self.flush()
            self._flush_due = True
            self._loop.call_soon(self._end_of_tick)
        elif self._batch > self._options.high_water:
            self.flush()
        if self._drained is not None:
            return self._until_drained(self._drained)
        return None

    def flush(self) -> None:
        """Write the accepted messages."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return  # the rest is returned when the connection is lost
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
        except Exception as error:  # noqa: BLE001 - raised by the event loop's implementation
            # The number of bytes written is unknown, so nothing may follow.
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
        """Messages written to the socket, or about to be while the connection lasts."""
        return self.wire.sent - self._unsent

    @property
    def silent(self) -> bool:
        """Whether nothing has been received from the peer."""
        return not self.bytes_in

    @property
    def pending(self) -> int:
        """Bytes accepted and not yet written."""
        written = self._transport.get_write_buffer_size() if self._transport else 0
        return self._batch + written

    def close(self, reason: str) -> None:
        """Close the socket once everything is written, or after `write_timeout`.

        Bytes read earlier have their turns until then, held or not; bytes read later are ignored.
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
        """Accept nothing more, and set the deadline for writing the rest."""
        if not self._ending:
            self._ending = True
            self._shut_down()
            self._set_deadline(self._options.write_timeout, "the peer does not read")

    def _shut_down(self) -> None:
        """Stop sending and receiving, after the turns of bytes read earlier."""
        self._shut = True
        if self._behind is None:
            self.wire.close()
        else:
            self._next_turn_soon()

    async def closed(self) -> None:
        """Wait until the socket has closed; abort it after `drain_timeout`."""
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
        """Close the socket now; unwritten bytes are lost. Bytes read earlier have their turns."""
        self._reason = self._reason or reason
        self._shut_down()
        if self._transport is not None and not self._aborted:
            self._aborted = True
            if not self._transport.is_closing():
                self._note_written(self._transport)
            self._transport.abort()

    def hold(self) -> None:
        """Pause reading."""
        self._held = True
        self._look_at_reading()

    def release(self) -> None:
        """Resume reading."""
        self._held = False
        self._frame_began = self._loop.time()  # the peer could not finish its frame meanwhile
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
        """Send the greeting, and set the deadline for the peer's."""
        self._transport = made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=self._options.high_water)
        self.ends = ends_of(made)
        if not self.peer:  # this side has connected
            self.peer = endpoint_of(made)
            self.identity = certified(PeerIdentity(peer=self.peer), made)
        _tune(made.get_extra_info("socket"))
        self.flush()
        timeout = self._options.preamble_timeout
        self._set_deadline(timeout, f"the peer said nothing for {timeout:g} s")
        self._owner.socket_open(self)

    def data_received(self, data: bytes) -> None:
        """Handle the messages in the data, one turn of them; the first error closes the socket."""
        size = len(data)
        self.bytes_in += size
        if self._behind is not None:  # read before the transport was paused
            if not self._shut:
                self._behind.append(data)
            return
        if size <= SLICE and not self._held:  # most reads: `_take_turn` without its loop
            self._take(data)
            if self._turn_left > 0 and self._turn_bytes > 0:
                return
            data = b""
        self._behind = deque((data,) if data else ())
        if self._take_turn(self._behind):
            self._look_at_reading()

    def _take_turn(self, behind: deque[bytes]) -> bool:
        """Handle one turn of the bytes read; return whether there is another turn."""
        try:
            while behind and self._turn_left > 0 and self._turn_bytes > 0:
                if self._held and not self._shut:
                    break
                self._take(self._slice_of(behind))
        except BaseException:
            self._behind = None  # the position in the stream is lost
            raise
        if behind or self._turn_left <= 0 or self._turn_bytes <= 0:
            self._next_turn_soon()
            return True
        self._behind = None
        return False

    def _slice_of(self, behind: deque[bytes]) -> bytes:
        """Remove and return the next slice of the bytes read."""
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
            return  # `release` continues
        self._turn_left, self._turn_bytes = TURN, TURN_BYTES
        try:
            self._take_turn(behind)
        except BaseException:
            self.abort("what was read could not be handled")
            raise
        finally:
            if self.wire.closed:  # a protocol error: the rest is discarded
                self._behind = None
            if self._behind is None:
                self._after_turns()
            self._look_at_reading()

    def _after_turns(self) -> None:
        """Call the actions that waited for the turns of bytes read earlier."""
        while self._then:
            self._then.pop(0)()
        if self._shut:
            self.wire.close()

    def _after_rest(self, then: Callable[[], None]) -> None:
        """Call an action that ends the connection after the turns of bytes read, held or not."""
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
        """Close the connection: a half-closed one carries no replies."""
        self.flush()  # before the loop closes it
        self._after_rest(self._on_eof)

    def _on_eof(self) -> None:
        self.wire.receive_eof()
        self._reason = self._reason or str(self.wire.error or "the peer closed the connection")
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the link, after the turns of bytes read earlier."""
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
        """Pass the accepted messages that were not written to the owner."""
        data = self.wire.data_to_send()
        self._unsent = self.wire.sent - self._flushed
        if self._unsent:
            reader = WireConnection(self.wire.limits)
            greeting = PREAMBLE if self.bytes_out else b""  # else the data begins with it
            self._owner.not_sent(reader.receive_data(greeting + data), reason)

    def _note_unfinished(self, size: int, came: int) -> None:
        before, self._unfinished = self._unfinished, size
        if size and (not before or size < before + came):
            # A new frame. One timer serves all frames: it checks when it is due.
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
        """Stop the link from sending, and watch the progress of writing."""
        self._drained = self._loop.create_future()
        self._watch_writing(None)

    def _watch_writing(self, before: int | None) -> None:
        """Close the socket if nothing was written since the last check."""
        transport = self._transport
        waiting = 0 if transport is None else transport.get_write_buffer_size()
        timeout = self._options.write_timeout
        if before is not None and waiting >= before:
            self.abort("the peer does not read")
        else:  # the link writes nothing while the socket is slow, so the buffer shrinks
            self._clear_deadline()
            self._deadline = self._loop.call_later(timeout, self._watch_writing, waiting)

    def resume_writing(self) -> None:
        """Resume sending by the link."""
        drained, self._drained = self._drained, None
        if drained is not None:
            if not self._ending:
                self._clear_deadline()
            if not drained.done():
                drained.set_result(None)

    @staticmethod
    async def _until_drained(drained: asyncio.Future[None]) -> None:
        # Shielded: other workers wait for the same future.
        await asyncio.shield(drained)

    def _set_deadline(self, seconds: float, reason: str) -> None:
        self._clear_deadline()
        self._deadline = self._loop.call_later(seconds, self.abort, reason)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _explained(error: WireError) -> str:
    """Return the text of a protocol error, with its likely cause if that is known."""
    if isinstance(error, BadPreamble) and error.value in _OF_TLS:
        return f"{error}: it speaks TLS, and this is a connection without"
    return str(error)


def _tune(sock: socket.socket | None) -> None:
    if sock is None:
        return
    # A closed socket refuses these; the loop reports the close.
    with contextlib.suppress(OSError):
        # A batch is one write: Nagle's algorithm would only add delay.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
