"""Messages that go over relays, sealed for each, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from onward.actors import Node, Unresolved, Worker
from onward.actors.identity import PassedOn
from onward.actors.identity._carriage import ENGINE, Carriage, reply_at
from onward.actors.identity._outgoing import record_of
from onward.actors.identity.links._session import Failed
from onward.actors.identity.relays._paths import RelayPaths
from onward.actors.tracing import HopTracer, TraceOptions, trace
from onward.protocol import (
    IDENTITY,
    Address,
    LinkDown,
    Message,
    OnwardError,
    PayloadTooBig,
    UnreadableAddress,
    parse_route,
)
from onward.protocol.identity import (
    AdvertSource,
    ControlContent,
    Destination,
    DestinationKind,
    HasMembers,
    Identity,
    PassedBack,
    RelayContent,
    ReplyContent,
    identity_text,
    parse_p2p_message,
    short_text,
)
from onward.protocol.ockam import encode_message
from tests.support.identities import engine_text, key_of, node_text
from tests.support.relays import (
    OPEN,
    Member,
    advert_of,
    chain,
    introduce,
    member,
    relay_text,
    tell_engine,
)
from tests.support.transports import Echo, Recorder, eventually


@pytest.fixture
async def four() -> AsyncIterator[tuple[Node, ...]]:
    async with Node("a") as a, Node("r") as r, Node("s") as s, Node("b") as b:
        yield a, r, s, b


@pytest.fixture
async def line(four: tuple[Node, ...]) -> tuple[Member, ...]:
    """Four nodes in a line, the two in the middle open relays; the last one is an echo."""
    a, r, s, b = four
    line = (
        await member(a),
        await member(r, relay=OPEN),
        await member(s, relay=OPEN),
        await member(b, "echo"),
    )
    await b.start(Echo, address="echo")
    await chain(*line)
    introduce(*line)
    # Ids begin late enough for a node that has just started.
    await asyncio.sleep(20)
    return line


async def test_a_request_goes_over_two_relays_to_a_node_and_its_answer_comes_back(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    for payload in (b"12 apples", b"13 pears"):
        assert (await a.node.request(route, payload)).payload == payload
    assert [each.identities.refused() for each in line] == [{}] * 4


@pytest.mark.parametrize("own_key", [False, True])
async def test_an_engine_is_reached_over_relays(line: tuple[Member, ...], own_key: bool) -> None:
    a, r, s, b = line
    asks = await Recorder.on(a.node, "asks")
    mine = a.identities.engine("asks", key_of("asks") if own_key else None)
    answers = await Recorder.on(b.node, "answers")
    engine = b.identities.engine("answers")
    tell_engine(a, engine, b, "answers")
    asks.send(f"{relay_text(r, s)} => {engine_text(engine)}", b"one?")
    question = await answers.next()
    assert question.payload == b"one?"
    answers.reply(question, b"one!")
    assert (await asks.next()).payload == b"one!"
    # It comes over the link of these two identities, and nothing else is known of the asker here.
    assert question.source == b.identities._router.links.get((engine, mine))[1]
    assert b.identities._router.home(mine) is None


async def test_messages_follow_a_node_from_relay_to_relay_and_to_a_link(
    four: tuple[Node, ...],
) -> None:
    a, r, s, b = (
        await member(four[0]),
        await member(four[1], relay=OPEN),
        await member(four[2], relay=OPEN),
        await member(four[3]),
    )
    await b.node.start(Echo, address="echo")
    engine = b.identities.engine("echo")
    await chain(r, a, s)
    await chain(r, b, s)
    introduce(a, r, s, b)
    tell_engine(a, engine, b, "echo")
    await asyncio.sleep(20)
    for version, relay in enumerate((r, s, r), 2):
        advert = advert_of(b, relay_text(relay), version=version)
        a.identities.directory.put(advert, AdvertSource.LOCAL)
        await asyncio.sleep(1)
        before = relay.relays.service.queues.relayed
        for _ in range(2):
            assert (await a.node.request(engine_text(engine), b"x")).payload == b"x"
        assert relay.relays.service.queues.relayed == before + 4
    # A link between the two is the shortest way, if no relay is asked for.
    await chain(a, b)
    sent = a.relays.ways.sent
    assert (await a.node.request(engine_text(engine), b"x")).payload == b"x"
    assert a.relays.ways.sent == sent


async def test_adverts_of_others_cost_nothing_for_each_link(
    line: tuple[Member, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, s, b = line
    router, looked = a.identities._router, list[Destination]()
    for number in range(100):
        router.links.get((a.own, key_of(f"far {number}").identity))

    def home(_: RelayPaths, destination: Destination) -> None:
        looked.append(destination)

    monkeypatch.setattr(RelayPaths, "home", home)
    a.identities.directory.put(advert_of(b, relay_text(s), version=2), AdvertSource.LOCAL)
    await asyncio.sleep(1)
    assert looked == []


async def test_a_plain_address_behind_a_relay_is_of_its_node(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    assert (await a.node.request(f"{relay_text(r, s, b)} => echo", b"x")).payload == b"x"
    # So is the end of the route, at which nothing is.
    a.node.send(relay_text(r, s, b), b"x")
    await eventually(lambda: b.identities.refused() == {"messages without a route": 1})


async def test_the_last_relay_may_be_the_node_of_the_engine(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    await b.node.start(Echo, address="engine")
    engine = b.identities.engine("engine")
    tell_engine(a, engine, b, "engine")
    route = f"{relay_text(r, s, b)} => {engine_text(engine)}"
    assert (await a.node.request(route, b"x")).payload == b"x"
    assert (await a.node.request(f"{route}?hops=2", b"x")).payload == b"x"
    with pytest.raises(Unresolved, match="it asks for 3 relays or more, and its way has 2"):
        a.node.send(f"{route}?hops=3", b"x")


async def test_a_message_waits_until_all_of_its_way_is_known(four: tuple[Node, ...]) -> None:
    a, r, s, b = (
        await member(four[0]),
        await member(four[1], relay=OPEN),
        await member(four[2], relay=OPEN),
        await member(four[3]),
    )
    recorder = await Recorder.on(b.node, "engine")
    engine = b.identities.engine("engine")
    await chain(r, s, b)
    introduce(r, s, b)
    await asyncio.sleep(20)
    a.node.send(f"{relay_text(r, s)} => {engine_text(engine)}", b"at last")
    tell_engine(a, engine, b, "engine")
    for each in (b, s):
        await asyncio.sleep(1)
        introduce(a, each)
    await asyncio.sleep(1)
    assert a.relays.ways.sent == 0
    # The relay that it joins tells its own advert.
    await chain(a, r)
    assert (await recorder.next()).payload == b"at last"


async def test_what_cannot_be_a_way_over_relays_is_refused(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    to_b = f"{node_text(b.own)} => echo"
    await a.node.start(Echo, address="mine")
    mine = a.identities.engine("mine")
    for route, error, reason in (
        (f"{relay_text(r)} => {to_b.replace(' =>', '?hops=2 =>')}", Unresolved, "asks for 2 rel"),
        (f"{node_text(r.own)}?hops=1", Unresolved, "it asks for relays, and its way has none"),
        (f"{node_text(r.own)}?hops=1&scope=local", Unresolved, "the router refuses it: scope"),
        (f"{relay_text(a, r)} => {to_b}", Unresolved, "this node is no relay of its own"),
        (f"{relay_text(r, a)} => {to_b}", Unresolved, "this node is no relay of its own"),
        (f"{relay_text(r)} => {engine_text(mine)}", Unresolved, "it is of this node"),
        (f"{relay_text(r)} => {node_text(a.own)} => mine", Unresolved, "it is of this node"),
        (f"{relay_text(r, r)} => {to_b}", Unresolved, "a relay follows itself"),
        (f"{relay_text(*[r, s] * 4)} => {to_b}", Unresolved, "at most 8 hops"),
        (f"{relay_text(r)} => 36#topic:{identity_text(b.own)}", Unresolved, "to nodes alone"),
        (f"{relay_text(r)}?scope=any => {to_b}", UnreadableAddress, "stand at the destination"),
        (f"{relay_text(r)} => 36#nothing", UnreadableAddress, "no identity|it begins with"),
        (f"{relay_text(r)} => {node_text(b.own)} => 36#by:x", UnreadableAddress, "router alone"),
        (f"{relay_text(r)} => {node_text(b.own)}?scope=local => x", Unresolved, "scope"),
    ):
        with pytest.raises(error, match=reason):
            a.node.send(route, b"x")
    with pytest.raises(UnreadableAddress, match="utf-8"):
        a.node.send([*parse_route(relay_text(r)), Address(IDENTITY, b"\xff")], b"x")
    a.identities.ban(s.own)
    with pytest.raises(Unresolved, match="banned"):
        a.node.send(f"{relay_text(r, s)} => {to_b}", b"x")


async def test_a_scope_of_a_domain_holds_for_each_hop(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    domain = key_of("domain").identity
    route = f"{relay_text(r, s)} => {node_text(b.own)}?scope={identity_text(domain)} => echo"
    with pytest.raises(Unresolved, match="it was not found"):
        await a.node.request(route, b"x")
    table = a.identities._router.table
    where = Destination(DestinationKind.DOMAIN, domain)
    table.update(where, HasMembers(frozenset({r.own, s.own, b.own})))
    assert (await a.node.request(route, b"x")).payload == b"x"
    table.update(where, HasMembers(frozenset({r.own, b.own})))
    with pytest.raises(Unresolved, match="scope"):
        a.node.send(route, b"x")


async def test_threat_9_what_is_too_big_to_seal_is_an_error_of_the_sender(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    most = 64 * 1024
    for size in (most, 1024 * 1024):
        with pytest.raises(PayloadTooBig):
            await a.node.request(route, bytes(size))
    # What fits is answered, if the answer fits as well.
    payload = bytes(most - 512)
    assert (await a.node.request(route, payload)).payload == payload


async def test_what_follows_an_answer_goes_over_the_same_relays(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    asks = await Recorder.on(a.node, "asks")
    answers = await Recorder.on(b.node, "answers")
    b.identities.engine("answers")
    asks.send(f"{relay_text(r, s)} => {node_text(b.own)} => answers", b"one?")
    # A link between the two, which would show that they have to do with each other.
    await chain(a, b)
    answers.reply(await answers.next(), b"one!")
    asks.reply(await asks.next(), b"two?")
    question = await answers.next()
    assert question.payload == b"two?"
    answers.reply(question, b"two!")
    assert (await asks.next()).payload == b"two!"
    kinds = [type(each[2].content) for each in b.tap.seen if each[0] == a.own]
    assert set(kinds) == {ControlContent}


async def test_threat_21_nothing_goes_over_relays_to_what_is_banned(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    asks = await Recorder.on(a.node, "asks")
    answers = await Recorder.on(b.node, "answers")
    engine = b.identities.engine("answers")
    tell_engine(a, engine, b, "answers")
    asks.send(f"{relay_text(r, s)} => {engine_text(engine)}", b"one?")
    question = await answers.next()
    answers.reply(question, b"one!")
    answer = await asks.next()
    sent = a.relays.ways.sent
    # The engine itself, its node, and a relay on the way.
    for number, banned in enumerate((engine, b.own, s.own), 1):
        a.identities.ban(banned)
        asks.reply(answer, b"two?")
        await lost(a, number)
        a.identities.unban(banned)
    assert a.relays.ways.sent == sent
    # So does no answer.
    asks.send(f"{relay_text(r, s)} => {engine_text(engine)}", b"three?")
    question = await answers.next()
    b.identities.ban(a.own)
    answers.reply(question, b"three!")
    await eventually(lambda: b.node.dead_letters.total == 1)
    assert [each.payload for each in asks.messages] == [b"one!"]


async def test_threat_21_an_answer_of_what_is_banned_meanwhile_is_refused(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    asks = await Recorder.on(a.node, "asks")
    answers = await Recorder.on(b.node, "answers")
    engine = b.identities.engine("answers")
    tell_engine(a, engine, b, "answers")
    for banned in (engine, b.own):
        asks.send(f"{relay_text(r, s)} => {engine_text(engine)}", b"one?")
        question = await answers.next()
        before = a.identities.refused().get("answers of what is banned", 0)
        a.identities.ban(banned)
        answers.reply(question, b"one!")
        await refused(a, {"answers of what is banned": before + 1})
        a.identities.unban(banned)
    assert asks.messages == []


async def test_an_answer_that_is_too_big_is_not_delivered(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    answers = await Recorder.on(b.node, "answers")
    b.identities.engine("answers")
    asked = asyncio.ensure_future(
        a.node.request(f"{relay_text(r, s)} => {node_text(b.own)} => answers", b"?", timeout=5)
    )
    question = await answers.next()
    answers.reply(question, bytes(64 * 1024))
    await eventually(lambda: b.node.dead_letters.total == 1)
    # The handle is not used by that.
    answers.reply(question, b"short")
    assert (await asked).payload == b"short"
    # It is used now: an answer to a message is one, and a second one leads nowhere.
    answers.reply(question, b"again")
    await eventually(lambda: b.node.dead_letters.total == 2)


async def test_a_request_whose_answer_never_comes_ends_by_its_deadline(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    r.tap.change = lambda node, record: [record] if node == a.own else []
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)


async def test_what_is_refused_there_is_answered_as_over_any_link(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    b.node.parts.undeliverable.error_replies.on = True
    _, link = b.identities._router.links.get((b.own, a.own))
    b.node.parts.guards.exposures.error_replies.add(link)
    with pytest.raises(OnwardError, match="not exposed"):
        await a.node.request(f"{relay_text(r, s)} => {node_text(b.own)} => hidden", b"x")


async def test_what_is_not_known_any_more_is_named(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    router = a.identities._router
    _, link = router.links.get((a.own, b.own))
    carriage = Carriage(DestinationKind.NODE, (r.own, s.own))
    route = [link, carriage.address, Address(0, b"echo")]
    assert (await a.node.request(route, b"x")).payload == b"x"
    a.identities.directory.forget(s.own)
    with pytest.raises(LinkDown, match=f"{short_text(s.own)}.*the key to seal to is not known"):
        await a.node.request(route, b"x")
    engine = key_of("unknown").identity
    _, link = router.links.get((a.own, engine))
    with pytest.raises(LinkDown, match="no way to it is known"):
        await a.node.request([link, Carriage(DestinationKind.ENGINE, (r.own,)).address], b"x")
    introduce(a, s)
    router.peers.disconnect(r.own, "a test")
    with pytest.raises(LinkDown, match="there is no link to the node"):
        await a.node.request(route, b"x")
    assert len(a.relays.ways.expected) == 0


async def test_no_more_answers_are_waited_for_than_may_be(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    a.relays.ways.expected._shares._limit = 0
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    with pytest.raises(LinkDown, match="as many handles as may be"):
        await a.node.request(route, b"x")


async def test_relays_learn_the_nodes_next_to_them_and_no_more(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    await a.node.request(route, b"a secret")
    keys = {each: each.own[1:] for each in line}
    (from_a,) = [each for each in r.tap.seen if isinstance(each[2].content, RelayContent)]
    (from_r,) = [each for each in s.tap.seen if isinstance(each[2].content, RelayContent)]
    for seen, source, of_others in ((from_a, a, (s, b)), (from_r, r, (b,))):
        assert seen[0] == source.own
        assert b"a secret" not in seen[1]
        assert b"echo" not in seen[1]
        for each in of_others:
            assert keys[each] not in seen[1]
    # The accountable profile: the node that sends has signed each layer.
    assert keys[a] in from_r[1]
    (answer,) = [each for each in r.tap.seen if isinstance(each[2].content, ReplyContent)]
    assert b"a secret" not in answer[1]


async def test_a_relay_is_watched_with_what_it_can_see(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    seen: list[PassedOn] = []
    ended = [each.identities.watch_relay(seen.append) for each in (r, s)]
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    await a.node.request(route, b"a secret")
    way = [(each.previous, each.following, each.is_answer) for each in seen]
    there = [(a.own, s.own, False), (r.own, b.own, False)]
    back = [(b.own, r.own, True), (s.own, a.own, True)]
    assert way == there + back
    # One layer less for each relay; an answer keeps its size.
    assert seen[0].size > seen[1].size > 1024
    assert seen[2].size == seen[3].size
    for each in ended:
        each()
    await a.node.request(route, b"unseen")
    assert len(seen) == 4


async def test_what_no_link_takes_does_not_count_as_sealed(line: tuple[Member, ...]) -> None:
    a, r, s, b = line

    def refuse(_node: Identity, _record: bytes, failed: Failed, _expiry: int) -> None:
        failed(LinkDown("r", "a test"))

    a.identities._router.peers.send = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(LinkDown):
        await a.node.request(f"{relay_text(r, s)} => {node_text(b.own)} => echo", b"x")
    assert a.identities.relay_statistics().sealed == 0


async def test_relays_do_not_learn_an_anonymous_sender(four: tuple[Node, ...]) -> None:
    a, r, s, b = (
        await member(four[0], anonymous=True),
        await member(four[1], relay=OPEN),
        await member(four[2], relay=OPEN),
        await member(four[3], "echo"),
    )
    await b.node.start(Echo, address="echo")
    await chain(a, r, s, b)
    introduce(a, r, s, b)
    await asyncio.sleep(20)
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    for _ in range(2):
        assert (await a.node.request(route, b"x")).payload == b"x"
    for each in (s, b):
        for node, record, _ in each.tap.seen:
            assert node == (r.own if each is s else s.own) or node in {s.own, b.own}
            assert a.own[1:] not in record


async def test_threat_11_what_is_in_one_bucket_has_one_length_on_each_link(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    await Recorder.on(b.node, "engine")
    engine = b.identities.engine("engine")
    tell_engine(a, engine, b, "engine")
    route = f"{relay_text(r, s)} => {node_text(b.own)} => echo"
    for size in (0, 1, 99, 400):
        await a.node.request(route, bytes(size))
        # With a handle and without it.
        a.node.send(route, bytes(size))
        a.node.send(f"{relay_text(r, s)} => {engine_text(engine)}", bytes(size))
    await eventually(lambda: len(sizes(b, RelayContent)) == 1 and b.tap.seen)
    for to in (r, s, b):
        assert len(sizes(to, RelayContent)) == 1
    for to in (s, r, a):
        assert len(sizes(to, ReplyContent)) == 1
    await a.node.request(route, bytes(2000))
    for to in (r, s, b):
        assert len(sizes(to, RelayContent)) == 2
    for to in (s, r, a):
        assert len(sizes(to, ReplyContent)) == 2


async def lost(at: Member, number: int) -> None:
    await eventually(lambda: at.node.dead_letters.total == number)


async def refused(at: Member, counts: dict[str, int]) -> None:
    await eventually(lambda: at.identities.refused() == counts)


def sizes(to: Member, kind: type) -> set[int]:
    return {len(record) for _, record, message in to.tap.seen if isinstance(message.content, kind)}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "messages that cannot be read"),
        (encode_message(Message((), (), b"x")), "messages without a route"),
        (
            encode_message(Message((Address(IDENTITY, b"reply:x"),), (), b"x")),
            "messages with an address of the router",
        ),
        (
            encode_message(Message((ENGINE,), (), b"x")),
            "messages with an address of the router",
        ),
        (
            encode_message(Message((Address(0, b"asks"),), (Address(IDENTITY, b"by:x"),), b"x")),
            "messages with an address of the router",
        ),
    ],
)
async def test_an_answer_that_cannot_be_used_is_refused(
    line: tuple[Member, ...], data: bytes, reason: str
) -> None:
    a, _, _, b = line
    token = await asked_of(line)
    say_answer(b, token, data)
    await eventually(lambda: a.identities.refused() == {reason: 1})


async def asked_of(line: tuple[Member, ...]) -> bytes:
    """Return the token of the answer to a message that an engine has sent over relays."""
    a, r, s, b = line
    asks, answers = await Recorder.on(a.node, "asks"), await Recorder.on(b.node, "answers")
    a.identities.engine("asks")
    b.identities.engine("answers")
    asks.send(f"{relay_text(r, s)} => {node_text(b.own)} => answers", b"?")
    found = reply_at((await answers.next()).return_route[1:])
    assert found is not None
    return found[1]


def say_answer(b: Member, token: bytes, data: bytes) -> None:
    """Answer with any bytes, as the node of the destination may."""
    now = b.identities._router.milliseconds()
    back = b.relays.service.handles.answer(token, data, bytes(12), now)
    assert isinstance(back, PassedBack)
    b.identities._router.outgoing.tell(back.peer, back.content, lambda _: None)


async def test_an_answer_goes_where_the_message_came_from_alone(line: tuple[Member, ...]) -> None:
    a, _, _, b = line
    token = await asked_of(line)
    hidden = await Recorder.on(a.node, "hidden")
    say_answer(b, token, encode_message(Message((Address(0, b"hidden"),), (), b"x")))
    await eventually(lambda: a.node.dead_letters.by_reason == {"not exposed": 1})
    assert hidden.messages == []


GOOD = encode_message(Message((Address(0, b"asks"),), (), b"x"))


async def test_an_answer_for_an_engine_that_has_ended_is_refused(line: tuple[Member, ...]) -> None:
    a, _, _, b = line
    token = await asked_of(line)
    await a.node.stop_worker("asks")
    say_answer(b, token, GOOD)
    reason = "answers for engines that have ended"
    await eventually(lambda: a.identities.refused() == {reason: 1})


async def test_threat_21_an_answer_of_what_is_banned_is_refused(line: tuple[Member, ...]) -> None:
    a, _, _, b = line
    token = await asked_of(line)
    a.identities.ban(b.own)
    say_answer(b, token, GOOD)
    await eventually(lambda: a.identities.refused().get("answers of what is banned") == 1)


async def test_a_message_without_a_handle_is_not_answered_past_the_relays(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    await chain(a, b)
    answers = await Recorder.on(b.node, "answers")
    b.identities.engine("answers")

    def without(_: Identity, record: bytes) -> list[bytes]:
        content = parse_p2p_message(record).content
        if not isinstance(content, RelayContent):
            return [record]
        return [record_of(s.own, b.own, RelayContent(content.envelope))]

    b.tap.change = without
    route = f"{relay_text(r, s)} => {node_text(b.own)} => answers"
    asked = asyncio.ensure_future(a.node.request(route, b"x", timeout=5))
    answers.reply(await answers.next(), b"y")
    await eventually(lambda: b.node.dead_letters.total == 1)
    with pytest.raises(TimeoutError):
        await asked


async def test_an_answer_whose_link_has_ended_is_not_delivered(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    asks, answers = await Recorder.on(a.node, "asks"), await Recorder.on(b.node, "answers")
    a.identities.engine("asks")
    b.identities.engine("answers")
    asks.send(f"{relay_text(r, s)} => {node_text(b.own)} => answers", b"?")
    question = await answers.next()
    assert len(b.relays.service.handles) == 1
    b.identities._router.peers.disconnect(s.own, "a test")
    answers.reply(question, b"!")
    await eventually(lambda: b.node.dead_letters.by_reason == {"link down": 1})
    assert len(b.relays.service.handles) == 0


async def test_no_more_ways_of_answers_are_kept_than_may_be(line: tuple[Member, ...]) -> None:
    a, r, s, b = line
    r.relays.service.handles._shares._limit = 0
    recorder = await Recorder.on(b.node, "recorder")
    b.identities.engine("recorder")
    asks = await Recorder.on(a.node, "asks")
    asks.send(f"{relay_text(r, s)} => {node_text(b.own)} => recorder", b"?")
    assert (await recorder.next()).payload == b"?"
    full = "messages without a way for their answer, as there is no room"
    assert r.identities.refused() == {full: 1}


async def test_as_many_ways_are_remembered_as_may_be(line: tuple[Member, ...]) -> None:
    ways, paths = line[0].relays.ways.remembered, line[0].relays.ways.paths
    homes = [key_of(f"home {number}").identity for number in range(1026)]
    for home in homes[:-1]:
        ways.remember(home, line[1].own, home)
    assert len(ways._ways) == 1024
    for each in homes:
        ways.remember(homes[-1], line[1].own, each)
    assert len(ways._ways[homes[-1]][1]) == 2
    # By another relay.
    ways.remember(homes[-1], line[2].own, homes[0])
    assert ways._ways[homes[-1]] == (line[2].own, {homes[0]: None})
    ways.relay_lost(line[1].own)
    assert set(ways._ways) == {homes[-1]}
    ways.forget_all()
    assert not ways._ways
    for home in homes:
        paths._refresh(home)
    assert len(paths._asked) == 1024


class Slow(Worker):
    """Answers after a while, so that its hop is reported before."""

    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(1)
        self.reply(message, message.payload)


async def test_a_trace_leaves_the_way_of_the_answer_over_relays_to_the_answer(
    line: tuple[Member, ...],
) -> None:
    a, r, s, b = line
    for each in line:
        each.node.add_instrument(HopTracer(each.node))
    await b.node.start(Slow, address="slow")
    engine = b.identities.engine("slow")
    tell_engine(a, engine, b, "slow")
    route = parse_route(f"{relay_text(r, s)} => {engine_text(engine)}")
    traced = await trace(a.node, route, b"hello", options=TraceOptions(timeout=5))
    assert traced.answer is not None
    assert traced.answer.payload == b"hello"
    assert {hop.node for hop in traced.hops} == {"a"}
    assert b.node.dead_letters.by_reason == {}
