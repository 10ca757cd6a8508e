"""Brokers that dial each other in a simulated network."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors.broker import Broker
from onward.actors.cluster import ConnectPeer
from onward.transports.rsocket import RSocketListener
from onward.transports.simulated import SimulatedNetwork
from onward.transports.simulated._rsocket import SimulatedRSocketTransport
from tests.support.peer_brokers import CLUSTER, HandMade
from tests.transports.simulated.stage import simulated


class Side:
    """A broker with a listener."""

    broker: Broker
    peers: HandMade
    dial: ConnectPeer
    listener: RSocketListener

    @classmethod
    async def on(cls, network: SimulatedNetwork, name: str) -> Side:
        made = cls()
        node = await network.node(name)
        made.broker = await Broker.attach(node)
        made.peers = HandMade(made.broker.broker_id)
        uri = f"rsocket+sim://{name}"
        listener = await node.listen(uri, broker=made.broker, peers=made.peers)
        assert isinstance(listener, RSocketListener)
        assert listener.uri == uri
        transport = node.parts.transports.use(uri)
        assert isinstance(transport, SimulatedRSocketTransport)
        made.dial = transport.peer_dialler(made.broker)
        made.listener = listener
        return made


@simulated()
async def test_two_brokers_shake_hands_and_ask_each_other(network: SimulatedNetwork) -> None:
    near, far = await Side.on(network, "near"), await Side.on(network, "far")
    made = await near.dial(far.listener.uri, near.peers)
    await asyncio.sleep(1)
    (accepted,) = far.peers.links
    assert accepted.info == near.peers.info
    assert await made.request(CLUSTER, b"1") == b"answer to 1"
    assert await accepted.request(CLUSTER, b"2") == b"answer to 2"
    made.close("drained", "it was enough")
    await asyncio.sleep(1)
    assert near.peers.lost == [(made, "drained")]
    assert far.peers.lost == [(accepted, "it was enough")]


@simulated()
async def test_silence_ends_a_link_as_it_does_over_sockets(network: SimulatedNetwork) -> None:
    near, far = await Side.on(network, "near"), await Side.on(network, "far")
    made = await near.dial(far.listener.uri, near.peers)
    await asyncio.sleep(1)
    network.partition({"near"}, {"far"})
    await asyncio.sleep(4)
    assert near.peers.lost == []
    await asyncio.sleep(2)
    assert near.peers.lost == [(made, "silent")]


@simulated()
async def test_what_is_no_such_uri(network: SimulatedNetwork) -> None:
    near = await Side.on(network, "near")
    for uri in ("rsocket+tcp://far:1", "rsocket+sim://", "rsocket+sim://far/path"):
        with pytest.raises(ValueError, match="is not rsocket\\+sim://host"):
            await near.dial(uri, near.peers)
