"""The deadlines and bounds of one socket, on a clock of the test's and with no network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from onward.protocol import Address, Context, LinkDown, Message, address, route
from onward.protocol.ockam import HEARTBEAT, PREAMBLE, encode_message
from onward.transports import StreamOptions
from onward.transports.node._socket import Unfinished, WireSocket
from tests.support.virtual import virtual_time


class Line(asyncio.Transport):
    """A transport that takes what is written and keeps it, or lets it through."""

    def __init__(self, protocol: WireSocket) -> None:
        super().__init__()
        self.protocol = protocol
        self.blocked = False
        self.waiting = b""
        self.written = b""
        self.reading = True
        self.closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("::1", 4000, 0, 0) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def write(self, data: Any) -> None:
        self.waiting += data
        if not self.blocked:
            self.let_through()

    def let_through(self) -> None:
        self.written += self.waiting
        self.waiting = b""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.let_through()
        self.lose(None)

    def abort(self) -> None:
        self.waiting = b""
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class Teller:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.address: Address = address("link")
        self.stamp: Context | None = None
        self.messages: list[Message] = []
        self.unsent: list[Message] = []
        self.closed: list[str] = []

    def socket_open(self, wire_socket: WireSocket) -> None: ...

    def socket_ready(self, wire_socket: WireSocket) -> None: ...

    def socket_closed(self, wire_socket: WireSocket, reason: str) -> None:
        self.closed.append(reason)

    def deliver(self, messages: Sequence[Message]) -> None:
        self.messages += messages

    def passed_over(self, count: int) -> None:
        raise AssertionError(f"{count} messages were passed over")

    def not_sent(self, messages: Sequence[Message], reason: str) -> None:
        assert not self.closed
        self.unsent += messages


def connected(
    options: StreamOptions | None = None, unfinished: Unfinished | None = None
) -> tuple[Teller, WireSocket, Line]:
    owner = Teller()
    loop = asyncio.get_running_loop()
    wire_socket = WireSocket(owner, options or StreamOptions(), loop, unfinished)
    line = Line(wire_socket)
    wire_socket.connection_made(line)
    wire_socket.data_received(PREAMBLE)
    return owner, wire_socket, line


def frame(size: int) -> bytes:
    body = encode_message(Message(route("x"), (), bytes(size)))
    return len(body).to_bytes(4) + body


MESSAGE = Message(route("x"), route("y"), b"payload")


@virtual_time
async def test_a_frame_has_so_long_from_its_first_byte() -> None:
    owner, wire_socket, _ = connected(StreamOptions(frame_timeout=30.0))
    await asyncio.sleep(100)
    for byte in frame(1000)[:29]:
        wire_socket.data_received(bytes([byte]))
        await asyncio.sleep(1)
    assert not owner.closed
    await asyncio.sleep(1.1)
    assert owner.closed == ["a frame was not finished within 30 s"]


@virtual_time
async def test_each_frame_has_time_of_its_own() -> None:
    owner, wire_socket, _ = connected(StreamOptions(frame_timeout=30.0))
    data = frame(10)
    half, rest = data[:10], data[10:]
    wire_socket.data_received(half)
    for _ in range(10):
        await asyncio.sleep(29)
        wire_socket.data_received(rest + half)
    await asyncio.sleep(29)
    wire_socket.data_received(rest)
    await asyncio.sleep(1000)
    assert len(owner.messages) == 11
    assert not owner.closed
    wire_socket.data_received(half)
    await asyncio.sleep(31)
    assert len(owner.closed) == 1


@virtual_time
async def test_a_frame_we_do_not_read_is_not_late() -> None:
    owner, wire_socket, line = connected(StreamOptions(frame_timeout=30.0))
    data = frame(10)
    wire_socket.data_received(data[:10])
    wire_socket.hold()
    assert not line.reading
    await asyncio.sleep(1000)
    wire_socket.release()
    await asyncio.sleep(29)
    wire_socket.data_received(data[10:])
    assert len(owner.messages) == 1
    assert not owner.closed


@virtual_time
async def test_unfinished_frames_have_a_limit_together() -> None:
    unfinished = Unfinished(2500)
    sockets = [connected(unfinished=unfinished) for _ in range(3)]
    data = frame(2000)
    for _, wire_socket, _ in sockets[:2]:
        wire_socket.data_received(data[:1000])
    assert unfinished.used == 2000
    third_owner, third, _ = sockets[2]
    third.data_received(data[:1000])
    await asyncio.sleep(0)
    assert third_owner.closed == ["more than 2500 bytes of unfinished frames"]
    assert unfinished.used == 2000
    sockets[0][1].data_received(data[1000:])
    assert unfinished.used == 1000
    sockets[1][2].lose(None)
    await asyncio.sleep(0)
    assert unfinished.used == 0
    assert [len(owner.messages) for owner, _, _ in sockets] == [1, 0, 0]


@virtual_time
async def test_a_whole_frame_in_one_read_needs_no_place() -> None:
    unfinished = Unfinished(10)
    owner, wire_socket, _ = connected(unfinished=unfinished)
    wire_socket.data_received(frame(1000))
    assert len(owner.messages) == 1
    assert unfinished.used == 0
    assert not owner.closed


@virtual_time
async def test_what_is_not_written_when_the_connection_goes_is_given_back() -> None:
    owner, wire_socket, line = connected()
    second = Message(route("a", "b"), route("c", "d"), b"second")
    for message in (MESSAGE, second, MESSAGE):
        wire_socket.send(message)
    line.lose(ConnectionResetError("reset"))
    await asyncio.sleep(0)
    # The first of a tick is written at once.
    assert owner.unsent == [second, MESSAGE]
    assert owner.closed == ["reset"]
    assert (wire_socket.sent, wire_socket.in_doubt) == (1, 0)


@virtual_time
async def test_what_waits_in_the_socket_when_the_connection_goes_is_in_doubt() -> None:
    for cut in ("reset", "abort"):
        owner, wire_socket, line = connected()
        wire_socket.send(MESSAGE)
        await asyncio.sleep(0)
        line.blocked = True
        for _ in range(3):
            wire_socket.send(MESSAGE)
        await asyncio.sleep(0)
        if cut == "reset":
            line.lose(ConnectionResetError())
        else:
            wire_socket.abort("enough")
        await asyncio.sleep(0)
        assert owner.unsent == []
        assert (wire_socket.sent, wire_socket.in_doubt) == (4, 3)


@virtual_time
async def test_what_has_been_written_is_not_in_doubt() -> None:
    # Whether it was noticed after the write, a tick later, with the next write or at the end.
    for late in range(4):
        _, wire_socket, line = connected()
        line.blocked = late > 0
        wire_socket.send(MESSAGE)
        if late == 1:
            line.let_through()
        await asyncio.sleep(0)
        line.let_through()
        if late == 2:
            wire_socket.send(MESSAGE)
            line.let_through()
            await asyncio.sleep(0)
        wire_socket.abort("enough")
        await asyncio.sleep(0)
        assert wire_socket.in_doubt == 0


@virtual_time
async def test_a_connection_that_is_closed_writes_everything_first() -> None:
    for end in ("close", "eof"):
        owner, wire_socket, line = connected()
        line.blocked = True
        for _ in range(3):
            wire_socket.send(MESSAGE)
        if end == "close":
            wire_socket.close("done")
        else:
            wire_socket.eof_received()
            line.close()  # as the loop does
        await asyncio.sleep(0)
        assert owner.unsent == []
        assert (wire_socket.sent, wire_socket.in_doubt) == (3, 0)
        assert line.written.count(b"payload") == 3


@virtual_time
async def test_a_socket_that_never_greeted_gives_back_too() -> None:
    owner = Teller()
    wire_socket = WireSocket(owner, StreamOptions(), asyncio.get_running_loop())
    wire_socket.send(MESSAGE)
    wire_socket.connection_lost(None)
    await asyncio.sleep(0)
    assert owner.unsent == [MESSAGE]


class Stubborn(Line):
    """The transport of a peer that does not read: `close` waits for that."""

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.waiting = b""
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


def stubborn(timeout: float) -> tuple[Teller, WireSocket, Stubborn]:
    owner = Teller()
    options = StreamOptions(write_timeout=timeout)
    wire_socket = WireSocket(owner, options, asyncio.get_running_loop())
    line = Stubborn(wire_socket)
    wire_socket.connection_made(line)
    wire_socket.data_received(PREAMBLE)
    line.blocked = True
    wire_socket.send(MESSAGE)
    return owner, wire_socket, line


@virtual_time
async def test_who_sends_no_more_and_does_not_read_has_so_long() -> None:
    owner, wire_socket, line = stubborn(3.0)
    wire_socket.eof_received()
    line.close()  # as the loop does
    await asyncio.sleep(2.9)
    assert not owner.closed
    await asyncio.sleep(0.2)
    assert owner.closed == ["the peer closed the connection"]
    assert wire_socket.pending == 0


@virtual_time
async def test_who_reads_a_little_of_what_is_left_has_no_longer() -> None:
    owner, wire_socket, line = stubborn(3.0)
    wire_socket.pause_writing()
    wire_socket.close("done")
    await asyncio.sleep(2.0)
    wire_socket.resume_writing()  # below the low water, and there is still something left
    assert line.waiting
    await asyncio.sleep(1.1)
    assert owner.closed == ["done"]


@virtual_time
async def test_what_is_closing_for_another_reason_has_so_long_too() -> None:
    owner, wire_socket, line = stubborn(3.0)
    line.closing = True  # as a WebSocket that was broken
    wire_socket.close("broken")
    await asyncio.sleep(2.0)
    wire_socket.close("again")
    await asyncio.sleep(1.1)
    assert owner.closed == ["broken"]
    wire_socket.close("over")
    assert wire_socket.pending == 0


class Holder(Teller):
    """An owner that holds its socket when it gets anything, as one does whose mailbox is full."""

    socket: WireSocket

    def deliver(self, messages: Sequence[Message]) -> None:
        super().deliver(messages)
        self.socket.hold()


def held() -> tuple[Holder, WireSocket, Line]:
    owner = Holder()
    owner.socket = wire_socket = WireSocket(owner, StreamOptions(), asyncio.get_running_loop())
    line = Line(wire_socket)
    wire_socket.connection_made(line)
    wire_socket.data_received(PREAMBLE)
    return owner, wire_socket, line


ONE_READ = 300 * 1024 // len(frame(0))  # small messages: more than a link keeps


@virtual_time
async def test_the_rest_of_a_large_read_stays_bytes_while_the_link_is_held() -> None:
    owner, wire_socket, line = held()
    wire_socket.data_received(frame(0) * ONE_READ)
    assert 0 < len(owner.messages) < StreamOptions().arrivals < ONE_READ
    assert not line.reading
    wire_socket.data_received(frame(7))  # on its way when reading was paused
    while not line.reading:
        before = len(owner.messages)
        wire_socket.release()
        await asyncio.sleep(0.001)
        assert 0 < len(owner.messages) - before < StreamOptions().arrivals or line.reading
    assert len(owner.messages) == ONE_READ + 1
    assert owner.messages[-1].payload == bytes(7)
    assert not owner.closed


def wire(message: Message) -> bytes:
    body = encode_message(message)
    return len(body).to_bytes(4) + body


@virtual_time
async def test_what_takes_long_to_read_has_shorter_turns() -> None:
    owner, wire_socket, line = connected()
    wire_socket.data_received(wire(Message((address("x"),) * 64, (), b"")) * 500)
    assert 0 < len(owner.messages) < 100
    assert not line.reading
    await asyncio.sleep(0.001)
    assert len(owner.messages) == 500
    assert line.reading


@virtual_time
async def test_heartbeats_have_turns_as_other_messages() -> None:
    owner, wire_socket, line = connected()
    wire_socket.data_received(wire(HEARTBEAT) * 10_000 + frame(0))
    assert not line.reading
    assert not owner.messages
    await asyncio.sleep(0.001)
    assert len(owner.messages) == 1


@virtual_time
async def test_the_rest_of_a_large_read_is_taken_in_turns_when_the_peer_closes() -> None:
    for cut in (False, True):
        owner, wire_socket, line = held()
        wire_socket.data_received(frame(0) * ONE_READ)
        if cut:
            wire_socket.connection_lost(None)
        else:
            wire_socket.eof_received()
            line.close()  # as the loop does
        seen = [len(owner.messages)]
        while not owner.closed:
            await asyncio.sleep(0)
            seen.append(len(owner.messages))
        assert seen[-1] == ONE_READ
        assert max(later - before for before, later in pairwise(seen)) < ONE_READ / 10


@virtual_time
async def test_a_fault_in_a_later_turn_ends_the_connection_and_nothing_else() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    for end in (False, True):
        owner, wire_socket, line = connected()
        wire_socket.data_received(frame(0) * ONE_READ)

        def deliver(messages: Sequence[Message]) -> None:
            raise ZeroDivisionError(len(messages))

        owner.deliver = deliver  # type: ignore[method-assign]
        if end:
            wire_socket.eof_received()
            line.close()
        await asyncio.sleep(0.1)
        assert len(owner.closed) == 1
    assert [type(each["exception"]) for each in faults] == [ZeroDivisionError] * 2


@virtual_time
async def test_what_is_read_while_a_socket_closes_is_not_kept() -> None:
    owner, wire_socket, line = held()
    line.close = lambda: None  # type: ignore[method-assign]
    wire_socket.data_received(frame(0) * ONE_READ)
    wire_socket.close("done")
    for _ in range(2):  # while what was read before has its turns, and afterwards
        wire_socket.data_received(frame(0) * ONE_READ)
        await asyncio.sleep(0.001)
        assert wire_socket._behind is None
        assert len(owner.messages) == ONE_READ


@pytest.mark.parametrize("end", ["close", "abort"])
@virtual_time
async def test_what_was_read_before_this_end_closed_is_handled_in_turns(end: str) -> None:
    owner, wire_socket, _ = held()
    wire_socket.data_received(frame(0) * ONE_READ)
    getattr(wire_socket, end)("done")
    seen = [len(owner.messages)]
    while not owner.closed:
        await asyncio.sleep(0)
        seen.append(len(owner.messages))
    assert seen[-1] == ONE_READ
    assert max(later - before for before, later in pairwise(seen)) < ONE_READ / 10
    assert owner.closed == ["done"]


@pytest.mark.parametrize("end", ["eof", "cut", "close", "abort"])
@virtual_time
async def test_nothing_is_taken_to_be_sent_while_the_last_that_was_read_has_its_turns(
    end: str,
) -> None:
    owner, wire_socket, line = connected()
    wire_socket.data_received(frame(0) * ONE_READ)
    for _ in range(2):  # one is written at once, the other at the end of the tick
        wire_socket.send(MESSAGE)
    match end:
        case "eof":
            wire_socket.eof_received()
            line.close()  # as the loop does
        case "cut":
            line.lose(None)
        case "close":
            wire_socket.close("done")
        case _:
            wire_socket.abort("done")
    await asyncio.sleep(0)
    assert not owner.closed
    with pytest.raises(LinkDown):
        wire_socket.send(MESSAGE)
    await asyncio.sleep(0.001)
    assert len(owner.closed) == 1
    assert len(owner.messages) == ONE_READ
    # Written, or given back.
    written = line.written.count(b"payload")
    assert (written, len(owner.unsent)) == ((2, 0) if end in ("eof", "close") else (1, 1))
    assert wire_socket.sent == written


@virtual_time
async def test_many_small_reads_that_are_put_off_are_not_copied_together() -> None:
    owner, wire_socket, line = held()
    wire_socket.data_received(frame(0) * ONE_READ)
    small = [frame(0)] * 1000
    for data in small:  # as of a transport that had them when reading was paused
        wire_socket.data_received(data)
    assert wire_socket._behind is not None
    assert [each for each in wire_socket._behind if each is small[0]] == small
    while not line.reading:
        wire_socket.release()
        await asyncio.sleep(0.001)
    assert len(owner.messages) == ONE_READ + 1000


@virtual_time
async def test_nothing_is_taken_behind_what_is_wrong() -> None:
    owner, wire_socket, _ = held()
    wire_socket.data_received(b"\xff\xff\xff\xff" + frame(0) * ONE_READ)
    await asyncio.sleep(0.1)
    assert not owner.messages
    assert len(owner.closed) == 1
