"""A transport of one's own, as the documentation of `Transport` shows it."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from onward.actors import Node
from onward.protocol import Address, Message, UnknownAddressType, address
from onward.transports import Link, Listener, Transport
from tests.support.transports import Echo


class QueueLink(Link):
    """Moves messages through a queue, one loop tick later."""

    other: QueueLink

    def transmit(self, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self.other.arrive, (message,))


class QueueListener(Listener):
    def __init__(self, transport: QueueTransport, uri: str, expose: frozenset[Address]) -> None:
        self.transport = transport
        self.expose = expose
        self._uri = uri

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def address(self) -> Address:
        return address(self._uri)

    async def close(self) -> None:
        QueueTransport.listeners.pop(self._uri, None)


class QueueTransport(Transport):
    scheme: ClassVar[str] = "queue"
    listeners: ClassVar[dict[str, QueueListener]] = {}

    async def listen(
        self, uri: str, *, expose: frozenset[Address], **options: Any
    ) -> QueueListener:
        return self.listeners.setdefault(uri, QueueListener(self, uri, expose))

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        listener = self.listeners[uri]
        ours, theirs = QueueLink(expose=expose), QueueLink(expose=listener.expose)
        ours.other, theirs.other = theirs, ours
        await listener.transport.node.start(lambda: theirs)
        return await self.node.start(lambda: ours)

    async def stop(self) -> None:
        for listener in list(self.listeners.values()):
            if listener.transport is self:
                await listener.close()


async def test_it_joins_nodes() -> None:
    async with Node("a") as a, Node("c") as c:
        for node in (a, c):
            node.add_transport(QueueTransport)
        await c.start(Echo, address="echo")
        listener = await c.listen("queue://c", expose=["echo"])
        link = await a.connect(listener.uri)
        answer = await a.request([link, "echo"], b"my own")
        assert answer.payload == b"my own"
        assert answer.return_route == (link, address("echo"))
    assert not QueueTransport.listeners


async def test_it_resolves_no_address_unless_it_says_so() -> None:
    async with Node() as node:
        transport = QueueTransport(node)
        assert transport.address_type is None
        with pytest.raises(UnknownAddressType):
            transport.resolve(Message((address("9#x"),), (), b""))
