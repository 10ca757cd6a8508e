"""Relays that let messages out: to engines at nodes that their senders do not know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from onward.actors import Node, Unresolved
from onward.actors.identity._outgoing import ONWARD
from onward.actors.identity.directory._lookups_part import LookupsPart
from onward.actors.identity.links._session import Session
from onward.actors.identity.relays._admission import EXIT_ASKS_OF_PEER
from onward.protocol import UnreadableAddress
from onward.protocol.identity import (
    SCOPE_LOCAL,
    AdvertAddress,
    AdvertSource,
    Destination,
    DestinationKind,
    EngineAdvert,
    EngineMessage,
    Hop,
    Identity,
    NodeAdvert,
    PeelOutcome,
    RelayContent,
    RelayPolicy,
    RelayStatus,
    ReplyContent,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    build_onion,
    parse_p2p_message,
    sign_advert,
    sign_engine_message,
)
from tests.support.identities import engine_text, key_of, node_text
from tests.support.relays import OPEN, Member, Tap, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

EXIT = RelayPolicy(from_any=True, exits=True)
ENGINE = key_of("engine")


@pytest.fixture
async def nodes() -> AsyncIterator[dict[str, Node]]:
    async with AsyncExitStack() as stack:
        yield {each: await stack.enter_async_context(Node(each)) for each in "arsxb"}


async def line_of(
    nodes: dict[str, Node], policy: RelayPolicy = EXIT, *, anonymous: bool = False
) -> tuple[Member, ...]:
    """Return a sender, two relays, an exit, and a node that the sender does not know."""
    a = await member(nodes["a"], anonymous=anonymous)
    r, s = [await member(nodes[each], relay=OPEN) for each in "rs"]
    x = await member(nodes["x"], relay=policy)
    b = await member(nodes["b"], "echo")
    await b.node.start(Echo, address="echo")
    await b.node.start(Echo, address="engine")
    b.identities.engine("engine", ENGINE)
    await chain(a, r, s, x, b)
    introduce(a, r, s, x)
    await asyncio.sleep(40)
    return a, r, s, x, b


@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_request_goes_over_two_relays_and_an_exit_to_an_engine_elsewhere_and_back(
    nodes: dict[str, Node], anonymous: bool
) -> None:
    a, r, s, x, b = line = await line_of(nodes, anonymous=anonymous)
    relays = [each.own for each in (r, s, x)]
    for payload in (b"12 apples", bytes(3000)):
        answer = await a.node.request(
            a.identities.route_to(ENGINE.identity, relays=relays, exit=True), payload
        )
        assert answer.payload == payload
    # The sender has learned nothing of the node, and asked none for it.
    assert a.identities.directory.peek(ENGINE.identity) is None
    assert a.identities.directory.peek(b.own) is None
    assert [each.identities.refused() for each in line] == [{}] * 5
    assert x.identities.relay_statistics().outcomes == {PeelOutcome.EXIT: 2}
    assert b.identities.relay_statistics().outcomes == {PeelOutcome.DELIVER: 2}
    assert x.identities.relay_statistics().handles == 0
    # The node of the engine has it of the exit, and knows no relay before that.
    of_relays = {
        node
        for node, _, message in b.tap.seen
        if isinstance(message.content, RelayContent | ReplyContent)
    }
    assert of_relays == {x.own}
    assert not any(
        key_of(each).identity[1:] in record for each in "rs" for _, record, _ in b.tap.seen
    )


async def test_a_message_without_an_answer_and_to_a_node_is_let_out_as_well(
    nodes: dict[str, Node],
) -> None:
    a, r, s, x, b = await line_of(nodes)
    sink = await Recorder.on(b.node, "sink")
    b.identities.engine("sink")
    to_b = f"{node_text(b.own)}?exit=yes"
    assert (await a.node.request(f"{relay_text(r, s, x)} => {to_b} => echo", b"1")).payload == b"1"
    a.node.send(f"{relay_text(r, s, x)} => {to_b} => sink", b"2")
    assert (await sink.next()).payload == b"2"
    assert len(x.relays.service.handles) == 0


async def test_what_follows_an_answer_is_let_out_too(nodes: dict[str, Node]) -> None:
    a, r, s, x, b = await line_of(nodes)
    asks, answers = await Recorder.on(a.node, "asks"), await Recorder.on(b.node, "answers")
    engine = b.identities.engine("answers", key_of("answers"))
    await asyncio.sleep(1)
    asks.send(f"{relay_text(r, s, x)} => {engine_text(engine)}?exit=yes", b"one?")
    answers.reply(await answers.next(), b"one!")
    asks.reply(await asks.next(), b"two?")
    question = await answers.next()
    assert question.payload == b"two?"
    answers.reply(question, b"two!")
    assert (await asks.next()).payload == b"two!"


async def test_an_exit_that_does_not_know_the_engine_asks_for_a_later_message(
    nodes: dict[str, Node],
) -> None:
    a, r, s, x, b = await line_of(nodes)
    late = await Recorder.on(b.node, "late")
    x.tap.change = lambda node, record: [] if node == b.own else [record]
    engine = b.identities.engine("late", key_of("late"))
    await asyncio.sleep(1)
    x.tap.change = Tap().change
    route = f"{relay_text(r, s, x)} => {engine_text(engine)}?exit=yes"
    a.node.send(route, b"lost")
    await eventually(lambda: x.identities.relay_statistics().refused)
    assert x.identities.relay_statistics().refused == {RelayStatus.CONNECTION_FAILED: 1}
    await asyncio.sleep(2)
    a.node.send(route, b"found")
    assert (await late.next()).payload == b"found"
    assert len(late.messages) == 1


async def test_a_flood_for_engines_that_are_not_known_leaves_look_ups_to_others(
    nodes: dict[str, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, r, s, x, _ = await line_of(nodes)
    engines = [key_of(f"unknown {number}").identity for number in range(EXIT_ASKS_OF_PEER + 30)]
    asked: list[Identity] = []

    def ask(_: LookupsPart, identity: Identity) -> None:
        asked.append(identity)

    monkeypatch.setattr(LookupsPart, "ask", ask)
    for engine in engines:
        a.node.send(f"{relay_text(r, s, x)} => {engine_text(engine)}?exit=yes", b"x")
    reason = "look-ups of an exit beyond its rate"
    await eventually(lambda: x.identities.refused().get(reason) == 30)
    assert len(set(asked) & set(engines)) == EXIT_ASKS_OF_PEER
    failed = {RelayStatus.CONNECTION_FAILED: EXIT_ASKS_OF_PEER + 30}
    assert x.identities.relay_statistics().refused == failed
    # What comes from another node next to the exit is looked up at once, until all is used.
    admission, others = x.relays.service.admission, [key_of(each).identity for each in "klmno"]
    for other in others:
        for _ in range(EXIT_ASKS_OF_PEER + 1):
            admission.look_up(other, other)
    assert [asked.count(each) for each in others] == [EXIT_ASKS_OF_PEER] * 3 + [0, 0]


async def test_a_node_that_is_started_again_takes_what_is_let_out_after_a_while(
    nodes: dict[str, Node],
) -> None:
    a, r, s, x, b = await line_of(nodes)
    route = f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes"
    assert (await a.node.request(route, b"1")).payload == b"1"
    b.identities._router.peers.disconnect(x.own, "a test")
    x.identities._router.peers.disconnect(b.own, "a test")
    async with Node("b") as again:
        other = await member(again)
        await again.start(Echo, address="engine")
        other.identities.engine("engine", ENGINE)
        await chain(x, other)
        await asyncio.sleep(61)
        assert (await a.node.request(route, b"2")).payload == b"2"


async def test_what_is_let_out_is_charged_and_allowed_as_anything_else(
    nodes: dict[str, Node],
) -> None:
    a, r, s, x, b = await line_of(nodes, RelayPolicy(to_reserved=True, exits=True))
    route = f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes"
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"1", timeout=5)
    assert x.identities.relay_statistics().refused == {RelayStatus.NO_RESERVATION: 1}
    await b.identities.reserve(x.own, messages=2)
    assert (await a.node.request(route, b"1")).payload == b"1"
    found = x.identities.relay_statistics()
    assert (found.charged, found.charged_size) == (2, found.relayed_size)


async def test_an_answer_that_is_changed_before_the_exit_is_dropped_there(
    nodes: dict[str, Node],
) -> None:
    a, r, s, x, _ = await line_of(nodes)

    def change(_: Identity, record: bytes) -> list[bytes]:
        content = parse_p2p_message(record).content
        if isinstance(content, ReplyContent):
            at = record.index(content.reply) + 100
            record = record[:at] + bytes((record[at] ^ 1,)) + record[at + 1 :]
        return [record]

    x.tap.change = change
    route = f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes"
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"1", timeout=5)
    assert x.identities.refused() == {"answers over relays: the answer was changed on its way": 1}


async def test_a_node_without_a_key_to_seal_to_is_not_let_out_to(nodes: dict[str, Node]) -> None:
    a, r, s, x, b = await line_of(nodes)
    route = f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes"
    failed = {RelayStatus.CONNECTION_FAILED: 1}
    x.identities.directory.forget(b.own)
    a.node.send(route, b"1")
    await eventually(lambda: x.identities.relay_statistics().refused == failed)
    # A point of small order, which its node has signed.
    created = x.identities._router.milliseconds()
    bad = NodeAdvert(b.own, (AdvertAddress(relay_text(x), 1),), bytes(32), 2**31, created)
    x.identities.directory.put(sign_advert(bad, b.key), AdvertSource.LOCAL)
    a.node.send(route, b"2")
    failed = {RelayStatus.CONNECTION_FAILED: 2}
    await eventually(lambda: x.identities.relay_statistics().refused == failed)


async def test_what_cannot_be_let_out_is_refused_at_its_sender(nodes: dict[str, Node]) -> None:
    a, r, s, x, _ = await line_of(nodes)
    engine = f"{engine_text(ENGINE.identity)}?exit=yes"
    for route, error, reason in (
        (engine, Unresolved, "the last relay of a route lets it out, and there is none"),
        (f"{relay_text(r, x)} => {engine}&scope=local", Unresolved, "has no scope"),
        (f"{relay_text(r, s, x)} => {engine}&hops=4", Unresolved, "asks for 4 relays or more"),
        (f"{relay_text(r)}?exit=yes => {engine}", UnreadableAddress, "stand at the destination"),
        (f"{relay_text(r, a)} => {engine}", Unresolved, "no relay of its own"),
    ):
        with pytest.raises(error, match=reason):
            a.node.send(route, b"x")
    route = f"{relay_text(r, s, x)} => {engine}&hops=3"
    assert (await a.node.request(route, b"x")).payload == b"x"


async def two_exits(nodes: dict[str, Node]) -> tuple[Member, Member, Member]:
    """Return a sender and two exits, of which each takes the other for the node of the engine."""
    a = await member(nodes["a"])
    x, s = [await member(nodes[each], relay=EXIT) for each in "xs"]
    await chain(a, x, s)
    introduce(a, x, s)
    await asyncio.sleep(40)
    tell_moved(x, s, 1)
    tell_moved(s, x, 2)
    return a, x, s


def tell_moved(to: Member, at: Member, version: int) -> None:
    """Tell a node that the engine is at another one, by an advert that is newer than others."""
    created = to.identities._router.milliseconds()
    advert = EngineAdvert(ENGINE.identity, at.own, b"engine", created // 1000 + version, created)
    envelope = sign_advert(advert, ENGINE)
    to.identities.directory.put(envelope, AdvertSource.NETWORK, at.own)


async def test_two_exits_that_take_each_other_for_the_node_pass_a_message_once(
    nodes: dict[str, Node],
) -> None:
    a, x, s = await two_exits(nodes)
    a.node.send(f"{relay_text(x)} => {engine_text(ENGINE.identity)}?exit=yes", b"1")
    await eventually(lambda: s.identities.relay_statistics().outcomes)
    await asyncio.sleep(10)
    found = [each.identities.relay_statistics() for each in (x, s)]
    assert [each.outcomes for each in found] == [{PeelOutcome.EXIT: 1}, {PeelOutcome.REFUSED: 1}]
    # It has the outcome of a relay without exits.
    assert [each.refused for each in found] == [{}, {RelayStatus.PERMISSION_DENIED: 1}]
    assert [each.relayed for each in found] == [1, 0]


async def test_an_exit_lets_nothing_out_to_itself(nodes: dict[str, Node]) -> None:
    a, r, s, x, _ = await line_of(nodes)
    tell_moved(x, x, 1)  # the engine was here, and has ended
    a.node.send(f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes", b"1")
    await eventually(lambda: x.identities.relay_statistics().refused)
    found = x.identities.relay_statistics()
    assert found.refused == {RelayStatus.CONNECTION_FAILED: 1}
    assert (found.outcomes, found.held) == ({PeelOutcome.REFUSED: 1}, 0)


async def test_nothing_is_let_out_that_does_not_ask_for_it(nodes: dict[str, Node]) -> None:
    a, r, s, x, b = await line_of(nodes)
    tell_moved(a, x, 1)  # the sender takes the exit for the node of the engine
    a.node.send(f"{relay_text(r, s)} => {engine_text(ENGINE.identity)}", b"1")
    await eventually(lambda: x.identities.relay_statistics().outcomes)
    found = x.identities.relay_statistics()
    assert (found.outcomes, found.relayed) == ({PeelOutcome.REFUSED: 1}, 0)
    assert found.refused == {RelayStatus.PERMISSION_DENIED: 1}
    assert b.identities.relay_statistics().outcomes == {}


async def test_an_exit_needs_a_permission_and_the_policy(nodes: dict[str, Node]) -> None:
    sources = frozenset({key_of("a").identity})
    a, r, s, x, b = await line_of(nodes, RelayPolicy(sources=sources, exits=True))
    route = f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes"
    assert (await a.node.request(route, b"1")).payload == b"1"
    policies = (
        RelayPolicy(sources=sources),
        RelayPolicy(sources=frozenset({r.own}), exits=True),
        RelayPolicy(exits=True),
    )
    for denied, policy in enumerate(policies, 1):
        x.relays.service.admission.policy = policy
        a.node.send(route, b"2")
        await asyncio.sleep(1)
        found = x.identities.relay_statistics()
        assert found.refused == {RelayStatus.PERMISSION_DENIED: denied}
    assert b.identities.relay_statistics().outcomes == {PeelOutcome.DELIVER: 1}


@pytest.mark.parametrize("banned", ["destination", "home", "source", "layer", "previous"])
async def test_an_exit_lets_nothing_out_of_what_is_banned_or_to_it(
    nodes: dict[str, Node], banned: str
) -> None:
    a, r, s, x, b = await line_of(nodes, anonymous=banned == "source")
    asks = await Recorder.on(a.node, "asks")
    source = a.identities.engine("asks", key_of("asks"))
    relays = relay_text(r, s, x)
    asks.send(f"{relays} => {engine_text(ENGINE.identity)}?exit=yes", b"1")
    assert (await asks.next()).payload == b"1"
    x.identities.ban(
        {
            "destination": ENGINE.identity,
            "home": b.own,
            "source": source,
            "layer": a.own,
            "previous": s.own,
        }[banned]
    )
    asks.send(f"{relays} => {engine_text(ENGINE.identity)}?exit=yes", b"2")
    await asyncio.sleep(5)
    assert len(asks.messages) == 1
    assert x.identities.relay_statistics().outcomes[PeelOutcome.EXIT] == 1
    assert x.identities.relay_statistics().held == 0
    assert b.identities.relay_statistics().outcomes == {PeelOutcome.DELIVER: 1}


async def test_an_exit_lets_nothing_out_that_has_a_scope(nodes: dict[str, Node]) -> None:
    a, _, s, x, _ = await line_of(nodes)
    domain = RoutingScope(ScopeKind.DOMAIN, key_of("domain").identity)
    to = Destination(DestinationKind.ENGINE, ENGINE.identity)
    for number, scope in enumerate((SCOPE_LOCAL, domain)):
        now = x.identities._router.milliseconds()
        message = EngineMessage(
            a.own, to, number, ONWARD, b"", expiry=now + 60_000, rprefs=RoutingPrefs(scope)
        )
        envelope = build_onion(
            [Hop(x.own, x.identities.sealing_key)],
            sign_engine_message(message, a.key),
            expiry=now + 60_000,
            signers=[a.key],
            lets_out=True,
        )
        x.relays.service.receive(session_of(x, s), RelayContent(envelope))
    assert x.identities.relay_statistics().refused == {RelayStatus.PERMISSION_DENIED: 2}
    assert x.identities.relay_statistics().relayed == 0


def session_of(member: Member, peer: Member) -> Session:
    """Return the session of a node with a peer."""
    return member.identities._router.peers.sessions[peer.own]


@pytest.mark.parametrize("banned", ["source", "destination"])
async def test_what_an_exit_holds_ends_when_its_engine_is_banned(
    nodes: dict[str, Node], banned: str
) -> None:
    a, r, s, x, b = await line_of(nodes, anonymous=True)
    asks = await Recorder.on(a.node, "asks")
    source = a.identities.engine("asks", key_of("asks"))
    b.identities._router.peers.disconnect(x.own, "a test")
    x.identities._router.peers.disconnect(b.own, "a test")
    asks.send(f"{relay_text(r, s, x)} => {engine_text(ENGINE.identity)}?exit=yes", b"1")
    await eventually(lambda: x.identities.relay_statistics().held == 1)
    assert x.identities.relay_statistics().handles == 1
    x.identities.ban(source if banned == "source" else ENGINE.identity)
    found = x.identities.relay_statistics()
    assert (found.held, found.handles) == (0, 0)
    assert x.identities.refused()["messages held of what is banned"] == 1
