"""The owner of a route id: who may have it, and which of several registrations stays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cmp_to_key
from itertools import combinations, permutations

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


def beats(one: RoutePlace, other: RoutePlace) -> bool:
    """Whether one of two stays, as brokers decide that know of no other."""
    return standing((one, other)) is one


def compared(one: RoutePlace, other: RoutePlace) -> int:
    """Return where one of two is in the order: before the other one if it beats that."""
    return -1 if beats(one, other) else 1


def left(places: Sequence[RoutePlace], told: Iterable[tuple[int, int]]) -> list[RoutePlace]:
    """Return what is left where each home broker decides on what it was told, by pairs.

    Args:
        places: The places, by number.
        told: Which home broker was told of which place before that was ended.
    """
    ended = {one for one, other in told if not beats(places[one], places[other])}
    return [each for number, each in enumerate(places) if number not in ended]


def owned(number: int, owner: int, since: int, age: int, *, first: bool) -> RoutePlace:
    """Return a place of an owner that has had the id since a time of its own."""
    text = NO_OWNER if first else owner_text(str(owner), "token", "")
    return RoutePlace(100 + age, bytes([number]) * 16, text, since=10 * since + owner)


@st.composite
def owners(draw: st.DrawFn) -> list[RoutePlace]:
    """Draw places of some owners, each of which has taken its time over as it connected anew."""
    count = draw(st.integers(1, 3))
    worker = draw(st.booleans())
    times = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count))
    some = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 9)), min_size=1))[:5]
    return [
        owned(number, owner, times[owner], age, first=worker and not owner)
        for number, (owner, age) in enumerate(some)
    ]


@given(owners())
def test_by_pairs_the_same_place_stays_as_by_all_of_them(places: list[RoutePlace]) -> None:
    """So nothing that brokers decide before they know of all ends the one that stays."""
    ordered = sorted(places, key=cmp_to_key(compared))
    for one, other in combinations(ordered, 2):
        assert beats(one, other)
        assert not beats(other, one)
    assert standing(places) is ordered[0]
    every = list(permutations(range(len(places)), 2))
    assert left(places, every) == [ordered[0]]
    assert ordered[0] in left(places, every[::2])


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(None, id="at a broker without rules"),
        pytest.param(ANN, id="of the first owner, which was cut off from its first connection"),
    ],
)
def test_of_three_each_may_lose_to_another_one(owner: str | None) -> None:
    """Then the id is free, and the next registration has it: nothing goes on in a circle."""
    first = RoutePlace(CLOCK, bytes([1]) * 16, ANN)
    rival = RoutePlace(CLOCK + 1, bytes([2]) * 16, BOB)
    if owner is None:
        rival = replace(rival, timestamp=CLOCK + 3, since=CLOCK + 1)
    newer = RoutePlace(CLOCK + 2, bytes([3]) * 16, owner)
    assert [beats(newer, first), beats(first, rival), beats(rival, newer)] == [True] * 3
    # Brokers that know of all three before they end one keep one, whatever the order.
    places = [first, rival, newer]
    assert all(standing(each) is newer for each in permutations(places))
    every = [*permutations(range(3), 2)]
    assert left(places, every) == []
    assert all(may_take([], each) for each in (ANN, BOB))
    # A message that comes later than an end tells of one place less, and one is left.
    assert [left(places, set(every) - {pair}) for pair in ((0, 2), (1, 0), (2, 1))] == [
        [first],
        [rival],
        [newer],
    ]


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
