"""A container of AMQP 1.0 that others have written, for tests: Proton's, on a thread."""

from __future__ import annotations

import importlib
import threading
from typing import Any, Final

from onward.transports.amqp._proton import ACCEPTED, MODIFIED, REJECTED, RELEASED

__all__ = ["Queues"]

TIMEOUT: Final = 20.0


class Queues:
    """A container of Proton on a thread of its own: each address has a queue of messages.

    Attributes:
        messages: The messages of each address: those that have come, and those to be sent.
        refused: The conditions with which links of the container were refused.
        outcomes: What was told of the messages that it has sent.
        port: The port that it listens at.
    """

    def __init__(self) -> None:
        reactor: Any = importlib.import_module("proton.reactor")
        self._proton: Any = importlib.import_module("proton")
        self.messages: dict[str | None, list[Any]] = {}
        self.refused: list[str] = []
        self.outcomes: list[str] = []
        self.started = threading.Event()
        self.port = 0
        self._reactor: Any = reactor.Container(_handler(self))
        self._thread = threading.Thread(target=self._reactor.run, daemon=True)

    def take(self, event: Any) -> None:
        """Keep a message, and do what it asks for."""
        body = event.message.body
        self.settle(event.delivery, body)
        self.messages.setdefault(event.link.target.address, []).append(event.message)
        if body == b"attach a link":
            event.container.create_sender(event.connection, "orders")
        if body == b"end the session":
            event.session.close()
        if body == b"close the link":
            event.link.close()
        if body == b"detach the link":
            event.link.detach()

    def settle(self, delivery: Any, body: Any) -> None:
        """Settle a message by its content."""
        text = body if isinstance(body, str) else bytes(body or b"").decode(errors="replace")
        state = {"bad": REJECTED, "back": RELEASED, "lost": MODIFIED}.get(text, ACCEPTED)
        if state == REJECTED:
            condition = self._proton.Condition
            delivery.local.condition = condition("shop:closed", "come back tomorrow")
        if state == MODIFIED:
            delivery.local.failed = True
        delivery.update(state)
        delivery.settle()

    def send(self, link: Any) -> None:
        waiting = self.messages.get(link.source.address, [])
        while waiting and link.credit:
            link.send(waiting.pop(0))

    def __enter__(self) -> Queues:
        self._thread.start()
        assert self.started.wait(TIMEOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._reactor.stop()
        self._thread.join(TIMEOUT)


def _handler(queues: Queues) -> Any:
    """Return what handles the events of a container."""
    handlers: Any = importlib.import_module("proton.handlers")

    class Handler(handlers.MessagingHandler):  # type: ignore[misc]
        def __init__(self) -> None:
            handlers.MessagingHandler.__init__(self, auto_accept=False, auto_settle=True)

        def on_start(self, event: Any) -> None:
            acceptor = event.container.listen("127.0.0.1:0")
            queues.port = acceptor._selectable.getsockname()[1]
            queues.started.set()

        def on_link_opening(self, event: Any) -> None:
            link = event.link
            link.source.address = link.remote_source.address
            link.target.address = link.remote_target.address

        def on_sendable(self, event: Any) -> None:
            queues.send(event.link)

        def on_message(self, event: Any) -> None:
            queues.take(event)

        def on_accepted(self, event: Any) -> None:
            queues.outcomes.append("accepted")

        def on_rejected(self, event: Any) -> None:
            queues.outcomes.append(f"rejected {event.delivery.remote.condition.name}")

        def on_released(self, event: Any) -> None:
            modified = event.delivery.remote_state == MODIFIED
            queues.outcomes.append("modified" if modified else "released")

        def on_link_flow(self, event: Any) -> None:
            if event.link.is_sender and event.link.drain_mode:
                queues.send(event.link)
                event.link.drained()

        def on_link_error(self, event: Any) -> None:
            queues.refused.append(event.link.remote_condition.name)

    return Handler()
