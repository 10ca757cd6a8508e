"""The membership of domains: founded, told, joined and changed, between whole nodes."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import LimitReached, Node, Unresolved
from onward.protocol import LinkDown, LinkLost
from onward.protocol.identity import (
    MAX_DOMAIN_NODES,
    MAX_JOIN_AUTH,
    BadRecord,
    DomainAdvert,
    Identity,
    JoinRequest,
    ResultCode,
    identity_text,
    read_advert,
)
from onward.transports.identity import Identities
from tests.support.domains import DOMAIN, Named, domain_text
from tests.support.identities import attached, engine_text, joined, key_of
from tests.support.transports import Echo, eventually


def members(identities: Identities, domain: Identity = DOMAIN.identity) -> tuple[Identity, ...]:
    """Return the members of a domain that a node knows."""
    record = identities.directory.peek(domain)
    if record is None or record.advert is None:
        return ()
    advert = read_advert(record.advert).advert
    assert isinstance(advert, DomainAdvert)
    return advert.nodes


async def test_a_domain_is_told_to_nodes_with_links_and_to_those_that_join_later(
    a: Node, b: Node, c: Node
) -> None:
    ours, theirs, later = [await attached(node) for node in (a, b, c)]
    await joined((a, ours), b)
    assert ours.found_domain(DOMAIN) == DOMAIN.identity
    await eventually(lambda: members(theirs) == (ours.own,))
    ours.found_domain(DOMAIN, [ours.own, theirs.own, ours.own])
    await eventually(lambda: members(theirs) == (ours.own, theirs.own))
    await joined((a, ours), c)
    await eventually(lambda: members(later) == (ours.own, theirs.own))
    ours.found_domain(DOMAIN, [])
    await eventually(lambda: members(theirs) == members(later) == ())


async def test_a_node_joins_and_serves_what_others_ask(a: Node, b: Node, c: Node) -> None:
    ours, theirs, asks = [await attached(node) for node in (a, b, c)]
    await joined((a, ours), b)
    await joined((c, asks), a)
    await joined((c, asks), b)

    def admit(request: JoinRequest) -> bool:
        return request.auth == b"open sesame"

    ours.found_domain(DOMAIN, admit=admit)
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.DENIED
    result = await theirs.join_domain(DOMAIN.identity, ours.own, b"open sesame")
    assert result is ResultCode.OK
    # The member knows of it when it is let in.
    assert members(theirs) == (ours.own, theirs.own)
    result = await theirs.join_domain(DOMAIN.identity, ours.own, b"open sesame")
    assert result is ResultCode.EXISTS
    worker = Named("b")
    await b.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders")
    await eventually(lambda: members(asks) == (ours.own, theirs.own))
    assert (await c.request(domain_text(), b"?")).payload == b"b"
    # One that is a member no more is asked no more.
    ours.found_domain(DOMAIN, [ours.own])
    await eventually(lambda: members(asks) == (ours.own,))
    named = Named("a")
    await a.start(lambda: named, address="orders")
    ours.serve(DOMAIN.identity, "orders")
    assert (await c.request(domain_text(), b"?")).payload == b"a"
    assert worker.asked == 1


async def test_no_node_is_let_in_by_default(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    ours.found_domain(DOMAIN)
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.DENIED
    other = key_of("other").identity
    assert await theirs.join_domain(other, ours.own) is ResultCode.UNKNOWN
    assert members(ours) == (ours.own,)


async def test_a_decision_may_take_its_time_and_fail(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    asked, decided = asyncio.Event(), asyncio.Event()

    async def admit(_: JoinRequest) -> bool:
        asked.set()
        await decided.wait()
        return True

    ours.found_domain(DOMAIN, admit=admit)
    asks = asyncio.create_task(theirs.join_domain(DOMAIN.identity, ours.own))
    await asked.wait()
    # A node has one request decided at a time.
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.OVERFLOW
    ours.found_domain(DOMAIN, [ours.own, key_of("other").identity], admit=admit)
    decided.set()
    assert await asks is ResultCode.OK
    # By default the members stay those that are known, as after a restart.
    ours.found_domain(DOMAIN)
    assert members(ours) == (ours.own, key_of("other").identity, theirs.own)

    def fails(_: JoinRequest) -> bool:
        raise ValueError("no")

    ours.found_domain(DOMAIN, [ours.own], admit=fails)
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.DENIED
    assert ours.refused()["decisions about requests to join that have failed"] == 1


async def test_a_domain_has_a_limit_of_members(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    nodes = [key_of(str(number)).identity for number in range(MAX_DOMAIN_NODES + 1)]
    with pytest.raises(LimitReached):
        ours.found_domain(DOMAIN, nodes)
    ours.found_domain(DOMAIN, nodes[:-1], admit=lambda _: True)
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.OVERFLOW


async def test_domains_that_are_founded_and_requests_to_join_have_limits(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    monkeypatch.setattr("onward.actors.identity.domains._memberships._MAX_FOUNDED", 1)
    ours.found_domain(DOMAIN)
    ours.found_domain(DOMAIN)
    with pytest.raises(LimitReached):
        ours.found_domain(key_of("other"))
    monkeypatch.setattr("onward.actors.identity.domains._memberships._MAX_JOINING", 0)
    with pytest.raises(LimitReached):
        await theirs.join_domain(DOMAIN.identity, ours.own)


async def test_a_request_to_join_ends_with_its_link(a: Node, b: Node) -> None:
    ours = await attached(a)
    with pytest.raises(LinkDown):
        await ours.join_domain(DOMAIN.identity, key_of("nowhere").identity)
    with pytest.raises(BadRecord):
        await ours.join_domain(DOMAIN.identity, ours.own, bytes(MAX_JOIN_AUTH + 1))
    theirs = await attached(b)
    await joined((a, ours), b)
    asked = asyncio.Event()

    async def admit(_: JoinRequest) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    theirs.found_domain(DOMAIN, admit=admit)
    asks = asyncio.create_task(ours.join_domain(DOMAIN.identity, theirs.own))
    await asked.wait()
    ours.ban(theirs.own)
    with pytest.raises(LinkLost):
        await asks
    await b.stop()


async def test_a_request_to_join_that_is_not_answered_ends(
    a: Node, b: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.domains._memberships._JOIN_TIME", 0.0)
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    result = await ours.join_domain(DOMAIN.identity, theirs.own)
    assert result is ResultCode.TIMEOUT
    await eventually(lambda: ours.refused() == {"answers to no request to join": 1})


async def test_a_domain_that_is_banned_is_not_founded(a: Node, b: Node) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    ours.found_domain(DOMAIN, admit=lambda _: True)
    ours.ban(DOMAIN.identity)
    assert await theirs.join_domain(DOMAIN.identity, ours.own) is ResultCode.UNKNOWN
    with pytest.raises(ValueError, match="banned"):
        ours.found_domain(DOMAIN)


async def test_members_that_serve_tell_of_changes_to_their_own_links(
    a: Node, b: Node, c: Node
) -> None:
    ours, theirs, far = [await attached(node) for node in (a, b, c)]
    await joined((a, ours), b)
    await joined((b, theirs), c)
    worker = Named("b")
    await b.start(lambda: worker, address="orders")
    theirs.serve(DOMAIN.identity, "orders")
    ours.found_domain(DOMAIN, [ours.own, theirs.own])
    await eventually(lambda: members(far) == (ours.own, theirs.own))
    ours.found_domain(DOMAIN, [theirs.own])
    await eventually(lambda: members(far) == (theirs.own,))
    assert (await c.request(domain_text(), b"?")).payload == b"b"
    # One that serves it no more tells nothing more.
    theirs.stop_serving(DOMAIN.identity)
    ours.found_domain(DOMAIN, [ours.own])
    await eventually(lambda: members(theirs) == (ours.own,))
    assert members(far) == (theirs.own,)


async def test_a_message_with_the_scope_of_a_domain_goes_to_its_members_alone(
    a: Node, b: Node
) -> None:
    ours, theirs = await attached(a), await attached(b)
    await joined((a, ours), b)
    await b.start(Echo, address="echo")
    route = f"{engine_text(theirs.engine('echo'))}?scope={identity_text(DOMAIN.identity)}"
    with pytest.raises(Unresolved, match="it was not found"):
        await a.request(route, b"12 apples")
    theirs.found_domain(DOMAIN)
    await eventually(lambda: ours.directory.peek(DOMAIN.identity) is not None)
    assert (await a.request(route, b"12 apples")).payload == b"12 apples"
    theirs.found_domain(DOMAIN, [ours.own])
    await eventually(lambda: members(ours) == (ours.own,))
    with pytest.raises(Unresolved, match="scope"):
        await a.request(route, b"12 apples")
