"""Relays between whole nodes, over TCP on loopback."""

from __future__ import annotations

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER, IdentityKeys, IdentityOptions
from onward.protocol.identity import PeelOutcome, RelayPolicy, SigningKey
from onward.transports.identity import Identities
from tests.support.identities import NOW, engine_text, key_of, node_text
from tests.support.transports import Echo, eventually


def keys_of(node: Node) -> IdentityKeys:
    key = key_of(node.name)
    return IdentityKeys(key, key_of(f"{node.name} seals").identity[1:], None, None, "", 0)


class Clock:
    """The time of day, which a test sets forward."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.ahead = 0.0

    def __call__(self) -> float:
        return NOW + self.node.loop.time() + self.ahead


async def attach(
    node: Node, clock: Clock, policy: RelayPolicy | None = None, *, anonymous: bool = False
) -> Identities:
    options = IdentityOptions(anonymous=anonymous)
    return await Identities.attach(node, keys_of(node), options, relay=policy, clock=clock)


@pytest.mark.parametrize("anonymous", [False, True])
async def test_two_nodes_that_accept_no_connections_reach_each_other_through_a_relay(
    a: Node, b: Node, c: Node, anonymous: bool
) -> None:
    clock = Clock(a)
    ours = await attach(a, clock, anonymous=anonymous)
    relay = await attach(c, clock, RelayPolicy(to_reserved=True))
    theirs = await attach(b, clock)
    # A node that has just started accepts ids of a time to come alone.
    clock.ahead = 60.0
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo", SigningKey(bytes(32)))
    listener = await c.listen("tcp://127.0.0.1:0", expose=[ROUTER])
    for identities in (ours, theirs):
        await identities.join(listener.uri, identity=relay.own)
    await theirs.reserve(relay.own)
    # Nothing is known of the engine here: the relay is asked for it, and is in no route.
    for payload in (b"12 apples", bytes(10_000)):
        assert (await a.request(engine_text(engine), payload)).payload == payload
    statistics = relay.relay_statistics()
    assert statistics.outcomes == {PeelOutcome.NEXT: 2}
    assert (statistics.relayed, statistics.handles, statistics.reservations) == (4, 0, 1)
    assert [ours.peers(), theirs.peers()] == [(relay.own,), (relay.own,)]
    for each in (ours, relay, theirs):
        assert each.refused() == {}


async def test_a_relay_is_named_in_the_clear_and_sealed_for(a: Node, b: Node, c: Node) -> None:
    clock, policy = Clock(a), RelayPolicy(sources=frozenset({key_of("a").identity}))
    ours, relay = await attach(a, clock), await attach(c, clock, policy)
    theirs = await attach(b, clock)
    clock.ahead = 60.0
    await b.start(Echo, address="echo")
    engine = theirs.engine("echo")
    listener = await c.listen("tcp://127.0.0.1:0", expose=[ROUTER])
    for identities in (ours, theirs):
        await identities.join(listener.uri, identity=relay.own)
    answer = await ours.request(engine, b"sealed", relays=[relay.own])
    assert answer.payload == b"sealed"
    assert relay.relay_statistics().outcomes == {PeelOutcome.NEXT: 1}
    answer = await a.request(f"{node_text(relay.own)} => {engine_text(engine)}", b"clear")
    assert answer.payload == b"clear"
    assert relay.relay_statistics().outcomes == {PeelOutcome.NEXT: 1}
    # The other way nothing is allowed.
    b.send(f"{node_text(relay.own)} => {node_text(ours.own)} => echo", b"x")
    await eventually(lambda: c.dead_letters.by_reason == {"not exposed": 1})
