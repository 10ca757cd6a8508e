"""A server and a client of AMQP 1.0 by Proton alone, for `_dispatch_edge.py`: each is a process.

    python benchmarks/_proton_peer.py serve
    python benchmarks/_proton_peer.py load PORT MESSAGES

The server passes what is sent to the address on to the one receiver of it, and settles each message
with the outcome of its copy. It prints `listening PORT`. The load sends messages to the address and
receives them from there, unsettled, and prints the seconds from the first to the last outcome.
"""

from __future__ import annotations

import socket
import sys
import time
from collections import deque
from importlib import import_module
from typing import Any

# It has no types, and need not be installed where this is checked.
proton: Any = import_module("proton")
MessagingHandler: Any = import_module("proton.handlers").MessagingHandler
Container: Any = import_module("proton.reactor").Container

IN_FLIGHT = 100
ADDRESS = "orders"
BODY = b"x" * 64


class Server(MessagingHandler):  # type: ignore[misc]
    """A server that passes messages of one sender on to one receiver."""

    def __init__(self) -> None:
        super().__init__(prefetch=IN_FLIGHT, auto_accept=False, auto_settle=False)  # pyright: ignore[reportUnknownMemberType]
        self.out: Any = None
        self.waiting: deque[Any] = deque()
        self.origins: dict[str, Any] = {}
        self.number = 0

    def on_start(self, event: Any) -> None:
        """Listen at a port that is free."""
        acceptor = event.container.listen("127.0.0.1:0")
        port = acceptor._selectable.fileno()
        print(f"listening {_port_of(port)}", flush=True)

    def on_link_opening(self, event: Any) -> None:
        """Accept the addresses of a link as they are."""
        link = event.link
        link.source.address = link.remote_source.address
        link.target.address = link.remote_target.address
        if link.is_sender:
            self.out = link

    def on_message(self, event: Any) -> None:
        """Pass a message on, once there is credit."""
        self.waiting.append((event.message, event.delivery))
        self.pass_on()

    def on_sendable(self, event: Any) -> None:
        """Pass on what waits."""
        del event
        self.pass_on()

    def pass_on(self) -> None:
        """Pass on as many messages as the receiver has credit for."""
        while self.waiting and self.out is not None and self.out.credit:
            message, delivery = self.waiting.popleft()
            self.number += 1
            tag = str(self.number)
            self.origins[tag] = delivery
            self.out.send(message, tag)

    def on_settled(self, event: Any) -> None:
        """Settle a message as the receiver has settled its copy."""
        origin = self.origins.pop(event.delivery.tag, None)
        if origin is not None:
            origin.update(event.delivery.remote_state)
            origin.settle()
            event.delivery.settle()


def _port_of(descriptor: int) -> int:
    with socket.socket(fileno=descriptor) as listening:
        port: int = listening.getsockname()[1]
        listening.detach()
    return port


class Load(MessagingHandler):  # type: ignore[misc]
    """A client that sends messages to an address and receives them from there.

    Args:
        port: The port of the server.
        messages: The number of messages.
    """

    def __init__(self, port: int, messages: int) -> None:
        super().__init__(prefetch=IN_FLIGHT)  # pyright: ignore[reportUnknownMemberType]
        self.port = port
        self.left = self.unsettled = messages
        self.began = 0.0
        self.sender: Any = None

    def on_start(self, event: Any) -> None:
        """Attach the receiver, and then the sender."""
        connection = event.container.connect(f"127.0.0.1:{self.port}", reconnect=False)
        self.receiver = event.container.create_receiver(connection, ADDRESS)
        self.sender = event.container.create_sender(connection, ADDRESS)

    def on_sendable(self, event: Any) -> None:
        """Send what there is credit for."""
        if event.link.is_receiver:
            return
        self.began = self.began or time.perf_counter()
        while self.left and self.sender.credit:
            self.left -= 1
            self.sender.send(proton.Message(body=BODY, inferred=True))

    def on_settled(self, event: Any) -> None:
        """Count an outcome; stop with the last."""
        if event.link.is_receiver:
            return
        if event.delivery.remote_state != proton.Delivery.ACCEPTED:
            raise AssertionError(f"an outcome of {event.delivery.remote_state}")
        self.unsettled -= 1
        if not self.unsettled:
            print(time.perf_counter() - self.began, flush=True)
            event.connection.close()


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    handler = Server() if what == "serve" else Load(*map(int, arguments))
    Container(handler).run()
