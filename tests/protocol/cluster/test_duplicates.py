"""Routes in two zones: what is asked, and which of them is closed."""

from __future__ import annotations

from typing import TypeGuard

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import MAX_OWNED, NO_OWNER, owner_text
from onward.protocol.cluster import (
    MAX_PLACES,
    AskLater,
    Beaten,
    ClusterFrameError,
    ClusterLimits,
    DuplicateRequest,
    DuplicateSearch,
    DuplicateSearchStatistics,
    Earlier,
    RoutePlace,
    answer_owned_places,
    answer_places,
)
from tests.protocol.cluster.streams import CLOCK, HOME, OTHER, route_id

NOWHERE: dict[bytes, RoutePlace] = {}
SALT, OTHER_SALT = bytes(range(16)), bytes(range(16, 32))
ANN, BOB = owner_text("ann", "token", ""), owner_text("bob", "token", "")
HERE, THERE = RoutePlace(CLOCK, HOME), RoutePlace(CLOCK + 1, OTHER)


def made(request: DuplicateRequest | None) -> DuplicateRequest:
    """Return a request that is there."""
    assert request is not None
    return request


def test_an_own_route_that_is_older_is_beaten() -> None:
    search = DuplicateSearch()
    assert search.next("b") is None
    search.suspect("b", map(route_id, (1, 2, 3, 4, 1)))
    request = made(search.next("b"))
    assert request.data == b"".join(map(route_id, (1, 2, 3, 4)))
    search.suspect("b", [route_id(9)])
    assert search.next("b") is None
    there = {route_id(n): THERE for n in (1, 2, 3)}
    own = {route_id(1): HERE, route_id(2): RoutePlace(CLOCK + 2, HOME), route_id(4): HERE}
    answer = answer_places(request.data, there.get)
    assert search.answered(request, answer, own.get, CLOCK) == [Beaten(route_id(1), THERE)]
    assert search.statistics() == DuplicateSearchStatistics(1, 4, 1, 0, 0)
    assert made(search.next("b")).data == route_id(9)


@pytest.mark.parametrize("ahead", [1001, 1 << 62, (1 << 64) - 1 - CLOCK])
def test_a_timestamp_too_far_ahead_ends_no_connection(ahead: int) -> None:
    """Else a bad clock would own the route for ever, or a lie have a time too large for frames."""
    search = DuplicateSearch(ClusterLimits(max_ahead=1.0))
    search.suspect("b", map(route_id, (1, 2)))
    request = made(search.next("b"))
    there = {
        route_id(1): RoutePlace(CLOCK + ahead, OTHER),
        route_id(2): RoutePlace(CLOCK + 1000, OTHER),
    }
    own = {route_id(1): HERE, route_id(2): HERE}
    beaten = search.answered(request, answer_places(request.data, there.get), own.get, CLOCK)
    assert [each.route_id for each in beaten] == [route_id(2)]
    assert search.statistics().refused == 1


@given(
    st.tuples(st.integers(1, 3), st.binary(min_size=16, max_size=16)),
    st.tuples(st.integers(1, 3), st.binary(min_size=16, max_size=16)),
)
def test_one_of_two_is_beaten(one: tuple[int, bytes], two: tuple[int, bytes]) -> None:
    """Both zones ask each other: one of the two connections is closed, and never both."""
    places = {"a": RoutePlace(*one), "b": RoutePlace(*two)}
    beaten = 0
    for own, other in (("a", "b"), ("b", "a")):
        search = DuplicateSearch()
        search.suspect(other, [route_id(1)])
        request = made(search.next(other))
        answer = answer_places(request.data, {route_id(1): places[other]}.get)
        beaten += len(search.answered(request, answer, {route_id(1): places[own]}.get, 1))
    assert beaten == (one != two)


def test_a_request_that_fails_is_made_again_and_one_of_a_lost_link_is_not() -> None:
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)])
    request = made(search.next("b"))
    assert request.data == route_id(1)
    search.failed(request)
    request = made(search.next("b"))
    assert request.data == route_id(1)
    search.suspect("b", [route_id(2)])
    assert search.statistics().waiting == 2
    search.forget("b")
    assert search.next("b") is None
    assert search.statistics().waiting == 0
    # The answer comes late.
    assert search.answered(request, b"", NOWHERE.get, CLOCK) == []


def test_the_end_of_a_request_that_was_forgotten_ends_no_other() -> None:
    """The zone is asked for another id by then, over another link."""
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)])
    before = made(search.next("b"))
    search.forget("b")
    search.suspect("b", [route_id(2)])
    request = made(search.next("b"))
    own = {route_id(1): HERE, route_id(2): HERE}
    search.failed(before)
    assert search.next("b") is None
    answer = answer_places(before.data, {route_id(1): THERE}.get)
    assert search.answered(before, answer, own.get, CLOCK) == []
    assert search.next("b") is None
    answer = answer_places(request.data, {route_id(2): THERE}.get)
    assert search.answered(request, answer, own.get, CLOCK) == [Beaten(route_id(2), THERE)]
    # It has ended.
    assert search.answered(request, answer, own.get, CLOCK) == []
    search.failed(request)
    assert search.next("b") is None
    assert search.statistics().waiting == 0


def test_a_zone_that_does_not_answer_is_asked_for_an_id_for_a_time() -> None:
    search = DuplicateSearch(ClusterLimits(duplicate_hold=60.0))
    search.suspect("b", map(route_id, (1, 2)), now=10.0)
    request = made(search.next("b", now=10.0))
    assert request.data == route_id(1) + route_id(2)
    search.suspect("b", map(route_id, (3, 2)), now=20.0)
    assert search.statistics(30.0).oldest == 20.0
    # One that is found again while it is asked for is asked for from when it was found first.
    search.failed(request)
    request = made(search.next("b", now=69.9))
    assert request.data == b"".join(map(route_id, (1, 2, 3)))
    search.failed(request)
    assert search.statistics(70.0).overdue == 0
    request = made(search.next("b", now=70.0))
    assert request.data == route_id(3)
    figures = search.statistics(75.0)
    assert (figures.waiting, figures.overdue, figures.oldest) == (1, 2, 55.0)
    search.failed(request)
    assert search.next("b", now=80.0) is None
    figures = search.statistics(80.0)
    assert (figures.waiting, figures.overdue, figures.oldest) == (0, 3, 0.0)
    # It is asked for anew once it is found again.
    search.suspect("b", [route_id(1)], now=90.0)
    assert made(search.next("b", now=149.0)).data == route_id(1)


def test_at_the_limit_those_of_a_failed_request_are_the_oldest() -> None:
    search = DuplicateSearch(ClusterLimits(duplicate_ids=2))
    search.suspect("b", map(route_id, (1, 2)))
    request = made(search.next("b"))
    search.suspect("b", [route_id(3)])
    search.failed(request)
    assert made(search.next("b")).data == route_id(2) + route_id(3)
    assert search.statistics().dropped == 1


def test_no_more_ids_are_asked_for_than_the_limits() -> None:
    search = DuplicateSearch(ClusterLimits(duplicate_ids=2000))
    search.suspect("b", map(route_id, range(2500)))
    assert search.statistics().dropped == 500
    request = made(search.next("b"))
    assert len(request.data) == 16 * MAX_PLACES
    assert request.data.startswith(route_id(500))
    assert search.statistics().waiting == 2000


@pytest.mark.parametrize("size", [0, 23, 25, 48])
def test_what_is_no_answer_is_refused_and_nothing_is_beaten(size: int) -> None:
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)])
    request = made(search.next("b"))
    with pytest.raises(ClusterFrameError, match="for the places of 1 route"):
        search.answered(request, bytes(size), NOWHERE.get, CLOCK)
    assert search.statistics().beaten == 0
    # Another broker of the zone can be asked.
    assert made(search.next("b")).data == route_id(1)


def asked(
    search: DuplicateSearch,
    own: RoutePlace,
    there: RoutePlace,
    *,
    now: float = 0.0,
    number: int = 1,
) -> list[Beaten]:
    """Ask another zone for the owner of one route, to the end; return what is beaten."""
    found = met(search, own, there, now=now, number=number)
    while found and isinstance(found[0], AskLater):
        found = met(search, own, there, now=now, number=number, times=found[0].times)
    return [each for each in found if is_beaten(each)]


def is_beaten(found: Beaten | Earlier | AskLater) -> TypeGuard[Beaten]:
    return isinstance(found, Beaten)


def met(
    search: DuplicateSearch,
    own: RoutePlace | None,
    there: RoutePlace | None,
    *,
    now: float = 0.0,
    number: int = 1,
    times: int = 0,
) -> list[Beaten | Earlier | AskLater]:
    """Ask another zone for the owner of one route; return what that means."""
    search.suspect("b", [route_id(number)], times)
    request = made(search.next("b", SALT))
    answer = answer_owned_places(request.data, {route_id(number): there}.get, OTHER_SALT)
    return search.answered(request, answer, {route_id(number): own}.get, CLOCK, now)


OWNERS = st.sampled_from([None, NO_OWNER, ANN, BOB])
PLACES = st.builds(
    RoutePlace,
    st.integers(1, 3),
    st.binary(min_size=16, max_size=16),
    OWNERS,
    since=st.integers(0, 4),
)


def first(place: RoutePlace) -> tuple[int, bytes]:
    """Return when the owner of a route has had it first."""
    return min(place.since or place.timestamp, place.timestamp), place.broker_id


@given(PLACES, PLACES)
def test_of_two_owners_the_first_one_keeps_the_route(one: RoutePlace, two: RoutePlace) -> None:
    """Both zones decide alike, though each has asked with a salt of its own."""
    for own, other in ((one, two), (two, one)):
        beaten = asked(DuplicateSearch(), own, other)
        unknown = own.owner is None or other.owner is None
        if unknown or own.owner == other.owner:
            assert bool(beaten) == (own < other)
        else:
            workers = NO_OWNER in (own.owner, other.owner)
            earlier = other.owner == NO_OWNER if workers else first(other) < first(own)
            assert bool(beaten) == earlier
            assert all(each.foreign for each in beaten)


def test_an_id_of_another_principal_is_refused_for_a_while() -> None:
    search = DuplicateSearch(ClusterLimits(taken_ids=2, taken_hold=30.0))
    mine, first = RoutePlace(CLOCK, HOME, BOB), RoutePlace(CLOCK - 5, OTHER, ANN)
    assert not search.is_taken(route_id(1), BOB, 0.0)
    assert asked(search, mine, first) == [Beaten(route_id(1), first, foreign=True)]
    assert search.is_taken(route_id(1), BOB, 29.0)
    assert not search.is_taken(route_id(1), ANN, 29.0)
    assert not search.is_taken(route_id(2), BOB, 29.0)
    found = search.statistics()
    assert (found.beaten, found.foreign, found.taken, found.forgotten) == (1, 1, 1, 0)
    assert not search.is_taken(route_id(1), BOB, 30.0)
    assert not search.is_taken(route_id(1), BOB, 60.0)
    assert search.statistics().taken == 0
    for number in (1, 2, 1, 3):
        asked(search, mine, first, now=61.0, number=number)
    taken = [search.is_taken(route_id(number), BOB, 62.0) for number in (1, 2, 3)]
    assert taken == [True, False, True]
    assert search.statistics().forgotten == 1
    # What is over its time makes room, and was not forgotten.
    asked(search, mine, first, now=190.0, number=4)
    found = search.statistics()
    assert (found.taken, found.forgotten) == (1, 1)


def test_an_id_is_refused_for_longer_each_time_that_it_is_found_taken() -> None:
    search = DuplicateSearch(ClusterLimits(taken_hold=10.0, longest_taken_hold=35.0))
    mine, first = RoutePlace(CLOCK, HOME, BOB), RoutePlace(CLOCK - 5, OTHER, ANN)
    assert search.ask_again(route_id(1), 0.0) == ""
    asked(search, mine, first)
    # A rival that comes back behind each hold has the id for as long as an answer takes.
    now = 0.0
    for hold in (10.0, 20.0, 35.0, 35.0):
        assert search.is_taken(route_id(1), BOB, now + hold - 0.1)
        now += hold + 1.0
        assert not search.is_taken(route_id(1), BOB, now)
        asked(search, mine, first, now=now)


def test_what_is_over_is_forgotten_behind_what_is_refused_for_longer() -> None:
    limits = ClusterLimits(taken_ids=2, taken_hold=10.0, longest_taken_hold=40.0)
    search = DuplicateSearch(limits)
    mine, first = RoutePlace(CLOCK, HOME, BOB), RoutePlace(CLOCK - 5, OTHER, ANN)
    for now in (0.0, 1.0, 2.0, 3.0):
        asked(search, mine, first, now=now)  # for 40 s in the end
    asked(search, mine, first, now=4.0, number=2)
    for now, count in ((23.9, 2), (24.0, 1), (82.9, 1), (83.0, 0)):
        search.is_taken(route_id(3), BOB, now)
        assert search.statistics().taken == count
    # At the limit the one that was told first is forgotten, and counted.
    for now in (90.0, 91.0, 92.0):
        asked(search, mine, first, now=now)
    asked(search, mine, first, now=93.0, number=2)
    assert search.statistics().forgotten == 0
    for number in (3, 4):
        asked(search, mine, first, now=113.0, number=number)
    taken = [search.is_taken(route_id(number), BOB, 114.0) for number in (1, 2, 3, 4)]
    assert taken == [False, False, True, True]
    assert search.statistics().forgotten == 1


def test_a_zone_is_asked_again_for_an_id_that_is_refused() -> None:
    search = DuplicateSearch(ClusterLimits(taken_hold=10.0))
    mine, first = RoutePlace(CLOCK, HOME, BOB), RoutePlace(CLOCK - 5, OTHER, ANN)
    assert search.taken_in(route_id(1)) == ""
    asked(search, mine, first)
    assert search.taken_in(route_id(1)) == "b"
    assert search.ask_again(route_id(1), 0.9) == ""  # it has just said so
    assert search.next("b", SALT) is None
    for now in (9.0, 25.0):
        assert search.ask_again(route_id(1), now) == "b"
        assert met(search, None, first, now=now) == []
    assert search.is_taken(route_id(1), BOB, 60.0)
    # Without rules there by now, nothing is said of the owner; another zone knows nothing of it.
    search.suspect("b", [route_id(1)])
    request = made(search.next("b"))
    answer = answer_places(request.data, {route_id(1): first}.get)
    assert search.answered(request, answer, NOWHERE.get, CLOCK, 60.0) == []
    search.suspect("c", [route_id(1)])
    request = made(search.next("c", SALT))
    answer = answer_owned_places(request.data, NOWHERE.get, OTHER_SALT)
    assert search.answered(request, answer, NOWHERE.get, CLOCK, 60.0) == []
    assert search.is_taken(route_id(1), BOB, 60.0)
    # The owner has gone: it is free at once.
    assert met(search, None, None, now=61.0) == []
    assert not search.is_taken(route_id(1), BOB, 61.0)
    assert search.statistics().taken == 0


def test_an_owner_that_moves_to_another_zone_has_had_its_id_since_then() -> None:
    mine = RoutePlace(CLOCK, HOME, ANN)
    there = RoutePlace(CLOCK - 5, OTHER, ANN, since=CLOCK - 90)
    assert met(DuplicateSearch(), mine, there) == [Earlier(route_id(1), CLOCK - 90)]
    known = RoutePlace(CLOCK, HOME, ANN, since=CLOCK - 90)
    assert met(DuplicateSearch(), known, there) == []
    assert met(DuplicateSearch(), RoutePlace(CLOCK, HOME), there) == []
    # No further back than a registration may reach, and told once.
    long_ago = RoutePlace(CLOCK - 5, OTHER, ANN, since=1)
    (found,) = met(DuplicateSearch(), mine, long_ago)
    assert found == Earlier(route_id(1), CLOCK - MAX_OWNED * 1000)
    again = RoutePlace(CLOCK, HOME, ANN, since=CLOCK - MAX_OWNED * 1000)
    assert met(DuplicateSearch(), again, long_ago) == []


def test_an_owner_that_connects_anew_is_the_first_one_still() -> None:
    mine = RoutePlace(CLOCK, HOME, ANN, since=CLOCK - 90)
    other = RoutePlace(CLOCK - 60, OTHER, BOB)
    assert asked(DuplicateSearch(), mine, other) == []
    (beaten,) = asked(DuplicateSearch(), other, mine)
    assert (beaten.foreign, beaten.place.timestamp) == (True, CLOCK)
    # For one owner the newer registration counts, whatever was before.
    again = RoutePlace(CLOCK + 5, OTHER, ANN)
    assert [each.foreign for each in asked(DuplicateSearch(), mine, again)] == [False]


def test_the_owner_itself_moves() -> None:
    search = DuplicateSearch()
    mine, later = RoutePlace(CLOCK, HOME, ANN), RoutePlace(CLOCK + 5, OTHER, ANN)
    assert asked(search, mine, later) == [Beaten(route_id(1), later)]
    assert not search.is_taken(route_id(1), ANN, 0.0)
    assert search.statistics().foreign == 0


def test_an_owner_that_moves_away_takes_its_time_along() -> None:
    """Its route is closed when the other zone has that time, or does not ask for it in a while."""
    search = DuplicateSearch()
    mine = RoutePlace(CLOCK, HOME, ANN, since=CLOCK - 90)
    new, told = (RoutePlace(CLOCK + 5, OTHER, ANN, since=each) for each in (0, CLOCK - 90))
    found = met(search, mine, new)
    assert found == [AskLater(route_id(1), 1, 1.0)]
    assert met(search, mine, told, times=1) == [Beaten(route_id(1), told)]
    assert [met(search, mine, new, times=n) for n in (1, 2)] == [
        [AskLater(route_id(1), n, 1.0)] for n in (2, 3)
    ]
    assert met(search, mine, new, times=3) == [Beaten(route_id(1), new)]
    assert met(search, mine, None, times=1) == []
    assert (search.statistics().beaten, search.statistics().asked) == (2, 6)
    # A time is not taken along further than it may reach, and another zone may tell none.
    old = RoutePlace(CLOCK, HOME, ANN, since=1)
    far = RoutePlace(CLOCK + 5, OTHER, ANN, since=CLOCK + 5 - MAX_OWNED * 1000)
    assert met(search, old, far) == [Beaten(route_id(1), far)]
    assert met(search, mine, THERE) == [Beaten(route_id(1), THERE)]
    # A timestamp too far ahead ends no connection, now or later.
    assert met(search, mine, RoutePlace(CLOCK + 3_600_001, OTHER, ANN)) == []


def test_how_often_an_id_was_asked_for_is_not_forgotten() -> None:
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)], 3)
    search.suspect("b", [route_id(1), route_id(2)])
    search.failed(made(search.next("b", SALT)))
    request = made(search.next("b", SALT))
    new = RoutePlace(CLOCK + 5, OTHER, ANN)
    mine = RoutePlace(CLOCK, HOME, ANN)
    answer = answer_owned_places(request.data, lambda _: new, OTHER_SALT)
    assert search.answered(request, answer, lambda _: mine, CLOCK) == [
        Beaten(route_id(1), new),
        AskLater(route_id(2), 1),
    ]


def test_a_worker_of_a_broker_with_a_time_too_far_ahead_ends_no_connection() -> None:
    search = DuplicateSearch(ClusterLimits(max_ahead=1.0))
    assert asked(search, HERE, RoutePlace(CLOCK + 1001, OTHER, NO_OWNER)) == []
    mine = RoutePlace(CLOCK, HOME, BOB)
    assert asked(search, mine, RoutePlace(CLOCK + 1001, OTHER, NO_OWNER)) == []
    assert search.statistics().refused == 2
