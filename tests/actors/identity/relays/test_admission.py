"""What a relay admits: shares of what it holds, and what it charges to reservations."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from onward.actors import Node
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._outgoing import ONWARD
from onward.protocol import Message
from onward.protocol.identity import (
    Destination,
    DestinationKind,
    EngineMessage,
    Hop,
    Identity,
    PeelOutcome,
    RelayContent,
    RelayLoadLimits,
    RelayPolicy,
    RelayStatus,
    ReplyContent,
    SigningKey,
    build_onion,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from tests.support.identities import StrangeNode, key_of, node_text
from tests.support.relays import OPEN, Member, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

BODY = encode_message(Message((ENGINE,), (), b"hi"))
ENGINE_THERE = key_of("engine").identity
FLOOD, SERVED = key_of("flood"), key_of("served")


@pytest.fixture
async def nodes() -> AsyncIterator[dict[str, Node]]:
    async with AsyncExitStack() as stack:
        yield {each: await stack.enter_async_context(Node(each)) for each in "xyprab"}


class Floods:
    """Two strange nodes, one of which floods, next to a relay before the one that is looked at.

    Attributes:
        relay: The relay that is looked at.
        before: The relay before it, by which both come; `None` if both are next to the first one.
        far: The node behind it.
    """

    def __init__(self, relay: Member, before: Member | None, far: Member) -> None:
        self.relay = relay
        self.before = before
        self.far = far
        self.strange: dict[Identity, StrangeNode] = {}
        self.number = 0

    @classmethod
    async def on(
        cls, nodes: dict[str, Node], limits: RelayLoadLimits | None = None, *, behind: bool
    ) -> Floods:
        relay = await member(nodes["r"], relay=OPEN, relay_limits=limits)
        before = await member(nodes["p"], relay=OPEN) if behind else None
        far = await member(nodes["b"])
        if before is not None:
            await chain(before, relay)
        made = cls(relay, before, far)
        to = relay if before is None else before
        for node, key in (("x", FLOOD), ("y", SERVED)):
            made.strange[key.identity] = await StrangeNode.on(nodes[node], to.node, key)
        await asyncio.sleep(40)
        return made

    def send(self, key: SigningKey, number: int = 1, *, signs: SigningKey | None = None) -> None:
        """Send messages of one of the two, which want an answer."""
        path = [each for each in (self.before, self.relay, self.far) if each is not None]
        now = self.relay.identities._router.milliseconds()
        to = Destination(DestinationKind.ENGINE, ENGINE_THERE)
        for _ in range(number):
            self.number += 1
            message = EngineMessage(
                key.identity,
                to,
                (now << 20) + self.number,
                ONWARD,
                BODY,
                expiry=now + 60_000,
            )
            envelope = build_onion(
                [Hop(each.own, each.identities.sealing_key) for each in path],
                sign_engine_message(message, key),
                expiry=now + 60_000,
                signers=[signs or key] * len(path),
                reply_keys=[bytes((self.number % 256,)) * 32] * len(path),
            )
            handle = self.number.to_bytes(16)
            self.strange[key.identity].say(RelayContent(envelope, handle))


SMALL = RelayLoadLimits(held_messages=18, peer_messages=900)


async def test_a_flood_of_a_node_leaves_room_in_a_queue_for_others(nodes: dict[str, Node]) -> None:
    limits = RelayLoadLimits(peer_messages=8)
    floods = await Floods.on(nodes, limits, behind=False)
    relay, far = floods.relay, floods.far
    recorder = await Recorder.on(far.node, "engine")
    far.identities.engine("engine", key_of("engine"))
    floods.send(FLOOD, 50)
    share = "relayed messages: the node before has used its share of what is held"
    await eventually(lambda: relay.identities.refused() == {share: 46})
    found = relay.identities.relay_statistics()
    assert found.refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 46}
    assert sum(found.held_refused.values()) == 46
    floods.send(SERVED, 2)
    await chain(relay, far)
    sources = [key_of("served").identity, FLOOD.identity]
    await eventually(lambda: len(recorder.messages) == 6)
    links = [far.identities._router.links.get((ENGINE_THERE, each))[1] for each in sources]
    came = [each.source for each in recorder.messages]
    assert [came.count(each) for each in links] == [2, 4]


@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_flood_of_a_source_behind_a_node_leaves_room_for_others_behind_it(
    nodes: dict[str, Node], anonymous: bool
) -> None:
    floods = await Floods.on(nodes, SMALL, behind=True)
    queues = floods.relay.relays.service.queues
    for each in range(30):
        floods.send(FLOOD, signs=key_of(f"once {each}") if anonymous else None)
    # Of one source a third of what there is; of all that the node before has sent, half.
    held = 9 if anonymous else 6
    await eventually(lambda: sum(queues.holdings.refused.values()) == 30 - held)
    assert queues.holdings.messages == held
    floods.send(SERVED)
    if anonymous:
        # Keys for one use are no sources: the share of the node before is all that there is.
        await eventually(lambda: sum(queues.holdings.refused.values()) == 31 - held)
    else:
        await eventually(lambda: queues.holdings.messages == held + 1)
    # Other nodes find room in any case.
    floods.relay.relays.service.queues.holdings.hold(floods.far.own, 1, key_of("other").identity)
    assert sum(queues.holdings.refused.values()) == 30 - held + anonymous


async def test_a_flood_of_a_source_leaves_tags_and_handles_for_others(
    nodes: dict[str, Node],
) -> None:
    floods = await Floods.on(nodes, behind=True)
    relay, service = floods.relay, floods.relay.relays.service
    service.handles._shares._share = 8
    service._tags._shares._share = 20
    floods.send(FLOOD, 30)
    no_room = f"messages for relays: {PeelOutcome.NO_ROOM}"
    no_way = "messages without a way for their answer, as there is no room"
    await eventually(lambda: relay.identities.refused().get(no_room) == 20)
    assert relay.identities.refused()[no_way] == 6
    statistics = relay.identities.relay_statistics()
    assert (statistics.layers, statistics.handles) == (10, 4)
    floods.send(SERVED, 2)
    await eventually(lambda: relay.identities.relay_statistics().layers == 12)
    assert relay.identities.relay_statistics().handles == 6
    assert relay.identities.refused() == {no_room: 20, no_way: 6}


# --- what is charged --------------------------------------------------------------------------


async def reserved_line(
    nodes: dict[str, Node], limits: RelayLoadLimits | None = None, **asks: int
) -> tuple[Member, Member, Member]:
    """Return a node that sends, a relay for nodes with a reservation, and one that has one."""
    a = await member(nodes["a"])
    r = await member(nodes["r"], relay=RelayPolicy(to_reserved=True), relay_limits=limits)
    b = await member(nodes["b"], "echo", "sink")
    await b.node.start(Echo, address="echo")
    await Recorder.on(b.node, "sink")
    await chain(a, r, b)
    introduce(a, r, b)
    await asyncio.sleep(40)
    await b.identities.reserve(r.own, **asks)
    return a, r, b


def carried(r: Member, a: Member, b: Member) -> tuple[int, int]:
    """Return the messages and answers that a relay has passed on, as those next to it know."""
    sizes = [
        len(message.content.envelope)
        for node, _, message in b.tap.seen
        if node == r.own and isinstance(message.content, RelayContent)
    ] + [
        len(message.content.reply)
        for node, _, message in a.tap.seen
        if node == r.own and isinstance(message.content, ReplyContent)
    ]
    return len(sizes), sum(sizes)


def charged(r: Member) -> tuple[int, int]:
    found = r.identities.relay_statistics()
    return found.charged, found.charged_size


async def test_an_answer_is_charged_as_its_question_is(nodes: dict[str, Node]) -> None:
    a, r, b = await reserved_line(nodes, messages=3)
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"x")).payload == b"x"
    assert charged(r) == carried(r, a, b)
    assert charged(r)[0] == 2
    # The third one is carried, and there is nothing left for its answer.
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)
    assert charged(r) == carried(r, a, b)
    assert charged(r)[0] == 3
    assert r.identities.relay_statistics().refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 1}


async def test_what_is_not_held_or_expires_is_not_charged(nodes: dict[str, Node]) -> None:
    a, r, b = await reserved_line(nodes, RelayLoadLimits(peer_messages=4))
    queues, peers = r.relays.service.queues, r.identities._router.peers
    send = peers.send
    room = r.node.loop.create_future()

    def send_to_full(*record: object) -> asyncio.Future[None]:
        send(*record)  # type: ignore[arg-type]
        return room

    peers.send = send_to_full  # type: ignore[method-assign,assignment]
    route = f"{relay_text(r)} => {node_text(b.own)} => sink"
    for _ in range(6):
        a.node.send(route, b"x")
    await eventually(lambda: sum(queues.holdings.refused.values()) == 3)
    # One is carried, and two are held.
    assert (charged(r)[0], carried(r, a, b)[0], queues.holdings.messages) == (3, 1, 2)
    await asyncio.sleep(61)
    assert queues.holdings.messages == 0
    assert charged(r) == carried(r, a, b)
    r.identities.ban(b.own)
    assert charged(r)[0] == 1


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_charged_is_what_was_carried_both_ways_once(
    nodes: dict[str, Node], seed: int
) -> None:
    chance = random.Random(seed)
    limits = RelayLoadLimits(peer_messages=6, rate=1000, burst=1000)
    asks = {"duration": chance.choice((60, 600)), "messages": chance.choice((20, 1000))}
    a, r, b = await reserved_line(nodes, limits, **asks)
    linked = True
    for _ in range(60):
        match chance.choice(("echo", "echo", "echo", "sink", "sink", "cut", "join", "wait")):
            case "cut" if linked:
                linked = False
                b.identities._router.peers.disconnect(r.own, "a test")
                r.identities._router.peers.disconnect(b.own, "a test")
            case "join" if not linked:
                linked = True
                await chain(b, r)
            case "wait":
                await asyncio.sleep(chance.choice((1, 10, 40)))
            case ("echo" | "sink") as name:
                route = f"{relay_text(r)} => {node_text(b.own)} => {name}"
                asked = asyncio.ensure_future(
                    a.node.request(route, bytes(chance.randrange(3000)), timeout=1)
                )
                await asyncio.wait([asked])
                asked.exception()
            case _:
                pass  # it is cut already, or joined
    await asyncio.sleep(100)
    assert r.relays.service.queues.holdings.messages == 0
    number, size = carried(r, a, b)
    assert number > 5
    assert charged(r) == (number, size)
