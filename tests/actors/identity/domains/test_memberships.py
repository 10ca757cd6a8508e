"""What other nodes may do with requests to join a domain, and with the answers to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.actors import Node
from onward.protocol.identity import (
    MAX_SKEW,
    TRUST_BANNED,
    TRUST_DEFAULT,
    ControlContent,
    DomainAdvert,
    DomainJoined,
    DomainJoining,
    DomainRecord,
    Identity,
    JoinRequest,
    JoinResponse,
    P2PMessage,
    ResultCode,
    SigningKey,
    Verifiers,
    open_join_request,
    open_join_response,
    parse_domain_record,
    read_advert,
    serialize_domain_record,
    sign_join_request,
    sign_join_response,
)
from onward.transports.identity import Identities
from tests.support.domains import DOMAIN
from tests.support.identities import StrangeNode, attached, key_of
from tests.support.transports import eventually

STRANGE, OTHER = map(key_of, ("strange", "other"))


def tell(strange: StrangeNode, record: DomainRecord) -> None:
    strange.say(ControlContent(serialize_domain_record(record)))


async def heard(strange: StrangeNode) -> DomainRecord:
    """Return the next record about domains that a node says; adverts come before some."""
    while True:
        message: P2PMessage = await strange.said()
        assert isinstance(message.content, ControlContent)
        if 48 <= message.content.number < 64:
            return parse_domain_record(message.content.record)


async def answered(strange: StrangeNode) -> JoinResponse:
    record = await heard(strange)
    assert isinstance(record, DomainJoined)
    response = open_join_response(record.envelope, Verifiers())
    assert response is not None
    return response


def joining(
    identities: Identities,
    key: SigningKey = STRANGE,
    *,
    domain: Identity = DOMAIN.identity,
    by: int = 0,
    auth: bytes | None = None,
) -> DomainJoining:
    created = identities._router.milliseconds() + by
    return DomainJoining(sign_join_request(JoinRequest(key.identity, domain, auth, created), key))


async def founder(node: Node) -> tuple[Identities, list[JoinRequest]]:
    """Have a node found the domain, and let in each node that asks."""
    identities, asked = await attached(node), list[JoinRequest]()

    def admit(request: JoinRequest) -> bool:
        asked.append(request)
        return True

    identities.found_domain(DOMAIN, admit=admit)
    return identities, asked


async def test_a_request_to_join_is_answered_by_the_domain(a: Node, c: Node) -> None:
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours, auth=b"please"))
    response = await answered(strange)
    assert (response.approver, response.result) == (DOMAIN.identity, ResultCode.OK)
    assert response.epoch == response.created // 1000 + 1
    assert [each.auth for each in asked] == [b"please"]
    # Its time is that of the request, so it answers no other.
    assert response.created == asked[0].created


async def test_a_request_to_join_that_comes_again_is_dropped(a: Node, c: Node) -> None:
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    record = joining(ours)
    tell(strange, record)
    await answered(strange)
    # It is a member no more, and what it has sent before does not make it one.
    ours.found_domain(DOMAIN, [ours.own], admit=lambda _: True)
    tell(strange, record)
    tell(strange, joining(ours, by=-1))
    await eventually(lambda: ours.refused() == {"requests to join that came before": 2})
    assert len(asked) == 1


@pytest.mark.parametrize("by", [-MAX_SKEW - 1000, MAX_SKEW + 1000])
async def test_threat_7_a_request_to_join_that_is_not_fresh_is_dropped(
    a: Node, c: Node, by: int
) -> None:
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours, by=by))
    await eventually(lambda: ours.refused() == {"requests to join that are not fresh": 1})
    assert asked == []


async def test_a_request_to_join_of_another_node_or_a_forged_one_is_dropped(
    a: Node, c: Node
) -> None:
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours, OTHER))
    envelope = bytearray(joining(ours).envelope)
    envelope[-1] ^= 1
    tell(strange, DomainJoining(bytes(envelope)))
    tell(strange, DomainJoining(b"nothing"))
    await eventually(
        lambda: (
            ours.refused()
            == {
                "requests to join of another node": 1,
                "requests to join with a wrong signature": 1,
                "records that cannot be read": 1,
            }
        )
    )
    assert asked == []


async def test_a_node_without_the_key_says_so_in_its_own_name(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    response = await answered(strange)
    assert (response.approver, response.result) == (ours.own, ResultCode.UNKNOWN)


async def test_what_is_remembered_of_nodes_that_ask_has_a_limit(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.domains._memberships._MAX_ASKERS", 1)
    ours, asked = await founder(c)
    strange, other = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, OTHER)
    tell(strange, joining(ours))
    await answered(strange)
    tell(other, joining(ours, OTHER))
    await answered(other)
    tell(strange, joining(ours))
    assert (await answered(strange)).result is ResultCode.EXISTS
    assert len(asked) == 2


async def test_decisions_have_a_limit(a: Node, c: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.actors.identity.domains._memberships._MAX_DECISIONS", 0)
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    assert (await answered(strange)).result is ResultCode.OVERFLOW
    assert asked == []


async def test_a_decision_that_never_ends_gives_its_place_back(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.domains._memberships._MAX_DECISIONS", 1)
    ours = await attached(c)
    hangs = True

    async def admit(_: JoinRequest) -> bool:
        if hangs:
            await asyncio.Event().wait()
        return True

    ours.found_domain(DOMAIN, admit=admit)
    strange, other = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, OTHER)
    tell(strange, joining(ours))
    await eventually(lambda: ours._domains.memberships._deciding)
    tell(other, joining(ours, OTHER))
    assert (await answered(other)).result is ResultCode.OVERFLOW
    await asyncio.sleep(24)
    assert ours.refused() == {}
    response = await answered(strange)
    assert (response.approver, response.result) == (DOMAIN.identity, ResultCode.TIMEOUT)
    assert ours.refused() == {"decisions about requests to join that took too long": 1}
    hangs = False
    for each, key in ((strange, STRANGE), (other, OTHER)):
        tell(each, joining(ours, key))
        assert (await answered(each)).result is ResultCode.OK


async def test_a_decision_that_goes_on_after_its_time_lets_in_no_node(
    a: Node, c: Node, caplog: pytest.LogCaptureFixture
) -> None:
    ours = await attached(c)
    fails = False

    async def admit(_: JoinRequest) -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if fails:
                raise ValueError("no") from None
        return True

    ours.found_domain(DOMAIN, admit=admit)
    strange = await StrangeNode.on(a, c, STRANGE)
    late = "decisions about requests to join that took too long"
    tell(strange, joining(ours))
    await asyncio.sleep(24)
    assert (await answered(strange)).result is ResultCode.TIMEOUT
    assert ours.refused() == {late: 1}
    fails = True
    tell(strange, joining(ours))
    await asyncio.sleep(24)
    assert (await answered(strange)).result is ResultCode.TIMEOUT
    failed = "decisions about requests to join that have failed"
    assert ours.refused() == {late: 2, failed: 1}
    assert "the decision about a request to join failed" in caplog.messages


async def test_a_decision_that_raises_a_timeout_of_its_own_has_failed(a: Node, c: Node) -> None:
    ours = await attached(c)

    async def admit(_: JoinRequest) -> bool:
        async with asyncio.timeout(1):
            await asyncio.Event().wait()
        return True

    ours.found_domain(DOMAIN, admit=admit)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    assert (await answered(strange)).result is ResultCode.DENIED
    assert ours.refused() == {"decisions about requests to join that have failed": 1}


async def test_a_decision_that_was_cancelled_by_its_program_has_failed(a: Node, c: Node) -> None:
    ours = await attached(c)

    async def admit(_: JoinRequest) -> bool:
        raise asyncio.CancelledError

    ours.found_domain(DOMAIN, admit=admit)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    assert (await answered(strange)).result is ResultCode.DENIED
    assert ours.refused() == {"decisions about requests to join that have failed": 1}


async def test_a_node_that_is_banned_while_it_is_decided_is_not_let_in(a: Node, c: Node) -> None:
    ours = await attached(c)
    decided = asyncio.Event()

    async def admit(_: JoinRequest) -> bool:
        ours.ban(STRANGE.identity)
        decided.set()
        return True

    ours.found_domain(DOMAIN, admit=admit)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    await decided.wait()
    await eventually(
        lambda: ours.refused().get("answers of domains that were not handed over") == 1
    )


async def asks(a: Node, c: Node) -> tuple[Identities, StrangeNode]:
    """Join a node with a strange one."""
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    return ours, strange


async def test_only_the_domain_lets_in(a: Node, b: Node, c: Node) -> None:
    ours, strange = await asks(a, c)
    other = await StrangeNode.on(b, c, OTHER)
    task = asyncio.create_task(ours.join_domain(DOMAIN.identity, STRANGE.identity))
    record = await heard(strange)
    assert isinstance(record, DomainJoining)
    request = open_join_request(record.envelope, Verifiers())
    assert request is not None
    assert (request.requestor, request.domain) == (ours.own, DOMAIN.identity)
    good = JoinResponse(
        DOMAIN.identity, ours.own, DOMAIN.identity, request.created, 7, ResultCode.OK
    )
    by_node = replace(good, approver=STRANGE.identity)
    tell(strange, DomainJoined(sign_join_response(by_node, STRANGE)))
    tell(strange, DomainJoined(sign_join_response(replace(good, created=1), DOMAIN)))
    other_node = replace(good, requestor=OTHER.identity)
    tell(strange, DomainJoined(sign_join_response(other_node, DOMAIN)))
    tell(other, DomainJoined(sign_join_response(good, DOMAIN)))
    await eventually(lambda: ours.refused() == {"answers to no request to join": 4})
    envelope = bytearray(sign_join_response(good, DOMAIN))
    envelope[-1] ^= 1
    tell(strange, DomainJoined(bytes(envelope)))
    tell(strange, DomainJoined(b"nothing"))
    await eventually(lambda: sum(ours.refused().values()) == 6)
    assert not task.done()
    tell(strange, DomainJoined(sign_join_response(good, DOMAIN)))
    tell(strange, DomainJoined(sign_join_response(good, DOMAIN)))
    assert await task is ResultCode.OK


async def test_a_node_may_refuse_in_its_own_name(a: Node, c: Node) -> None:
    ours, strange = await asks(a, c)
    tasks = [
        asyncio.create_task(ours.join_domain(DOMAIN.identity, STRANGE.identity)) for _ in range(2)
    ]
    for _ in tasks:
        record = await heard(strange)
        assert isinstance(record, DomainJoining)
        request = open_join_request(record.envelope, Verifiers())
        assert request is not None
        response = JoinResponse(
            STRANGE.identity,
            ours.own,
            DOMAIN.identity,
            request.created,
            None,
            ResultCode.DENIED,
        )
        tell(strange, DomainJoined(sign_join_response(response, STRANGE)))
    assert [await each for each in tasks] == [ResultCode.DENIED] * 2


async def test_answers_that_a_node_does_not_take_are_dropped(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, asked = await founder(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    await eventually(ours.peers)
    monkeypatch.setattr("onward.actors.identity.domains._memberships.MAX_WAITING", 0)
    tell(strange, joining(ours))
    await eventually(lambda: bool(asked))
    await eventually(lambda: ours.refused() == {"answers of domains that were not handed over": 1})


async def test_a_domain_that_is_banned_in_the_same_turn_lets_in_no_node(a: Node, c: Node) -> None:
    ours = await attached(c)

    def admit(_: JoinRequest) -> bool:
        # The directory tells it in the next turn.
        ours.directory.set_trust(DOMAIN.identity, TRUST_BANNED)
        return True

    ours.found_domain(DOMAIN, admit=admit)
    strange = await StrangeNode.on(a, c, STRANGE)
    tell(strange, joining(ours))
    assert (await answered(strange)).result is ResultCode.DENIED
    ours.directory.set_trust(DOMAIN.identity, TRUST_DEFAULT)
    ours.found_domain(DOMAIN)
    record = ours.directory.lookup(DOMAIN.identity)
    assert record is not None
    assert record.advert is not None
    advert = read_advert(record.advert).advert
    assert isinstance(advert, DomainAdvert)
    assert advert.nodes == (ours.own,)
