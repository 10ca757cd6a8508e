"""Reservations at relays: asked for, kept up, spent and ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import cbor2
import pytest

from onward.actors import LimitReached, Node, Unresolved
from onward.actors.identity import RelayRefused
from onward.actors.identity.relays._reserved import MAX_RESERVED
from onward.protocol import LinkDown
from onward.protocol.identity import (
    RESERVATION_ANSWER,
    RESERVATION_REQUEST,
    AdvertAddress,
    BadRecord,
    ControlContent,
    Identity,
    NodeAdvert,
    PeelOutcome,
    RelayPolicy,
    RelayStatus,
    Reservation,
    ReservationAnswer,
    ReservationLimits,
    issue_voucher,
    read_advert,
    serialize_reservation_answer,
)
from tests.support.identities import StrangeNode, engine_text, key_of, node_text
from tests.support.relays import Member, chain, introduce, member, relay_text
from tests.support.transports import Echo, Recorder, eventually

RESERVED = RelayPolicy(to_reserved=True)
STRANGE = key_of("strange")


@pytest.fixture
async def three() -> AsyncIterator[tuple[Node, Node, Node]]:
    async with Node("a") as a, Node("r") as r, Node("b") as b:
        yield a, r, b


@pytest.fixture
async def line(three: tuple[Node, Node, Node]) -> tuple[Member, Member, Member]:
    """A node that sends, a relay for nodes with a reservation, and a node behind it."""
    a, r, b = three
    line = await member(a), await member(r, relay=RESERVED), await member(b, "echo")
    await b.start(Echo, address="echo")
    await chain(*line)
    introduce(*line)
    await asyncio.sleep(40)
    return line


async def test_a_node_with_a_reservation_is_reached_through_its_relay(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)
    assert r.identities.refused() == {f"messages for relays: {PeelOutcome.REFUSED}": 1}
    assert r.relays.service.refused == {RelayStatus.NO_RESERVATION: 1}
    # Two messages and their answers.
    reservation = await b.identities.reserve(r.own, duration=600, size=10_000, messages=4)
    assert (reservation.relay, reservation.node) == (r.own, b.own)
    assert (reservation.size, reservation.messages) == (10_000, 4)
    assert b.identities.reserved_at() == (r.own,)
    for _ in range(2):
        assert (await a.node.request(route, b"x")).payload == b"x"
    # Its messages are used up.
    with pytest.raises(TimeoutError):
        await a.node.request(route, b"x", timeout=5)
    assert r.relays.service.refused[RelayStatus.RESOURCE_LIMIT_EXCEEDED] == 1


async def test_a_reservation_is_asked_for_again_at_half_of_its_time(
    line: tuple[Member, Member, Member],
) -> None:
    _, r, b = line
    first = await b.identities.reserve(r.own, duration=100)
    await asyncio.sleep(49)
    assert len(asked(r)) == 1
    await asyncio.sleep(3)
    assert len(asked(r)) == 2
    wanted = b.relays.reserved._wanted[r.own].reservation
    assert wanted is not None
    assert wanted.until == first.until + 51_000
    await asyncio.sleep(1000)
    assert b.identities.reserved_at() == (r.own,)
    assert b.identities.release(r.own)
    assert not b.identities.release(r.own)
    assert b.identities.reserved_at() == ()
    number = len(asked(r))
    await asyncio.sleep(1000)
    assert len(asked(r)) == number


def asked(relay: Member) -> list[bytes]:
    contents = [message.content for _, _, message in relay.tap.seen]
    return [
        each.record
        for each in contents
        if isinstance(each, ControlContent) and each.number == RESERVATION_REQUEST
    ]


async def test_a_reservation_ends_with_the_link_and_is_made_anew_with_the_next(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    changes: list[tuple[Identity, ...]] = []
    b.relays.reserved.on_change.append(lambda: changes.append(b.identities.reserved_at()))
    await b.identities.reserve(r.own)
    assert changes == [(r.own,)]
    b.identities._router.peers.disconnect(r.own, "a test")
    await eventually(lambda: changes == [(r.own,), ()])
    r.identities._router.peers.disconnect(b.own, "a test")
    assert len(r.relays.service.reservations) == 0
    await chain(b, r)
    await eventually(lambda: changes == [(r.own,), (), (r.own,)])
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"x")).payload == b"x"


async def test_a_relay_says_why_it_makes_no_reservation(three: tuple[Node, Node, Node]) -> None:
    a, r, b = three
    none, full, asks = (
        await member(a),
        await member(r, relay=RESERVED, reservation_limits=ReservationLimits(reservations=1)),
        await member(b),
    )
    await chain(none, asks, full)
    with pytest.raises(RelayRefused, match="PERMISSION_DENIED") as raised:
        await asks.identities.reserve(none.own)
    assert (raised.value.relay, raised.value.status) == (none.own, RelayStatus.PERMISSION_DENIED)
    assert none.identities.refused() == {"requests for a reservation: permission denied": 1}
    await chain(none, full)
    await none.identities.reserve(full.own)
    with pytest.raises(RelayRefused, match="RESERVATION_REFUSED"):
        await asks.identities.reserve(full.own)
    assert full.identities.refused() == {"requests for a reservation: reservation refused": 1}
    assert asks.identities.reserved_at() == ()
    with pytest.raises(LinkDown, match="there is no link to the relay"):
        await asks.identities.reserve(key_of("nowhere").identity)
    with pytest.raises(BadRecord):
        await asks.identities.reserve(full.own, duration=0)
    for number in range(MAX_RESERVED - 1):
        none.relays.reserved._wanted[key_of(str(number)).identity] = none.relays.reserved._wanted[
            full.own
        ]
    with pytest.raises(LimitReached, match="8 relays to reserve at"):
        await none.identities.reserve(asks.own)
    # A later request for the same relay is no further one.
    await none.identities.reserve(full.own, messages=1)


async def test_a_relay_that_does_not_answer_is_not_waited_for(
    three: tuple[Node, Node, Node],
) -> None:
    b = await member(three[2])
    await StrangeNode.on(three[1], three[2], STRANGE)
    await eventually(b.identities.peers)
    with pytest.raises(RelayRefused, match="it has not answered"):
        await b.identities.reserve(STRANGE.identity)
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    await asyncio.sleep(1)
    b.identities._router.peers.disconnect(STRANGE.identity, "a test")
    with pytest.raises(LinkDown, match="the link to the relay has ended"):
        await asking


async def test_what_is_no_answer_of_the_relay_is_refused(three: tuple[Node, Node, Node]) -> None:
    b = await member(three[2])
    strange = await StrangeNode.on(three[1], three[2], STRANGE)
    await eventually(b.identities.peers)
    other = key_of("other")
    until = b.identities._router.milliseconds() + 60_000

    def say(voucher: bytes) -> None:
        answer = ReservationAnswer(RelayStatus.OK, voucher)
        strange.say(ControlContent(serialize_reservation_answer(answer)))

    good = Reservation(STRANGE.identity, b.own, until, 1, 1)
    say(issue_voucher(good, STRANGE))
    await eventually(lambda: b.identities.refused() == {"answers of relays that were not asked": 1})
    bad = "vouchers that are not of their relay and for this node"
    for number, (reservation, key) in enumerate(
        (
            (good, other),
            (Reservation(other.identity, b.own, until, 1, 1), other),
            (Reservation(STRANGE.identity, other.identity, until, 1, 1), STRANGE),
            (Reservation(STRANGE.identity, b.own, 1, 1, 1), STRANGE),
        )
    ):
        asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
        await asyncio.sleep(1)
        say(issue_voucher(reservation, key))
        with pytest.raises(RelayRefused, match="OK"):
            await asking
        assert b.identities.refused()[bad] == number + 1
    # Two that ask at once have one answer; what cannot be read is none.
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    again = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    await asyncio.sleep(1)
    say(b"\xff")
    strange.say(ControlContent(bytes((0x83, 0x18, RESERVATION_ANSWER, 0xFF))))
    await eventually(lambda: b.identities.refused().get("records that cannot be read") == 2)
    say(issue_voucher(good, STRANGE))
    assert await asking == await again == good
    # It is refused, later: asked again half a minute after that, and while it is valid it counts.
    await asyncio.sleep(32)
    refuse = ReservationAnswer(RelayStatus.RESERVATION_REFUSED)
    strange.say(ControlContent(serialize_reservation_answer(refuse)))
    await asyncio.sleep(1)
    assert b.identities.reserved_at() == (STRANGE.identity,)
    await asyncio.sleep(31)
    assert b.identities.reserved_at() == ()
    await asyncio.sleep(60)
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    await asyncio.sleep(1)
    b.identities.release(STRANGE.identity)
    with pytest.raises(RelayRefused, match="it has not answered"):
        await asking


async def test_a_relay_that_gives_more_time_than_was_asked_for_is_asked_again_all_the_same(
    three: tuple[Node, Node, Node],
) -> None:
    b = await member(three[2])
    strange = await StrangeNode.on(three[1], three[2], STRANGE)
    await eventually(b.identities.peers)
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity, duration=100))
    await asyncio.sleep(1)
    voucher = issue_voucher(Reservation(STRANGE.identity, b.own, 2**63, 1, 1), STRANGE)
    answer = ReservationAnswer(RelayStatus.OK, voucher)
    strange.say(ControlContent(serialize_reservation_answer(answer)))
    assert (await asking).until == 2**63
    # Asked again at half of the time that it wants, and taken for a refusal 10 s later.
    await asyncio.sleep(60)
    assert b.identities.reserved_at() == (STRANGE.identity,)
    strange.say(ControlContent(serialize_reservation_answer(answer)))
    await asyncio.sleep(1)
    assert b.identities.refused() == {}


async def test_a_request_that_cannot_be_read_is_answered_as_such(
    three: tuple[Node, Node, Node],
) -> None:
    r = await member(three[1], relay=RESERVED)
    strange = await StrangeNode.on(three[0], three[1], STRANGE)
    strange.say(ControlContent(bytes((0x84, 0x18, RESERVATION_REQUEST, 0xFF))))
    content = (await strange.said()).content
    assert isinstance(content, ControlContent)
    malformed = ReservationAnswer(RelayStatus.MALFORMED_MESSAGE)
    assert content.record == serialize_reservation_answer(malformed)
    assert r.identities.refused() == {"records that cannot be read": 1}
    for _ in range(1000):
        strange.say(ControlContent(bytes((0x84, 0x18, RESERVATION_REQUEST, 0xFF))))
    await eventually(lambda: r.relays.service.refused[RelayStatus.RESOURCE_LIMIT_EXCEEDED])


async def test_two_nodes_that_cannot_be_dialled_reach_each_other_through_a_relay(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    await b.node.start(Echo, address="engine")
    engine = b.identities.engine("engine", key_of("engine"))
    await b.identities.reserve(r.own)
    assert (await a.node.request(engine_text(engine), b"x")).payload == b"x"
    # It was sealed for both: the relay is in no route.
    assert r.identities.relay_statistics().outcomes == {PeelOutcome.NEXT: 1}
    wished = f"{engine_text(engine)}?hops=1"
    assert (await a.node.request(wished, b"x")).payload == b"x"
    with pytest.raises(Unresolved, match="it asks for 2 relays or more"):
        a.node.send(f"{engine_text(engine)}?hops=2", b"x")
    # The node itself, and the engine again, of which the way is remembered.
    for route in (f"{node_text(b.own)} => echo", engine_text(engine)):
        assert (await a.node.request(route, b"x")).payload == b"x"
    assert r.identities.relay_statistics().outcomes == {PeelOutcome.NEXT: 4}
    # With a link of their own they need no relay.
    await chain(a, b)
    for route in (f"{node_text(b.own)} => echo", engine_text(engine)):
        assert (await a.node.request(route, b"x")).payload == b"x"
    assert r.identities.relay_statistics().outcomes == {PeelOutcome.NEXT: 4}
    # Without it, and without the relay, messages wait until there is one again.
    for one, other in ((a, b), (b, a), (a, r), (r, a)):
        one.identities._router.peers.disconnect(other.own, "a test")
    asked = asyncio.ensure_future(a.node.request(engine_text(engine), b"x", timeout=60))
    await asyncio.sleep(1)
    assert not asked.done()
    await chain(a, r)
    assert (await asked).payload == b"x"
    assert r.identities.relay_statistics().outcomes == {PeelOutcome.NEXT: 5}


async def test_an_advert_says_where_a_node_has_reserved(
    line: tuple[Member, Member, Member],
) -> None:
    _, r, b = line

    def addresses() -> tuple[AdvertAddress, ...]:
        record = r.identities.directory.peek(b.own)
        assert record is not None
        assert record.advert is not None
        advert = read_advert(record.advert).advert
        assert isinstance(advert, NodeAdvert)
        return advert.addresses

    assert addresses() == ()
    await b.identities.reserve(r.own)
    await eventually(lambda: [each.route for each in addresses()] == [relay_text(r)])
    b.identities.release(r.own)
    await eventually(lambda: addresses() == ())


async def test_a_relay_that_gives_less_than_was_asked_for_is_asked_again_in_time(
    three: tuple[Node, Node, Node],
) -> None:
    limits = ReservationLimits(duration=100, size=5000, messages=3)
    r = await member(three[1], relay=RESERVED, reservation_limits=limits)
    b = await member(three[2])
    await chain(b, r)
    given = await b.identities.reserve(r.own, duration=3600, size=10**6, messages=1000)
    assert (given.size, given.messages) == (5000, 3)
    for _ in range(5):
        await asyncio.sleep(60)
        assert b.identities.reserved_at() == (r.own,)
        assert r.identities.relay_statistics().reservations == 1
    assert len(asked(r)) == 6


async def test_a_reservation_that_is_over_keeps_what_is_held_under_it(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    sink = await Recorder.on(b.node, "sink")
    b.identities.engine("sink")
    peers, queues = r.identities._router.peers, r.relays.service.queues
    send, room = peers.send, r.node.loop.create_future()

    def send_to_full(*record: object) -> asyncio.Future[None]:
        send(*record)  # type: ignore[arg-type]
        return room

    await b.identities.reserve(r.own, duration=20)
    # It is not renewed.
    b.relays.reserved.release(r.own)
    peers.send = send_to_full  # type: ignore[method-assign,assignment]
    route = f"{relay_text(r)} => {node_text(b.own)} => sink"
    for payload in (b"1", b"2"):
        a.node.send(route, payload)
    await eventually(lambda: queues.holdings.messages == 1)
    await asyncio.sleep(25)
    assert r.identities.relay_statistics().reservations == 0
    a.node.send(route, b"3")
    await eventually(lambda: r.relays.service.refused == {RelayStatus.NO_RESERVATION: 1})
    # It was charged while there was a reservation, and is carried.
    peers.send = send  # type: ignore[method-assign]
    room.set_result(None)
    await eventually(lambda: [each.payload for each in sink.messages] == [b"1", b"2"])
    found = r.identities.relay_statistics()
    assert (found.charged, found.charged_size) == (2, found.relayed_size)


async def test_a_relay_that_is_started_again_is_asked_again(
    line: tuple[Member, Member, Member],
) -> None:
    a, r, b = line
    await b.identities.reserve(r.own, duration=3600)
    route = f"{relay_text(r)} => {node_text(b.own)} => echo"
    assert (await a.node.request(route, b"1")).payload == b"1"
    await r.node.stop()
    await eventually(lambda: b.identities.reserved_at() == ())
    async with Node("r") as again:
        other = await member(again, relay=RESERVED)
        await chain(a, other, b)
        # It knows of no reservation from before, and is asked as soon as it is there.
        await eventually(lambda: b.identities.reserved_at() == (other.own,))
        await asyncio.sleep(40)
        assert (await a.node.request(route, b"2")).payload == b"2"
        assert other.identities.relay_statistics().reservations == 1
        assert other.identities.relay_statistics().charged == 2


@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
async def test_a_relay_with_a_clock_that_is_an_hour_off(
    three: tuple[Node, Node, Node], ahead: float
) -> None:
    a, r, b = (
        await member(three[0]),
        await member(three[1], relay=RESERVED, ahead=ahead),
        await member(three[2], "echo"),
    )
    await b.node.start(Echo, address="echo")
    await chain(a, r, b)
    introduce(a, b)
    await asyncio.sleep(40)
    if ahead < 0:
        with pytest.raises(RelayRefused, match="over by the clock here"):
            await b.identities.reserve(r.own, duration=3600)
        assert b.identities.reserved_at() == ()
        return
    given = await b.identities.reserve(r.own, duration=3600)
    assert given.until - b.identities._router.milliseconds() > 3_600_000
    # It is renewed at half of the time that was asked for, not of that until its end.
    await asyncio.sleep(1790)
    assert len(asked(r)) == 1
    await asyncio.sleep(20)
    assert len(asked(r)) == 2
    # Its advert is of a time to come, so nothing is sealed for it.
    a.node.send(f"{relay_text(r)} => {node_text(b.own)} => echo", b"x")
    await asyncio.sleep(10)
    assert a.relays.ways.sent == 0


@pytest.mark.parametrize(
    "record",
    [
        (RESERVATION_ANSWER, 999, None),
        (RESERVATION_ANSWER, 0, None),
        (RESERVATION_ANSWER, 100, None),
        (RESERVATION_ANSWER, 202, b"voucher"),
        (RESERVATION_ANSWER, 100, b"voucher"),
    ],
)
async def test_an_answer_with_a_status_that_there_is_not_is_none(
    three: tuple[Node, Node, Node], record: tuple[object, ...]
) -> None:
    b = await member(three[2])
    strange = await StrangeNode.on(three[1], three[2], STRANGE)
    await eventually(b.identities.peers)
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    await asyncio.sleep(1)
    strange.say(ControlContent(cbor2.dumps(record)))
    await eventually(lambda: b.identities.refused() == {"records that cannot be read": 1})
    assert not asking.done()
    with pytest.raises(RelayRefused, match="it has not answered"):
        await asking


@pytest.mark.parametrize(
    "status",
    [each for each in RelayStatus if each is not RelayStatus.OK],
    ids=lambda each: each.name,
)
async def test_each_status_of_a_refusal_is_that_of_the_error(
    three: tuple[Node, Node, Node], status: RelayStatus
) -> None:
    b = await member(three[2])
    strange = await StrangeNode.on(three[1], three[2], STRANGE)
    await eventually(b.identities.peers)
    asking = asyncio.ensure_future(b.identities.reserve(STRANGE.identity))
    await asyncio.sleep(1)
    strange.say(ControlContent(serialize_reservation_answer(ReservationAnswer(status))))
    with pytest.raises(RelayRefused) as raised:
        await asking
    assert raised.value.status is status
