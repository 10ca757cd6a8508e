"""Nodes with identities, and a node of a test that has proven its key and says what it likes."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from onward.actors import Node
from onward.actors.identity import ROUTER, IdentityOptions
from onward.actors.testing import Probe
from onward.protocol import Address
from onward.protocol.identity import (
    ControlContent,
    Destination,
    DestinationKind,
    Greeting,
    Identity,
    LinkChannel,
    LinkDialler,
    LinkState,
    P2PContent,
    P2PMessage,
    SigningKey,
    Verifiers,
    destination_text,
    parse_p2p_message,
    serialize_greeting,
    serialize_p2p_message,
)
from onward.transports import MemoryLink, MemoryTransport
from onward.transports.identity import Identities

__all__ = [
    "NOW",
    "StrangeNode",
    "attached",
    "engine_text",
    "joined",
    "key_of",
    "link_of",
    "node_text",
]

NOW = 1_900_000_000.0
"""The time of day as the clock of a loop begins, in seconds since the Unix epoch."""

_names = count()


def key_of(name: str) -> SigningKey:
    """Return the key that a test calls so."""
    return SigningKey(name.encode().rjust(32, b"-"))


def engine_text(identity: Identity) -> str:
    """Return the address of an engine, as text."""
    return f"36#{destination_text(Destination(DestinationKind.ENGINE, identity))}"


def node_text(identity: Identity) -> str:
    """Return the address of a node, as text."""
    return f"36#{destination_text(Destination(DestinationKind.NODE, identity))}"


async def attached(
    node: Node,
    *expose: str,
    directory: Path | None = None,
    dials: tuple[str, ...] = (),
    **options: float,
) -> Identities:
    """Give a node an identity, of the key that is called as the node is.

    Its clock is that of the loop: on a virtual one no time passes in a test unless it waits.
    """
    given = IdentityOptions(dials=dials, **options)  # type: ignore[arg-type]
    key, loop = key_of(node.name), node.loop
    return await Identities.attach(
        node, key, given, expose=expose, directory=directory, clock=lambda: NOW + loop.time()
    )


async def joined(dials: tuple[Node, Identities], listens: Node) -> MemoryLink:
    """Join two nodes over a link in memory, and return the end of the one that dials."""
    node, identities = dials
    listener = await listens.listen(f"memory://identities-{next(_names)}", expose=[ROUTER])
    address = await node.connect(listener.uri, expose=[ROUTER])
    await identities.join(address)
    return link_of(node, address)


def link_of(node: Node, address: Address) -> MemoryLink:
    """Return a link in memory, for its faults."""
    transport = node.transport("memory://")
    assert isinstance(transport, MemoryTransport)
    return transport.link(address)


class StrangeNode:
    """A node that has proven its key, and sends what a test says.

    Args:
        node: The node that it is on, which has no router.
        key: Its key.
    """

    def __init__(self, node: Node, key: SigningKey) -> None:
        self.node = node
        self.key = key
        self.peer: Identity
        self.channel: LinkChannel
        self.route: tuple[Address, ...]
        self.greeting: P2PMessage
        self.probe: Probe

    @classmethod
    async def on(cls, node: Node, to: Node, key: SigningKey, *, greet: bool = True) -> StrangeNode:
        """Join a node that has a router."""
        made = cls(node, key)
        listener = await to.listen(f"memory://identities-{next(_names)}", expose=[ROUTER])
        link = await node.connect(listener.uri, expose=[ROUTER])
        made.route = (link, ROUTER)
        made.probe = await Probe.on(node, ROUTER)
        dialler = LinkDialler(key, bytes(range(32)), Verifiers(), 0.0)
        made.send(dialler.begin(0.0))
        proof = dialler.receive((await made.probe.next()).payload, 0.0)
        assert dialler.state is LinkState.UP
        assert proof is not None
        assert dialler.channel is not None
        assert dialler.peer is not None
        made.peer, made.channel = dialler.peer, dialler.channel
        made.send(proof)
        made.greeting = await made.said()
        if greet:
            made.say(ControlContent(serialize_greeting(Greeting(0, 0))))
        return made

    def send(self, data: bytes) -> None:
        """Send bytes to the router."""
        self.probe.send(self.route, data)

    def say(self, content: P2PContent) -> None:
        """Send a content as this node does."""
        self.say_record(serialize_p2p_message(P2PMessage(self.key.identity, self.peer, content)))

    def say_record(self, record: bytes) -> None:
        """Send a record over the session."""
        self.send(self.channel.seal(record))

    async def said(self) -> P2PMessage:
        """Return what the router says next."""
        record = self.channel.open((await self.probe.next()).payload)
        assert isinstance(record, bytes)
        return parse_p2p_message(record)
