"""What zones ask each other about routes, as bytes."""

from __future__ import annotations

from dataclasses import replace
from struct import Struct

import pytest

from onward.protocol.broker import MAX_OWNED, NO_OWNER, owner_text
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
SALT, OTHER_SALT = bytes(range(16, 32)), bytes(range(32, 48))
OWNED = Struct(">Q16s16sQ")
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
    owned, unknown = replace(THERE, owner=ANN, since=CLOCK - 60_000), HERE
    there = {route_id(2): owned, route_id(3): unknown}
    answer = answer_owned_places(request, there.get, OTHER_SALT)
    assert VECTORS["owners"] == answer
    salt, (none, one, other) = parse_owned_places(answer, 3)
    assert (salt, none) == (OTHER_SALT, None)
    assert one == OwnedPlace(THERE, salted_owner(ANN, SALT + OTHER_SALT))
    assert other == OwnedPlace(HERE, None)
    assert [each.place.claim for each in (one, other) if each] == [owned.claim, unknown.claim]


def test_both_ends_choose_a_salt() -> None:
    """One that is chosen by one end alone would let it have a table of principals."""
    place, request = replace(THERE, owner=ANN), SALT + route_id(1)
    answers = [
        answer_owned_places(request, {route_id(1): place}.get, salt) for salt in (SALT, OTHER_SALT)
    ]
    told = [parse_owned_places(each, 1)[1][0] for each in answers]
    assert told[0] != told[1]


@pytest.mark.parametrize("since", [0, CLOCK + 2, 1, (1 << 64) - 1])
def test_since_when_an_owner_has_an_id_is_within_bounds(since: int) -> None:
    place = OWNED.pack(CLOCK, HOME, b"o" * 16, since)
    _, (told,) = parse_owned_places(SALT + place, 1)
    assert told is not None
    assert told.place.claim == ((CLOCK - MAX_OWNED * 1000 if since == 1 else CLOCK), HOME)


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
        answer_owned_places(bytes(OWNER_SALT_SIZE + size), NOWHERE.get, SALT)


@pytest.mark.parametrize("size", range(OWNER_SALT_SIZE))
def test_a_salt_that_is_cut_short_is_refused(size: int) -> None:
    with pytest.raises(ClusterFrameError, match="0 bytes for the ids of routes"):
        answer_owned_places(bytes(size), NOWHERE.get, SALT)


def test_no_beginning_and_no_longer_one_is_an_answer() -> None:
    answer = answer_owned_places(SALT + route_id(1), {route_id(1): THERE}.get, SALT)
    for wrong in (*(answer[:size] for size in range(len(answer))), answer + b"\0", answer * 2):
        with pytest.raises(ClusterFrameError, match="for the places of 1 route"):
            parse_owned_places(wrong, 1)
