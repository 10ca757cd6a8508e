"""A client of AMQP 1.0 by Proton for Python: python peer.py URI ACTION ADDRESS [ARGUMENT...].

Actions, arguments, environment and output are those of `../amqp_js/peer.js`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

proton: Any = importlib.import_module("proton")
handlers: Any = importlib.import_module("proton.handlers")
reactor: Any = importlib.import_module("proton.reactor")

LONG = 100
"""The length of a body from which on its length stands for it."""
TIMEOUT = 20.0
"""Seconds until the client gives up."""
NAMES = {
    proton.Delivery.ACCEPTED: "accepted",
    proton.Delivery.REJECTED: "rejected",
    proton.Delivery.RELEASED: "released",
    proton.Delivery.MODIFIED: "modified",
}


def body(text: str) -> str:
    """Return a body, of N bytes for `@N`."""
    return "x" * int(text[1:]) if text.startswith("@") else text


def text_of(message: Any) -> str:
    """Return the body of a message, or `@N` for a long one."""
    found: Any = message.body
    text: str = found if isinstance(found, str) else bytes(found).decode()
    return text if len(text) <= LONG else f"@{len(text)}"


def settle(delivery: Any, how: str) -> None:
    """Settle a delivery."""
    state = {
        "reject": proton.Delivery.REJECTED,
        "release": proton.Delivery.RELEASED,
        "modify": proton.Delivery.MODIFIED,
    }
    if how == "reject":
        delivery.local.condition = proton.Condition("shop:closed", "come back tomorrow")
    if how == "modify":
        delivery.local.failed = True
    delivery.update(state.get(how, proton.Delivery.ACCEPTED))
    delivery.settle()


class Client(handlers.MessagingHandler):  # type: ignore[misc]
    """One connection, which prints what came of it and ends.

    Args:
        uri: Where to connect to.
        address: The address of the link.
        words: The other arguments.
    """

    def __init__(self, uri: str, address: str, words: list[str]) -> None:
        handlers.MessagingHandler.__init__(self, prefetch=0, auto_accept=False)
        self.uri = uri
        self.address = address
        self.words = words
        self.bodies: list[object] = []
        self.report: object = None
        self.connection: Any = None

    def on_start(self, event: Any) -> None:
        """Connect."""
        options: dict[str, object] = {"allowed_mechs": "ANONYMOUS"}
        if name := os.environ.get("USER_NAME"):
            password = os.environ["PASSWORD"]
            options = {"user": name, "password": password, "allowed_mechs": "PLAIN"}
        if authorities := os.environ.get("CA"):
            domain = proton.SSLDomain(proton.SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(authorities)
            domain.set_peer_authentication(proton.SSLDomain.VERIFY_PEER_NAME)
            options["ssl_domain"] = domain
        self.connection = event.container.connect(self.uri, reconnect=False, **options)
        event.container.schedule(TIMEOUT, self)
        self.begin(event.container)

    def begin(self, container: Any) -> None:
        """Open the links."""
        raise NotImplementedError

    def end(self, report: object) -> None:
        """Print what came of it, and close the connection."""
        if self.report is None:
            self.report = report
            print(json.dumps(report), flush=True)
            self.connection.close()

    def on_timer_task(self, event: Any) -> None:
        """Give up."""
        self.end({"error": "no end"})
        event.container.stop()

    def on_connection_closed(self, event: Any) -> None:
        """Stop, with the timer."""
        event.container.stop()

    def on_link_error(self, event: Any) -> None:
        """Tell of a link that was refused or closed."""
        self.end({"error": event.link.remote_condition.name})

    def on_connection_error(self, event: Any) -> None:
        """Tell of a connection that was closed."""
        self.end({"error": event.connection.remote_condition.name})

    def on_transport_error(self, event: Any) -> None:
        """Tell of a connection that came to nothing."""
        self.end({"error": event.transport.condition.name})
        event.container.stop()


class Send(Client):
    """Sends each body, as there is credit, and tells the outcomes in their order."""

    def __init__(self, uri: str, address: str, words: list[str]) -> None:
        super().__init__(uri, address, words)
        self.sent: list[Any] = []
        self.outcomes: dict[str, str] = {}

    def begin(self, container: Any) -> None:
        """Open the link."""
        container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Send as much as there is credit for."""
        while event.sender.credit and len(self.sent) < len(self.words):
            word = self.words[len(self.sent)]
            self.sent.append(event.sender.send(proton.Message(body(word))))

    def on_settled(self, event: Any) -> None:
        """Note an outcome."""
        delivery = event.delivery
        condition = delivery.remote.condition
        name = NAMES.get(delivery.remote_state, "settled")
        self.outcomes[delivery.tag] = f"{name} {condition.name}" if condition else name
        if len(self.outcomes) == len(self.words):
            self.end([self.outcomes[each.tag] for each in self.sent])


class Receive(Client):
    """Gives the credit of one message for each word, which says how it is settled."""

    def begin(self, container: Any) -> None:
        """Open the link, with the credit of one message."""
        container.create_receiver(self.connection, self.address).flow(1)

    def on_message(self, event: Any) -> None:
        """Settle a message, and ask for the next one."""
        settle(event.delivery, self.words[len(self.bodies)])
        self.bodies.append(text_of(event.message))
        if len(self.bodies) < len(self.words):
            event.receiver.flow(1)
        else:
            self.end(self.bodies)


class Drain(Client):
    """Gives credit, drains, and tells what came and the credit that is left."""

    def begin(self, container: Any) -> None:
        """Open the link, with credit that is drained."""
        container.create_receiver(self.connection, self.address).drain(int(self.words[0]))

    def on_message(self, event: Any) -> None:
        """Note and accept a message."""
        settle(event.delivery, "accept")
        self.bodies.append(text_of(event.message))

    def on_link_flow(self, event: Any) -> None:
        """Tell what came, once no credit is left."""
        if event.link.is_receiver and not event.link.draining():
            self.end([*self.bodies, event.link.credit])


class Request(Client):
    """Asks with a dynamic address for the answer."""

    def begin(self, container: Any) -> None:
        """Open the link for the answer."""
        container.create_receiver(self.connection, None, dynamic=True).flow(1)

    def on_link_opened(self, event: Any) -> None:
        """Ask, once the address is known."""
        if event.link.is_receiver:
            self.reply_to = event.link.remote_source.address
            event.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Ask once."""
        if self.words:
            message = proton.Message(self.words.pop(), reply_to=self.reply_to, correlation_id="1")
            event.sender.send(message)

    def on_message(self, event: Any) -> None:
        """Tell the answer."""
        settle(event.delivery, "accept")
        self.end([text_of(event.message), event.message.correlation_id])


ACTIONS = {"send": Send, "receive": Receive, "drain": Drain, "request": Request}


def main(uri: str, action: str, address: str, *words: str) -> None:
    """Run an action."""
    reactor.Container(ACTIONS[action](uri, address, [*words])).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
