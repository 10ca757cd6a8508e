"""AMQP for tests: a client of Proton's engine without I/O, and the edge of its connection."""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any, Generic, TypeVar

import pytest

from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.amqp._auto_links import AutoLinks
from onward.transports.amqp._client_engine import ClientEngine, Login
from onward.transports.amqp._container_links import Plan
from onward.transports.amqp._engine import AmqpEngine, Opened
from onward.transports.amqp._links import Links
from onward.transports.amqp._options import AmqpOptions
from onward.transports.amqp._port import DispatchPort
from onward.transports.amqp._proton import load_proton

__all__ = [
    "OPTIONS",
    "AmqpClient",
    "Container",
    "Edge",
    "Edges",
    "described",
    "disposition_frame",
    "frame_of",
    "needs_proton",
    "nested",
    "refusal",
    "transfer_frame",
]

Port = TypeVar("Port", bound=DispatchPort)


def needs_proton() -> Any:
    """Return Proton's module, or skip the tests of a module with the reason."""
    return pytest.importorskip("proton", reason="needs python-qpid-proton, built by a compiler")


class AmqpClient:
    """A client of Proton's engine, without I/O.

    Args:
        mechanism: The mechanism of SASL; `None` for a connection without the layer.
        user: The name, of PLAIN.
        password: The password, of PLAIN.
        idle: Seconds for which it waits for a frame.
    """

    def __init__(
        self,
        mechanism: str | None = None,
        user: str = "",
        password: str = "",
        idle: float = 0,
        max_frame: int = 0,
    ) -> None:
        self.proton: Any = importlib.import_module("proton")
        self.events: list[str] = []
        self.received: list[tuple[Any, bytes]] = []
        self.aborted = 0
        self.accepts = True
        self.connection: Any = self.proton.Connection()
        self.transport: Any = self.proton.Transport(self.proton.Transport.CLIENT)
        self.collector: Any = self.proton.Collector()
        self.connection.container = "client"
        if user:
            self.connection.user, self.connection.password = user, password
        if mechanism is not None:
            sasl = self.transport.sasl()
            sasl.allowed_mechs(mechanism)
            sasl.allow_insecure_mechs = True
        if idle:
            self.transport.idle_timeout = idle
        if max_frame:
            self.transport.max_frame_size = max_frame
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.connection.open()
        self.session: Any = self.connection.session()
        self.session.open()
        self._tag = 0

    def receive(self, data: bytes) -> None:
        while data:
            room = self.transport.capacity()
            if room <= 0:
                return
            self.transport.push(data[:room])
            data = data[room:]
        self._work()

    def take(self) -> bytes:
        size = self.transport.pending()
        if size <= 0:
            return b""
        made = bytes(self.transport.peek(size))
        self.transport.pop(len(made))
        return made

    def _work(self) -> None:
        while (event := self.collector.peek()) is not None:
            self.events.append(event.type.method.removeprefix("on_"))
            if event.type.method == "on_delivery":
                self._delivered(event.delivery)
            self.collector.pop()

    def _delivered(self, delivery: Any) -> None:
        link = delivery.link
        if not link.is_receiver or delivery.partial or not delivery.readable:
            return
        parts = bytearray()
        while part := link.recv(1 << 20):
            parts += part
        link.advance()
        self.received.append((delivery, bytes(parts)))
        if self.accepts:
            delivery.update(self.proton.Delivery.ACCEPTED)
            delivery.settle()

    # --- what a client does ---------------------------------------------------------------------

    def sender(self, name: str | None, session: Any = None, **more: Any) -> Any:
        self._tag += 1
        link = (session or self.session).sender(f"s{self._tag}")
        link.target.address = name
        return self._opened(link, **more)

    def receiver(self, name: str | None, credit: int = 10, **more: Any) -> Any:
        self._tag += 1
        link = self.session.receiver(f"r{self._tag}")
        link.source.address = name
        self._opened(link, **more)
        if credit:
            link.flow(credit)
        return link

    def _opened(self, link: Any, **more: Any) -> Any:
        for key, value in more.items():
            setattr(link, key, value)
        link.open()
        return link

    def send(self, link: Any, message: bytes, *, settled: bool = False) -> Any:
        delivery = self.begin(link, message)
        link.advance()
        if settled:
            delivery.settle()
        return delivery

    def begin(self, link: Any, part: bytes) -> Any:
        """Send a first part of a message."""
        self._tag += 1
        delivery = link.delivery(f"d{self._tag}")
        link.stream(part)
        return delivery

    def message(self, body: Any = "hello", **more: Any) -> bytes:
        return bytes(self.proton.Message(body, **more).encode())

    @property
    def bodies(self) -> list[Any]:
        """The bodies of the messages that have come."""
        return [self._body(each) for _, each in self.received]

    def _body(self, data: bytes) -> Any:
        message = self.proton.Message()
        message.decode(data)
        body: object = message.body
        return body.tobytes() if isinstance(body, memoryview) else body

    def release(self) -> None:
        self.transport.unbind()
        self.connection.free()


OPTIONS = AmqpOptions(
    max_frame=4096, max_message=20_000, max_gathered=30_000, max_unsent=50_000, max_unsettled=8
)


class Edge:
    """The edge of one connection, and its client."""

    def __init__(
        self,
        port: DispatchPort,
        options: AmqpOptions = OPTIONS,
        principal: Principal = ANONYMOUS,
        max_frame: int = 4096,
    ) -> None:
        self.port = port
        self.client = AmqpClient(max_frame=max_frame)
        self.woken = 0
        self.dropped: Counter[str] = Counter()
        self.engine = AmqpEngine(load_proton(), "server", options)
        self.failures: list[Exception] = []
        self.links = Links(
            self.engine,
            port,
            options,
            principal,
            self._wake,
            self._drop,
            self.failures.append,
        )
        self.over = False

    def _wake(self) -> None:
        self.woken += 1

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def pump(self, most: int = 1 << 20) -> Edge:
        """Carry bytes until there are none."""
        while True:
            data = self.client.take()
            self.engine.receive(data)
            for event in self.engine.events():
                if isinstance(event, Opened):
                    self.engine.open()
                else:
                    self.links.handle(event)
            answer = self.engine.data_to_send(most)
            self.client.receive(answer)
            if not data and not answer:
                return self

    def cut(self) -> None:
        """Lose the connection."""
        if not self.over:
            self.over = True
            self.links.lost()
            self.engine.release()
            self.client.release()


class Edges(Generic[Port]):
    """Edges of one dispatcher."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.made: list[Edge] = []

    def __call__(
        self,
        options: AmqpOptions = OPTIONS,
        principal: Principal = ANONYMOUS,
        max_frame: int = 4096,
    ) -> Edge:
        edge = Edge(self.port, options, principal, max_frame)
        self.made.append(edge)
        return edge

    def pump(self) -> None:
        for _ in range(3):
            for each in self.made:
                if not each.over:
                    each.pump()


class Container:
    """A container of Proton's engine in memory, and the edge of a connection to it.

    Args:
        port: The dispatcher that the connection is of.
        routes: The links and routes of the connection.
        options: The limits.
        channel_max: The greatest number of a session that the container takes.

    Attributes:
        links: The links that the edge has attached, as the container has them.
        received: The messages that have come, each with its delivery.
        refuses: The condition and the text with which links are refused; empty if they are not.
        attached: The plans that are there, or were.
        ended: The plans that have ended.
        reasons: Why they have.
        refused: The links of clients that were refused for lack of room.
    """

    def __init__(
        self,
        port: DispatchPort,
        *routes: Plan,
        options: AmqpOptions = OPTIONS,
        channel_max: int = 1000,
    ) -> None:
        self.proton: Any = importlib.import_module("proton")
        self.links: list[Any] = []
        self.received: list[tuple[Any, bytes]] = []
        self.parts: list[bytes] = []
        self.aborted = 0
        self.events: list[str] = []
        self.refuses: tuple[str, str] | None = None
        self.answers = True
        self.attached: list[Plan] = []
        self.ended: list[Plan] = []
        self.reasons: list[str] = []
        self.refused = 0
        self.dropped: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self.over = False
        self.connection: Any = self.proton.Connection()
        self.transport: Any = self.proton.Transport(self.proton.Transport.SERVER)
        self.transport.channel_max = channel_max
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.collector: Any = self.proton.Collector()
        self.connection.container = "container"
        self.connection.collect(self.collector)
        self.transport.bind(self.connection)
        self.engine = ClientEngine(load_proton(), "edge", options, Login("localhost"))
        self.edge = AutoLinks(
            self.engine,
            port,
            options,
            lambda: None,
            self._drop,
            self.failures.append,
            self,
        )
        self.pump()
        for each in routes:
            self.edge.begin(each)
        self.pump()

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1

    def links_full(self) -> None:
        self.refused += 1

    def link_attached(self, plan: Plan) -> None:
        self.attached.append(plan)

    def link_ended(self, plan: Plan, reason: str) -> None:
        self.ended.append(plan)
        self.reasons.append(reason)

    def pump(self) -> None:
        """Carry bytes until there are none."""
        while True:
            for event in self.engine.events():
                if isinstance(event, Opened):
                    self.engine.open()
                else:
                    self.edge.handle(event)
            data = self.engine.data_to_send(1 << 20)
            rest = data
            while rest and (room := self.transport.capacity()) > 0:
                self.transport.push(rest[:room])
                rest = rest[room:]
                self._work()
            self._work()
            size = self.transport.pending()
            answer = bytes(self.transport.peek(size)) if size > 0 else b""
            if answer:
                self.transport.pop(len(answer))
            self.engine.receive(answer)
            self.edge.resume()
            if not data and not answer:
                return

    def _work(self) -> None:
        while (event := self.collector.peek()) is not None:
            kind = event.type.method.removeprefix("on_")
            self.events.append(kind)
            if kind in ("connection_remote_open", "session_remote_open"):
                getattr(event, kind.partition("_")[0]).open()
            elif kind == "session_remote_close":
                event.session.close()
            elif kind == "link_remote_open":
                self._attach(event.link)
            elif kind == "delivery":
                self._delivered(event.delivery)
            elif kind == "link_remote_close":
                event.link.close()
            elif kind == "link_remote_detach":
                event.link.detach()
            self.collector.pop()

    def _attach(self, link: Any) -> None:
        if link.state & link.LOCAL_UNINIT == 0:
            return
        self.links.append(link)
        if not self.answers:
            return
        if self.refuses is None:
            link.source.copy(link.remote_source)
            link.target.copy(link.remote_target)
            link.open()
            return
        (link.target if link.is_receiver else link.source).type = 0
        link.open()
        link.condition = self.proton.Condition(*self.refuses)
        link.close()

    def _delivered(self, delivery: Any) -> None:
        link = delivery.link
        if not link.is_receiver:
            return
        if delivery.aborted:
            self.aborted += 1
            self.parts.clear()
            link.advance()
            delivery.settle()
            return
        if not delivery.readable:
            return
        while part := link.recv(1 << 20):
            self.parts.append(part)
        if not delivery.partial:
            link.advance()
            self.received.append((delivery, b"".join(self.parts)))
            self.parts.clear()

    def cut(self) -> None:
        """Lose the connection."""
        if not self.over:
            self.over = True
            self.edge.lost()
            self.engine.release()
            self.transport.unbind()
            self.connection.free()


def disposition_frame(first: int, last: int, *, by_receiver: bool) -> bytes:
    """Return a frame that says `accepted` and settled of deliveries, known or not."""
    role = b"\x41" if by_receiver else b"\x42"
    numbers = b"".join(b"\x70" + each.to_bytes(4) for each in (first, last))
    items = b"\x05" + role + numbers + b"\x41\x00\x53\x24\x45"
    body = b"\x00\x53\x15\xc0" + bytes((len(items),)) + items
    return (len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x00" + body


def transfer_frame(
    tag: bytes, payload: bytes, *, settled: bool | None = None, more: bool = False
) -> bytes:
    """Return a frame with a part of the first delivery of the first link of a session."""
    flag = {None: b"\x40", True: b"\x41", False: b"\x42"}
    named = b"\xa0" + bytes((len(tag),)) + tag
    items = b"\x06\x43\x43" + named + b"\x43" + flag[settled] + flag[more]
    body = b"\x00\x53\x14\xc0" + bytes((len(items),)) + items + payload
    return (len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x00" + body


def nested(depth: int) -> bytes:
    """Return a map of AMQP with lists in lists."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4) + b"\x00\x00\x00\x01" + value
    value = b"\xa3\x01k" + value
    return b"\xd1" + (len(value) + 4).to_bytes(4) + b"\x00\x00\x00\x02" + value


def described(code: int, fields: list[bytes]) -> bytes:
    """Return a composite value of AMQP with encoded fields."""
    items = b"".join(fields)
    value = b"\x00\x53" + bytes((code,)) + b"\xd0" + (len(items) + 4).to_bytes(4)
    return value + len(fields).to_bytes(4) + items


def frame_of(code: int, fields: list[bytes]) -> bytes:
    """Return a frame of AMQP with encoded fields."""
    body = described(code, fields)
    return (len(body) + 8).to_bytes(4) + b"\x02\x00\x00\x00" + body


def refusal(link: Any) -> tuple[str, str | None]:
    found = link.remote_condition
    return found.name, found.description
