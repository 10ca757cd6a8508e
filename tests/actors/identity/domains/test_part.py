"""What other nodes may do with requests to domains: as members, on the way, and as askers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import pytest

from onward.actors import Node
from onward.actors.identity._carriage import ENGINE, Carriage, reply_address
from onward.actors.identity._outgoing import ONWARD
from onward.actors.identity.links._session import MAX_WAITING, Waiting
from onward.protocol import Address, InDoubt, LinkDown, LinkLost, Message, OnwardError
from onward.protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    AdvertRequest,
    ControlContent,
    DestinationKind,
    DomainRecord,
    DomainRefusal,
    DomainRequest,
    DomainRequestLimits,
    DomainResponse,
    Identity,
    P2PMessage,
    Protocol,
    ResultCode,
    parse_domain_record,
    serialize_control,
    serialize_domain_record,
)
from onward.protocol.ockam import decode_message, encode_message
from onward.transports.identity import Correspondent, Identities
from tests.support.domains import DOMAIN, Named, domain_text, learns
from tests.support.identities import StrangeNode, attached, key_of
from tests.support.transports import Recorder, eventually

STRANGE, OTHER, FAR = map(key_of, ("strange", "other", "far"))
BACK = (Address(0, b"asks"),)
BODY = encode_message(Message((ENGINE,), BACK, b"?"))


def ignore(_: OnwardError) -> None:
    """Take no notice of a frame that is not handed over."""


def tell(strange: StrangeNode, record: DomainRecord) -> None:
    strange.say(ControlContent(serialize_domain_record(record)))


def told(message: P2PMessage) -> DomainRecord:
    assert isinstance(message.content, ControlContent)
    return parse_domain_record(message.content.record)


async def heard(strange: StrangeNode) -> DomainRecord:
    return told(await strange.said())


def request_of(
    identities: Identities,
    *path: Identity,
    number: int = 1,
    body: bytes = BODY,
    protocol: Protocol = ONWARD,
    expires: int = 60_000,
) -> DomainRequest:
    expiry = identities._router.milliseconds() + expires
    return DomainRequest(path[0], DOMAIN.identity, number, path, expiry, protocol, body)


async def serving(node: Node) -> tuple[Identities, Recorder]:
    """Have a node serve the domain by a worker that answers nothing by itself."""
    identities = await attached(node)
    recorder = await Recorder.on(node, "recorder")
    identities.serve(DOMAIN.identity, "recorder")
    return identities, recorder


def response_to(
    request: DomainRecord, body: bytes, result: ResultCode = ResultCode.OK
) -> DomainResponse:
    assert isinstance(request, DomainRequest)
    path, member = tuple(reversed(request.path)), STRANGE.identity
    return DomainResponse(
        request.domain, member, request.src, request.id, path, result, ONWARD, body
    )


def answer_to(request: DomainRecord, *onward: Address, payload: bytes = b"!") -> DomainResponse:
    """Return the answer of a member; along other addresses than it was asked for, if some are."""
    assert isinstance(request, DomainRequest)
    route = onward or decode_message(request.body)[1]
    return response_to(request, encode_message(Message(route, (), payload)))


# --- as askers ----------------------------------------------------------------------------------


async def test_a_request_is_served_and_answered_by_the_way_that_it_came(a: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    request = request_of(ours, FAR.identity, STRANGE.identity)
    tell(strange, request)
    question = await recorder.next()
    # The source is not proven, so the worker sees the node that is.
    link = c.parts.table.worker_at(question.return_route[0])
    assert isinstance(link, Correspondent)
    assert (link.own, link.identity) == (DOMAIN.identity, STRANGE.identity)
    recorder.reply(question, b"!")
    response = await heard(strange)
    assert isinstance(response, DomainResponse)
    assert (response.src, response.dst) == (ours.own, FAR.identity)
    assert response.path == (STRANGE.identity, FAR.identity)
    assert decode_message(response.body)[:3] == (BACK, (Address(0, b"recorder"),), b"!")


async def test_a_path_that_does_not_end_at_the_peer_is_forged(a: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, request_of(ours, STRANGE.identity, FAR.identity))
    tell(strange, request_of(ours, FAR.identity))
    ours.ban(FAR.identity)
    tell(strange, request_of(ours, FAR.identity))
    await eventually(lambda: ours.domain_statistics().counters.forged == 3)
    assert recorder.messages == []
    assert ours.domain_statistics().pending == 0


async def test_a_request_that_comes_again_is_served_once(a: Node, b: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    other = await StrangeNode.on(b, c, OTHER)
    tell(strange, request_of(ours, FAR.identity, STRANGE.identity))
    recorder.reply(await recorder.next(), b"!")
    tell(strange, request_of(ours, FAR.identity, STRANGE.identity))
    tell(other, request_of(ours, FAR.identity, OTHER.identity))
    await eventually(lambda: ours.domain_statistics().counters.duplicates == 2)
    assert len(recorder.messages) == 1


@pytest.mark.parametrize("expires", [-MAX_SKEW - 1, MAX_TTL + MAX_SKEW + 1000])
async def test_threat_7_a_request_that_is_not_fresh_is_refused(
    a: Node, c: Node, expires: int
) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, request_of(ours, STRANGE.identity, expires=expires))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.TIMEOUT)
    assert recorder.messages == []


async def test_threat_14_a_request_that_has_been_here_is_refused(a: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, request_of(ours, FAR.identity, ours.own, STRANGE.identity))
    assert await heard(strange) == DomainRefusal(FAR.identity, 1, ResultCode.DENIED)
    assert recorder.messages == []


async def test_threat_21_requests_from_what_is_banned_are_refused(a: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    ours.ban(FAR.identity)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, request_of(ours, FAR.identity, STRANGE.identity))
    assert await heard(strange) == DomainRefusal(FAR.identity, 1, ResultCode.DENIED)
    assert ours.refused() == {"requests to a domain that are refused: banned": 1}
    assert recorder.messages == []


@pytest.mark.parametrize(
    ("onward", "back"),
    [
        ((), BACK),
        ((Address(0, b"identity"),), BACK),
        ((Carriage(DestinationKind.ENGINE).address,), BACK),
        ((ENGINE,), (reply_address(DestinationKind.DOMAIN, bytes(16)), *BACK)),
        ((ENGINE,), BACK * 64),
    ],
)
async def test_threat_16_a_request_for_what_is_not_exposed_is_refused(
    a: Node, c: Node, onward: Iterable[Address], back: Iterable[Address]
) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    body = encode_message(Message(tuple(onward), tuple(back), b"?"))
    tell(strange, request_of(ours, STRANGE.identity, body=body))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.DENIED)
    assert sum(ours.refused().values()) == 1
    assert recorder.messages == []


async def test_a_request_that_cannot_be_read_is_refused(a: Node, c: Node) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    strange.say(ControlContent(b"\x82\x18\x30\x00"))
    tell(strange, request_of(ours, STRANGE.identity, body=b"nothing"))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.DENIED)
    tell(strange, request_of(ours, STRANGE.identity, protocol=Protocol("other", 1)))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.DENIED)
    assert ours.refused() == {
        "records that cannot be read": 1,
        "messages that cannot be read": 1,
        "messages of another protocol": 1,
    }
    assert recorder.messages == []


async def test_threat_16_a_node_that_is_no_member_passes_nothing_on(
    a: Node, b: Node, c: Node
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await StrangeNode.on(b, c, OTHER)
    learns(ours, OTHER.identity)
    tell(strange, request_of(ours, STRANGE.identity))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.UNKNOWN)
    assert ours.domain_statistics().counters.forwarded == 0


async def test_a_flood_of_requests_is_refused_at_the_limit_of_its_peer(
    a: Node, b: Node, c: Node
) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    other = await StrangeNode.on(b, c, OTHER)
    most = DomainRequestLimits().pending_of_peer
    for number in range(most + 1):
        tell(strange, request_of(ours, STRANGE.identity, number=number))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, most, ResultCode.OVERFLOW)
    assert len(recorder.messages) == most
    assert ours.domain_statistics().unanswered == most
    # Others are served on.
    tell(other, request_of(ours, OTHER.identity))
    await eventually(lambda: len(recorder.messages) == most + 1)


async def test_requests_that_are_not_answered_are_forgotten_when_they_are_over(
    a: Node, c: Node
) -> None:
    ours, recorder = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, request_of(ours, STRANGE.identity, expires=20 - MAX_SKEW))
    question = await recorder.next()
    await eventually(lambda: ours.domain_statistics().counters.expired == 1)
    assert ours.domain_statistics().unanswered == 0
    recorder.reply(question, b"too late")
    await eventually(lambda: c.dead_letters.by_reason == {"link down": 1})


async def test_refusals_that_a_peer_does_not_take_are_dropped(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = await serving(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    monkeypatch.setattr("onward.actors.identity.domains._part.MAX_WAITING", 0)
    tell(strange, request_of(ours, STRANGE.identity, body=b""))
    await eventually(
        lambda: ours.refused().get("answers of domains that were not handed over") == 1
    )


async def test_a_request_is_not_passed_on_to_a_member_that_takes_none(
    a: Node, b: Node, c: Node
) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await StrangeNode.on(b, c, OTHER)
    learns(ours, ours.own, OTHER.identity)
    await eventually(lambda: len(ours.peers()) == 2)
    session = ours._router.peers.sessions[OTHER.identity]
    session.waiting.extend([Waiting(b"", True, ignore)] * MAX_WAITING)
    tell(strange, request_of(ours, STRANGE.identity))
    assert await heard(strange) == DomainRefusal(STRANGE.identity, 1, ResultCode.REMOTE_FAILED)
    assert len(session.waiting) == MAX_WAITING
    session.waiting.clear()


# --- as members ---------------------------------------------------------------------------------


async def asked_of(
    a: Node, c: Node
) -> tuple[Identities, StrangeNode, DomainRecord, asyncio.Task[Message]]:
    """Have a node ask a strange member."""
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    learns(ours, STRANGE.identity)
    await eventually(ours.peers)
    asked = asyncio.create_task(c.request(domain_text(), b"?"))
    return ours, strange, await heard(strange), asked


async def test_an_answer_goes_to_the_request_that_it_is_of_alone(a: Node, c: Node) -> None:
    ours, strange, request, asked = await asked_of(a, c)
    recorder = await Recorder.on(c, "recorder")
    tell(strange, answer_to(request, Address(0, b"recorder")))
    with pytest.raises(InDoubt, match="the answer of the member is none"):
        await asked
    assert ours.refused() == {"answers of domains that are none": 1}
    tell(strange, answer_to(request))
    await eventually(lambda: ours.domain_statistics().counters.unexpected == 1)
    assert recorder.messages == []


@pytest.mark.parametrize("body", [b"", b"nothing"])
async def test_an_answer_that_is_none_leaves_the_request_in_doubt(
    a: Node, c: Node, body: bytes
) -> None:
    _, strange, request, asked = await asked_of(a, c)
    tell(strange, response_to(request, body))
    with pytest.raises(InDoubt, match="answer"):
        await asked


async def test_an_answer_from_an_address_of_the_router_leaves_the_request_in_doubt(
    a: Node, c: Node
) -> None:
    _, strange, request, asked = await asked_of(a, c)
    assert isinstance(request, DomainRequest)
    onward, back = decode_message(request.body)[1], (reply_address(DestinationKind.RELAY, b"x"),)
    tell(strange, response_to(request, encode_message(Message(onward, back, b"!"))))
    with pytest.raises(InDoubt, match="the answer of the member is none"):
        await asked


async def test_an_answer_in_another_protocol_leaves_the_request_in_doubt(a: Node, c: Node) -> None:
    _, strange, request, asked = await asked_of(a, c)
    tell(strange, replace(answer_to(request), protocol=Protocol("other", 1)))
    with pytest.raises(InDoubt, match="the answer of the member is none"):
        await asked


async def test_a_member_that_says_it_failed_leaves_the_request_in_doubt(a: Node, c: Node) -> None:
    for result in (ResultCode.REMOTE_FAILED, ResultCode.DENIED):
        async with Node("d") as d, Node("e") as e:
            _, strange, request, asked = await asked_of(d, e)
            tell(strange, response_to(request, b"", result))
            with pytest.raises(LinkLost, match=result.name):
                await asked


async def test_the_answers_of_strangers_and_by_other_ways_are_dropped(
    a: Node, b: Node, c: Node
) -> None:
    ours, strange, request, asked = await asked_of(a, c)
    other = await StrangeNode.on(b, c, OTHER)
    tell(other, answer_to(request))
    assert isinstance(request, DomainRequest)
    tell(other, DomainRefusal(request.src, request.id, ResultCode.DENIED))
    await eventually(lambda: ours.domain_statistics().counters.unexpected == 2)
    tell(strange, replace(answer_to(request), path=(FAR.identity, ours.own)))
    await eventually(lambda: ours.domain_statistics().counters.forged == 1)
    tell(strange, answer_to(request, payload=b"mine"))
    assert (await asked).payload == b"mine"


async def test_a_lying_refusal_ends_the_request_once(a: Node, c: Node) -> None:
    ours, strange, request, asked = await asked_of(a, c)
    assert isinstance(request, DomainRequest)
    tell(strange, DomainRefusal(request.src, request.id, ResultCode.OVERFLOW))
    tell(strange, answer_to(request))
    with pytest.raises(LinkDown, match="no member has taken it: OVERFLOW"):
        await asked
    await eventually(lambda: ours.domain_statistics().counters.unexpected == 1)
    assert ours.domain_statistics().pending == 0


async def test_a_lying_refusal_leads_to_one_other_member(a: Node, b: Node, c: Node) -> None:
    ours = await attached(c)
    strange, other = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, OTHER)
    await eventually(lambda: len(ours.peers()) == 2)
    learns(ours, STRANGE.identity, OTHER.identity)
    choices = iter([7, 1, 0])  # the number of the request, then the choices
    ours._domains.random = choices.__next__
    asked = asyncio.create_task(c.request(domain_text(), b"?"))
    members = {STRANGE.identity: strange, OTHER.identity: other}
    first, second = (members[each] for each in sorted(members, reverse=True))
    request = await heard(first)
    assert isinstance(request, DomainRequest)
    tell(first, DomainRefusal(request.src, request.id, ResultCode.DENIED))
    assert await heard(second) == request
    tell(first, answer_to(request, payload=b"first"))
    await eventually(lambda: ours.domain_statistics().counters.unexpected == 1)
    tell(second, answer_to(request, payload=b"second"))
    assert (await asked).payload == b"second"


async def test_an_answer_to_an_engine_that_has_ended_is_dropped(a: Node, c: Node) -> None:
    ours = await attached(c)
    worker = Named("asks")
    await c.start(lambda: worker, address="asks")
    ours.engine("asks")
    strange = await StrangeNode.on(a, c, STRANGE)
    learns(ours, STRANGE.identity)
    await eventually(ours.peers)
    asked = asyncio.create_task(worker.request(domain_text(), b"?"))
    request = await heard(strange)
    worker.stop()
    await eventually(lambda: not c.has("asks"))
    tell(strange, answer_to(request))
    await eventually(lambda: ours.refused() == {"answers to engines that have ended": 1})
    asked.cancel()


async def test_a_member_does_not_look_for_itself(a: Node, c: Node) -> None:
    ours = await attached(c)
    learns(ours, ours.own, OTHER.identity)
    asked = asyncio.create_task(c.request(domain_text(), b"?"))
    await eventually(lambda: ours._router.lookups.table.statistics().lookups == 1)
    strange = await StrangeNode.on(a, c, STRANGE)
    # One that is no member may know where one is.
    said = (await strange.said()).content
    assert said == ControlContent(serialize_control(AdvertRequest(OTHER.identity)))
    assert set(ours._router.lookups.table._lookups) == {OTHER.identity}
    asked.cancel()


async def test_a_domain_is_known_by_its_advert_and_forgotten_with_it(a: Node, c: Node) -> None:
    ours, strange, _, asked = await asked_of(a, c)
    assert ours.domain_statistics().known == 1
    ours.directory.forget(DOMAIN.identity)
    await eventually(lambda: ours.domain_statistics().known == 0)
    again = asyncio.create_task(c.request(domain_text(), b"again"))
    await eventually(lambda: c.statistics().pending == 1)
    looked_up = (await strange.said()).content
    assert looked_up == ControlContent(serialize_control(AdvertRequest(DOMAIN.identity)))
    ours._domains.members._updates_lost(1)
    learns(ours, STRANGE.identity, version=2)
    assert isinstance(await heard(strange), DomainRequest)
    ours._domains.members._updates_lost(1)
    assert ours.domain_statistics().known == 1
    for each in (asked, again):
        each.cancel()
