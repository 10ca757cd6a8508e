"""The in-memory peer links keep to the seam that transports keep to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from onward.actors.broker import Handlers, Request
from onward.actors.cluster import PeerConnection, PeerRefused
from onward.protocol import OnwardError
from onward.protocol.broker import BrokerInfo
from tests.support.peer_links import LIFETIME, PeerNetwork

ONE, TWO = "test://one", "test://two"


class Side:
    """One broker's handlers: an echo, and a stream of numbers."""

    def __init__(self, number: int, *, refuses: bool = False) -> None:
        self.info = BrokerInfo(bytes([number]) * 16, number)
        self.refuses = refuses
        self.connections: list[PeerConnection] = []
        self.lost: list[str] = []

    def greet(self, info: BrokerInfo) -> None:
        if self.refuses:
            raise PeerRefused("not this one")

    def on_connected(self, connection: PeerConnection) -> Handlers:
        self.connections.append(connection)
        handlers = Handlers()

        @handlers.response("echo")
        async def echo(request: Request) -> bytes:
            return request.data

        @handlers.stream("numbers")
        async def numbers(request: Request) -> AsyncGenerator[bytes]:
            for number in range(5):
                yield b"%d" % number

        return handlers

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        self.lost.append(reason)


class Taken:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.elements: list[bytes] = []
        self.end: str | None = None

    def element(self, data: bytes) -> None:
        self.elements.append(data)

    def ended(self, text: str) -> None:
        self.end = text

    def broken(self) -> None:
        raise AssertionError("nothing is broken here")


async def test_a_link_has_two_ends_that_both_ask() -> None:
    network, one, two = PeerNetwork(), Side(1), Side(2)
    network.listen(TWO, two)
    link = await network.connect_from(ONE)(TWO, one)
    assert link.dialled
    assert not two.connections[0].dialled
    assert (link.info, two.connections[0].info) == (two.info, one.info)
    assert await link.request("echo", b"hi") == b"hi"
    assert await two.connections[0].request("echo", b"ho") == b"ho"
    with pytest.raises(OnwardError, match="no handler"):
        await link.request("other", b"")


async def test_a_stream_has_credit_and_an_end() -> None:
    network, one, two = PeerNetwork(), Side(1), Side(2)
    network.listen(TWO, two)
    link = await network.connect_from(ONE)(TWO, one)
    taken = Taken()
    stream = link.subscribe("numbers", b"", 2, taken)
    await asyncio.sleep(1)
    assert taken.elements == [b"0", b"1"]
    stream.request_n(9)
    await asyncio.sleep(1)
    assert (len(taken.elements), taken.end) == (5, "")


async def test_a_link_that_is_cut_or_hangs_is_lost_at_both_ends() -> None:
    network, one, two = PeerNetwork(), Side(1), Side(2)
    network.listen(TWO, two)
    link = await network.connect_from(ONE)(TWO, one)
    taken = Taken()
    link.subscribe("numbers", b"", 1, taken)
    await asyncio.sleep(1)
    network.cut(ONE, TWO)
    assert taken.end is not None
    assert "lost" in taken.end or "connection" in taken.end
    assert one.lost == two.lost == ["the connection was reset"]
    network.heal()
    await network.connect_from(ONE)(TWO, one)
    network.cut(ONE, TWO, silently=True)
    assert len(one.lost) == 1
    await asyncio.sleep(LIFETIME + 1)
    assert one.lost[1:] == two.lost[1:] == ["no KEEPALIVE"]


async def test_a_broker_may_refuse() -> None:
    network, one, two = PeerNetwork(), Side(1), Side(2, refuses=True)
    network.listen(TWO, two)
    with pytest.raises(PeerRefused, match="not this one"):
        await network.connect_from(ONE)(TWO, one)
    assert not one.connections
    assert not two.connections
