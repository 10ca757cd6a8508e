"""What a message asks of its carriage: kept by the sender and by relays, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node, Unresolved
from onward.actors.identity import IdentityOptions
from onward.actors.identity._outgoing import ONWARD
from onward.actors.identity.links._session import Waiting
from onward.protocol import Address, MailboxFull, Message, UnreadableAddress
from onward.protocol.identity import (
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    Hop,
    LocalMetadata,
    Ordering,
    RelayContent,
    RelayStatus,
    Reliability,
    Security,
    TransportPrefs,
    build_onion,
    parse_relay_message,
    parse_signed,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from tests.support.identities import engine_text, joined, key_of, node_text
from tests.support.relays import OPEN, Member, chain, introduce, member, relay_text, tell_engine
from tests.support.transports import Echo, Recorder, eventually

UNRELIABLE = TransportPrefs(reliability=Reliability.UNRELIABLE)
MIX = TransportPrefs(security=Security.MIXNET)


@pytest.fixture
async def three() -> AsyncIterator[tuple[Node, Node, Node]]:
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        yield a, r, b


async def line_of(
    three: tuple[Node, Node, Node], *, tells_wishes: bool = False
) -> tuple[Member, Member, Member]:
    """Return three nodes in a line, the one in the middle an open relay, the last an echo."""
    a, r, b = three
    line = (
        await member(a, tells_wishes=tells_wishes),
        await member(r, relay=OPEN),
        await member(b, "echo"),
    )
    await b.start(Echo, address="echo")
    await chain(*line)
    introduce(*line)
    await asyncio.sleep(40)
    return line


def ignore(_: object) -> None:
    """Do nothing."""


def message_to(to: Member, sender: Member, tprefs: TransportPrefs | None = None) -> bytes:
    """Return a message to the echo of a node, signed by another one."""
    router = sender.identities._router
    message = EngineMessage(
        sender.own,
        Destination(DestinationKind.NODE, to.own),
        router.milliseconds() + 15_000 << 20,
        ONWARD,
        encode_message(Message((Address(0, b"echo"),), (), b"x")),
        expiry=router.milliseconds() + 60_000,
        tprefs=tprefs,
    )
    return sign_engine_message(message, sender.key)


def say(sender: Member, to: Member, *hops: Member, tprefs: TransportPrefs) -> None:
    """Send a node a message that is sealed for others, with these wishes in each layer."""
    router = sender.identities._router
    envelope = build_onion(
        [Hop(each.own, each.identities.sealing_key) for each in hops],
        message_to(hops[-1], sender),
        expiry=router.milliseconds() + 60_000,
        signers=[sender.key] * len(hops),
        tprefs=tprefs,
    )
    router.outgoing.tell(to.own, RelayContent(envelope), ignore)


# --- a mix network ------------------------------------------------------------------------------


async def test_a_message_that_asks_for_a_mix_network_is_an_error_of_its_sender(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three)
    await Recorder.on(a.node, "here")
    here = a.identities.engine("here")
    for route in (
        f"{node_text(r.own)}?mix=yes => echo",
        f"{engine_text(key_of('unknown').identity)}?mix=yes",
        f"{engine_text(here)}?mix=yes",
        f"{relay_text(r)} => {node_text(b.own)}?mix=yes => echo",
        f"{engine_text(here).replace('engine', 'domain')}?mix=yes",
    ):
        with pytest.raises(Unresolved, match="a mix network, and there is none"):
            await a.node.request(route, b"x")
    with pytest.raises(UnreadableAddress):
        await a.node.request(f"{node_text(r.own)}?mix=yes&hops=1", b"x")
    assert a.identities._router.awaited.messages == 0


async def test_a_message_that_asks_for_a_mix_network_is_not_taken_over_a_link(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, _ = await line_of(three)
    content = EngineContent(message_to(r, a, MIX))
    a.identities._router.outgoing.tell(r.own, content, ignore)
    reason = "messages that ask for a mix network"
    await eventually(lambda: r.identities.refused() == {reason: 1})


async def test_a_layer_that_asks_for_a_mix_network_is_refused_by_a_relay(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three)
    refused = r.relays.service.refused
    say(a, r, r, b, tprefs=MIX)  # for the next node
    say(a, r, r, tprefs=MIX)  # for this one
    say(a, r, b, tprefs=MIX)  # for another one, as it is
    await eventually(lambda: refused == {RelayStatus.UNEXPECTED_MESSAGE: 3})
    # In the clear it stands in the route.
    a.node.send(f"{node_text(r.own)} => {node_text(b.own)}?mix=yes => echo", b"x")
    await eventually(lambda: refused == {RelayStatus.UNEXPECTED_MESSAGE: 4})
    assert r.relays.service.queues.relayed == 0
    say(a, r, r, b, tprefs=UNRELIABLE)
    await eventually(lambda: r.relays.service.queues.relayed == 1)


async def test_what_the_directory_says_of_carriage_is_kept(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three)
    directory, to = a.identities.directory, node_text(r.own)
    await r.node.start(Echo, address="echo")
    echo = r.identities.engine("echo", key_of("echo"))
    assert (await a.node.request(engine_text(echo), b"x")).payload == b"x"
    # What a message says itself counts, and what was resolved before is resolved anew.
    directory.update(echo, LocalMetadata(tprefs=MIX))
    await eventually(lambda: not a.identities._router.links._values.get(echo))
    with pytest.raises(Unresolved, match="a mix network"):
        await a.node.request(engine_text(echo), b"x")
    with pytest.raises(Unresolved, match="a mix network"):
        await a.node.request(f"{relay_text(r)} => {engine_text(echo)}", b"x")
    asked = f"{engine_text(echo)}?ordered=yes"
    assert (await a.node.request(asked, b"x")).payload == b"x"
    directory.update(echo, LocalMetadata())
    await asyncio.sleep(1)  # of the virtual clock
    assert (await a.node.request(engine_text(echo), b"x")).payload == b"x"
    directory.update(r.own, LocalMetadata(tprefs=UNRELIABLE))
    directory.update(b.own, LocalMetadata(tprefs=TransportPrefs(security=Security.ONION, hops=2)))
    await asyncio.sleep(1)
    a.identities._router.peers.sessions[r.own].waiting.append(Waiting(b"", True, ignore))
    with pytest.raises(MailboxFull, match="not to wait"):
        await a.node.request(f"{to} => echo", b"x")
    a.identities._router.peers.sessions[r.own].waiting.clear()
    with pytest.raises(Unresolved, match="2 relays"):
        await a.node.request(f"{relay_text(r)} => {node_text(b.own)} => echo", b"x")


# --- not to wait --------------------------------------------------------------------------------


async def test_what_is_not_to_wait_does_not_wait_for_room_at_a_link(
    three: tuple[Node, Node, Node],
) -> None:
    a, b = await member(three[0]), await member(three[2], "echo")
    echo = await Recorder.on(b.node, "echo")
    link = await joined((a.node, a.identities), b.node)
    to = node_text(b.own)
    a.node.send(f"{to}?reliable=no => echo", b"at once")
    await echo.next()
    link.freeze()
    session = a.identities._router.peers.sessions[b.own]
    while not session.waiting:
        await a.node.send_wait(f"{to} => echo", b"before")
        await asyncio.sleep(0)
    with pytest.raises(MailboxFull, match="not to wait"):
        await a.node.request(f"{to}?reliable=no => echo", b"x")
    waiting = len(session.waiting)
    asked = asyncio.create_task(a.node.request(f"{to} => echo", b"last", timeout=100))
    await eventually(lambda: len(session.waiting) == waiting + 1)
    asked.cancel()


async def test_what_is_not_to_wait_is_not_sealed_for_a_relay_without_room(
    three: tuple[Node, Node, Node],
) -> None:
    a, r, b = await line_of(three)
    session = a.identities._router.peers.sessions[r.own]
    session.waiting.append(Waiting(b"", True, ignore))
    with pytest.raises(MailboxFull, match="not to wait"):
        await a.node.request(f"{relay_text(r)} => {node_text(b.own)}?reliable=no => echo", b"x")
    session.waiting.clear()
    assert a.relays.ways.sent == 0


async def test_a_relay_does_not_hold_what_is_not_to_wait(three: tuple[Node, Node, Node]) -> None:
    a, r, b = await line_of(three)
    service, peers = r.relays.service, r.identities._router.peers
    session = peers.sessions[b.own]
    session.waiting.append(Waiting(b"", True, ignore))
    say(a, r, r, b, tprefs=UNRELIABLE)
    await eventually(lambda: service.refused == {RelayStatus.RESOURCE_LIMIT_EXCEEDED: 1})
    session.waiting.clear()
    say(a, r, r, b, tprefs=UNRELIABLE)
    await eventually(lambda: service.queues.relayed == 1)
    peers.disconnect(b.own, "a test")
    say(a, r, r, b, tprefs=UNRELIABLE)
    await eventually(lambda: service.refused[RelayStatus.CONNECTION_FAILED] == 1)
    # What says nothing of it is held until there is a link.
    say(a, r, r, b, tprefs=TransportPrefs(Ordering.UNORDERED))
    await eventually(lambda: service.queues.holdings.messages == 1)
    assert service.queues.relayed == 1


# --- what relays are told -----------------------------------------------------------------------


def told(to: Member) -> list[TransportPrefs | None]:
    """Return what the layers for a node have asked for."""
    contents = [message.content for *_, message in to.tap.seen]
    layers = [each.envelope for each in contents if isinstance(each, RelayContent)]
    return [parse_relay_message(parse_signed(each).payload).tprefs for each in layers]


@pytest.mark.parametrize("tells", [False, True])
async def test_relays_are_told_what_a_message_asks_if_the_sender_wishes_it(
    three: tuple[Node, Node, Node], tells: bool
) -> None:
    a, r, b = await line_of(three, tells_wishes=tells)
    recorder = await Recorder.on(b.node, "recorder")
    engine = b.identities.engine("recorder")
    tell_engine(a, engine, b, "recorder")
    both = TransportPrefs(Ordering.UNORDERED, Reliability.UNRELIABLE)
    asked = {
        "": None,
        # Not how many relays it asks for.
        "?hops=1": None,
        "?ordered=yes": None,
        "?reliable=no": UNRELIABLE,
        "?ordered=no&reliable=no&hops=1": both,
    }
    for wishes in asked:
        a.node.send(f"{relay_text(r)} => {engine_text(engine)}{wishes}", b"x")
        await recorder.next()
    expected = list(asked.values()) if tells else [None] * len(asked)
    assert told(r) == told(b) == expected


def test_an_anonymous_sender_tells_relays_nothing_of_its_messages() -> None:
    with pytest.raises(ValueError, match="tells_wishes"):
        IdentityOptions(anonymous=True, tells_wishes=True)
