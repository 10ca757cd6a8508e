"""Requests to domains: one of the members answers, once, or it is said why none does."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from onward.actors import LimitReached, Node, NodeLimits, Unresolved, Worker
from onward.actors.identity import ROUTER
from onward.actors.testing import Probe
from onward.protocol import (
    Address,
    InDoubt,
    LinkDown,
    LinkLost,
    Message,
    PayloadTooBig,
    UnknownAddress,
)
from onward.protocol.identity import (
    MAX_BODY,
    AdvertAddress,
    AdvertSource,
    NodeAdvert,
    identity_text,
    sign_advert,
)
from tests.support.domains import DOMAIN, Named, domain_text, learns, member
from tests.support.identities import NOW, attached, joined, key_of
from tests.support.transports import Recorder, Relay, eventually


async def test_a_request_to_a_domain_is_answered_by_a_member(a: Node, b: Node) -> None:
    ours = await attached(a)
    theirs, worker = await member(b, (a, ours))
    learns(ours, theirs.own)
    assert (await a.request(domain_text(), b"12 apples")).payload == b"b"
    # The worker may be named, as well.
    assert (await a.request(domain_text("orders"), b"12 apples")).payload == b"b"
    assert worker.asked == 2
    assert ours.domain_statistics().pending == theirs.domain_statistics().pending == 0
    assert ours.refused() == theirs.refused() == {}


async def test_the_members_share_the_requests(a: Node, b: Node, c: Node) -> None:
    ours = await attached(a)
    numbers = count()
    ours._domains.random = numbers.__next__
    members = [await member(node, (a, ours)) for node in (b, c)]
    learns(ours, *(theirs.own for theirs, _ in members))
    answers = await asyncio.gather(*(a.request(domain_text(), b"?") for _ in range(20)))
    assert sorted(each.payload for each in answers) == [b"b"] * 10 + [b"c"] * 10
    assert [worker.asked for _, worker in members] == [10, 10]


async def test_a_message_that_asks_for_no_answer_is_over_when_it_is_handed_over(
    a: Node, b: Node
) -> None:
    ours = await attached(a)
    theirs, worker = await member(b, (a, ours))
    learns(ours, theirs.own)
    a.send(domain_text(), b"told")
    await eventually(lambda: worker.asked == 1)
    await eventually(lambda: not ours.domain_statistics().pending)
    assert ours.domain_statistics().counters.unexpected == 0
    assert a.dead_letters.total == 0


async def test_a_request_reaches_the_worker_of_the_domain_and_what_is_exposed_alone(
    a: Node, b: Node
) -> None:
    ours = await attached(a)
    theirs, _ = await member(b, (a, ours), expose=("open",))
    hidden = await Recorder.on(b, "hidden")
    shown = Named("shown")
    await b.start(lambda: shown, address="open")
    learns(ours, theirs.own)
    assert (await a.request(domain_text("open"), b"?")).payload == b"shown"
    for route in (domain_text("hidden"), domain_text("identity")):
        with pytest.raises(LinkDown, match="no member has taken it: DENIED"):
            await a.request(route, b"?")
    assert hidden.messages == []
    # By the node itself, nothing is exposed that only the domain exposes.
    a.send(f"36#node:{identity_text(theirs.own)} => open", b"?")
    await eventually(lambda: b.dead_letters.by_reason == {"not exposed": 1})
    assert theirs.refused() == {"requests to a domain for what is not exposed": 2}
    assert shown.asked == 1


async def test_a_worker_of_a_domain_passes_on_to_what_is_exposed_alone(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await b.start(Relay, address="relay")
    shown, hidden = Named("shown"), Named("hidden")
    await b.start(lambda: shown, address="open")
    await b.start(lambda: hidden, address="hidden")
    theirs.serve(DOMAIN.identity, "relay", expose=["open"])
    await joined((a, ours), b)
    learns(ours, theirs.own)
    assert (await a.request(domain_text("relay", "open"), b"?")).payload == b"shown"
    a.send(domain_text("relay", "hidden"), b"?")
    await eventually(lambda: b.dead_letters.total == 1)
    assert hidden.asked == 0


async def test_an_engine_asks_a_domain_and_the_answer_comes_to_it(a: Node, b: Node) -> None:
    ours = await attached(a)
    theirs, _ = await member(b, (a, ours))
    learns(ours, theirs.own)
    probe = await Probe.on(a, "asks")
    ours.engine("asks", key_of("asks"))
    probe.send(domain_text(), b"?")
    answer = await probe.next()
    assert (answer.payload, answer.onward_route) == (b"b", (Address(0, b"asks"),))
    # A member answers once: what is sent along the way back of its answer goes nowhere.
    probe.reply(answer, b"and?")
    await eventually(lambda: a.dead_letters.by_reason == {"link down": 1})


async def test_a_second_answer_goes_nowhere(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    answers = await Probe.on(b, "answers")
    theirs.serve(DOMAIN.identity, "answers")
    await joined((a, ours), b)
    learns(ours, theirs.own)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    question = await answers.next()
    # What comes is of the node, which has proven its key.
    assert question.onward_route == (Address(0, b"answers"),)
    answers.reply(question, b"one")
    answers.reply(question, b"two")
    assert (await asked).payload == b"one"
    await eventually(lambda: b.dead_letters.by_reason == {"link down": 1})


async def test_messages_wait_until_the_members_of_a_domain_are_known_and_one_is_linked(
    a: Node, b: Node
) -> None:
    ours, theirs = await attached(a), await attached(b)
    worker = Named("b")
    await b.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders")
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await eventually(lambda: a.statistics().pending == 1)
    learns(ours, key_of("elsewhere").identity, theirs.own)
    await asyncio.sleep(0)
    assert a.statistics().pending == 1
    await joined((a, ours), b)
    assert (await asked).payload == b"b"


async def test_messages_wait_for_the_members_that_there_are_now(a: Node, b: Node) -> None:
    ours = await attached(a)
    theirs, _ = await member(b, (a, ours))
    learns(ours, key_of("elsewhere").identity)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await eventually(lambda: a.statistics().pending == 1)
    learns(ours, theirs.own, version=2)
    assert (await asked).payload == b"b"


async def test_what_waits_for_a_member_has_a_limit_and_ends_with_its_sender(
    a: Node, b: Node, c: Node
) -> None:
    ours, other = await attached(a, max_parked=1), await attached(c)
    theirs = key_of("elsewhere").identity
    learns(ours, theirs)
    worker = Named("asks")
    await a.start(lambda: worker, address="asks")
    ours.engine("asks")
    asked = asyncio.create_task(worker.request(domain_text(), b"?"))
    await eventually(lambda: a.statistics().pending == 1)
    with pytest.raises(Unresolved, match="as many messages wait for a member as may"):
        await a.request(domain_text(), b"?")
    own = identity_text(DOMAIN.identity)
    with pytest.raises(Unresolved, match="the message is not to wait"):
        await a.request(f"36#domain:{own}?reliable=no", b"?")
    # A node that is no member may know one, and is asked; what waits goes on waiting.
    await joined((a, ours), c)
    assert other.refused() == {}
    assert a.statistics().pending == 1
    worker.stop()
    await eventually(lambda: a.statistics().pending == 0)
    with pytest.raises(Unresolved, match="the engine that has sent it has ended"):
        await asked
    again = asyncio.create_task(a.request(domain_text(), b"?"))
    await eventually(lambda: a.statistics().pending == 1)
    # Once the members are not known any more, it waits for these first.
    ours.directory.forget(DOMAIN.identity)
    there, _ = await member(b, (a, ours))
    learns(ours, there.own, version=2)
    assert (await again).payload == b"b"


async def test_a_domain_without_members_is_refused(a: Node) -> None:
    ours = await attached(a)
    learns(ours)
    with pytest.raises(Unresolved, match="the domain has no other member"):
        await a.request(domain_text(), b"?")
    learns(ours, ours.own, version=2)
    with pytest.raises(Unresolved, match="the domain has no other member"):
        await a.request(domain_text(), b"?")


async def test_a_message_keeps_to_its_scope(a: Node, b: Node) -> None:
    ours = await attached(a)
    theirs, _ = await member(b, (a, ours))
    learns(ours, theirs.own)
    own, other = identity_text(DOMAIN.identity), identity_text(key_of("other").identity)
    asked = await a.request(f"36#domain:{own}?scope={own}", b"?")
    assert asked.payload == b"b"
    for scope in ("local", other):
        with pytest.raises(Unresolved, match="scope"):
            await a.request(f"36#domain:{own}?scope={scope}", b"?")


async def test_a_domain_that_is_served_here_is_answered_here(a: Node, b: Node) -> None:
    ours = await attached(a)
    _, elsewhere = await member(b, (a, ours))
    worker = Named("a")
    await a.start(lambda: worker, address="orders")
    ours.serve(DOMAIN.identity, "orders")
    assert (await a.request(domain_text(), b"?")).payload == b"a"
    assert (worker.asked, elsewhere.asked) == (1, 0)
    assert ours.domain_statistics().served == 1
    assert ours.stop_serving(DOMAIN.identity)
    assert not ours.stop_serving(DOMAIN.identity)


async def test_the_end_of_a_worker_ends_what_it_has_in_hand_in_doubt(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    recorder = await Recorder.on(b, "recorder")
    theirs.serve(DOMAIN.identity, "recorder")
    await joined((a, ours), b)
    learns(ours, theirs.own)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await recorder.next()
    assert theirs.domain_statistics().unanswered == 1
    recorder.stop()
    with pytest.raises(LinkLost):
        await asked
    assert theirs.domain_statistics().unanswered == 0
    with pytest.raises(LinkDown, match="no member has taken it"):
        await a.request(domain_text(), b"?")


async def test_another_worker_takes_the_place_of_the_one_before(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    recorder = await Recorder.on(b, "recorder")
    worker = Named("new")
    await b.start(lambda: worker, address="new")
    theirs.serve(DOMAIN.identity, "recorder")
    await joined((a, ours), b)
    learns(ours, theirs.own)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await recorder.next()
    theirs.serve(DOMAIN.identity, "new")
    with pytest.raises(LinkLost):
        await asked
    recorder.stop()
    assert (await a.request(domain_text(), b"?")).payload == b"new"


async def test_a_request_over_a_member_that_does_not_serve(a: Node, b: Node, c: Node) -> None:
    ours, way = await attached(a), await attached(b)
    theirs, _ = await member(c, (b, way))
    await joined((a, ours), b)
    learns(ours, way.own)
    learns(way, way.own, theirs.own)
    assert (await a.request(domain_text(), b"?")).payload == b"c"
    assert way.domain_statistics().counters.forwarded == 1
    # One that is not a member passes nothing on.
    learns(way, theirs.own, version=2)
    with pytest.raises(LinkDown, match="no member has taken it: UNKNOWN"):
        await a.request(domain_text(), b"?")
    assert way.refused() == {"requests to a domain that are refused: not a member": 1}


async def test_a_request_that_one_member_refuses_goes_to_another(a: Node, b: Node, c: Node) -> None:
    ours, refuses = await attached(a), await attached(b)
    numbers = count()
    ours._domains.random = numbers.__next__
    await joined((a, ours), b)
    theirs, worker = await member(c, (a, ours))
    learns(ours, refuses.own, theirs.own)
    for _ in range(4):
        assert (await a.request(domain_text(), b"?")).payload == b"c"
    assert worker.asked == 4


async def test_a_member_that_is_lost_leaves_its_requests_in_doubt_and_the_others_serve_on() -> None:
    async with Node("a") as a, Node("c") as c, Node("d") as d:
        ours = await attached(a)
        numbers = count()
        ours._domains.random = numbers.__next__
        others = [await member(node, (a, ours)) for node in (c, d)]
        async with Node("b") as b:
            lost = await attached(b)
            recorder = await Recorder.on(b, "orders")
            lost.serve(DOMAIN.identity, "orders")
            await joined((a, ours), b)
            learns(ours, lost.own, *(theirs.own for theirs, _ in others))
            asked = [asyncio.create_task(a.request(domain_text(), b"?")) for _ in range(12)]
            await eventually(lambda: len(recorder.messages) == 4)
        ended = await asyncio.gather(*asked, return_exceptions=True)
        answered = [each.payload for each in ended if isinstance(each, Message)]
        assert sorted(answered) == [b"c"] * 4 + [b"d"] * 4
        assert [type(each) for each in ended if not isinstance(each, Message)] == [LinkLost] * 4
        # Nothing was handed over twice, and all goes to the others now.
        assert [worker.asked for _, worker in others] == [4, 4]
        for _ in range(4):
            assert (await a.request(domain_text(), b"?")).payload in {b"c", b"d"}
        assert ours.domain_statistics().pending == 0


async def test_members_are_looked_up_and_dialled(a: Node, b: Node, c: Node) -> None:
    ours = await attached(a, dials=("memory",))
    between, theirs = await attached(b), await attached(c)
    worker = Named("c")
    await c.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders")
    listener = await c.listen("memory://member", expose=[ROUTER])
    theirs.advertise(listener.uri)
    await joined((c, theirs), b)
    await joined((a, ours), b)
    # The domain is looked up at another node, which knows its member, too.
    learns(between, key_of("nowhere").identity, theirs.own)
    answers = await asyncio.gather(*(a.request(domain_text(), b"?") for _ in range(3)))
    assert [each.payload for each in answers] == [b"c"] * 3
    assert set(ours.peers()) == {between.own, theirs.own}
    assert ours.refused() == between.refused() == theirs.refused() == {}


async def test_a_member_with_addresses_that_are_told_later_is_dialled_then(
    a: Node, c: Node
) -> None:
    ours, theirs = await attached(a, dials=("memory",)), await attached(c)
    worker = Named("c")
    await c.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders")
    listener = await c.listen("memory://told-later", expose=[ROUTER])
    learns(ours, key_of("nowhere").identity, theirs.own)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await eventually(lambda: a.statistics().pending == 1)
    for name, uri in (("nowhere", "memory://nowhere"), ("c", listener.uri)):
        addresses = (AdvertAddress(uri, 1),)
        advert = NodeAdvert(key_of(name).identity, addresses, bytes(32), 1, int(NOW * 1000))
        ours.directory.put(sign_advert(advert, key_of(name)), AdvertSource.LOCAL)
    assert (await asked).payload == b"c"
    assert ours.peers() == (theirs.own,)


async def test_a_message_that_is_too_big_is_refused_and_so_is_its_answer(a: Node, b: Node) -> None:
    class Big(Worker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, bytes(MAX_BODY))

    ours, theirs = await attached(a), await attached(b)
    await b.start(Big, address="big")
    theirs.serve(DOMAIN.identity, "big")
    await joined((a, ours), b)
    learns(ours, theirs.own)
    with pytest.raises(PayloadTooBig):
        await a.request(domain_text(), bytes(MAX_BODY))
    with pytest.raises(InDoubt):
        await a.request(domain_text(), b"?")
    assert ours.domain_statistics().pending == theirs.domain_statistics().pending == 0


async def test_threat_21_the_requests_of_what_is_banned_end(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    recorder = await Recorder.on(b, "recorder")
    theirs.serve(DOMAIN.identity, "recorder")
    await joined((a, ours), b)
    learns(ours, theirs.own)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await recorder.next()
    ours.ban(DOMAIN.identity)
    with pytest.raises(LinkLost):
        await asked
    with pytest.raises(Unresolved, match="banned"):
        await a.request(domain_text(), b"?")
    ours.unban(DOMAIN.identity)
    asked = asyncio.create_task(a.request(domain_text(), b"?"))
    await recorder.next()
    assert theirs.domain_statistics().unanswered == 2
    theirs.ban(ours.own)
    statistics = theirs.domain_statistics()
    assert (statistics.pending, statistics.unanswered) == (0, 0)
    # The node that is banned is not told, and waits until its time is over.
    asked.cancel()


async def test_the_end_of_a_node_ends_what_is_under_way(b: Node) -> None:
    async with Node("d") as d:
        ours, theirs = await attached(d), await attached(b)
        recorder = await Recorder.on(b, "recorder")
        theirs.serve(DOMAIN.identity, "recorder")
        await joined((d, ours), b)
        learns(ours, theirs.own)
        d.send(domain_text(), b"!")
        asked = asyncio.create_task(d.request(domain_text(), b"?"))
        await eventually(lambda: len(recorder.messages) == 2)
    with pytest.raises((LinkLost, InDoubt)):
        await asked


async def test_domains_that_are_served_have_a_limit(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.domains._served_domains._MAX_SERVED", 1)
    ours = await attached(a)
    await a.start(Relay, address="relay")
    with pytest.raises(UnknownAddress):
        ours.serve(DOMAIN.identity, "nothing")
    ours.serve(DOMAIN.identity, "relay")
    ours.serve(DOMAIN.identity, "relay")
    with pytest.raises(LimitReached):
        ours.serve(key_of("other").identity, "relay")


async def test_a_message_that_no_member_answers_ends_in_doubt_at_its_time() -> None:
    async with Node("a", limits=NodeLimits()) as a, Node("b") as b:
        ours, theirs = await attached(a, message_time=0.05), await attached(b)
        recorder = await Recorder.on(b, "recorder")
        theirs.serve(DOMAIN.identity, "recorder")
        await joined((a, ours), b)
        learns(ours, theirs.own)
        with pytest.raises(InDoubt, match="no member has answered in time"):
            await a.request(domain_text(), b"?")
        assert len(recorder.messages) == 1
        assert ours.domain_statistics().counters.expired == 1
