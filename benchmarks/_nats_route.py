"""Two nats-servers that are joined by a route, and the raw load between them."""

from __future__ import annotations

import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from _nats import DIGITS, INBOX, connect, nats_shape
from _rawload import DATA, SERVICE, TIMEOUT, Shape
from _rivals import NATS_LISTENING, NATS_OPTIONS, NATS_ROUTED, nats_program, running_at

__all__ = ["nats_server", "routed_servers", "routed_shape"]

CLUSTER = "cluster {{ name: bench, listen: '127.0.0.1:-1', routes: [{routes}] }}\n"
PROBED = 0.05
"""Seconds after which a probe counts as dropped: the servers do not know the interest yet."""


@contextmanager
def nats_server(routes: str = "") -> Generator[tuple[int, int, int]]:
    """Start a nats-server of a cluster.

    Args:
        routes: The URI of the server to open a route to; empty for none.

    Yields:
        Its process id, its port for clients, and that for routes.

    Raises:
        Missing: nats-server is not installed on this machine.
    """
    program = nats_program()
    with TemporaryDirectory() as folder:
        options = Path(folder, "nats.conf")
        options.write_text(NATS_OPTIONS + CLUSTER.format(routes=routes and f"'{routes}'"))
        command = [program, "-c", str(options)]
        with running_at(command, NATS_LISTENING, NATS_ROUTED) as (pid, (port, route)):
            yield pid, int(port), int(route)


@contextmanager
def routed_servers() -> Generator[tuple[tuple[int, int], int, int]]:
    """Start two servers that are joined; yield their process ids, and the ports for clients."""
    with ExitStack() as stack:
        far_pid, far, route = stack.enter_context(nats_server())
        near = stack.enter_context(nats_server(f"nats://127.0.0.1:{route}"))
        yield (near[0], far_pid), near[1], far


def routed_shape(far: int) -> Shape:
    """Return the shape of a load with its destination at the server with another port."""
    destination: list[socket.socket] = []

    def connected(port: int, name: str) -> socket.socket:
        if name == SERVICE:
            destination.append(connect(far, name))
            return destination[-1]
        requester = connect(port, name)
        _await_interest(requester, destination[-1])
        return requester

    return replace(nats_shape(DATA), connect=connected)


def _await_interest(requester: socket.socket, destination: socket.socket) -> None:
    """Wait until each server knows the subscription at the other one.

    A server drops a message without interest. Messages of a connection stay in order, so that none
    is underway behind the one that has arrived.
    """
    subject, inbox = SERVICE.encode(), INBOX + b"f" * DIGITS
    _probe(requester, destination, subject, inbox)
    _probe(destination, requester, inbox)


def _probe(sender: socket.socket, receiver: socket.socket, *words: bytes) -> None:
    receiver.settimeout(PROBED)
    received, deadline, number = b"", time.monotonic() + TIMEOUT, 0
    while time.monotonic() < deadline:
        number += 1
        content = b"%08x\r\n" % number
        sender.sendall(b"PUB " + b" ".join(words) + b" 8\r\n" + content)
        try:
            while not received.endswith(content):
                chunk = receiver.recv(4096)
                if not chunk:
                    raise RuntimeError("nats-server closed the connection")
                received += chunk
        except TimeoutError:
            continue
        receiver.settimeout(TIMEOUT)
        return
    raise RuntimeError(f"no message by the route within {TIMEOUT} s")
