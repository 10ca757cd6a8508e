"""AMQP for tests: a client of Proton's engine without I/O, and a dispatcher in memory."""

from __future__ import annotations

import importlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

from onward.actors.dispatch import ConsumerEnd, ProducerEnd, Told
from onward.protocol import OnwardError
from onward.protocol.dispatch import MODIFIED, RELEASED, DeliveryState, Received
from onward.protocol.security import Principal

__all__ = ["AmqpClient", "MemoryPort", "Sent", "needs_proton"]


def needs_proton() -> Any:
    """Return Proton's module, or skip the tests of a module with the reason."""
    return pytest.importorskip("proton", reason="needs python-qpid-proton, built by a compiler")


@dataclass
class Sent:
    """A message that a producer of a memory port has sent."""

    name: str
    message: bytes
    ttl: float | None
    told: Told | None
    states: list[DeliveryState] = field(default_factory=list[DeliveryState])


class MemoryProducer:
    """A producer of a memory port."""

    def __init__(self, port: MemoryPort, name: str | None, end: ProducerEnd) -> None:
        self.port = port
        self.name = name
        self.end = end
        self.credit = 0
        self.drains = 0
        self.closed = False

    def give(self, messages: int) -> None:
        self.credit += messages
        self.end.credit(messages)

    def send(self, name: str | None, message: bytes, ttl: float | None, told: Told | None) -> None:
        self.credit -= 1
        self.port.take(self, name or self.name or "", message, ttl, told)

    def drained(self, messages: int) -> None:
        self.drains += 1
        self.credit -= messages

    def close(self) -> None:
        self.closed = True
        self.port.producers.remove(self)


class MemoryConsumer:
    """A consumer of a memory port."""

    def __init__(self, port: MemoryPort, name: str, end: ConsumerEnd) -> None:
        self.port = port
        self.name = name
        self.end = end
        self.left = 0
        self.drains = 0
        self.closed = False
        self.open: dict[int, Told] = {}

    def credit(self, messages: int) -> None:
        self.left += messages
        self.port.hand_over(self.name)

    def drain(self) -> None:
        self.drains += 1
        self.left = 0
        self.end.drained()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.port.consumers.remove(self)
        while self.open:
            self.open.popitem()[1](MODIFIED)
        if not any(each.name == self.name for each in self.port.consumers):
            self.port.orphan(self.name)


class MemoryPort:
    """A dispatcher of one process: each message to one consumer with credit, in turn.

    Attributes:
        window: The credit of a producer whose name has a consumer, and of an anonymous one.
        refusals: The names that are refused, each with the reason.
        sent: All messages that were sent.
        failing: The error that each call raises, for an edge that has to survive one.
    """

    def __init__(self, window: int = 10) -> None:
        self.window = window
        self.refusals: dict[str, OnwardError] = {}
        self.producers: list[MemoryProducer] = []
        self.consumers: list[MemoryConsumer] = []
        self.sent: list[Sent] = []
        self.principals: list[Principal | None] = []
        self.failing: Exception | None = None
        self._waiting: dict[str, deque[tuple[MemoryProducer, Sent]]] = {}
        self._temporary = 0

    def open_producer(
        self, name: str | None, end: ProducerEnd, principal: Principal | None = None
    ) -> MemoryProducer:
        self._check(name, principal)
        made = MemoryProducer(self, name, end)
        self.producers.append(made)
        if name is None or any(each.name == name for each in self.consumers):
            made.give(self.window)
        return made

    def open_consumer(
        self, name: str, end: ConsumerEnd, principal: Principal | None = None
    ) -> MemoryConsumer:
        self._check(name, principal)
        made = MemoryConsumer(self, name, end)
        self.consumers.append(made)
        for each in self.producers:
            if each.name == name and not each.credit:
                each.give(self.window)
        return made

    def temporary_name(self) -> str:
        self._temporary += 1
        return f"_temp/here/{self._temporary}"

    def _check(self, name: str | None, principal: Principal | None) -> None:
        if self.failing is not None:
            raise self.failing
        if (refusal := self.refusals.get(name or "")) is not None:
            raise refusal
        self.principals.append(principal)

    def take(
        self,
        producer: MemoryProducer,
        name: str,
        message: bytes,
        ttl: float | None,
        told: Told | None,
    ) -> None:
        sent = Sent(name, message, ttl, told)
        self.sent.append(sent)
        if not any(each.name == name for each in self.consumers):
            self._tell(producer, sent, RELEASED)
            return
        self._waiting.setdefault(name, deque()).append((producer, sent))
        self.hand_over(name)

    def hand_over(self, name: str) -> None:
        waiting = self._waiting.get(name, deque())
        while waiting:
            ready = [each for each in self.consumers if each.name == name and each.left > 0]
            if not ready:
                return
            consumer = ready[0]
            # The next message is for the next consumer.
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            consumer.left -= 1
            producer, sent = waiting.popleft()
            consumer.end.deliver(sent.message, self._teller(producer, sent, consumer))

    def orphan(self, name: str) -> None:
        for producer, sent in self._waiting.pop(name, deque()):
            self._tell(producer, sent, RELEASED)
        for each in self.producers:
            if each.name == name:
                each.end.drain()

    def _teller(
        self, producer: MemoryProducer, sent: Sent, consumer: MemoryConsumer
    ) -> Told | None:
        if sent.told is None:
            producer.give(1)
            return None

        def tell(state: DeliveryState) -> None:
            if not isinstance(state, Received):
                consumer.open.pop(id(sent), None)
            self._tell(producer, sent, state)

        consumer.open[id(sent)] = tell
        return tell

    def _tell(self, producer: MemoryProducer, sent: Sent, state: DeliveryState) -> None:
        sent.states.append(state)
        if sent.told is not None:
            sent.told(state)
        if not isinstance(state, Received) and not producer.closed:
            producer.give(1)


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
