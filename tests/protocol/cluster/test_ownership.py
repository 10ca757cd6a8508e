"""The owner of a route id: who may have it, and which of several registrations stays."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import (
    MAX_OWNED,
    NO_OWNER,
    Dialect,
    RouteAdd,
    RouteRemove,
    owner_text,
    parse_frame,
    with_owner,
)
from onward.protocol.cluster import (
    SUSPENDED_SERVICE,
    Element,
    ElementKind,
    RoutePlace,
    SuspendedPlaces,
    inherited,
    is_foreign,
    may_take,
    standing,
    suspended_place,
    zone_ids,
)
from tests.protocol.cluster.streams import CLOCK, HOME, INSTANCE, OTHER, route_id
from tests.protocol.cluster.test_elements import VECTORS

ANN, BOB = owner_text("ann", "token", ""), owner_text("bob", "token", "")
PLACES = st.builds(
    RoutePlace,
    st.integers(1, 5),
    st.sampled_from([bytes([n]) * 16 for n in range(4)]),
    st.sampled_from([None, NO_OWNER, ANN, BOB]),
    since=st.integers(0, 5),
)
SOME = st.lists(PLACES, min_size=1, max_size=4, unique_by=lambda each: each.broker_id)


def test_the_first_owner_may_take_an_id_and_no_other() -> None:
    ann, bob = RoutePlace(CLOCK, HOME, ANN, CLOCK - 9), RoutePlace(CLOCK - 5, OTHER, BOB)
    assert may_take([], BOB)
    assert may_take([RoutePlace(CLOCK, HOME)], BOB)  # of a broker that tells no owner
    assert [may_take([ann, bob], each) for each in (ANN, BOB)] == [True, False]
    worker = RoutePlace(CLOCK + 9, OTHER, NO_OWNER)
    assert [may_take([ann, worker], each) for each in (ANN, BOB)] == [False, False]


def test_an_owner_takes_over_since_when_it_has_had_an_id() -> None:
    ann, bob = RoutePlace(CLOCK, HOME, ANN, CLOCK - 9), RoutePlace(CLOCK - 50, OTHER, BOB)
    again = RoutePlace(CLOCK + 5, OTHER, ANN)
    assert inherited([ann, bob, again], ANN) == CLOCK - 9
    assert inherited([again], ANN) == CLOCK + 5
    assert inherited([bob, RoutePlace(1, HOME)], ANN) == 0
    assert inherited([RoutePlace(1, HOME, NO_OWNER)], NO_OWNER) == 0
    old = RoutePlace(CLOCK, HOME, ANN, 1)
    assert inherited([old], ANN) == CLOCK - MAX_OWNED * 1000


@given(SOME)
def test_one_place_stays_in_whatever_order_they_are_known(places: list[RoutePlace]) -> None:
    chosen = standing(places)
    assert all(standing(each) is chosen for each in permutations(places))
    known = [each for each in places if each.owner is not None]
    owners = {each.owner for each in known}
    if len(owners) < 2:
        assert chosen == max(places)
    if known and chosen.owner is not None:
        assert may_take(places, chosen.owner)
        foreign = [each for each in known if is_foreign(each, chosen)]
        if chosen.owner != NO_OWNER and foreign:
            since = inherited(places, chosen.owner)
            assert all(since <= each.claim[0] for each in foreign)
            assert NO_OWNER not in owners


@given(SOME)
def test_the_place_that_stays_beats_each_other_one_with_a_known_owner(
    places: list[RoutePlace],
) -> None:
    """So of brokers that compare two at a time none ends the connection that stays."""
    if all(each.owner is not None for each in places) and len(places) == 2:
        one, two = places
        first = min(one.claim, two.claim)
        if is_foreign(one, two) and NO_OWNER not in (one.owner, two.owner):
            assert standing(places).claim == first


def test_suspended_sessions_follow_what_their_brokers_tell() -> None:
    places = SuspendedPlaces()
    one, two = RoutePlace(CLOCK, HOME, ANN), RoutePlace(CLOCK, OTHER, BOB)
    assert places.add(route_id(1), one)
    assert not places.add(route_id(1), one)
    assert places.add(route_id(1), two)
    assert places.add(route_id(2), one)
    assert (len(places), places.of(route_id(1)), places.of(route_id(9))) == (3, [one, two], [])
    assert places.has(route_id(2), HOME)
    assert not places.has(route_id(2), OTHER)
    assert sorted(places.ids()) == [route_id(1), route_id(1), route_id(2)]
    assert places.remove(route_id(2), HOME)
    assert not places.remove(route_id(2), HOME)
    assert not places.remove(route_id(2), bytes(16))
    assert len(places) == 2


def test_what_is_not_told_in_a_round_is_removed_in_slices() -> None:
    places = SuspendedPlaces()
    for number in range(8):
        places.add(route_id(number), RoutePlace(CLOCK, HOME, ANN))
    places.add(route_id(1), RoutePlace(CLOCK, OTHER, BOB))
    assert places.sweep(HOME, 5) == 0  # there is no round
    places.begin_round(HOME)
    places.add(route_id(1), RoutePlace(CLOCK, HOME, ANN))
    places.add(route_id(20), RoutePlace(CLOCK, HOME, ANN))
    places.remove(route_id(2), HOME)
    assert [places.sweep(HOME, 5), places.sweep(HOME, 5), places.sweep(HOME, 5)] == [5, 1, 0]
    assert sorted(places.ids()) == [route_id(1), route_id(1), route_id(20)]
    assert [places.drop(HOME, 1), places.drop(HOME, 1), places.drop(HOME, 1)] == [1, 1, 0]
    assert [places.drop(OTHER, 5), len(places)] == [1, 0]


def test_the_ids_of_a_zone_are_those_of_registrations_and_sessions_each_once() -> None:
    places = SuspendedPlaces()
    for number, home in ((1, HOME), (3, HOME), (3, OTHER), (4, OTHER)):
        places.add(route_id(number), RoutePlace(CLOCK, home, ANN))
    found = zone_ids([route_id(1), route_id(2)], [route_id(2), route_id(5), route_id(3)], places)
    assert found == [route_id(number) for number in (1, 2, 5, 3, 4)]
    assert zone_ids([], [], SuspendedPlaces()) == []


@pytest.mark.parametrize("since", [0, CLOCK - 7])
def test_a_suspended_session_is_told_as_a_route_of_a_reserved_service(since: int) -> None:
    route = with_owner(RouteAdd(HOME, route_id(1), CLOCK, SUSPENDED_SERVICE), ANN, since)
    read = parse_frame(route.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
    assert isinstance(read, RouteAdd)
    place = suspended_place(read)
    assert (place, place.owner, place.claim[0]) == (RoutePlace(CLOCK, HOME), ANN, since or CLOCK)
    assert suspended_place(RouteAdd(HOME, route_id(1), CLOCK, "x")).owner is None


def test_the_vector_of_the_page_is_what_it_says() -> None:
    gone = RouteRemove(HOME, route_id(1), CLOCK + 5)
    there = RouteAdd(HOME, route_id(1), CLOCK, SUSPENDED_SERVICE)
    frames = (gone, with_owner(there, ANN, CLOCK - 60_000))
    written = tuple(each.serialize(Dialect.SPECIFICATION) for each in frames)
    element = Element(ElementKind.CHANGES, HOME, INSTANCE, 11, written)
    assert VECTORS["suspended"] == element.serialize(compress=False)
    assert Element.parse(VECTORS["suspended"]) == element
