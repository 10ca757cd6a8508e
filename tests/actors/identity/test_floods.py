"""Storms of look-ups, floods of adverts, and clocks that are wrong: what is bounded goes on."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER
from onward.protocol import OnwardError
from onward.protocol.identity import (
    MAX_SKEW,
    AdvertEnvelope,
    AdvertRequest,
    AdvertResponse,
    ControlContent,
    ControlRecord,
    Directory,
    DirectoryLimits,
    LookupOutcome,
    NodeAdvert,
    PutOutcome,
    RowJournal,
    SigningKey,
    Verifiers,
    parse_control,
    serialize_control,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import (
    NOW,
    StrangeNode,
    attached,
    engine_text,
    joined,
    key_of,
    node_text,
)
from tests.support.transports import Echo, eventually

STRANGE = key_of("strange")
HOUR = 3_600_000


def control(record: ControlRecord) -> ControlContent:
    return ControlContent(serialize_control(record))


def told(*adverts: AdvertEnvelope) -> ControlContent:
    return control(AdvertResponse(STRANGE.identity, adverts))


def node_advert(key: SigningKey, created: int, version: int = 1) -> AdvertEnvelope:
    return sign_advert(NodeAdvert(key.identity, (), bytes(32), version, created), key)


async def test_a_storm_of_look_ups_of_the_own_node_has_limits(a: Node, c: Node) -> None:
    ours, theirs = await attached(a), await attached(c)
    await c.start(Echo, address="echo")
    await joined((a, ours), c)
    lookups = ours._router.lookups
    waited = [lookups.lookup(key_of(f"none {number}").identity) for number in range(1500)]
    found = lookups.table.statistics()
    assert (found.lookups, sum(each is not None for each in waited)) == (1024, 1024)
    assert dict(found.outcomes)[LookupOutcome.LOOKUPS] == 1500 - 1024
    # What is known is reached meanwhile, and what is found nowhere ends.
    engine = theirs.engine("echo")
    far = engine_text(engine)
    await eventually(lambda: ours._router.is_at(engine, theirs.own))
    assert (await a.request(far, b"hi")).payload == b"hi"
    await asyncio.wait([each for each in waited if each is not None], timeout=10)
    assert lookups.table.statistics().lookups == 0
    # The other node has answered as many as one node may ask at once.
    beyond = "requests beyond those that a node may make"
    assert theirs.refused() == {beyond: 1024 - 1000}


async def test_a_storm_of_look_ups_of_one_node_leaves_answers_to_others(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.directory._lookups_part._BURST", 20)
    ours = await attached(c)
    strange, other = await StrangeNode.on(a, c, STRANGE), await StrangeNode.on(b, c, key_of("b"))
    for number in range(500):
        strange.say(control(AdvertRequest(key_of(f"none {number}").identity)))
    reason = "requests beyond those that a node may make"
    await eventually(lambda: ours.refused() == {reason: 480})
    other.say(control(AdvertRequest(ours.own)))
    said = (await other.said()).content
    assert isinstance(said, ControlContent)
    response = parse_control(said.record)
    assert isinstance(response, AdvertResponse)
    assert len(response.adverts) == 1
    # No other node is asked for what one node asks here.
    assert ours._router.lookups.table.statistics().asked == 0


async def test_a_flood_of_adverts_with_valid_signatures_of_unknown_keys_lets_go_no_known_one(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = DirectoryLimits(max_identities=40, max_unknown=20)

    def small(verifiers: Verifiers, _: object, journal: RowJournal | None) -> Directory:
        return Directory(verifiers, limits, journal)

    monkeypatch.setattr("onward.actors.identity.directory._service.Directory", small)
    ours, theirs = await attached(c), await attached(b)
    await b.start(Echo, address="echo")
    far = engine_text(theirs.engine("echo"))
    await joined((b, theirs), c)
    assert (await c.request(far, b"hi")).payload == b"hi"
    ours.ban(key_of("banned").identity)
    strange = await StrangeNode.on(a, c, STRANGE)
    now = ours._router.milliseconds()
    keys = [key_of(f"unknown {number}") for number in range(200)]
    for first in range(0, len(keys), 4):
        strange.say(told(*(node_advert(key, now) for key in keys[first : first + 4])))
    last = keys[-1].identity
    await eventually(lambda: ours.directory.peek(last))
    found = ours.directory.statistics()
    assert found.unknown <= limits.max_unknown
    assert list(ours.directory.directory.banned()) == [key_of("banned").identity]
    assert ours.directory.peek(theirs.own)
    assert (await c.request(far, b"hi")).payload == b"hi"


async def test_forged_times_of_adverts_are_refused(a: Node, c: Node) -> None:
    ours = await attached(c)
    strange = await StrangeNode.on(a, c, STRANGE)
    now = ours._router.milliseconds()
    ahead, old = PutOutcome.AHEAD.value, PutOutcome.EXPIRED.value
    strange.say(
        told(
            node_advert(key_of("tomorrow"), now + 24 * HOUR),
            node_advert(key_of("soon"), now + 2 * MAX_SKEW + 1000),
            node_advert(key_of("long ago"), now - 400 * 24 * HOUR),
            node_advert(key_of("now"), now),
        )
    )
    await eventually(lambda: ours.directory.peek(key_of("now").identity))
    assert ours.refused() == {
        f"adverts that are refused: {ahead}": 2,
        f"adverts that are refused: {old}": 1,
    }


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
async def test_clocks_an_hour_apart_cost_messages_and_no_more(
    a: Node, b: Node, c: Node, ahead: float
) -> None:
    ours, between = await attached(a), await attached(b, "echo")
    wrong = await Identities.attach(
        c, key_of("c"), expose=["echo"], clock=lambda: NOW + c.loop.time() + ahead
    )
    for node in (a, b, c):
        await node.start(Echo, address="echo")
    here, there = engine_text(ours.engine("echo")), engine_text(wrong.engine("echo"))
    await joined((a, ours), b)
    link = await joined((a, ours), c)
    for node, to in ((a, there), (c, here)):
        with pytest.raises(OnwardError):
            await node.request(to, b"hi", timeout=5)
    # The link stays, what was refused is counted, and other nodes are reached as before.
    assert set(ours.peers()) == {between.own, wrong.own}
    assert sum((*ours.refused().values(), *wrong.refused().values())) > 0
    route = f"{node_text(between.own)} => echo"
    assert (await a.request(route, b"hi", timeout=5)).payload == b"hi"
    # It is started again, and its clock is right.
    await c.stop_worker(ROUTER)
    link.cut()
    await asyncio.sleep(1)  # of the virtual clock
    right = await attached(c, "echo")
    await joined((c, right), a)
    there = engine_text(right.engine("echo"))
    for node, to in ((a, there), (c, here)):
        assert (await node.request(to, b"hi", timeout=5)).payload == b"hi"
