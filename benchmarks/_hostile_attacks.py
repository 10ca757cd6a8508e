"""The attacks of a hostile soak: each runs in a process of its own, round after round.

    python benchmarks/_hostile_attacks.py NAME NODE_PORT BROKER_PORT

All connect to 127.0.0.1 only, and each from an address of its own, as peers of different places
do. An attack ends with its process, and by itself when the victim is gone for good. That the victim
closes connections is part of it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from typing import Final

from _wire import (
    PAYLOAD_NEXT_COMPLETE,
    STREAM_ID,
    Interaction,
    Routing,
    frame,
    frames_of,
    request_frame,
    setup_frame,
    stamp,
)

from onward.protocol import Address, Message
from onward.protocol.ockam import PREAMBLE, encode_message

__all__ = ["ATTACKS", "REACHED"]

HOST: Final = "127.0.0.1"
PAUSE: Final = 0.2
"""Seconds between two rounds."""
TIMEOUT: Final = 5.0
"""Seconds in which nothing can be sent after which a round is over."""
HOLD: Final = 5.0
"""Seconds for which what was taken is held."""
MIB: Final = 1024 * 1024
REACHED: Final = "reached"
"""What the attack that has the node connect out prints for each connection that came."""


class Target:
    """Where to attack, and where from.

    Args:
        node: The port of the node.
        broker: The port of the broker.
        source: The last part of the attacker's address.
    """

    def __init__(self, node: int, broker: int, source: int) -> None:
        self._node = node
        self._broker = broker
        self._source = (f"127.0.0.{source}", 0)

    def to_node(self, stack: ExitStack) -> socket.socket:
        """Open a connection to the node."""
        opened = self._open(self._node, stack)
        opened.sendall(PREAMBLE)
        return opened

    def to_broker(self, stack: ExitStack, name: str = "", *, say: bool = True) -> socket.socket:
        """Open a connection to the broker, as a destination with a name of its own or another."""
        opened = self._open(self._broker, stack)
        if say:
            opened.sendall(setup_frame(name or "hostile"))
        return opened

    def half_open(self, stack: ExitStack) -> socket.socket:
        """Open a connection to the node and say nothing."""
        return self._open(self._node, stack)

    def _open(self, port: int, stack: ExitStack) -> socket.socket:
        made = socket.create_connection((HOST, port), TIMEOUT, self._source)
        stack.callback(made.close)
        return made


def message(onward: list[Address], payload: bytes) -> bytes:
    """Return a message of the node's wire with its length before it."""
    body = encode_message(Message(tuple(onward), (Address(0, b"hostile"),), payload))
    return len(body).to_bytes(4) + body


def asked(service: str, count: int, data: bytes = b"", first: int = 1) -> bytes:
    """Return so many requests, on streams of their own."""
    template = request_frame(service, data)
    ids = b"".join((first + 2 * at).to_bytes(4) for at in range(count))
    return bytes(stamp(template, ids, STREAM_ID))


@contextlib.contextmanager
def read_by_another(connection: socket.socket) -> Generator[None]:
    """Read and forget what comes, on another thread, until the connection is closed."""

    def read() -> None:
        with contextlib.suppress(OSError):
            while connection.recv(MIB):
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT)


def send_as_long_as_it_takes(connection: socket.socket, data: bytes) -> None:
    """Send until the other end takes no more, or has closed."""
    with contextlib.suppress(OSError):
        connection.sendall(data)


# --- the attacks ----------------------------------------------------------------------------


def connect_out(target: Target) -> None:
    """Have the node connect to addresses of our choice, by a worker that passes things on."""
    with ExitStack() as stack:
        canary = stack.enter_context(socket.create_server((HOST, 0)))
        canary.settimeout(0.5)
        port = canary.getsockname()[1]
        node = target.to_node(stack)
        relay = Address(0, b"relay")
        steps = [Address(1, b"%s:%d" % (HOST.encode(), port)), Address(3, b"/tmp/no-such-socket")]
        for step in steps * 20:
            send_as_long_as_it_takes(node, message([relay, step, Address(0, b"x")], b"x"))
        # The same by the way back of what is sent to the echo.
        body = Message((Address(0, b"echo"),), (steps[0], Address(0, b"x")), b"x")
        coded = encode_message(body)
        send_as_long_as_it_takes(node, len(coded).to_bytes(4) + coded)
        with contextlib.suppress(TimeoutError):
            while True:
                canary.accept()[0].close()
                print(REACHED, flush=True)


def multicast(target: Target) -> None:
    """Send 15 MB to ten destinations that do not read."""
    with ExitStack() as stack:
        for _ in range(10):
            target.to_broker(stack, "hostile-cast")
        time.sleep(PAUSE)
        requester = target.to_broker(stack)
        kind, routing = Interaction.FIRE_AND_FORGET, Routing.MULTICAST
        large = bytearray(request_frame("hostile-cast", bytes(15 * MIB), kind, routing))
        large[STREAM_ID.start : STREAM_ID.stop] = (1).to_bytes(4)
        send_as_long_as_it_takes(requester, bytes(large))
        time.sleep(HOLD)


def echo(target: Target) -> None:
    """Have answers sent that nobody reads."""
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
    """Have a destination of ours answer with 1 MiB each, and do not read it."""
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
    """Keep sending requests that are refused."""
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
    """Keep sending messages to the echo."""
    with ExitStack() as stack:
        connection = target.to_node(stack)
        data = message([Address(0, b"echo")], b"x") * 5000
        with read_by_another(connection):
            deadline = time.monotonic() + HOLD
            with contextlib.suppress(OSError):
                while time.monotonic() < deadline:
                    connection.sendall(data)


def management(target: Target) -> None:
    """Fill the table, and keep asking for it."""
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
    """Take all the places of those that wait for a destination, with two connections."""
    with ExitStack() as stack:
        peers = [target.to_broker(stack) for _ in range(2)]
        for peer in peers:
            stack.enter_context(read_by_another(peer))
        for at in range(3):
            for peer in peers:
                send_as_long_as_it_takes(peer, asked("hostile-nobody", 5000, b"", 1 + 10_000 * at))
            time.sleep(2)


def idle(target: Target) -> None:
    """Take places for connections, and do nothing with them."""
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
    "echo": echo,
    "answers": answers,
    "flood-broker": flood_broker,
    "flood-node": flood_node,
    "management": management,
    "waiting": waiting,
    "idle": idle,
}


def main(name: str, node: int, broker: int) -> None:
    """Attack round after round."""
    os.nice(10)  # hostile peers have machines of their own; this one is for the victim first
    target = Target(node, broker, 60 + list(ATTACKS).index(name))
    failed = 0
    while failed < 100:
        try:
            ATTACKS[name](target)
            failed = 0
        except OSError:
            failed += 1  # closed by the victim, or turned away
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
