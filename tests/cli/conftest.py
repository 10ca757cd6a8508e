"""What commands talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, WaitingOptions
from tests.support.commands import Far, Silent
from tests.support.workers import Echo


@pytest.fixture
def far() -> Iterator[Far]:
    """A node to send to."""
    silent = Silent()
    with Node.in_background("far") as background:
        background.start(Echo, address="echo")
        background.start(Echo, address="hidden")
        background.start(lambda: silent, address="silent")
        listener = background.listen("tcp://127.0.0.1:0", expose=["echo", "silent"])
        yield Far(background, listener.uri.removeprefix("tcp://"), silent)


@pytest.fixture
def broker() -> Iterator[str]:
    """The URI of a broker with one destination, `store`."""
    with Node.in_background("broker") as background:

        async def start() -> str:
            node = background.node
            broker = await Broker.attach(
                node, BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
            )
            worker = await node.start(Echo, address="store")
            broker.register(worker, service="store", tags={"region": "eu"})
            listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
            return listener.uri

        yield background.call(start)
