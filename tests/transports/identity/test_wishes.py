"""What a message asks of its way, as a route says it."""

from __future__ import annotations

import pytest

from onward.actors import Node, Unresolved
from onward.protocol import Address, UnreadableAddress
from onward.protocol.identity import (
    SCOPE_LOCAL,
    BadRecord,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    Reliability,
    TransportPrefs,
    Verifiers,
    identity_text,
    open_engine_message,
)
from tests.support.identities import StrangeNode, attached, engine_text, joined, key_of, node_text
from tests.support.transports import Echo, Recorder, eventually

STRANGE = key_of("strange")


async def test_a_route_to_an_identity_is_for_any_worker(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    await joined((a, ours), c)
    assert (await ours.request(engine, b"by an engine")).payload == b"by an engine"
    node = Destination(DestinationKind.NODE, theirs.own)
    assert (await ours.request(node, b"by a node", rest=["echo"])).payload == b"by a node"
    text = f"engine:{identity_text(engine)}"
    assert (await ours.request(text, b"by a text")).payload == b"by a text"
    recorder = await Recorder.on(c, "recorder")
    ours.send(theirs.engine("recorder"), b"one way")
    assert (await recorder.next()).payload == b"one way"


async def test_wishes_are_in_what_is_signed(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    to = Destination(DestinationKind.NODE, STRANGE.identity)

    async def said(**wishes: object) -> EngineMessage:
        c.send(ours.route_to(to, "x", **wishes), b"hi")  # type: ignore[arg-type]
        content = (await strange.said()).content
        assert isinstance(content, EngineContent)
        message = open_engine_message(content.envelope, Verifiers())
        assert message is not None
        return message

    assert (await said()).tprefs is None
    unreliable = TransportPrefs(reliability=Reliability.UNRELIABLE)
    assert (await said(reliable=False)).tprefs == unreliable
    # A second one of the same address goes the way that is remembered.
    assert (await said(reliable=False)).tprefs == unreliable
    assert (await said()).tprefs is None


async def test_threat_17_a_local_scope_does_not_leave_the_node(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await a.start(Echo, address="here")
    await joined((a, ours), c)
    here = ours.engine("here")
    local = f"{engine_text(here)}?scope=local"
    assert (await a.request(local, b"here")).payload == b"here"
    for route in (
        f"{node_text(theirs.own)}?scope=local => echo",
        f"{engine_text(theirs.engine('echo'))}?scope=local",
    ):
        with pytest.raises(Unresolved, match="scope"):
            await a.request(route, b"away")
    assert ours.route_to(here, scope=SCOPE_LOCAL)[0] == Address.parse(local)


async def test_what_is_not_to_wait_does_not(a: Node) -> None:
    ours = await attached(a)
    missing = key_of("missing").identity
    with pytest.raises(Unresolved, match="not to wait"):
        await a.request(ours.route_to(missing, reliable=False), b"now")


async def test_addresses_of_the_router_are_not_for_others(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    # Once without what is remembered, and once with it.
    for _ in range(2):
        with pytest.raises(UnreadableAddress):
            await a.request(f"{node_text(theirs.own)} => 36#reply:x => echo", b"hi")
        assert (await a.request(f"{node_text(theirs.own)} => echo", b"hi")).payload == b"hi"
    with pytest.raises(UnreadableAddress):
        await a.request("36#self", b"hi")


async def test_a_wish_that_there_is_not_is_refused(a: Node) -> None:
    ours = await attached(a)
    with pytest.raises(UnreadableAddress):
        await a.request(f"{node_text(ours.own)}?speed=great", b"hi")
    with pytest.raises(BadRecord):
        ours.route_to(ours.own, hops=9)
