"""Routes in two zones: what is asked, and which of them is closed."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.cluster import (
    MAX_PLACES,
    Beaten,
    ClusterFrameError,
    ClusterLimits,
    DuplicateSearch,
    DuplicateSearchStatistics,
    RoutePlace,
    answer_places,
    parse_places,
)
from tests.protocol.cluster.streams import CLOCK, HOME, OTHER, route_id
from tests.protocol.cluster.test_elements import VECTORS

NOWHERE: dict[bytes, RoutePlace] = {}
HERE, THERE = RoutePlace(CLOCK, HOME), RoutePlace(CLOCK + 1, OTHER)


def test_the_vectors_of_the_page_are_what_they_say() -> None:
    request = route_id(1) + route_id(2)
    assert VECTORS["places-of"] == request
    answer = answer_places(request, {route_id(2): THERE}.get)
    assert VECTORS["places"] == answer
    assert parse_places(answer, 2) == [None, THERE]


def test_an_own_route_that_is_older_is_beaten() -> None:
    search = DuplicateSearch()
    assert search.next("b") is None
    search.suspect("b", map(route_id, (1, 2, 3, 4, 1)))
    request = search.next("b") or b""
    assert request == b"".join(map(route_id, (1, 2, 3, 4)))
    search.suspect("b", [route_id(9)])
    assert search.next("b") is None
    there = {route_id(n): THERE for n in (1, 2, 3)}
    own = {route_id(1): HERE, route_id(2): RoutePlace(CLOCK + 2, HOME), route_id(4): HERE}
    answer = answer_places(request, there.get)
    assert search.answered("b", answer, own.get, CLOCK) == [Beaten(route_id(1), THERE)]
    assert search.statistics() == DuplicateSearchStatistics(1, 4, 1, 0, 0)
    assert search.next("b") == route_id(9)


@pytest.mark.parametrize("ahead", [1001, 1 << 62, (1 << 64) - 1 - CLOCK])
def test_a_timestamp_too_far_ahead_ends_no_connection(ahead: int) -> None:
    """Else a bad clock would own the route for ever, or a lie have a time too large for frames."""
    search = DuplicateSearch(ClusterLimits(max_ahead=1.0))
    search.suspect("b", map(route_id, (1, 2)))
    request = search.next("b") or b""
    there = {
        route_id(1): RoutePlace(CLOCK + ahead, OTHER),
        route_id(2): RoutePlace(CLOCK + 1000, OTHER),
    }
    own = {route_id(1): HERE, route_id(2): HERE}
    beaten = search.answered("b", answer_places(request, there.get), own.get, CLOCK)
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
        request = search.next(other)
        assert request is not None
        answer = answer_places(request, {route_id(1): places[other]}.get)
        beaten += len(search.answered(other, answer, {route_id(1): places[own]}.get, 1))
    assert beaten == (one != two)


def test_a_request_that_fails_is_made_again_and_one_of_a_lost_link_is_not() -> None:
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)])
    assert search.next("b") == route_id(1)
    search.failed("b")
    assert search.next("b") == route_id(1)
    search.suspect("b", [route_id(2)])
    assert search.statistics().waiting == 2
    search.forget("b")
    assert search.next("b") is None
    assert search.statistics().waiting == 0
    # The answer comes late.
    assert search.answered("b", b"", NOWHERE.get, CLOCK) == []


def test_no_more_ids_are_asked_for_than_the_limits() -> None:
    search = DuplicateSearch(ClusterLimits(duplicate_ids=2000))
    search.suspect("b", map(route_id, range(2500)))
    assert search.statistics().dropped == 500
    request = search.next("b")
    assert request is not None
    assert len(request) == 16 * MAX_PLACES
    assert request.startswith(route_id(500))
    assert search.statistics().waiting == 2000


@pytest.mark.parametrize("size", [0, 1, 15, 17, 16 * MAX_PLACES + 16])
def test_what_is_no_request_is_refused(size: int) -> None:
    with pytest.raises(ClusterFrameError, match="for the ids of routes"):
        answer_places(bytes(size), NOWHERE.get)


@pytest.mark.parametrize("size", [0, 23, 25, 48])
def test_what_is_no_answer_is_refused_and_nothing_is_beaten(size: int) -> None:
    search = DuplicateSearch()
    search.suspect("b", [route_id(1)])
    search.next("b")
    with pytest.raises(ClusterFrameError, match="for the places of 1 route"):
        search.answered("b", bytes(size), NOWHERE.get, CLOCK)
    assert search.statistics().beaten == 0
