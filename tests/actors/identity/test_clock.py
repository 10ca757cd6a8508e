"""A clock that was wrong, and is set right while the node runs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors import Node
from onward.actors.identity import ROUTER, IdentityKeys
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._clock import CLOCK_TOLERANCE, ClockWatch
from onward.actors.identity._outgoing import ONWARD
from onward.protocol import Message, OnwardError
from onward.protocol.identity import (
    COUNT_BITS,
    MAX_SKEW,
    MAX_TTL,
    AdvertSource,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    FreshnessRefusal,
    Hop,
    Identity,
    NodeAdvert,
    P2PContent,
    PeelOutcome,
    RelayContent,
    RelayPolicy,
    ResultCode,
    build_onion,
    identity_text,
    read_advert,
    sign_advert,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from onward.transports.identity import Identities
from tests.support.identities import NOW, StrangeNode, joined, key_of, node_text
from tests.support.transports import Echo, Recorder, eventually

HOUR = 3600.0
STRANGE = key_of("strange")
BEFORE_START = f"messages that are not fresh: {FreshnessRefusal.BEFORE_START.value}"
REPLAYED = f"messages for relays: {PeelOutcome.REPLAYED.value}"
LOOK = 61.0
"""Time after which a node has looked at its clock, in seconds."""
OF_BEFORE = "relayed messages of before the clock was set back"
STEPS = pytest.mark.parametrize("ahead", [HOUR, 400.0, -HOUR, -NOW + 60.0])


class Clock:
    """The clock of one node, which a test sets.

    Attributes:
        ahead: The time by which it is ahead of those of others, in seconds.
    """

    def __init__(self, node: Node, ahead: float = 0.0) -> None:
        self._loop = node.loop
        self.ahead = ahead

    def __call__(self) -> float:
        return NOW + self._loop.time() + self.ahead


async def timed(
    node: Node, ahead: float = 0.0, relay: RelayPolicy | None = None
) -> tuple[Identities, Clock]:
    """Give a node an identity, and a clock that is ahead of those of others, in seconds."""
    clock, key = Clock(node, ahead), key_of(node.name)
    keys = IdentityKeys(key, b"s" * 32, None, None, node.name, 0)
    return await Identities.attach(node, keys, clock=clock, relay=relay), clock


async def engine_at(node: Node, identities: Identities) -> Identity:
    """Start an echo at a node, and make it an engine."""
    await node.start(Echo, address="echo")
    return identities.engine("echo")


async def answers(asker: Identities, engine: Identity) -> bool:
    """Whether an engine answers a request in a moment."""
    try:
        return (await asker.request(engine, b"hi", timeout=5)).payload == b"hi"
    except OnwardError:
        return False


def created(at: Identities, node: Identity) -> float:
    """Return the time of the advert of a node that another one has, in seconds; 0 without one."""
    record = at.directory.lookup(node)
    if record is None or record.advert is None:
        return 0.0
    advert = read_advert(record.advert).advert
    assert isinstance(advert, NodeAdvert)
    return advert.created / 1000


def steps_told(caplog: pytest.LogCaptureFixture) -> int:
    return sum(getattr(each, "event", "") == "identity.clock_set" for each in caplog.records)


@STEPS
async def test_a_node_is_reached_and_reaches_others_once_its_clock_is_set_right(
    a: Node, b: Node, ahead: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (wrong, clock), (right, _) = await timed(a, ahead), await timed(b)
    there, here = await engine_at(a, wrong), await engine_at(b, right)
    await joined((a, wrong), b)
    await asyncio.sleep(LOOK)
    assert steps_told(caplog) == 0
    if ahead != 400.0:  # that is as much as the time of a message may be ahead
        assert not await answers(right, there)
        assert not await answers(wrong, here)
    clock.ahead = 0.0
    await asyncio.sleep(LOOK)
    assert steps_told(caplog) == 1
    assert await answers(right, there)
    assert await answers(wrong, here)
    assert abs(created(right, wrong.own) - clock()) < 2 * LOOK
    await asyncio.sleep(10 * LOOK)
    assert steps_told(caplog) == 1


@STEPS
async def test_a_node_that_joins_another_looks_at_its_clock_first(
    a: Node, b: Node, ahead: float
) -> None:
    (wrong, clock), (right, _) = await timed(a, ahead), await timed(b)
    there, here = await engine_at(a, wrong), await engine_at(b, right)
    await asyncio.sleep(1)
    clock.ahead = 0.0
    await joined((a, wrong), b)
    assert await answers(right, there)
    assert await answers(wrong, here)
    assert (wrong.refused(), right.refused()) == ({}, {})


@STEPS
async def test_a_node_behind_a_relay_is_reached_once_its_clock_is_set_right(
    a: Node, b: Node, c: Node, ahead: float
) -> None:
    (wrong, clock), (relay, _) = (
        await timed(a, ahead),
        await timed(b, relay=RelayPolicy(from_any=True)),
    )
    asker, _ = await timed(c)
    there, here = await engine_at(a, wrong), await engine_at(c, asker)
    await joined((a, wrong), b)
    await joined((c, asker), b)
    assert not await answers(asker, there)
    clock.ahead = 0.0
    await asyncio.sleep(LOOK)
    for each in (wrong, asker):
        await each.reserve(relay.own)
    await asyncio.sleep(LOOK)
    assert await answers(asker, there)
    assert await answers(wrong, here)


@pytest.mark.parametrize("ahead", [20.0, -10.0])
async def test_a_node_with_a_reservation_is_reached_on_once_its_clock_is_set(
    a: Node, b: Node, c: Node, ahead: float
) -> None:
    (one, clock), (relay, its) = (
        await timed(a, ahead),
        await timed(b, ahead, RelayPolicy(to_reserved=True)),
    )
    asker, _ = await timed(c)
    there = await engine_at(a, one)
    await joined((a, one), b)
    await joined((c, asker), b)
    await one.reserve(relay.own)
    await asyncio.sleep(LOOK)
    assert await answers(asker, there)
    clock.ahead = its.ahead = 0.0
    await asyncio.sleep(LOOK)
    # As after a restart, the first that is not answered has the node looked up again.
    assert await answers(asker, there) or await answers(asker, there)
    assert relay.relay_statistics().reservations == 1


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_the_advert_of_a_domain_is_signed_anew(a: Node, b: Node, ahead: float) -> None:
    (wrong, clock), (right, _) = await timed(a, ahead), await timed(b)
    domain, banned = key_of("domain"), key_of("banned")
    wrong.found_domain(domain)
    wrong.found_domain(banned)
    wrong.directory.set_trust(banned.identity, 0)
    await joined((a, wrong), b)
    other = key_of("other")
    right.found_domain(other)
    assert await wrong.join_domain(other.identity, right.own) is ResultCode.TIMEOUT
    clock.ahead = 0.0
    await asyncio.sleep(LOOK)
    record = right.directory.lookup(domain.identity)
    assert record is not None
    assert record.advert is not None
    advert = read_advert(record.advert).advert
    assert abs(advert.created / 1000 - clock()) < 2 * LOOK
    assert right.directory.lookup(banned.identity) is None
    # The next request to join is not later than the one before by then.
    assert await wrong.join_domain(other.identity, right.own) is ResultCode.DENIED


async def test_nodes_with_clocks_that_are_set_back_together_go_on(a: Node, b: Node) -> None:
    (one, clock), (other, others) = await timed(a, HOUR), await timed(b, HOUR)
    there, here = await engine_at(a, one), await engine_at(b, other)
    await joined((a, one), b)
    for _ in range(8):  # longer than what was seen is remembered
        assert await answers(one, here)
        assert await answers(other, there)
        await asyncio.sleep(100)
    for _ in range(2):
        clock.ahead = others.ahead = clock.ahead - HOUR
        await asyncio.sleep(LOOK)
        assert await answers(one, here)
        assert await answers(other, there)


async def test_a_clock_that_is_set_by_little_changes_nothing(
    a: Node, b: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (one, clock), (other, _) = await timed(a), await timed(b)
    there = await engine_at(a, one)
    await joined((a, one), b)
    before = created(other, one.own)
    for ahead in (1, -1):
        clock.ahead = ahead * CLOCK_TOLERANCE / 1000 * 0.9
        await asyncio.sleep(LOOK)
    assert steps_told(caplog) == 0
    assert created(other, one.own) == before
    assert await answers(other, there)
    # Several little ones are as much.
    clock.ahead += 1.1 * CLOCK_TOLERANCE / 1000
    clock.ahead += CLOCK_TOLERANCE / 1000
    await asyncio.sleep(LOOK)
    assert steps_told(caplog) == 1


@pytest.mark.parametrize("is_sealed", [False, True])
async def test_what_came_before_a_restart_is_not_taken_again_once_the_clock_is_set_forward(
    a: Node, b: Node, c: Node, is_sealed: bool
) -> None:
    recorder = await Recorder.on(a, "recorder")
    ours, clock = await timed(a)
    engine = ours.engine("recorder", key_of("engine"))

    def said() -> P2PContent:
        now = int(clock() * 1000)
        message = EngineMessage(
            STRANGE.identity,
            Destination(DestinationKind.ENGINE, engine),
            now + MAX_SKEW << COUNT_BITS,
            ONWARD,
            encode_message(Message((ENGINE,), (), b"hi")),
            expiry=now + MAX_TTL,
        )
        envelope = sign_engine_message(message, STRANGE)
        if not is_sealed:
            return EngineContent(envelope)
        hop = Hop(ours.own, ours.sealing_key)
        return RelayContent(build_onion([hop], envelope, expiry=now + MAX_TTL, signers=[STRANGE]))

    strange, content = await StrangeNode.on(b, a, STRANGE), said()
    strange.say(content)
    await recorder.next()
    recorder.messages.clear()
    await a.stop_worker(ROUTER)
    ours, clock = await timed(a, -NOW + 60.0)
    ours.engine("recorder", key_of("engine"))
    strange = await StrangeNode.on(c, a, STRANGE)
    await asyncio.sleep(LOOK)
    clock.ahead = 0.0
    # Before the node looks at its clock for itself, and after.
    for times in (1, 2):
        strange.say(content)
        await asyncio.sleep(LOOK)
        assert recorder.messages == []
        reason = REPLAYED if is_sealed and times == 2 else BEFORE_START
        assert ours.refused()[reason] == (1 if is_sealed else times)
    strange.say(said())
    await recorder.next()


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_a_relay_does_not_hold_on_to_what_is_of_a_time_that_its_clock_has_left(
    a: Node, b: Node, c: Node, ahead: float
) -> None:
    policy = RelayPolicy(from_any=True)
    (sender, of_sender), (relay, of_relay) = await timed(a, ahead), await timed(b, ahead, policy)
    far, _ = await timed(c)
    await joined((a, sender), b)
    for number, to in enumerate((sender, relay)):
        created = int((NOW + ahead) * 1000) + number
        for key, of in ((key_of("b"), relay), (key_of("c"), far)):
            advert = NodeAdvert(key.identity, (), of.sealing_key, 9, created)
            if to is not of:
                to.directory.put(sign_advert(advert, key), AdvertSource.LOCAL)
    await asyncio.sleep(40)
    asks = await Recorder.on(a, "asks")
    for _ in range(5):
        asks.send(f"36#relay:{identity_text(relay.own)} => {node_text(far.own)} => rec", b"x")
    await eventually(lambda: relay.relay_statistics().held == 5)
    assert relay.relay_statistics().handles == 5
    assert sender.relay_statistics().expected == 5
    of_sender.ahead = of_relay.ahead = 0.0
    await asyncio.sleep(LOOK)
    reason = OF_BEFORE if ahead > 0 else "relayed messages that have expired while they were held"
    assert relay.refused()[reason] == 5
    found = relay.relay_statistics()
    assert (found.held, found.held_size, found.handles) == (0, 0, 0)
    if ahead > 0:  # else they go as others are waited for
        assert sender.relay_statistics().expected == 0


@pytest.mark.parametrize("at_its_start", [False, True])
def test_a_process_that_stands_still_between_the_two_clocks_makes_no_step(
    at_its_start: bool,
) -> None:
    now, stands = 100.0, False

    def loop_time() -> float:
        nonlocal now, stands
        if stands:
            now, stands = now + 10, False
        return now

    stands = at_its_start
    watch = ClockWatch(lambda: int(now * 1000), loop_time)
    stands = not at_its_start
    assert watch.take_step() == 0
    now += 1
    assert watch.take_step() == 0
