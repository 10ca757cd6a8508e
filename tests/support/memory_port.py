"""A dispatcher in memory, as the edge of AMQP sees one."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from onward.actors.dispatch import (
    AcceptCircuit,
    CircuitContainer,
    CircuitLink,
    CircuitLinkEnd,
    ConsumerEnd,
    OutcomeCallback,
    ProducerEnd,
)
from onward.protocol import OnwardError
from onward.protocol.dispatch import MODIFIED, RELEASED, DeliveryState, Received
from onward.protocol.security import Principal

__all__ = ["MemoryPort", "Sent"]


@dataclass
class Sent:
    """A message that a producer of a memory port has sent."""

    name: str
    message: bytes
    ttl: float | None
    told: OutcomeCallback | None
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

    def send(
        self, name: str | None, message: bytes, ttl: float | None, told: OutcomeCallback | None
    ) -> None:
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
        self.open: dict[int, OutcomeCallback] = {}

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
        self,
        name: str | None,
        end: ProducerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
    ) -> MemoryProducer:
        self._check(name, principal)
        made = MemoryProducer(self, name, end)
        self.producers.append(made)
        if name is None or any(each.name == name for each in self.consumers):
            made.give(self.window)
        return made

    def open_consumer(
        self,
        name: str,
        end: ConsumerEnd,
        principal: Principal | None = None,
        client: Hashable = None,
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

    def is_circuit(self, name: str) -> bool:
        return False

    def open_circuit(self, name: str, end: CircuitLinkEnd, **_: Any) -> CircuitLink:
        raise AssertionError("a circuit")

    def serve_circuits(self, name: str, accept: AcceptCircuit, **_: Any) -> CircuitContainer:
        raise AssertionError("a container")

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
        told: OutcomeCallback | None,
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
    ) -> OutcomeCallback | None:
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
