"""What zones ask each other about routes, as bytes."""

from __future__ import annotations

import pytest

from onward.protocol.broker import NO_OWNER, owner_text
from onward.protocol.cluster import (
    MAX_PLACES,
    OWNER_SALT_SIZE,
    ClusterFrameError,
    OwnedPlace,
    RoutePlace,
    answer_owned_places,
    answer_places,
    parse_owned_places,
    parse_places,
    salted_owner,
)
from tests.protocol.cluster.streams import CLOCK, HOME, OTHER, route_id
from tests.protocol.cluster.test_elements import VECTORS

NOWHERE: dict[bytes, RoutePlace] = {}
HERE, THERE = RoutePlace(CLOCK, HOME), RoutePlace(CLOCK + 1, OTHER)
SALT = bytes(range(16, 32))
ANN = owner_text("ann", "token", "")


def test_the_vectors_of_the_page_are_what_they_say() -> None:
    request = route_id(1) + route_id(2)
    assert VECTORS["places-of"] == request
    answer = answer_places(request, {route_id(2): THERE}.get)
    assert VECTORS["places"] == answer
    assert parse_places(answer, 2) == [None, THERE]


def test_the_vectors_with_owners_are_what_they_say() -> None:
    request = SALT + b"".join(map(route_id, (1, 2, 3)))
    assert VECTORS["owners-of"] == request
    there = {route_id(2): RoutePlace(CLOCK + 1, OTHER, ANN), route_id(3): HERE}
    answer = answer_owned_places(request, there.get)
    assert VECTORS["owners"] == answer
    owned, unknown = OwnedPlace(THERE, salted_owner(ANN, SALT)), OwnedPlace(HERE, None)
    assert parse_owned_places(answer, 3) == [None, owned, unknown]


def test_an_owner_is_compared_with_a_salt_and_not_shown() -> None:
    told = salted_owner(ANN, SALT)
    assert len(told) == 16
    assert ANN.encode() not in told
    others = {salted_owner(ANN, bytes(16)), salted_owner(NO_OWNER, SALT), salted_owner("x", SALT)}
    assert len(others | {told}) == 4


@pytest.mark.parametrize("size", [0, 1, 15, 17, 16 * MAX_PLACES + 16])
def test_what_is_no_request_is_refused(size: int) -> None:
    with pytest.raises(ClusterFrameError, match="for the ids of routes"):
        answer_places(bytes(size), NOWHERE.get)
    with pytest.raises(ClusterFrameError, match="for the ids of routes"):
        answer_owned_places(bytes(OWNER_SALT_SIZE + size), NOWHERE.get)


@pytest.mark.parametrize("size", range(OWNER_SALT_SIZE))
def test_a_salt_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ClusterFrameError, match="0 bytes for the ids of routes"):
        answer_owned_places(bytes(size), NOWHERE.get)


def test_no_beginning_and_no_longer_one_is_an_answer() -> None:
    answer = answer_owned_places(SALT + route_id(1), {route_id(1): THERE}.get)
    for wrong in (*(answer[:size] for size in range(len(answer))), answer + b"\0", answer * 2):
        with pytest.raises(ClusterFrameError, match="for the places of 1 route"):
            parse_owned_places(wrong, 1)
