"""Links that a node opens for its messages, to nodes with addresses in their adverts."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node, Unresolved
from onward.actors.identity import ROUTER, PeerRefused
from onward.actors.identity.links._dialling import ANSWER_TIME, IDLE_TIME
from onward.protocol import LinkLost, OnwardError
from onward.protocol.identity import (
    SCOPE_ANY,
    AdvertAddress,
    AdvertSource,
    ConnectionPrefs,
    Destination,
    DestinationKind,
    Dialable,
    LocalMetadata,
    LookupEnd,
    LookupFailure,
    NodeAdvert,
    RelayPolicy,
    SigningKey,
    ViaNode,
    destination_text,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.domains import DOMAIN, domain_text, learns
from tests.support.identities import NOW, attached, engine_text, joined, key_of, node_text
from tests.support.relays import OPEN, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

MEMORY = ("memory",)


def tell(
    to: Identities, key: SigningKey, *routes: str, version: int = 1, kx: bytes = bytes(32)
) -> None:
    """Put the advert of a node into a directory; its first address is to be tried first."""
    addresses = tuple(AdvertAddress(each, 255 - at) for at, each in enumerate(routes))
    now = to._router.milliseconds()
    advert = NodeAdvert(key.identity, addresses, kx, version, now)
    to.directory.put(sign_advert(advert, key), AdvertSource.LOCAL)


def links_of(node: Node) -> int:
    """Return how many links a node has."""
    return sum("link" in type(each).__name__.lower() for each in workers_of(node))


def workers_of(node: Node) -> list[object]:
    table = node.parts.table
    return [table.worker_at(each.address) for each in node.statistics().workers]


async def test_a_node_that_others_know_is_dialled(a: Node, b: Node, c: Node) -> None:
    ours, between, theirs = await attached(a, dials=MEMORY), await attached(b), await attached(c)
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    listener = await c.listen("memory://dialled", expose=[ROUTER])
    theirs.advertise(listener.uri)
    await joined((c, theirs), b)
    await joined((a, ours), b)
    # The engine is looked up, then its node, and its node is dialled.
    asked = [a.request(engine_text(engine), bytes((number,))) for number in range(3)]
    assert [each.payload for each in await asyncio.gather(*asked)] == [b"\0", b"\1", b"\2"]
    assert set(ours.peers()) == {between.own, theirs.own}
    assert ours._router.dialling.counts == {"opened": 1}
    assert ours.refused() == between.refused() == theirs.refused() == {}


async def test_a_look_up_that_finds_nothing_new_ends_no_wait_for_a_link(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c, "recorder")
    recorder = await Recorder.on(c, "recorder")
    listener = await c.listen("memory://looked-up-again", expose=[ROUTER])
    tell(ours, key_of("c"), listener.uri)
    a.send(f"{node_text(theirs.own)} => recorder", b"1")
    assert ours._router.dialling.is_dialling(theirs.own)
    # It was looked up for something else, and another node says that it knows nothing.
    ours._router.lookups._act([LookupEnd(theirs.own, LookupFailure.NOT_FOUND)])
    assert (await recorder.next()).payload == b"1"


async def test_by_default_no_address_of_an_advert_is_dialled(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    listener = await c.listen("memory://not-dialled", expose=[ROUTER])
    tell(ours, key_of("c"), listener.uri)
    a.send(node_text(theirs.own), b"")
    await asyncio.sleep(1)
    assert ours.peers() == ()
    assert links_of(a) == 0


@pytest.mark.parametrize(
    "route", ["uds:///run/secret", "0#worker", "1#127.0.0.1:22", "memory", "tcp://x:1", "://x"]
)
async def test_addresses_of_other_schemes_are_not_dialled(a: Node, route: str) -> None:
    ours = await attached(a, dials=MEMORY)
    tell(ours, key_of("c"), route)
    assert not ours._router.dialling.is_dialable(key_of("c").identity)


async def test_a_relay_is_the_way_where_there_is_no_other(a: Node) -> None:
    ours, relay = await attached(a, dials=MEMORY), key_of("relay").identity
    route = f"36#{destination_text(Destination(DestinationKind.RELAY, relay))}"
    node = key_of("c")
    other = f"36#{destination_text(Destination(DestinationKind.NODE, relay))}"

    def way(*routes: str) -> object:
        addresses = tuple(AdvertAddress(each, 1) for each in routes)
        advert = NodeAdvert(node.identity, addresses, bytes(32), 1, 0)
        return ours._router.dialling.way_to(advert)

    assert way("tcp://x:1", route) == ViaNode(relay)
    assert way(route, "memory://x") == Dialable()
    assert way("tcp://x:1", other, "36#relay:x") is None


async def test_one_node_is_dialled_once_and_its_addresses_by_weight(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c, "echo")
    await c.start(Echo, address="echo")
    listener = await c.listen("memory://by-weight", expose=[ROUTER])
    tell(ours, key_of("c"), "memory://nothing-there", listener.uri)
    to = f"{node_text(theirs.own)} => echo"
    answers = await asyncio.gather(*(a.request(to, b"hi") for _ in range(5)))
    assert [each.payload for each in answers] == [b"hi"] * 5
    assert ours._router.dialling.counts == {"opened": 1}
    assert ours._router.dialling.dial(theirs.own) is None  # there is a link


async def test_a_node_that_cannot_be_reached_rests(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c, "echo")
    await c.start(Echo, address="echo")
    tell(ours, key_of("c"), "memory://later")
    to = f"{node_text(theirs.own)} => echo"
    with pytest.raises(Unresolved, match="its node could not be reached: "):
        await a.request(to, b"hi")
    listener = await c.listen("memory://later", expose=[ROUTER])
    with pytest.raises(Unresolved, match="its node could not be reached a moment ago"):
        await a.request(to, b"hi")
    await asyncio.sleep(1)
    assert (await a.request(to, b"hi")).payload == b"hi"
    assert ours._router.dialling.counts == {"failed": 1, "opened": 1}
    await listener.close()


async def test_another_advert_of_a_node_ends_its_rest(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c, "echo")
    await c.start(Echo, address="echo")
    tell(ours, key_of("c"), "memory://moved-away")
    to = f"{node_text(theirs.own)} => echo"
    for _ in range(2):
        with pytest.raises(Unresolved):
            await a.request(to, b"hi")
    listener = await c.listen("memory://moved-here", expose=[ROUTER])
    tell(ours, key_of("c"), listener.uri, version=2)
    await eventually(lambda: not ours._router.dialling._failed)
    assert (await a.request(to, b"hi")).payload == b"hi"


async def test_a_flood_of_adverts_of_a_node_ends_its_rest_once_in_a_while(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c)
    listener = await c.listen("memory://flooding", expose=[ROUTER])
    await ours.join(listener.uri)
    await listener.close()
    await eventually(lambda: not ours.peers())
    dialling = ours._router.dialling
    assert dialling.joined.is_lost(theirs.own)
    for version in range(100):
        tell(ours, key_of("c"), "memory://victim", version=2**31 + version)
        await asyncio.sleep(0.005)
    # That by the first advert, and that after its rest was ended.
    assert dialling.counts["failed"] == 2
    assert dialling.counts["rests that another advert has not ended"] > 50
    await asyncio.sleep(70)
    times, _ = dialling._failed[theirs.own]
    tell(ours, key_of("c"), "memory://victim", version=2**32 - 1)
    # The time that it rests goes on to double.
    await eventually(lambda: dialling._failed.get(theirs.own, (0,))[0] == times + 1)
    assert dialling.counts["failed"] == times + 1


async def test_messages_of_others_leave_places_for_links_of_the_node_itself(
    a: Node, b: Node, c: Node
) -> None:
    asks = await member(a)
    relay = await member(b, relay=OPEN, dials=MEMORY)
    honest = await member(c)
    await c.listen("memory://tar pit", expose=[])
    listener = await c.listen("memory://honest", expose=[ROUTER])
    await chain(asks, relay)
    introduce(asks, relay)
    tell(relay.identities, key_of("c"), listener.uri)
    for number in range(20):
        pit = key_of(f"pit {number}")
        for each in (asks, relay):
            tell(each.identities, pit, "memory://tar pit", kx=honest.identities.sealing_key)
        a.send(f"{relay_text(relay)} => {node_text(pit.identity)} => x", b"x")
    dialling = relay.identities._router.dialling
    await eventually(lambda: dialling.counts["beyond those that may be under way"] == 12)
    assert dialling.under_way == 8
    b.send(f"{node_text(honest.own)} => x", b"honest")
    await eventually(lambda: honest.own in relay.identities.peers())
    await asyncio.sleep(20)
    assert dialling.under_way == len(dialling._relayed) == 0


async def test_threat_3_an_address_that_leads_to_another_node_is_left(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, dials=MEMORY), await attached(c)
    listener = await c.listen("memory://of-another", expose=[ROUTER])
    tell(ours, key_of("strange"), listener.uri)
    with pytest.raises(Unresolved, match="another node is there than was dialled"):
        await a.request(node_text(key_of("strange").identity), b"hi")
    assert ours.peers() == theirs.peers() == ()
    await eventually(lambda: links_of(a) == 0)


async def test_so_many_nodes_are_dialled_at_a_time_and_remembered_as_not_reached(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.links._dialling._MOST_DIALS", 2)
    monkeypatch.setattr("onward.actors.identity.links._dialling._MOST_FAILED", 1)
    ours = await attached(a, dials=MEMORY)
    await c.listen("memory://silent", expose=[])
    nodes = [key_of(f"node {number}") for number in range(3)]
    for key in nodes:
        tell(ours, key, "memory://silent")
    dialling = ours._router.dialling
    for key in nodes[:2]:
        a.send(node_text(key.identity), b"")
    with pytest.raises(Unresolved, match="as many nodes are dialled as may be"):
        a.send(node_text(nodes[2].identity), b"")
    await asyncio.sleep(11)
    await eventually(lambda: dialling.counts["failed"] == 2)
    assert len(dialling._failed) == 1
    assert links_of(a) == 0
    assert dialling._dials == {}


async def dialled(
    a: Node, c: Node, name: str, message_time: float = 60.0
) -> tuple[Identities, Identities, str]:
    """Dial a node for a message, and return the route that it took."""
    ours = await attached(a, dials=MEMORY, message_time=message_time)
    theirs = await attached(c, "echo", message_time=message_time)
    await c.start(Echo, address="echo")
    listener = await c.listen(f"memory://{name}", expose=[ROUTER])
    tell(ours, key_of("c"), listener.uri)
    theirs.advertise(listener.uri)
    to = f"{node_text(theirs.own)} => echo"
    assert (await a.request(to, b"hi")).payload == b"hi"
    return ours, theirs, to


async def test_a_link_without_messages_ends_and_the_next_message_opens_another(
    a: Node, c: Node
) -> None:
    ours, theirs, to = await dialled(a, c, "idle")
    await asyncio.sleep(IDLE_TIME - 10)
    assert (await a.request(to, b"hi")).payload == b"hi"
    await asyncio.sleep(IDLE_TIME - 10)
    assert ours.peers() == (theirs.own,)
    # What nodes say to each other by themselves is no message.
    await asyncio.sleep(IDLE_TIME)
    assert ours.peers() == theirs.peers() == ()
    assert links_of(a) == links_of(c) == 0
    assert (await a.request(to, b"hi")).payload == b"hi"
    assert ours._router.dialling.counts == {"opened": 2, "ended as idle": 1}


async def test_a_link_that_is_joined_or_wanted_stays(a: Node, b: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "stays")
    link = ours._router.peers.link_to(theirs.own)
    assert link is not None
    await ours.join(link)
    other = await attached(b, "echo")
    await b.start(Echo, address="echo")
    listener = await b.listen("memory://wanted", expose=[ROUTER])
    tell(ours, key_of("b"), listener.uri)
    ours.directory.update(other.own, LocalMetadata(connection=ConnectionPrefs.PERMANENT))
    await a.request(f"{node_text(other.own)} => echo", b"hi")
    await asyncio.sleep(3 * IDLE_TIME)
    assert set(ours.peers()) == {theirs.own, other.own}
    assert ours._router.peers.link_to(key_of("nobody").identity) is None


async def test_a_link_that_a_request_waits_for_stays(a: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "slow")
    slow = await Recorder.on(c, "slow")
    engine = theirs.engine("slow")
    asked = asyncio.create_task(a.request(engine_text(engine), b"hi", timeout=5 * IDLE_TIME))
    question = await slow.next()
    await asyncio.sleep(3 * IDLE_TIME)
    slow.reply(question, b"at last")
    assert (await asked).payload == b"at last"
    with pytest.raises(OnwardError):
        await a.request(engine_text(engine), b"hi", timeout=1)
    await asyncio.sleep(3 * IDLE_TIME)
    assert ours.peers() == theirs.peers() == ()


async def test_a_link_that_the_other_end_waits_for_stays(a: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "asked")
    slow = await Recorder.on(a, "slow")
    engine = ours.engine("slow")
    asked = [
        asyncio.create_task(c.request(engine_text(engine), b"hi", timeout=ANSWER_TIME))
        for _ in range(2)
    ]
    questions = [await slow.next() for _ in asked]
    for question, answer in zip(questions, asked, strict=True):
        await asyncio.sleep(ANSWER_TIME / 2 - 20)
        assert ours.peers() == (theirs.own,)
        slow.reply(question, b"at last")
        assert (await answer).payload == b"at last"
    await asyncio.sleep(2 * IDLE_TIME)
    assert ours.peers() == theirs.peers() == ()


async def test_a_link_to_a_relay_does_not_stay_for_an_answer_that_goes_another_way(
    a: Node, b: Node, c: Node
) -> None:
    asks, relay = await member(a), await member(b, relay=OPEN)
    there = await member(c, "slow", dials=MEMORY)
    slow = await Recorder.on(c, "slow")
    listener = await b.listen("memory://relay of both", expose=[ROUTER])
    await chain(asks, relay)
    introduce(asks, relay, there)
    tell(there.identities, key_of("b"), listener.uri, version=2)
    c.send(node_text(relay.own), b"")
    await eventually(there.identities.peers)
    await asyncio.sleep(40)
    route = f"{relay_text(relay)} => {node_text(there.own)} => slow"
    asked = asyncio.create_task(a.request(route, b"hi", timeout=3 * IDLE_TIME))
    await slow.next()
    assert there.identities._router.dialling._owed == {}
    with pytest.raises(OnwardError):
        await asked


async def test_a_link_does_not_stay_for_ever_for_an_answer(a: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "never answered")
    slow = await Recorder.on(a, "slow")
    engine = ours.engine("slow")
    asked = asyncio.create_task(c.request(engine_text(engine), b"hi", timeout=3 * ANSWER_TIME))
    await slow.next()
    await asyncio.sleep(ANSWER_TIME - 1)
    assert ours.peers() == (theirs.own,)
    with pytest.raises(LinkLost, match="the link between the nodes has ended"):
        await asked
    assert ours.peers() == theirs.peers() == ()
    assert ours._router.dialling._owed == {}


@pytest.mark.parametrize("serves", ["a", "c"])
async def test_a_link_that_a_request_to_a_domain_waits_for_stays(
    a: Node, c: Node, serves: str
) -> None:
    ours, theirs, _ = await dialled(a, c, "of a domain", message_time=600.0)
    there, asks = (ours, theirs) if serves == "a" else (theirs, ours)
    slow = await Recorder.on(there.node, "slow")
    there.serve(DOMAIN.identity, "slow")
    for each in (ours, theirs):
        learns(each, there.own)
    asked = asyncio.create_task(asks.node.request(domain_text(), b"hi", timeout=500))
    question = await slow.next()
    await asyncio.sleep(300)
    assert ours.peers() == (theirs.own,)
    slow.reply(question, b"at last")
    assert (await asked).payload == b"at last"
    await asyncio.sleep(3 * IDLE_TIME)
    assert ours.peers() == ()


async def test_a_link_that_a_subscription_needs_stays(a: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "needed")
    topic = theirs.create_topic(key_of("topic"), engine="echo", scope=SCOPE_ANY)
    screen = await Recorder.on(a, "screen")
    await ours.subscribe(topic, "screen")
    await asyncio.sleep(3 * IDLE_TIME)
    theirs.publish(topic, b"apples 3", source="echo")
    assert (await screen.next()).payload == b"apples 3"
    ours.unsubscribe(topic, "screen")
    await asyncio.sleep(3 * IDLE_TIME)
    assert ours.peers() == theirs.peers() == ()


async def test_a_link_that_a_subscriber_needs_stays(a: Node, c: Node) -> None:
    ours, theirs, _ = await dialled(a, c, "needed there")
    await Recorder.on(a, "owner")
    topic = ours.create_topic(key_of("topic"), engine="owner", scope=SCOPE_ANY)
    screen = await Recorder.on(c, "screen")
    await theirs.subscribe(topic, "screen")
    await asyncio.sleep(3 * IDLE_TIME)
    ours.publish(topic, b"apples 3", source="owner")
    assert (await screen.next()).payload == b"apples 3"


async def test_a_link_to_a_relay_with_a_reservation_stays(a: Node, c: Node) -> None:
    relay = RelayPolicy(to_reserved=True)
    theirs = await Identities.attach(c, key_of("c"), clock=lambda: NOW + c.loop.time(), relay=relay)
    ours = await attached(a, dials=MEMORY)
    listener = await c.listen("memory://relay", expose=[ROUTER])
    tell(ours, key_of("c"), listener.uri)
    a.send(node_text(theirs.own), b"")
    await eventually(ours.peers)
    await ours.reserve(theirs.own)
    await asyncio.sleep(3 * IDLE_TIME)
    assert ours.reserved_at() == (theirs.own,)
    ours.release(theirs.own)
    await asyncio.sleep(3 * IDLE_TIME)
    assert ours.peers() == ()


async def test_a_link_that_is_lost_is_not_dialled_before_there_is_a_message(
    a: Node, c: Node
) -> None:
    ours, theirs, to = await dialled(a, c, "lost")
    ours._router.peers._disconnect(ours._router.peers.sessions[theirs.own], "a test")
    await asyncio.sleep(10)
    assert ours.peers() == ()
    assert links_of(a) == 0
    assert (await a.request(to, b"hi")).payload == b"hi"


async def test_the_router_ends_while_it_dials(a: Node, c: Node) -> None:
    ours = await attached(a, dials=MEMORY)
    await c.listen("memory://never", expose=[])
    tell(ours, key_of("c"), "memory://never")
    asked = asyncio.create_task(a.request(node_text(key_of("c").identity), b""))
    await eventually(lambda: links_of(a) == 1)
    await a.stop_worker(ROUTER)
    with pytest.raises(OnwardError):
        await asked
    await eventually(lambda: links_of(a) == 0)


async def test_a_join_that_fails_leaves_no_link(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    listener = await c.listen("memory://refuses", expose=[ROUTER])
    with pytest.raises(PeerRefused):
        await ours.join(listener.uri, identity=key_of("other").identity)
    await eventually(lambda: links_of(a) == 0)
    assert theirs.peers() == ()
