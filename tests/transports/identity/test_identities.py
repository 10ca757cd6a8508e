"""Messages to identities: between two nodes whose links have proven them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors import LimitReached, Node, NodeLimits, Pending, Unresolved
from onward.actors.identity import (
    DIRECTORY,
    ROUTER,
    DirectoryFileFailed,
    EngineInUse,
    KeyFileRefused,
    PeerRefused,
    make_key_file,
)
from onward.actors.testing import Probe
from onward.protocol import (
    IDENTITY,
    Address,
    LinkDown,
    LinkLost,
    Message,
    PayloadTooBig,
    UnknownAddress,
    UnreadableAddress,
)
from onward.protocol.identity import (
    RESULT_OK,
    TRUST_BANNED,
    AdvertSource,
    Identity,
    IdentityUpdated,
    LocalMetadata,
    Lock,
    NodeAdvert,
    PassphraseNeeded,
    PutOutcome,
    SealingKey,
    UpdateIdentityRequest,
    UpdateIdentityResponse,
    derived_engine,
    identity_text,
    parse_control,
    serialize_control,
    sign_advert,
)
from onward.protocol.identity._directory_entries import EntryTable
from onward.transports.identity import Identities
from tests.support.identities import NOW, attached, engine_text, joined, key_of, link_of, node_text
from tests.support.transports import Echo, Recorder, Relay, eventually


async def test_a_worker_of_another_node_is_reached_by_the_key_of_its_node(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    assert ours.peers() == (theirs.own,)
    assert theirs.peers() == (ours.own,)
    answer = await a.request(f"{node_text(theirs.own)} => echo", b"12 apples")
    assert answer.payload == b"12 apples"
    assert ours.refused() == {}
    assert theirs.refused() == {}


async def test_what_is_not_exposed_is_not_reached(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    recorder = await Recorder.on(c, "recorder")
    await Recorder.on(c, "echo")
    await joined((a, ours), c)
    a.send(f"{node_text(theirs.own)} => recorder", b"no")
    a.send(f"{node_text(theirs.own)} => 1#127.0.0.1:9 => recorder", b"no")
    await eventually(lambda: c.dead_letters.total == 2)
    assert c.dead_letters.by_reason == {"not exposed": 2}
    assert recorder.messages == []


@pytest.mark.parametrize("own_key", [False, True])
async def test_a_worker_with_an_identity_is_reached_by_it_alone(
    a: Node, c: Node, own_key: bool
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    key = key_of("echo") if own_key else None
    engine = theirs.engine("echo", key)
    assert engine == (key.identity if key else derived_engine(theirs.own, b"echo"))
    await joined((a, ours), c)
    assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    # The second one finds what the rule has remembered.
    assert (await a.request(engine_text(engine), b"ho")).payload == b"ho"
    # Upper case is another text of the same identity.
    text = f"36#ENGINE:{identity_text(engine).upper()}"
    assert (await a.request(text, b"hu")).payload == b"hu"


async def test_engines_talk_to_each_other_by_their_return_routes(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    asks, answers = await Probe.on(a, "asks"), await Probe.on(c, "answers")
    mine = ours.engine("asks", key_of("asks"))
    engine = theirs.engine("answers")
    await joined((a, ours), c)
    asks.send(engine_text(engine), b"one?")
    question = await answers.next()
    assert question.onward_route == (Address(0, b"answers"),)
    answers.reply(question, b"one!")
    answer = await asks.next()
    assert answer.payload == b"one!"
    assert answer.onward_route == (Address(0, b"asks"),)
    # Now the other way, to the identity that the question was signed by.
    answers.send(engine_text(mine), b"two?")
    question = await asks.next()
    assert question.payload == b"two?"
    asks.reply(question, b"two!")
    assert (await answers.next()).payload == b"two!"


async def test_an_engine_passes_on_to_what_is_exposed_alone(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "open")
    await c.start(Relay, address="relay")
    await c.start(Echo, address="open")
    hidden = await Recorder.on(c, "hidden")
    engine = theirs.engine("relay")
    await joined((a, ours), c)
    assert (await a.request(f"{engine_text(engine)} => open", b"x")).payload == b"x"
    a.send(f"{engine_text(engine)} => hidden", b"x")
    await eventually(lambda: c.dead_letters.total == 1)
    assert hidden.messages == []


async def test_a_node_reaches_its_own_identities_without_a_link(a: Node) -> None:
    ours = await attached(a)
    await a.start(Echo, address="echo")
    engine = ours.engine("echo")
    assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    assert (await a.request(f"{node_text(ours.own)} => echo", b"hi")).payload == b"hi"


async def test_messages_wait_until_it_is_known_where_an_identity_is(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    asked = [asyncio.create_task(a.request(engine_text(engine), bytes([n]))) for n in range(3)]
    await eventually(lambda: a.statistics().pending == 3)
    await joined((a, ours), c)
    assert [(await each).payload for each in asked] == [b"\x00", b"\x01", b"\x02"]


async def test_a_worker_that_becomes_an_engine_later_is_told_to_the_other_node(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    to = engine_text(key_of("later").identity)
    with pytest.raises(Unresolved, match="no node that there is a link to knows it"):
        await a.request(to, b"hi")
    with pytest.raises(Unresolved, match="it was not found a moment ago"):
        a.send(to, b"hi")
    theirs.engine("echo", key_of("later"))
    await eventually(lambda: ours.directory.peek(key_of("later").identity) is not None)
    assert (await a.request(to, b"hi")).payload == b"hi"


async def test_one_destination_has_so_many_messages_waiting(a: Node) -> None:
    await attached(a, max_parked=2)
    to = engine_text(key_of("nobody").identity)
    for _ in range(2):
        a.send(to, b"")
    with pytest.raises(Unresolved, match="2 messages wait for it already"):
        a.send(to, b"")
    a.send(engine_text(key_of("another").identity), b"")
    assert a.statistics().pending == 3


@pytest.mark.parametrize("own_key", [False, True])
async def test_what_waits_does_not_go_out_by_the_node_once_its_engine_has_ended(
    a: Node, c: Node, own_key: bool
) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = theirs.engine("recorder")
    asks = await Probe.on(a, "asks")
    ours.engine("asks", key_of("asks") if own_key else None)
    asks.send(engine_text(engine), b"of the engine")
    a.send(engine_text(engine), b"of the node")
    assert a.statistics().pending == 2
    await a.stop_worker("asks")
    await joined((a, ours), c)
    assert (await recorder.next()).payload == b"of the node"
    assert a.dead_letters.by_reason == {"unresolved": 1}
    assert len(recorder.messages) == 1


async def test_a_message_to_what_is_never_found_is_refused_in_time() -> None:
    async with Node("n", limits=NodeLimits(pending_timeout=0.01)) as node:
        await attached(node)
        to = engine_text(key_of("nobody").identity)
        with pytest.raises(Unresolved, match="not in time"):
            await node.request(to, b"")
        # Its place is free for another destination: nothing is left behind.
        with pytest.raises(Unresolved, match="not in time"):
            await node.request(engine_text(key_of("another").identity), b"")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"engine:abc", "one has 56 characters, not 3"),
        (b"\xff", "utf-8"),
        (b"worker:abc", "it begins with one of engine, node, topic, relay, domain"),
    ],
)
async def test_what_is_no_identity_cannot_be_read(a: Node, value: bytes, reason: str) -> None:
    await attached(a)
    with pytest.raises(UnreadableAddress, match=reason):
        a.send([Address(IDENTITY, value)], b"")


async def test_a_destination_that_is_not_served_is_refused(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    with pytest.raises(Unresolved, match="the router refuses it: scope"):
        a.send(f"36#domain:{identity_text(theirs.own)}?scope=local", b"")


async def test_an_engine_ends_with_its_worker(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    await joined((a, ours), c)
    await a.request(engine_text(engine), b"hi")
    await c.stop_worker("echo")
    a.send(engine_text(engine), b"too late")
    reason = "messages that the router refuses: not-here"
    await eventually(lambda: theirs.refused() == {reason: 1})
    # Another worker at the same address is no engine before it is made one.
    await c.start(Echo, address="echo")
    assert theirs.engine("echo") == engine
    assert (await a.request(engine_text(engine), b"again")).payload == b"again"


async def test_what_cannot_be_an_engine(a: Node) -> None:
    ours = await attached(a, max_engines=2)
    for name in ("one", "two", "three"):
        await a.start(Echo, address=name)
    with pytest.raises(UnknownAddress):
        ours.engine("none")
    ours.engine("one", key_of("k"))
    with pytest.raises(EngineInUse, match="0#one cannot be the engine"):
        ours.engine("one")
    with pytest.raises(EngineInUse):
        ours.engine("two", key_of("k"))
    with pytest.raises(EngineInUse):
        ours.engine("two", key_of("a"))
    ours.engine("two")
    with pytest.raises(LimitReached, match="2 engines"):
        ours.engine("three")


async def test_another_node_than_the_one_asked_for_is_refused(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    listener = await c.listen("memory://other-identity", expose=[ROUTER])
    told = (
        "no link between nodes to memory://other-identity: another node is there than was dialled"
    )
    with pytest.raises(PeerRefused, match=told):
        await ours.join(listener.uri, identity=key_of("somebody").identity)
    assert ours.peers() == ()
    await eventually(lambda: theirs.peers() == ())
    # The right one is let in over another link.
    assert await ours.join(listener.uri, identity=theirs.own) == theirs.own


async def test_a_listener_that_has_no_router_does_not_answer(a: Node, c: Node) -> None:
    ours = await attached(a, handshake_time=0.01)
    listener = await c.listen("memory://no-router")
    with pytest.raises(PeerRefused, match="has not proved an identity in time; it may have none"):
        await ours.join(listener.uri)


async def test_both_nodes_join_at_once_over_one_link(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    engine = theirs.engine("echo")
    listener = await c.listen("memory://at-once", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    # The other end of the link, at the node that listens.
    peer = link_of(a, link)._peer
    assert peer is not None
    found = await asyncio.gather(ours.join(link), theirs.join(peer.address))
    assert list(found) == [theirs.own, ours.own]
    assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    assert (ours.peers(), theirs.peers()) == ((theirs.own,), (ours.own,))


async def test_both_nodes_join_at_once_over_two_links(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    await a.start(Echo, address="echo")
    far, near = theirs.engine("echo"), ours.engine("echo")
    of_a = await a.listen("memory://two-a", expose=[ROUTER])
    of_c = await c.listen("memory://two-c", expose=[ROUTER])
    found = await asyncio.gather(ours.join(of_c.uri), theirs.join(of_a.uri))
    assert list(found) == [theirs.own, ours.own]
    assert (await a.request(engine_text(far), b"hi")).payload == b"hi"
    assert (await c.request(engine_text(near), b"ho")).payload == b"ho"
    assert (ours.peers(), theirs.peers()) == ((theirs.own,), (ours.own,))


async def test_a_link_that_ends_ends_the_requests_and_others_wait(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = theirs.engine("recorder")
    link = await joined((a, ours), c)
    asked = asyncio.create_task(a.request(engine_text(engine), b"one"))
    assert (await recorder.next()).payload == b"one"
    link.cut()
    with pytest.raises(LinkLost, match="the link between the nodes has ended"):
        await asked
    assert ours.peers() == ()
    await eventually(lambda: theirs.peers() == ())
    a.send(engine_text(engine), b"two")
    assert a.statistics().pending == 1
    await joined((a, ours), c)
    assert (await recorder.next()).payload == b"two"


async def test_a_banned_node_is_refused_and_disconnected(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "recorder")
    recorder = await Recorder.on(c, "recorder")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => recorder"
    asked = asyncio.create_task(a.request(to, b"one"))
    await recorder.next()
    ours.ban(theirs.own)
    with pytest.raises(LinkLost, match="the link between the nodes has ended"):
        await asked
    with pytest.raises(Unresolved, match="the router refuses it: banned"):
        a.send(to, b"two")
    with pytest.raises(PeerRefused, match="the other node is not admitted"):
        await joined((a, ours), c)
    ours.unban(theirs.own)
    await joined((a, ours), c)
    assert ours.peers() == (theirs.own,)
    a.send(to, b"three")
    assert (await recorder.next()).payload == b"three"


async def test_a_banned_engine_is_refused(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    probe = await Probe.on(c, "engine")
    recorder = await Recorder.on(a, "recorder")
    engine, mine = theirs.engine("engine"), ours.engine("recorder")
    await joined((a, ours), c)
    probe.send(engine_text(mine), b"one")
    question = await recorder.next()
    asked = asyncio.create_task(a.request(engine_text(engine), b"?"))
    await probe.next()
    ours.ban(engine)
    with pytest.raises(LinkLost, match="the identity is banned"):
        await asked
    probe.send(engine_text(mine), b"two")
    reason = "messages that the router refuses: banned"
    await eventually(lambda: ours.refused() == {reason: 1})
    with pytest.raises(Unresolved, match="banned"):
        a.send(engine_text(engine), b"three")
    recorder.reply(question, b"no answer goes there either")
    await eventually(lambda: a.dead_letters.by_reason == {"link down": 1})
    assert ours.peers() == (theirs.own,)
    assert recorder.messages == [question]


@pytest.mark.parametrize("value", [b"reply:", b"reply:\x05x", b"reply:\x04x", b"by:", b"by:x"])
async def test_a_worker_that_writes_what_the_router_alone_writes_is_refused(
    a: Node, c: Node, value: bytes
) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(a, "recorder")
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await joined((a, ours), c)
    recorder.send(far, b"hi")
    answer = await recorder.next()
    link = answer.return_route[0]
    a.send((link, Address(IDENTITY, value)), b"lost")
    await eventually(lambda: a.dead_letters.by_reason)
    assert a.statistics(workers=False).failed == 0
    assert (await a.request(far, b"hi")).payload == b"hi"


@pytest.mark.parametrize("later", [False, True])
async def test_an_engine_is_reached_again_after_its_ban(a: Node, c: Node, later: bool) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    key = key_of("engine")
    if not later:
        theirs.engine("echo", key)
    await joined((a, ours), c)
    ours.ban(key.identity)
    if later:
        theirs.engine("echo", key)
        reason = f"adverts that are refused: {PutOutcome.BANNED.value}"
        await eventually(lambda: ours.refused() == {reason: 1})
    with pytest.raises(Unresolved, match="banned"):
        a.send(engine_text(key.identity), b"")
    ours.unban(key.identity)
    assert (await a.request(engine_text(key.identity), b"hi")).payload == b"hi"
    # One whose node is gone has to be heard of again.
    ours.ban(key.identity)
    ours._router.peers.disconnect(theirs.own, "a test")
    ours.unban(key.identity)
    a.send(engine_text(key.identity), b"")
    assert a.statistics().pending == 1


async def test_the_link_that_was_used_longest_ago_makes_room(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, max_correspondents=2), await attached(c)
    engines: list[Identity] = []
    for name in ("one", "two", "three"):
        await Recorder.on(c, name)
        engines.append(theirs.engine(name))
    await joined((a, ours), c)
    one, two, three = engines
    # The third message goes by what is remembered of the first one, and none is answered.
    for engine in (one, two, one, three):
        a.send(engine_text(engine), b"hi")
        await asyncio.sleep(0.1)
    assert set(ours._router.links.identities()) == {one, three}


async def test_so_many_identities_are_linked_at_a_time(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, max_correspondents=2), await attached(c)
    engines: list[Identity] = []
    for name in ("one", "two", "three"):
        await c.start(Echo, address=name)
        engines.append(theirs.engine(name))
    await joined((a, ours), c)
    for engine in (*engines, *engines):
        assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    assert ours.refused() == {"links of identities that made room for others": 4}


async def test_a_message_that_is_too_big_for_a_record_is_not_delivered(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    with pytest.raises(PayloadTooBig):
        await a.request(f"{node_text(theirs.own)} => echo", bytes(1024 * 1024))
    big = bytes(900_000)
    assert (await a.request(f"{node_text(theirs.own)} => echo", big)).payload == big


async def test_a_rule_is_asked_from_another_thread(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = theirs.engine("recorder")
    await joined((a, ours), c)
    for number in range(3):
        await asyncio.to_thread(a.send, engine_text(engine), bytes([number]))
    for number in range(3):
        assert (await recorder.next()).payload == bytes([number])


async def test_a_message_of_another_thread_is_kept_before_it_is_resolved(a: Node) -> None:
    ours = await attached(a)
    to = Address(IDENTITY, engine_text(key_of("nobody").identity)[3:].encode())
    message = Message((to,), (), b"hi")
    pending = await asyncio.to_thread(ours._router.resolve, message)
    assert isinstance(pending, Pending)
    # The loop is faster than the thread: it would ask again, and again, until it is a loop.
    for _ in range(10):
        await asyncio.sleep(0)
    assert not pending._settled
    # A message that was refused, as too many wait, is not waited for without an end.
    await eventually(lambda: pending._settled)


async def test_a_node_without_an_identity_any_more_serves_none(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    a.send(engine_text(key_of("nobody").identity), b"waits")
    await a.stop_worker(ROUTER)
    await eventually(lambda: a.statistics().pending == 0)
    await eventually(lambda: theirs.peers() == () or True)
    await attached(a)


async def test_a_message_is_not_delivered_where_the_way_is_lost_under_it(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    link = await joined((a, ours), c)
    await a.request(f"{node_text(theirs.own)} => echo", b"hi")
    # It is on its way to the link of the identity when the nodes are no longer joined.
    asked = asyncio.create_task(a.request(f"{node_text(theirs.own)} => echo", b"hi"))
    await asyncio.sleep(0)
    link.cut()
    with pytest.raises((LinkDown, LinkLost)):
        await asked


async def test_what_the_directory_bans_is_refused_until_it_does_not(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => echo"
    assert (await a.request(to, b"hi")).payload == b"hi"
    ours.directory.set_trust(theirs.own, TRUST_BANNED)
    await eventually(lambda: ours.peers() == ())
    with pytest.raises(Unresolved, match="the router refuses it: banned"):
        await a.request(to, b"hi")
    ours.directory.forget(theirs.own)
    await eventually(lambda: not ours._router.table.is_banned(theirs.own))
    await joined((a, ours), c)
    assert (await a.request(to, b"hi")).payload == b"hi"


async def test_threat_21_to_lose_trust_ends_the_requests_under_way(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = theirs.engine("recorder")
    await joined((a, ours), c)
    asked = asyncio.create_task(a.request(engine_text(engine), b"one"))
    await recorder.next()
    ban = UpdateIdentityRequest(engine, LocalMetadata(TRUST_BANNED))
    answer = await a.request(DIRECTORY, serialize_control(ban))
    assert parse_control(answer.payload) == UpdateIdentityResponse(engine, RESULT_OK)
    with pytest.raises(LinkLost, match="the identity is banned"):
        await asked
    with pytest.raises(Unresolved, match="the router refuses it: banned"):
        await a.request(engine_text(engine), b"two")
    assert ours.peers() == (theirs.own,)


async def test_the_directory_remembers_what_is_banned(a: Node) -> None:
    ours, other = await attached(a), key_of("other").identity
    ours.ban(other)
    record = ours.directory.peek(other)
    assert record is not None
    assert record.is_banned
    ours.unban(other)
    assert ours.directory.peek(other) is None


async def test_a_node_that_was_banned_is_banned_after_a_restart(c: Node, tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    theirs = await attached(c)
    async with Node("a") as node:
        ours = await attached(node, directory=path)
        ours.ban(theirs.own)
        ours.ban(key_of("other").identity)
        ours.unban(key_of("other").identity)
    async with Node("a") as node:
        ours = await attached(node, directory=path)
        assert ours.directory.statistics().held == 1
        with pytest.raises(PeerRefused):
            await joined((node, ours), c)
        assert theirs.peers() == ()
        ours.unban(theirs.own)
        await joined((node, ours), c)
    async with Node("a") as node:
        ours = await attached(node, directory=path)
        assert ours.directory.statistics().held == 0


async def test_a_directory_that_cannot_be_read_leaves_a_node_without_an_identity(
    a: Node, tmp_path: Path
) -> None:
    path = tmp_path / "node.directory"
    path.write_bytes(b"?" * 5000)
    path.chmod(0o600)
    with pytest.raises(DirectoryFileFailed, match=r"node\.directory: file is not a database"):
        await attached(a, directory=path)
    path.unlink()
    await attached(a, directory=path)


async def test_a_ban_that_the_directory_has_no_place_for_holds_until_the_end(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = await attached(a), key_of("other")

    def is_full(table: EntryTable, identity: Identity) -> bool:
        return False

    monkeypatch.setattr(EntryTable, "may_hold", is_full)
    with pytest.raises(LimitReached, match="identities that the directory holds"):
        ours.ban(other.identity)
    advert = NodeAdvert(other.identity, (), bytes(32), 1, int(NOW * 1000))
    told: list[IdentityUpdated] = []
    ours.directory.on_update.append(told.append)
    ours.directory.put(sign_advert(advert, other), AdvertSource.NETWORK)
    await eventually(lambda: len(told) == 1)
    assert ours._router.table.is_banned(other.identity)


async def test_a_node_is_given_the_identity_of_a_key_file(a: Node, c: Node, tmp_path: Path) -> None:
    keys = make_key_file(tmp_path / "a.key")
    ours, theirs = await Identities.attach(a, tmp_path / "a.key"), await attached(c)
    assert ours.own == keys.identity
    assert ours.sealing_key == SealingKey(keys.sealing_seed).public
    await joined((c, theirs), a)
    assert theirs.peers() == (keys.identity,)


async def test_a_key_file_that_others_may_read_is_not_used(a: Node, tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    make_key_file(path)
    path.chmod(0o640)
    with pytest.raises(KeyFileRefused, match="chmod 600"):
        await Identities.attach(a, path)
    with pytest.raises(FileNotFoundError):
        await Identities.attach(a, tmp_path / "b.key")
    path.chmod(0o600)
    assert (await Identities.attach(a, path)).node is a


async def test_an_encrypted_key_file_needs_its_passphrase(a: Node, tmp_path: Path) -> None:
    path = tmp_path / "a.key"
    keys = make_key_file(
        path, passphrase="correct horse", lock=Lock(bytes(16), bytes(12), log_n=1, r=1)
    )
    with pytest.raises(PassphraseNeeded):
        await Identities.attach(a, path)
    with pytest.raises(KeyFileRefused):
        await Identities.attach(a, path, passphrase="wrong horse")
    ours = await Identities.attach(a, path, passphrase="correct horse")
    assert ours.own == keys.identity
