"""The attacks of a hostile soak, each repeated in a process of its own.

    python benchmarks/_hostile_attacks.py NAME NODE_PORT BROKER_PORT

All connect to 127.0.0.1 only, each from its own source address, as remote peers would. An attack
ends with its process, or when the victim no longer accepts connections. A connection that the
victim closes is expected.

A round of an attack is bounded by a number of messages and bytes, or it is a flood for a number of
seconds. A flood is limited by the back-pressure of the sockets: it sends as fast as the victim
reads. The constants below say which of the two holds. So the attackers use little of two cores.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Final

from _wire import (
    PAYLOAD_NEXT,
    PAYLOAD_NEXT_COMPLETE,
    REQUEST_N,
    STREAM_ID,
    TYPE,
    Interaction,
    Routing,
    frame,
    frames_of,
    request_frame,
    setup_frame,
    stamp,
)

from onward.protocol import MAX_ROUTE_LENGTH, Address, Message
from onward.protocol.ockam import PREAMBLE, decode_message, encode_message

__all__ = ["ATTACKS", "REACHED"]

HOST: Final = "127.0.0.1"
PAUSE: Final = 0.2
"""Seconds between two rounds."""
TIMEOUT: Final = 5.0
"""Seconds without progress in a send, connect or read after which a round ends."""
HOLD: Final = 5.0
"""Seconds for which an attack holds its resources."""
KIB: Final = 1024
MIB: Final = 1024 * 1024
FRAGMENT: Final = 64 * KIB
"""Bytes of data in a fragment."""
CASTS: Final = 30
"""Destinations of a multicast that do not read. A round is 15 MB, once whole, once in fragments."""
CHANNELS: Final = 8
"""Channels at a time to destinations, half of which read; a flood, limited by their credit."""
ELEMENTS: Final = (8, 8, 8, 8 * KIB)
"""Bytes of the elements, in turn."""
BEGUN: Final = 2000
"""Requests of 1 KiB that a connection begins and does not end; a round is eight connections."""
DRIPS: Final = 11
"""Slow readers of each kind: the first reads 1 byte a second, the last 1 KiB."""
BALLS: Final = 4
"""Messages back and forth at a time. Each is sent after the answer to the one before, so the victim
sets the rate. From 1 KiB to `BALL` each is half larger than the last; a round is `THROWS` of them.
"""
BALL: Final = 4 * MIB
THROWS: Final = 400
CIRCLED: Final = 200
"""Messages of 16 KiB that each of eight peers sends in circles; a round is 25 MiB."""
REACHED: Final = "reached"
"""The line that `connect_out` prints for each connection that the node opened."""
FOLLOWS: Final = 0x80
"""The flag of a frame that is not the last of its fragments."""
MUCH: Final = 0x7FFF_FFFF
"""The maximum credit."""


class Target:
    """The ports of the victim and the source address of the attacker.

    Args:
        node: The port of the node.
        broker: The port of the broker.
        source: The last part of the attacker's address.
    """

    def __init__(self, node: int, broker: int, source: int) -> None:
        self._node = node
        self._broker = broker
        self._source = (f"127.0.0.{source}", 0)

    def to_node(self, stack: ExitStack, window: int = 0) -> socket.socket:
        """Open a connection to the node."""
        opened = self._open(self._node, stack, window)
        opened.sendall(PREAMBLE)
        return opened

    def to_broker(
        self, stack: ExitStack, name: str = "", *, say: bool = True, window: int = 0
    ) -> socket.socket:
        """Open a connection to the broker, as a destination with the given name.

        Args:
            stack: Closes the connection.
            name: The service; by default `hostile`.
            say: Whether to send SETUP.
            window: Bytes of the socket's receive buffer; the system's default if 0.
        """
        opened = self._open(self._broker, stack, window)
        if say:
            opened.sendall(setup_frame(name or "hostile"))
        return opened

    def half_open(self, stack: ExitStack) -> socket.socket:
        """Open a connection to the node and send nothing."""
        return self._open(self._node, stack)

    def _open(self, port: int, stack: ExitStack, window: int = 0) -> socket.socket:
        made = socket.socket()
        stack.callback(made.close)
        made.settimeout(TIMEOUT)
        if window:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        made.bind(self._source)
        made.connect((HOST, port))
        return made


def message(
    onward: list[Address], payload: bytes, back: tuple[Address, ...] = (Address(0, b"hostile"),)
) -> bytes:
    """Return a message of the node-to-node wire with its length before it."""
    body = encode_message(Message(tuple(onward), back, payload))
    return len(body).to_bytes(4) + body


def asked(service: str, count: int, data: bytes = b"", first: int = 1) -> bytes:
    """Return a number of requests, each on a new stream."""
    template = request_frame(service, data)
    ids = b"".join((first + 2 * at).to_bytes(4) for at in range(count))
    return bytes(stamp(template, ids, STREAM_ID))


def numbered(written: bytes, stream_id: int) -> bytes:
    """Return a frame with this stream id."""
    changed = bytearray(written)
    changed[STREAM_ID.start : STREAM_ID.stop] = stream_id.to_bytes(4)
    return bytes(changed)


def in_fragments(service: str, data: bytes, stream_id: int, kind: int) -> Iterator[bytes]:
    """Yield a multicast in fragments, all but the last one with F."""
    pieces = [data[at : at + FRAGMENT] for at in range(0, len(data), FRAGMENT)]
    first = bytearray(request_frame(service, pieces[0], Interaction(kind), Routing.MULTICAST))
    first[STREAM_ID.stop : STREAM_ID.stop + 2] = (kind | FOLLOWS).to_bytes(2)
    yield numbered(bytes(first), stream_id)
    for piece in pieces[1:-1]:
        yield frame(stream_id, PAYLOAD_NEXT | FOLLOWS, piece)
    yield frame(stream_id, PAYLOAD_NEXT, pieces[-1])


@contextlib.contextmanager
def on_a_thread(work: Callable[[], None], connection: socket.socket) -> Generator[None]:
    """Run the work that reads a connection on another thread, until the connection is closed."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)


def read_by_another(connection: socket.socket) -> AbstractContextManager[None]:
    """Read and discard data on another thread until the connection is closed."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(MIB):
                pass

    return on_a_thread(read, connection)


def send_as_long_as_it_takes(connection: socket.socket, data: bytes) -> None:
    """Send until all is sent, the send times out or the connection is closed."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


# --- the attacks ----------------------------------------------------------------------------


def connect_out(target: Target) -> None:
    """Make the node connect to addresses of the attacker's choice through a relay worker."""
    with ExitStack() as stack:
        canary = stack.enter_context(socket.create_server((HOST, 0)))
        canary.settimeout(0.5)
        port = canary.getsockname()[1]
        node = target.to_node(stack)
        relay = Address(0, b"relay")
        steps = [Address(1, b"%s:%d" % (HOST.encode(), port)), Address(3, b"/tmp/no-such-socket")]
        for step in steps * 20:
            send_as_long_as_it_takes(node, message([relay, step, Address(0, b"x")], b"x"))
        # The same through the return route of a message to the echo.
        body = Message((Address(0, b"echo"),), (steps[0], Address(0, b"x")), b"x")
        coded = encode_message(body)
        send_as_long_as_it_takes(node, len(coded).to_bytes(4) + coded)
        with contextlib.suppress(TimeoutError):
            while True:
                canary.accept()[0].close()
                print(REACHED, flush=True)


def multicast(target: Target) -> None:
    """Send 15 MB to destinations that do not read, as one frame and in fragments."""
    with ExitStack() as stack:
        for _ in range(CASTS):
            target.to_broker(stack, "hostile-cast")
        time.sleep(PAUSE)
        whole, parted = target.to_broker(stack), target.to_broker(stack)
        kind, large = Interaction.FIRE_AND_FORGET, bytes(15 * MIB)
        in_one = numbered(request_frame("hostile-cast", large, kind, Routing.MULTICAST), 1)
        send_as_long_as_it_takes(whole, in_one)
        for piece in in_fragments("hostile-cast", large, 1, kind):
            send_as_long_as_it_takes(parted, piece)
        time.sleep(HOLD)


def channels(target: Target) -> None:
    """Send many elements in channels to many destinations, half of which do not read."""
    with ExitStack() as stack:
        for at in range(CASTS):
            destination = target.to_broker(stack, "hostile-channel")
            # Credit beyond the open streams has no effect.
            stack.enter_context(credited(destination, reads=at % 2 > 0))
        time.sleep(PAUSE)
        requester = target.to_broker(stack)
        for at in range(CHANNELS):
            kind, routing = Interaction.CHANNEL, Routing.MULTICAST
            opened = request_frame("hostile-channel", b"x", kind, routing, elements=1)
            requester.sendall(numbered(opened, 1 + 2 * at))
        rest, deadline = b"", time.monotonic() + 2 * HOLD
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                read = requester.recv(MIB)
                if not read:
                    return
                rest += read
                end = 0
                for sort, stream_id, begin, end in frames_of(rest):  # noqa: B007 - the last end
                    if sort & TYPE == REQUEST_N:
                        wanted = min(int.from_bytes(rest[begin : begin + 4]), 256)
                        requester.sendall(elements_of(stream_id, wanted))
                rest = rest[end:]


def elements_of(stream_id: int, count: int) -> bytes:
    """Return a number of elements of a channel."""
    sizes = (ELEMENTS[at % len(ELEMENTS)] for at in range(count))
    return b"".join(frame(stream_id, PAYLOAD_NEXT, bytes(size)) for size in sizes)


def credited(connection: socket.socket, *, reads: bool) -> AbstractContextManager[None]:
    """Give maximum credit to each channel on another thread, and then read on or stop reading."""

    def read() -> None:
        rest, opened = b"", 0
        with contextlib.suppress(OSError):
            while data := connection.recv(MIB):
                if opened == CHANNELS:
                    if reads:
                        continue
                    return
                rest, end = rest + data, 0
                for kind, stream_id, _, end in frames_of(rest):  # noqa: B007 - the last end
                    if kind & TYPE == Interaction.CHANNEL & TYPE:
                        opened += 1
                        connection.sendall(frame(stream_id, REQUEST_N, MUCH.to_bytes(4)))
                rest = rest[end:]

    return on_a_thread(read, connection)


def unfinished(target: Target) -> None:
    """Send requests and messages without their ends."""
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(read_by_another(target.to_broker(stack, "hostile-begun")))
        time.sleep(PAUSE)
        for routing in (Routing.UNICAST, Routing.MULTICAST) * 4:
            peer = target.to_broker(stack)
            stack.enter_context(read_by_another(peer))
            begun = bytearray(request_frame("hostile-begun", bytes(KIB), routing=routing))
            begun[STREAM_ID.stop : STREAM_ID.stop + 2] = (Interaction.RESPONSE | FOLLOWS).to_bytes(
                2
            )
            ids = b"".join((1 + 2 * at).to_bytes(4) for at in range(BEGUN))
            send_as_long_as_it_takes(peer, bytes(stamp(bytes(begun), ids, STREAM_ID)))
        for _ in range(4):
            node, broker = target.to_node(stack), target.to_broker(stack)
            send_as_long_as_it_takes(node, message([Address(0, b"echo")], bytes(8 * MIB))[:-1])
            send_as_long_as_it_takes(broker, request_frame("hostile-begun", bytes(8 * MIB))[:-1])
        time.sleep(2 * HOLD)


def drips(target: Target) -> None:
    """Read between 1 byte and 1 KiB a second: peers of the echo, requesters and destinations."""
    with ExitStack() as stack:
        window = 4 * KIB
        answering = target.to_broker(stack, "hostile-drip")
        echoed = [target.to_node(stack, window) for _ in range(DRIPS)]
        requesters = [target.to_broker(stack, window=window) for _ in range(DRIPS)]
        destinations = [
            target.to_broker(stack, f"hostile-drip-{at}", window=window) for at in range(DRIPS)
        ]
        time.sleep(PAUSE)
        for peer in echoed:
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                peer.send(message([Address(0, b"echo")], bytes(32 * KIB)) * 50)
        for peer in requesters:
            send_as_long_as_it_takes(peer, asked("hostile-drip", 20))
        sending = target.to_broker(stack)
        stack.enter_context(read_by_another(sending))
        for at in range(DRIPS):
            data = asked(f"hostile-drip-{at}", 30, bytes(32 * KIB), 1 + 100 * at)
            send_as_long_as_it_takes(sending, data)
        stack.enter_context(answered(answering, bytes(256 * KIB)))
        for _ in range(int(4 * HOLD)):
            for peers in (echoed, requesters, destinations):
                for at, peer in enumerate(peers):
                    peer.setblocking(False)
                    with contextlib.suppress(OSError):
                        peer.recv(1 << at)
            time.sleep(1)


def answered(destination: socket.socket, data: bytes) -> AbstractContextManager[None]:
    """Answer each request with the data, on another thread."""

    def answer() -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while read := destination.recv(MIB):
                rest, end = rest + read, 0
                for _, stream_id, _, end in frames_of(rest):  # noqa: B007 - the last end
                    if stream_id:
                        destination.sendall(frame(stream_id, PAYLOAD_NEXT_COMPLETE, data))
                rest = rest[end:]

    destination.settimeout(4 * HOLD)
    return on_a_thread(answer, destination)


def to_and_fro(target: Target) -> None:
    """Exchange messages with long routes with the victim, as a second node; each is larger."""
    relays = [Address(0, b"relay"), Address(0, b"forward")] * 15
    onward, back = [*relays, Address(0, b"echo")], (Address(0, b"ball"),) * 32
    with ExitStack() as stack:
        connection = target.to_node(stack)
        exactly(connection, len(PREAMBLE))  # the victim's preamble
        for _ in range(BALLS):
            connection.sendall(message(onward, bytes(KIB), back))
        for _ in range(THROWS):
            size = int.from_bytes(exactly(connection, 4))
            payload = decode_message(exactly(connection, size)).payload
            grown = KIB if len(payload) > BALL else len(payload) * 3 // 2
            connection.sendall(message(onward, bytes(grown), back))


def exactly(connection: socket.socket, count: int) -> bytes:
    """Read exactly this number of bytes."""
    read = bytearray()
    while len(read) < count:
        more = connection.recv(count - len(read))
        if not more:
            raise ConnectionError("closed by the victim")
        read += more
    return bytes(read)


def circles(target: Target) -> None:
    """Send messages in circles through an exposed relay and a forwarder."""
    with ExitStack() as stack:
        circle = [Address(0, b"relay"), Address(0, b"forward")] * 31
        data = message([*circle, Address(0, b"echo")], bytes(16 * KIB), ()) * CIRCLED
        peers = [target.to_node(stack) for _ in range(8)]
        for peer in peers[::2]:
            stack.enter_context(read_by_another(peer))
        threads = [
            threading.Thread(target=send_as_long_as_it_takes, args=(peer, data)) for peer in peers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def echo(target: Target) -> None:
    """Send messages to the echo and read no replies."""
    with ExitStack() as stack:
        peers = [target.to_node(stack) for _ in range(8)]
        data = message([Address(0, b"echo")], bytes(64 * 1024)) * 300
        threads = [
            threading.Thread(target=send_as_long_as_it_takes, args=(peer, data)) for peer in peers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def answers(target: Target) -> None:
    """Request answers of 1 MiB from the attacker's own destination and do not read them."""
    with ExitStack() as stack:
        destination = target.to_broker(stack, "hostile-large")
        time.sleep(PAUSE)
        peers = [target.to_broker(stack) for _ in range(10)]
        for peer in peers:
            send_as_long_as_it_takes(peer, asked("hostile-large", 60))
        rest, large = b"", bytes(MIB)
        with contextlib.suppress(OSError):
            for _ in range(600):
                rest += destination.recv(MIB)
                end = 0
                for _, stream_id, _, stop in frames_of(rest):
                    end = stop
                    if stream_id:
                        destination.sendall(frame(stream_id, PAYLOAD_NEXT_COMPLETE, large))
                rest = rest[end:]
        time.sleep(HOLD)


def flood_broker(target: Target) -> None:
    """Send requests that are refused."""
    with ExitStack() as stack:
        connection = target.to_broker(stack)
        wrong = stamp(
            frame(0, 0x1000, b""),
            b"".join((1 + 2 * at).to_bytes(4) for at in range(5000)),
            STREAM_ID,
        )
        with read_by_another(connection):
            deadline = time.monotonic() + HOLD
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    connection.sendall(wrong)


def flood_node(target: Target) -> None:
    """Send messages to the echo."""
    with ExitStack() as stack:
        connection = target.to_node(stack)
        data = message([Address(0, b"echo")], b"x") * 5000
        with read_by_another(connection):
            deadline = time.monotonic() + HOLD
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    connection.sendall(data)


def long_routes(target: Target) -> None:
    """Send messages with the routes that are slowest to read; every third one is unusable."""
    with ExitStack() as stack:
        connection = target.to_node(stack)
        routes = [[Address(0, b"%d" % at)] * MAX_ROUTE_LENGTH for at in range(2)]
        usable = b"".join(message(route, b"", tuple(route)) for route in routes)
        longer = encode_message(Message(tuple(routes[0]), (), b""))
        header = longer[:2] + bytes([longer[2] + 1]) + longer[3:7]  # one address too many
        unusable = header + longer[3:]
        data = (usable + len(unusable).to_bytes(4) + unusable) * 500
        with read_by_another(connection):
            deadline = time.monotonic() + HOLD
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    connection.sendall(data)


def management(target: Target) -> None:
    """Fill the routing table, and query the management service."""
    with ExitStack() as stack:
        for at in range(500):
            target.to_broker(stack, f"hostile-row-{at}")
        asking = target.to_broker(stack)
        with read_by_another(asking):
            deadline, first = time.monotonic() + 2 * HOLD, 1
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    for what in (b"routes", b"statistics", b"resolve service=none"):
                        asking.sendall(asked("onward.management", 15, what, first))
                        first += 30
                    time.sleep(0.05)


def waiting(target: Target) -> None:
    """Fill the queue of requests without a destination, with two connections."""
    with ExitStack() as stack:
        peers = [target.to_broker(stack) for _ in range(2)]
        for peer in peers:
            stack.enter_context(read_by_another(peer))
        for at in range(3):
            for peer in peers:
                send_as_long_as_it_takes(peer, asked("hostile-nobody", 5000, b"", 1 + 10_000 * at))
            time.sleep(2)


def idle(target: Target) -> None:
    """Open thousands of connections and leave them idle."""
    with ExitStack() as stack:
        with contextlib.suppress(OSError):
            for at in range(5500):
                target.to_broker(stack, say=at % 4 > 0)
                if at % 10 == 0:
                    target.half_open(stack)
        time.sleep(3 * HOLD)


ATTACKS: Final[dict[str, Callable[[Target], None]]] = {
    "connect-out": connect_out,
    "multicast": multicast,
    "channels": channels,
    "unfinished": unfinished,
    "drips": drips,
    "to-and-fro": to_and_fro,
    "circles": circles,
    "echo": echo,
    "answers": answers,
    "flood-broker": flood_broker,
    "flood-node": flood_node,
    "long-routes": long_routes,
    "management": management,
    "waiting": waiting,
    "idle": idle,
}


def main(name: str, node: int, broker: int) -> None:
    """Repeat the attack."""
    os.nice(10)  # remote peers would not use the victim's CPU time
    target = Target(node, broker, 60 + list(ATTACKS).index(name))
    failed = 0
    while failed < 100:
        try:
            ATTACKS[name](target)
            failed = 0
        except OSError:
            failed += 1  # closed or refused by the victim
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
