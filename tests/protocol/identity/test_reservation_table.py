"""The reservations of a relay: their limits, their end, and what is charged to them."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    Identity,
    RelayStatus,
    Reservation,
    ReservationCharge,
    ReservationLimits,
    ReservationRequest,
    Reservations,
    SigningKey,
)

NOW = 1_800_000_000_000
RELAY = SigningKey(bytes((1,)) * 32).identity
NODES = [SigningKey(bytes((each,)) * 32).identity for each in range(3, 8)]
NODE = NODES[0]
ASKS = ReservationRequest(600, 1000, 10)
STATUS = RelayStatus


def reserved(found: Reservation | RelayStatus) -> Reservation:
    assert isinstance(found, Reservation)
    return found


def charged(reservations: Reservations, node: Identity, size: int, now: int) -> RelayStatus:
    found = reservations.charge(node, size, now)
    return STATUS.OK if isinstance(found, ReservationCharge) else found


def charge_of(reservations: Reservations, node: Identity, size: int, now: int) -> ReservationCharge:
    found = reservations.charge(node, size, now)
    assert isinstance(found, ReservationCharge)
    return found


def test_a_node_gets_what_it_asks_for_up_to_the_limits() -> None:
    reservations = Reservations(RELAY, ReservationLimits(duration=60, size=500, messages=5))
    assert reservations.reserve(NODE, ASKS, NOW) == Reservation(RELAY, NODE, NOW + 60_000, 500, 5)
    small = ReservationRequest(1, 2, 3)
    assert reservations.reserve(NODES[1], small, NOW) == Reservation(
        RELAY, NODES[1], NOW + 1000, 2, 3
    )
    assert len(reservations) == 2


def test_messages_and_bytes_are_used_up() -> None:
    reservations = Reservations(RELAY)
    assert charged(reservations, NODE, 1, NOW) is STATUS.NO_RESERVATION
    reservations.reserve(NODE, ReservationRequest(600, 100, 2), NOW)
    assert charged(reservations, NODE, 101, NOW) is STATUS.RESOURCE_LIMIT_EXCEEDED
    assert charged(reservations, NODE, 60, NOW) is STATUS.OK
    assert charged(reservations, NODE, 41, NOW) is STATUS.RESOURCE_LIMIT_EXCEEDED
    assert charged(reservations, NODE, 40, NOW) is STATUS.OK
    assert charged(reservations, NODE, 0, NOW) is STATUS.RESOURCE_LIMIT_EXCEEDED
    assert reservations.is_reserved(NODE, NOW)


def test_a_reservation_ends_at_its_time_or_with_its_link() -> None:
    reservations = Reservations(RELAY)
    reservations.reserve(NODE, ASKS, NOW)
    assert charged(reservations, NODE, 1, NOW + 599_999) is STATUS.OK
    assert reservations.is_reserved(NODE, NOW + 599_999)
    assert not reservations.is_reserved(NODE, NOW + 600_000)
    assert charged(reservations, NODE, 1, NOW + 600_000) is STATUS.NO_RESERVATION
    reservations.reserve(NODE, ASKS, NOW)
    reservations.end(NODE)
    reservations.end(NODE)
    assert charged(reservations, NODE, 1, NOW) is STATUS.NO_RESERVATION
    assert len(reservations) == 0


def test_a_node_that_asks_early_keeps_what_it_has() -> None:
    reservations = Reservations(RELAY)
    first = reservations.reserve(NODE, ReservationRequest(600, 100, 1), NOW)
    charged(reservations, NODE, 100, NOW)
    assert reservations.reserve(NODE, ASKS, NOW + 299_999) == first
    assert charged(reservations, NODE, 1, NOW + 299_999) is STATUS.RESOURCE_LIMIT_EXCEEDED
    second = reserved(reservations.reserve(NODE, ASKS, NOW + 300_000))
    assert second.until == NOW + 900_000
    assert charged(reservations, NODE, 1, NOW + 300_000) is STATUS.OK


def test_a_full_relay_refuses_until_a_reservation_ends() -> None:
    reservations = Reservations(RELAY, ReservationLimits(reservations=2))
    for node in NODES[:2]:
        reserved(reservations.reserve(node, ASKS, NOW))
    assert reservations.reserve(NODES[2], ASKS, NOW) is STATUS.RESERVATION_REFUSED
    # One that is there may be renewed.
    reserved(reservations.reserve(NODES[0], ASKS, NOW + 400_000))
    reserved(reservations.reserve(NODES[2], ASKS, NOW + 600_000))
    assert len(reservations) == 2


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 500), st.booleans()),
    max_size=60,
)


@given(STEPS)
def test_no_node_gets_more_than_two_reservations_in_their_time(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    limits = ReservationLimits(reservations=3, duration=1, size=100, messages=4)
    reservations, now = Reservations(RELAY, limits), NOW
    relayed: list[tuple[int, int, int]] = []
    for which, size, passed, asks in steps:
        now += passed
        if asks:
            reservations.reserve(NODES[which], ASKS, now)
        elif charged(reservations, NODES[which], size, now) is STATUS.OK:
            relayed.append((which, size, now))
        assert len(reservations) <= 3
        lately = [each for node, each, at in relayed if node == which and at > now - 500]
        assert len(lately) <= 2 * 4
        assert sum(lately) <= 2 * 100


def test_what_was_not_carried_is_given_back_to_its_own_reservation() -> None:
    reservations = Reservations(RELAY)
    asks = ReservationRequest(600, 100, 1)
    reservations.reserve(NODE, asks, NOW)
    first = charge_of(reservations, NODE, 100, NOW)
    assert (reservations.charged, reservations.charged_size) == (1, 100)
    reservations.refund(first)
    assert (reservations.charged, reservations.charged_size) == (0, 0)
    second = charge_of(reservations, NODE, 100, NOW)
    # It is renewed; what is dropped of the one before adds nothing to it.
    reservations.reserve(NODE, asks, NOW + 300_000)
    third = charge_of(reservations, NODE, 100, NOW + 300_000)
    reservations.refund(second)
    assert charged(reservations, NODE, 1, NOW + 300_000) is STATUS.RESOURCE_LIMIT_EXCEEDED
    # It ends with the link, and is made anew in the same millisecond.
    reservations.end(NODE)
    reservations.refund(third)
    reservations.reserve(NODE, asks, NOW + 300_000)
    charge_of(reservations, NODE, 100, NOW + 300_000)
    assert charged(reservations, NODE, 1, NOW + 300_000) is STATUS.RESOURCE_LIMIT_EXCEEDED
    assert (reservations.charged, reservations.charged_size) == (1, 100)


def test_what_is_over_is_forgotten() -> None:
    reservations = Reservations(RELAY)
    reservations.reserve(NODE, ASKS, NOW)
    reservations.end_expired(NOW + 599_999)
    assert len(reservations) == 1
    reservations.end_expired(NOW + 600_000)
    assert len(reservations) == 0


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "charge", "charge", "refund", "end", "wait"]),
        st.integers(0, 2),
        st.integers(0, 60),
    ),
    max_size=80,
)


@given(MOVES)
def test_what_is_charged_is_what_was_carried_once(moves: list[tuple[str, int, int]]) -> None:
    reservations, now = (
        Reservations(RELAY, ReservationLimits(duration=1, size=150, messages=5)),
        NOW,
    )
    # What each reservation has, and the charges to it that were carried or still may be.
    present = dict[int, Reservation]()
    carried = dict[int, list[ReservationCharge]]()
    number = 0
    for move, which, size in moves:
        node = NODES[which]
        if move == "wait":
            now += 20 * size
        elif move == "reserve":
            found = reserved(reservations.reserve(node, ASKS, now))
            if present.get(which) is not found:
                present[which], carried[which] = found, []
        elif move == "end":
            reservations.end(node)
            present.pop(which, None)
        elif move == "charge":
            charge = reservations.charge(node, size, now)
            held = present.get(which)
            if isinstance(charge, ReservationCharge):
                assert held is not None
                assert held.until > now
                carried[which].append(charge)
                number += 1
            elif held is not None and held.until > now:
                used = carried[which]
                full = len(used) == held.messages
                assert full or sum(each.size for each in used) + size > held.size
        elif carried.get(which):
            reservations.refund(carried[which].pop(size % len(carried[which])))
            number -= 1
        for each, reservation in present.items():
            assert len(carried[each]) <= reservation.messages
            assert sum(charge.size for charge in carried[each]) <= reservation.size
        assert reservations.charged == number
