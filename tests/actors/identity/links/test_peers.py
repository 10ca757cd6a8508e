"""Links between nodes that are slow, are lost, come again, and get new keys."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from onward.actors import Expired, Node
from onward.actors.identity import ROUTER, PeerRefused
from onward.actors.identity.links._session import MAX_WAITING, Failed, Session, Waiting
from onward.actors.identity.links._way import Way
from onward.actors.testing import Probe
from onward.protocol import Address, LinkDown, LinkLost, OnwardError, RequestTimeout
from onward.protocol.identity import (
    ControlContent,
    Greeting,
    Identity,
    LinkChannel,
    LinkFailure,
    LinkRefusalCode,
    refuse_link,
    serialize_greeting,
)
from onward.transports import LinkState, MemoryLink
from onward.transports.node._stream_dialled import DialledLink
from tests.support.identities import (
    StrangeNode,
    attached,
    engine_text,
    joined,
    key_of,
    link_of,
    node_text,
)
from tests.support.transports import Echo, Recorder, eventually


async def test_a_slow_link_slows_senders_and_loses_nothing(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    # As many as the link has on its way, as wait in its mailbox, for it, and for the identity.
    sent = 0

    async def send() -> None:
        nonlocal sent
        for number in range(6000):
            await a.send_wait(engine, number.to_bytes(2))
            sent += 1

    sending = asyncio.create_task(send())
    session = ours._router.peers.sessions[theirs.own]
    await eventually(lambda: session._room and sent > 3000)
    assert len(session.waiting) <= MAX_WAITING + 1
    assert not sending.done()
    link.thaw()
    await sending
    await eventually(lambda: len(recorder.messages) == 6000)
    assert [int.from_bytes(each.payload) for each in recorder.messages] == list(range(6000))
    assert session._pump is None
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_what_waits_for_a_link_that_is_lost_was_not_handed_over(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    session = ours._router.peers.sessions[theirs.own]
    while session._pump is None:
        await a.send_wait(engine, b"before")
        await asyncio.sleep(0)
    asked = asyncio.create_task(a.request(engine, b"last"))
    await eventually(lambda: len(session.waiting) > 1)
    link.cut()
    with pytest.raises((LinkDown, LinkLost)):
        await asked
    assert not session.waiting


async def test_what_a_link_has_just_taken_is_not_said_to_be_lost_with_it(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    session = ours._router.peers.sessions[theirs.own]
    while session._pump is None:
        await a.send_wait(engine, b"before")
        await asyncio.sleep(0)
    first: list[OnwardError] = []
    second: list[OnwardError] = []
    session.waiting.clear()
    waiting = Waiting(b"first", False, first.append), Waiting(b"second", False, second.append)
    session.waiting.extend(waiting)
    # The link makes room and takes the first, and ends before the session has its turn.
    await eventually(lambda: session._line is not None)
    line = session._line
    assert line is not None
    line.messages.clear()
    line.done()
    session.close()
    assert (len(first), len(second)) == (0, 1)


EXPIRED = "messages that have expired while they waited for room"


async def test_threat_7_what_expires_while_it_waits_for_room_is_dropped(a: Node, c: Node) -> None:
    ours, theirs = await attached(a, message_time=5.0), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    session = ours._router.peers.sessions[theirs.own]
    sent = 0
    while session._pump is None:
        await a.send_wait(engine, b"before")
        sent += 1
        await asyncio.sleep(0)
    await eventually(lambda: session._line is not None)
    # The first one is asked of the link; those behind it wait, and the last comes in time.
    for _ in range(3):
        await a.send_wait(engine, b"late")
    await eventually(lambda: len(session.waiting) == 4)
    await asyncio.sleep(5.001)  # of the virtual clock
    await a.send_wait(engine, b"in time")
    await eventually(lambda: len(session.waiting) == 5)
    link.thaw()
    await eventually(lambda: recorder.messages and recorder.messages[-1].payload == b"in time")
    assert [each.payload for each in recorder.messages[:-1]] == [b"before"] * sent
    assert ours.refused() == {EXPIRED: 3}
    assert a.dead_letters.by_reason == {"expired": 3}
    # No number of a frame is left out for what was dropped.
    assert theirs.refused() == {}
    assert session._pump is None


async def test_threat_7_what_waits_until_its_expiry_goes_out(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    session = ours._router.peers.sessions[theirs.own]
    while session._pump is None:
        await a.send_wait(engine, b"before")
        await asyncio.sleep(0)
    await eventually(lambda: session._line is not None)
    peers, failed = ours._router.peers, list[OnwardError]()
    now = ours._router.milliseconds()
    for expiry in (now, now - 1, None):
        peers.send(theirs.own, b"\xff", failed.append, expiry)
    link.thaw()
    await eventually(lambda: theirs.refused() == {"records that cannot be read": 2})
    (error,) = failed
    assert isinstance(error, Expired)
    assert ours.refused() == {EXPIRED: 1}
    assert recorder.messages


async def test_a_session_without_numbers_left_ends_with_what_waits(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    link.freeze()
    session = ours._router.peers.sessions[theirs.own]
    while session._pump is None:
        await a.send_wait(engine, b"before")
        await asyncio.sleep(0)
    await eventually(lambda: session._line is not None)
    asked = asyncio.create_task(a.request(engine, b"last"))
    await eventually(lambda: len(session.waiting) == 2)
    session.channel.failure = LinkFailure.EXHAUSTED
    link.thaw()
    with pytest.raises(LinkDown, match="has ended"):
        await asked
    await eventually(lambda: ours._router.peers.sessions.get(theirs.own) is not session)
    assert not session.waiting


def lost(session: Session, frame: bytes, failed: Failed) -> None:
    """Do nothing."""


def is_another(session: Session, before: LinkChannel) -> bool:
    return session.channel is not before


async def test_a_session_gets_new_keys_while_messages_are_under_way(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await a.start(Echo, address="echo")
    near = engine_text(ours.engine("echo"))
    await joined((a, ours), c)
    session = ours._router.peers.sessions[theirs.own]
    for _ in range(5):
        before = session.channel
        asked = [a.request(far, b"out") for _ in range(20)]
        asked += [c.request(near, b"in") for _ in range(20)]
        under_way = asyncio.gather(*asked)
        await asyncio.sleep(0)
        ours._router.peers._dial(ours._router.peers._way_of[session])
        answers = await under_way
        assert [each.payload for each in answers] == [b"out"] * 20 + [b"in"] * 20
        await eventually(partial(is_another, session, before))
    assert ours._router.peers.sessions[theirs.own] is session
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_new_keys_are_made_before_the_numbers_end(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await joined((a, ours), c)
    session = ours._router.peers.sessions[theirs.own]
    first = session.channel
    monkeypatch.setattr(type(first), "is_due", property(lambda self: self is first))
    await a.request(far, b"hi")
    await eventually(lambda: session.channel is not first)
    assert (await a.request(far, b"hi")).payload == b"hi"


async def test_new_keys_are_made_by_a_node_that_only_receives(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(a, "recorder")
    engine = engine_text(ours.engine("recorder"))
    await joined((a, ours), c)
    session = ours._router.peers.sessions[theirs.own]
    first = session.channel
    monkeypatch.setattr(type(first), "is_due", property(lambda self: self is first))
    c.send(engine, b"one")
    assert (await recorder.next()).payload == b"one"
    await eventually(lambda: session.channel is not first)
    c.send(engine, b"two")
    assert (await recorder.next()).payload == b"two"
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_a_session_without_numbers_left_ends_and_is_dialled_again(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await joined((a, ours), c)
    await a.request(far, b"hi")
    session = ours._router.peers.sessions[theirs.own]
    session.channel.failure = LinkFailure.EXHAUSTED
    with pytest.raises(LinkDown):
        await a.request(far, b"hi")
    # The next one waits for the session that is dialled again.
    assert (await a.request(far, b"hi")).payload == b"hi"
    assert ours._router.peers.sessions[theirs.own] is not session


async def test_a_session_that_the_other_node_has_ended_is_made_again(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => echo"
    assert (await a.request(to, b"one")).payload == b"one"
    # A frame that cannot be opened, of anyone: the node that has not dialled says nothing of it.
    session = theirs._router.peers.sessions[ours.own]
    theirs._router.peers._open(session, bytes(100))
    assert theirs.peers() == ()
    asked = asyncio.create_task(a.request(to, b"lost", timeout=1))
    await eventually(lambda: theirs.peers() == (ours.own,))
    with pytest.raises(RequestTimeout):
        await asked
    assert (await a.request(to, b"two")).payload == b"two"
    assert theirs.refused()["frames of no session"] == 1
    # Once it has a session, the other node may say that it has none: it is proved again.
    ours._router.peers._handshake(
        ours._router.peers._way_of[ours._router.peers.sessions[theirs.own]],
        refuse_link(LinkRefusalCode.NO_SESSION),
    )
    assert (await a.request(to, b"three")).payload == b"three"


async def test_a_router_that_is_started_again_at_the_end_of_a_link_is_joined_anew(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => echo"
    assert (await a.request(to, b"one")).payload == b"one"
    await c.stop_worker(ROUTER)
    await asyncio.sleep(1)  # of the virtual clock: a start takes a while
    theirs = await attached(c, "echo")
    # Its sign of life is answered: there is no session any more.
    await asyncio.sleep(61)
    assert theirs.peers() == (ours.own,)
    assert (await a.request(to, b"two")).payload == b"two"
    assert theirs.refused() == {"frames of no session": 1}


async def test_requests_to_a_node_that_is_started_again_at_the_end_of_a_link_end(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c, "recorder")
    recorder = await Recorder.on(c, "recorder")
    await joined((a, ours), c)
    to = f"{node_text(theirs.own)} => recorder"
    asked = asyncio.create_task(a.request(to, b"?", timeout=120))
    await recorder.next()
    await c.stop_worker(ROUTER)
    await asyncio.sleep(1)  # of the virtual clock
    await attached(c, "recorder")
    with pytest.raises(LinkLost, match="the node has been started anew"):
        await asked


async def test_a_node_without_a_session_does_not_begin_one_for_a_refusal(a: Node, c: Node) -> None:
    ours = await attached(a, handshake_time=0.5)
    listener = await c.listen("memory://no-session", expose=[ROUTER])
    await Probe.on(c, ROUTER)
    joining = asyncio.create_task(ours.join(listener.uri))
    await eventually(lambda: ours._router.peers._ways)
    (way,) = ours._router.peers._ways.values()
    ours._router.peers._handshake(way, refuse_link(LinkRefusalCode.NO_SESSION))
    assert ours.refused() == {"messages of no handshake": 1}
    with pytest.raises(PeerRefused, match="has not proved an identity in time"):
        await joining


async def test_both_nodes_know_which_of_them_has_begun_the_last_handshake(a: Node, c: Node) -> None:
    # Of two links they would else keep one each, and begin handshakes over both for ever.
    ours, theirs = await attached(a), await attached(c)
    await joined((c, theirs), a)
    ends = ours._router.peers.sessions[theirs.own], theirs._router.peers.sessions[ours.own]
    assert [each.began for each in ends] == [False, True]
    before = ends[1].channel
    await asyncio.sleep(1)  # of the virtual clock
    way = ours._router.peers._way_of[ends[0]]
    ours._router.peers._handshake(way, refuse_link(LinkRefusalCode.NO_SESSION))
    await eventually(partial(is_another, ends[1], before))
    assert [each.began for each in ends] == [True, False]
    assert [each.dialled for each in ends] == [False, True]


async def test_a_link_that_has_just_begun_is_not_asked_again_at_once(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((c, theirs), a)
    session = ours._router.peers.sessions[theirs.own]
    before = session.channel
    way = ours._router.peers._way_of[session]
    ours._router.peers._handshake(way, refuse_link(LinkRefusalCode.NO_SESSION))
    assert way.handshake is None
    began = a.loop.time()
    await eventually(partial(is_another, session, before))
    assert a.loop.time() - began > 0.4


async def test_a_node_that_dials_anew_is_taken_though_its_last_link_still_stands_here(
    a: Node, c: Node
) -> None:
    small, large = sorted((a, c), key=lambda each: key_of(each.name).identity)
    ours, theirs = await attached(small), await attached(large)
    await small.start(Echo, address="echo")
    engine = engine_text(ours.engine("echo"))
    far = await joined((large, theirs), small)
    await asyncio.sleep(1)  # of the virtual clock
    session = ours._router.peers.sessions[theirs.own]
    ours._router.peers._dial(ours._router.peers._way_of[session])
    await eventually(lambda: session.began)
    # The connection is lost, and the node that listens does not hear of it.
    link = ours._router.peers.link_to(theirs.own)
    near = None if link is None else small.parts.table.worker_at(link)
    assert isinstance(near, MemoryLink)
    for each in (far, near):
        each.freeze()
    (way,) = theirs._router.peers._ways.values()
    theirs._router.peers._gone(way)
    began = small.loop.time()
    listener = await small.listen("memory://anew", expose=[ROUTER])
    assert await theirs.join(listener.uri) == ours.own
    assert small.loop.time() - began < 7
    assert ours._router.peers.link_to(theirs.own) != link
    assert (await large.request(engine, b"hi")).payload == b"hi"


async def test_a_slow_link_stays_when_the_other_node_joins_again(a: Node, c: Node) -> None:
    small, large = sorted((a, c), key=lambda each: key_of(each.name).identity)
    ours, theirs = await attached(small), await attached(large)
    recorder = await Recorder.on(large, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((small, ours), large)
    session = ours._router.peers.sessions[theirs.own]
    link.freeze()
    for number in range(10):
        small.send(engine, bytes((number,)))
    listener = await small.listen("memory://once-more", expose=[ROUTER])
    for _ in range(3):
        assert await theirs.join(listener.uri) == ours.own
        await asyncio.sleep(6)  # of the virtual clock
    link.thaw()
    await eventually(lambda: len(recorder.messages) == 10)
    assert ours._router.peers.sessions == {theirs.own: session}


async def test_of_two_links_that_are_proved_in_another_order_at_each_end_one_stays(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = sorted((a, c), key=lambda each: key_of(each.name).identity)
    ours, theirs = await attached(small), await attached(large)
    await small.start(Echo, address="echo")
    engine = engine_text(ours.engine("echo"))
    listener = await large.listen("memory://two", expose=[ROUTER])
    slow, fast = [await small.connect(listener.uri, expose=[ROUTER]) for _ in range(2)]
    proved = ours._router.peers._proved

    def prove(way: Way, node: Identity, channel: LinkChannel, dialled: bool) -> None:
        if way.route[0] == slow:
            link_of(small, slow).freeze()  # the proof is on its way, and comes late
        proved(way, node, channel, dialled)

    with monkeypatch.context() as patch:
        patch.setattr(ours._router.peers, "_proved", prove)
        joining = asyncio.create_task(ours.join(slow))
        await eventually(lambda: theirs.own in ours._router.peers.sessions)
    await ours.join(fast)
    await joining
    link_of(small, slow).thaw()
    await asyncio.sleep(5)  # of the virtual clock
    assert (await large.request(engine, b"hi", timeout=1)).payload == b"hi"
    ends = ours._router.peers.sessions[theirs.own], theirs._router.peers.sessions[ours.own]
    assert ends[0].channel.session == ends[1].channel.session


async def test_the_link_of_a_join_that_another_link_is_kept_for_ends(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = sorted((a, c), key=lambda each: key_of(each.name).identity)
    ours, theirs = await attached(small), await attached(large)
    await joined((small, ours), large)
    peers = theirs._router.peers
    proved = peers._proved

    def prove(way: Way, node: Identity, channel: LinkChannel, dialled: bool) -> None:
        peers._listen(way)  # the other node has begun a handshake over it, too
        proved(way, node, channel, dialled)

    monkeypatch.setattr(peers, "_proved", prove)
    listener = await small.listen("memory://ends-of-join", expose=[ROUTER])
    assert await theirs.join(listener.uri) == ours.own
    await eventually(lambda: len(peers._ways) == 1)
    assert [each.kind for each in large.statistics().workers].count("MemoryLink") == 1


async def test_a_busy_session_gets_new_keys_and_loses_nothing(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    engine = engine_text(theirs.engine("recorder"))
    link = await joined((a, ours), c)
    session = ours._router.peers.sessions[theirs.own]
    before, sent = session.channel, 0
    link.freeze()

    async def send() -> None:
        nonlocal sent
        while session.channel is before:
            await a.send_wait(engine, sent.to_bytes(4))
            sent += 1

    sending = asyncio.create_task(send())
    await eventually(lambda: session._room)
    ours._router.peers._dial(ours._router.peers._way_of[session])
    link.thaw()
    await sending
    await a.send_wait(engine, sent.to_bytes(4))
    await eventually(lambda: len(recorder.messages) > sent)
    assert [int.from_bytes(each.payload) for each in recorder.messages] == [*range(sent + 1)]
    assert (ours.refused(), theirs.refused()) == ({}, {})


async def test_a_join_ends_with_the_connection(a: Node, c: Node) -> None:
    ours = await attached(a)
    listener = await c.listen("tcp://127.0.0.1:0", expose=[ROUTER])
    await Probe.on(c, ROUTER)
    joining = asyncio.create_task(ours.join(listener.uri))
    await eventually(lambda: accepted_links(c))
    await listener.close()
    for each in accepted_links(c):
        await c.stop_worker(each)
    with pytest.raises(PeerRefused, match="the connection was lost"):
        await asyncio.wait_for(joining, 60)
    assert ours._router.peers._ways == {}


@pytest.mark.parametrize("dialled", [False, True])
async def test_an_engine_of_which_the_word_was_lost_is_looked_up(
    a: Node, c: Node, dialled: bool
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    await (joined((a, ours), c) if dialled else joined((c, theirs), a))
    session = theirs._router.peers.sessions[ours.own]
    before = session.channel
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "put", lost)  # a link on the way loses it
        engine = theirs.engine("echo")
    # The other node is asked for it, and its answer shows that frames were lost.
    assert (await a.request(engine_text(engine), b"hi")).payload == b"hi"
    assert ours.refused() == {"frames that a link has lost": 1}
    await eventually(partial(is_another, session, before))


async def test_a_handshake_for_frames_that_were_lost_is_begun_until_one_succeeds(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    session, put = ours._router.peers.sessions[theirs.own], Session.put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "put", lost)
        engine = theirs.engine("echo")

        def put_theirs(of: Session, frame: bytes, failed: Failed) -> None:
            if of is not session:
                put(of, frame, failed)

        patch.setattr(Session, "put", put_theirs)
        theirs._router.greetings.tell()  # it shows that a frame was lost; so is the answer
        await eventually(lambda: ours.refused() == {"frames that a link has lost": 1})
        await asyncio.sleep(5)
        assert not ours._router.is_at(engine, theirs.own)
    await asyncio.sleep(10)
    assert ours._router.is_at(engine, theirs.own)
    way = ours._router.peers._way_of[session]
    assert (way.repeats, way.failures) == (False, 0)


async def test_a_node_that_leaves_out_numbers_is_not_dialled_without_an_end(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, key_of("strange"))
    await eventually(ours.peers)
    await asyncio.sleep(1)  # of the virtual clock: the link has not just begun
    dialled = list[object]()
    monkeypatch.setattr(ours._router.peers, "_dial", dialled.append)
    for _ in range(5):
        strange.channel.seal(b"lost")
        strange.say(ControlContent(serialize_greeting(Greeting(0, 0))))
    await eventually(lambda: ours.refused() == {"frames that a link has lost": 5})
    assert len(dialled) == 1
    # What is said may as well end the session.
    ours.ban(key_of("strange").identity)


async def test_a_connection_that_is_lost_is_made_again(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    listener = await c.listen("tcp://127.0.0.1:0", expose=[ROUTER])
    await ours.join(listener.uri, identity=theirs.own)
    assert (await a.request(far, b"one")).payload == b"one"
    session = ours._router.peers.sessions[theirs.own]
    # The node that listens ends its connections, as one that is restarted does.
    for link in accepted_links(c):
        await c.stop_worker(link)
    await eventually(lambda: ours._router.peers.sessions.get(theirs.own) is not session)
    assert (await a.request(far, b"two")).payload == b"two"
    await listener.close()


async def test_a_node_that_was_away_for_a_while_is_joined_as_soon_as_there_is_a_connection(
    a: Node, c: Node, tmp_path: Path
) -> None:
    ours, theirs = await attached(a), await attached(c)
    # No port, which another process might take meanwhile.
    listener = await c.listen(f"uds://{tmp_path}/node", expose=[ROUTER])
    await ours.join(listener.uri, identity=theirs.own)
    address = ours._router.peers.link_to(theirs.own)
    link = a.parts.table.worker_at(address) if address is not None else None
    assert isinstance(link, DialledLink)
    await listener.close()
    for each in accepted_links(c):
        await c.stop_worker(each)
    # Longer than attempts to connect fail for, and than a handshake may take.
    for away in (3.0, 100.0):
        await asyncio.sleep(away)
        assert link.state is not LinkState.UP
        listener = await c.listen(listener.uri, expose=[ROUTER])
        await eventually(lambda: link.state is LinkState.UP, within=60)
        connected = a.loop.time()
        await eventually(lambda: theirs.own in ours.peers(), within=60)
        # Far less than a handshake that began before waits for. Each look takes 0.001 s here.
        assert a.loop.time() - connected < 5
        assert ours._router.peers.counts == {}
        await listener.close()
        for each in accepted_links(c):
            await c.stop_worker(each)
        await eventually(lambda: theirs.own not in ours.peers())


def accepted_links(node: Node) -> list[str]:
    return [
        str(each.address)
        for each in node.statistics().workers
        if node.parts.table.worker_at(each.address) is not None
        and type(node.parts.table.worker_at(each.address)).__name__ == "AcceptedLink"
    ]


async def test_a_node_that_is_restarted_takes_messages_at_once_and_old_ones_never(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    link = await joined((a, ours), c)
    await a.request(far, b"one")
    await c.stop_worker(ROUTER)
    link.cut()
    await asyncio.sleep(1)  # of the virtual clock: a start takes a while
    theirs = await attached(c)
    theirs.engine("echo")
    await joined((a, ours), c)
    assert (await a.request(far, b"two")).payload == b"two"
    assert theirs.refused() == {}


async def test_a_sender_that_is_restarted_in_no_time_is_not_taken_for_the_one_before(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await asyncio.sleep(5)  # of the virtual clock: the node has run for a while
    for number in range(6):
        link = await joined((a, ours), c)
        # No time passes on the clock, and the one before has sent more.
        for text in [b"hi"] * (6 - number):
            assert (await a.request(far, text)).payload == text
        await a.stop_worker(ROUTER)
        link.cut()
        ours = await attached(a)
    assert theirs.refused() == {}


async def test_a_greeting_of_the_same_session_does_not_change_where_ids_begin(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a), await attached(c)
    recorder = await Recorder.on(c, "recorder")
    await joined((a, ours), c)
    begins = ours._router.greetings._clocks[theirs.own].begins
    await asyncio.sleep(5)  # of the virtual clock
    engine = theirs.engine("recorder")
    a.send(engine_text(engine), b"hi")
    await recorder.next()
    assert ours._router.greetings._clocks[theirs.own].begins == begins


async def test_so_many_nodes_are_linked(a: Node, b: Node, c: Node) -> None:
    ours = await attached(c, max_peers=1)
    await StrangeNode.on(a, c, key_of("first"))
    await eventually(ours.peers)
    theirs = await attached(b)
    with pytest.raises(PeerRefused, match="the other node has as many links as it may"):
        await joined((b, theirs), c)
    assert ours.peers() == (key_of("first").identity,)


async def test_a_node_does_not_link_to_itself(a: Node) -> None:
    ours = await attached(a, "echo")
    listener = await a.listen("memory://itself", expose=[ROUTER])
    with pytest.raises(PeerRefused, match="this node is at the other end as well"):
        await ours.join(listener.uri)


async def test_joining_twice_is_joining_once(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c, "echo")
    await c.start(Echo, address="echo")
    listener = await c.listen("memory://twice", expose=[ROUTER])
    link = await a.connect(listener.uri, expose=[ROUTER])
    assert await ours.join(link) == await ours.join(link) == theirs.own
    session = ours._router.peers.sessions[theirs.own]
    # Another link to the same node takes the place of the first one.
    await ours.join(listener.uri)
    assert ours._router.peers.sessions[theirs.own] is not session
    assert (await a.request(f"{node_text(theirs.own)} => echo", b"hi")).payload == b"hi"
    assert len(ours._router.peers._ways) == 1


async def test_a_link_that_ends_while_it_is_joined(a: Node, c: Node) -> None:
    ours = await attached(a)
    listener = await c.listen("memory://ends", expose=[])
    link = await a.connect(listener.uri, expose=[ROUTER])
    joining = asyncio.create_task(ours.join(link))
    await asyncio.sleep(0)
    await a.stop_worker(link)
    with pytest.raises(PeerRefused, match="the link has ended"):
        await joining
    assert ours._router.peers._ways == {}


async def test_a_router_that_has_ended_joins_no_node(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = await attached(a)
    await attached(c)
    listener = await c.listen("memory://ended", expose=[ROUTER])

    class Stopping:
        """The node, of which the router ends while it connects."""

        async def connect(self, uri: str, expose: list[Address]) -> Address:
            link = await a.connect(uri, expose=expose)
            await a.stop_worker(ROUTER)
            return link

        def __getattr__(self, name: str) -> object:
            return getattr(a, name)  # a compiled node takes no other method

    with monkeypatch.context() as patch:
        patch.setattr(ours._router.peers, "_node", Stopping())
        with pytest.raises(PeerRefused, match="the router has ended"):
            await ours.join(listener.uri)
    with pytest.raises(PeerRefused, match="the router has ended"):
        await ours.join(listener.uri)
    assert ours._router.peers._ways == {}


async def test_stopping_the_router_ends_what_waits(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await joined((a, ours), c)
    listener = await c.listen("memory://stops", expose=[])
    joining = asyncio.create_task(ours.join(listener.uri))
    await eventually(lambda: len(ours._router.peers._ways) == 2)
    await a.stop_worker(ROUTER)
    with pytest.raises(PeerRefused, match="the link has ended"):
        await joining
    assert ours._router.peers._ways == {}
    assert theirs.own != ours.own
