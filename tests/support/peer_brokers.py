"""A cluster of which tests decide everything, and brokers that another one is told of by hand."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from uuid import UUID

from onward.actors.broker import Handlers, Request
from onward.actors.cluster import PeerConnection, PeerRefused
from onward.protocol.broker import BrokerInfo

__all__ = ["CLUSTER", "HandMade", "info_of"]

CLUSTER = "onward.cluster.test"
"""The route of the requests of a `HandMade` cluster: it answers what it gets, twice as stream."""


def info_of(broker_id: UUID, timestamp: int = 1_700_000_000_000) -> BrokerInfo:
    return BrokerInfo(broker_id.bytes, timestamp, (("onward", b"1"),))


class HandMade:
    """The `PeerHandlers` of a test.

    Attributes:
        info: The BROKER_INFO of the broker.
        greeted: The BROKER_INFO frames of SETUPs, in order.
        links: The peer links, in order.
        lost: The reasons of those that have ended.
        refuses: The reason for which the next broker is refused, at SETUP or once it has connected.
    """

    def __init__(self, broker_id: UUID) -> None:
        self.info = info_of(broker_id)
        self.greeted: list[BrokerInfo] = []
        self.links: list[PeerConnection] = []
        self.lost: list[tuple[PeerConnection, str]] = []
        self.refuses: dict[str, str] = {}

    def greet(self, info: BrokerInfo) -> None:
        self.greeted.append(info)
        if "greet" in self.refuses:
            raise PeerRefused(self.refuses["greet"])

    def on_connected(self, connection: PeerConnection) -> Handlers:
        if "connected" in self.refuses:
            raise PeerRefused(self.refuses["connected"])
        self.links.append(connection)
        handlers = Handlers()

        @handlers.response(CLUSTER)
        async def answer(request: Request) -> bytes:
            return b"answer to " + request.data

        @handlers.stream(CLUSTER)
        async def count(request: Request) -> AsyncGenerator[bytes]:
            for number in range(int(request.data)):
                yield b"%d" % number

        return handlers

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        self.lost.append((connection, reason))
