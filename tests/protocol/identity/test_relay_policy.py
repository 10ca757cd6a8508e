"""The policy of a relay: by the source or by the next node."""

from __future__ import annotations

import itertools

import pytest

from onward.protocol.identity import Identity, RelayPolicy, RelayStatus, SigningKey

ONE, TWO, THREE = (SigningKey(bytes((each,)) * 32).identity for each in (1, 2, 3))
OK, DENIED, NONE = (
    RelayStatus.OK,
    RelayStatus.PERMISSION_DENIED,
    RelayStatus.NO_RESERVATION,
)


def test_a_status_is_shown_by_its_name() -> None:
    assert f"{DENIED}, {OK!s}" == "PERMISSION_DENIED, OK"


def test_nothing_is_relayed_by_default() -> None:
    policy = RelayPolicy()
    for is_reserved in (False, True):
        assert policy.relays(ONE, TWO, is_reserved=is_reserved) is DENIED
    assert policy.reserves(ONE) is DENIED


@pytest.mark.parametrize(
    ("policy", "source", "following", "is_reserved", "status"),
    [
        (RelayPolicy(sources=frozenset({ONE})), ONE, TWO, False, OK),
        (RelayPolicy(sources=frozenset({ONE})), TWO, ONE, True, DENIED),
        (RelayPolicy(destinations=frozenset({TWO})), ONE, TWO, False, OK),
        (RelayPolicy(destinations=frozenset({TWO})), TWO, ONE, True, DENIED),
        (RelayPolicy(from_any=True), ONE, TWO, False, OK),
        (RelayPolicy(to_reserved=True), ONE, TWO, True, OK),
        (RelayPolicy(to_reserved=True), ONE, TWO, False, NONE),
        (RelayPolicy(to_reserved=True, sources=frozenset({ONE})), ONE, TWO, False, OK),
    ],
)
def test_a_message_is_relayed_by_its_source_or_its_next_node(
    policy: RelayPolicy,
    source: Identity,
    following: Identity,
    is_reserved: bool,
    status: RelayStatus,
) -> None:
    assert policy.relays(source, following, is_reserved=is_reserved) is status


def test_a_message_is_relayed_if_either_is_allowed() -> None:
    nodes = (ONE, TWO, THREE)
    policy = RelayPolicy(sources=frozenset({ONE}), destinations=frozenset({TWO}))
    for source, following in itertools.product(nodes, nodes):
        allowed = source == ONE or following == TWO
        assert (policy.relays(source, following, is_reserved=False) is OK) is allowed


def test_a_node_may_reserve_if_messages_may_be_relayed_to_it() -> None:
    assert RelayPolicy(to_reserved=True).reserves(ONE) is OK
    assert RelayPolicy(from_any=True).reserves(ONE) is OK
    by_node = RelayPolicy(destinations=frozenset({ONE}), sources=frozenset({TWO}))
    assert (by_node.reserves(ONE), by_node.reserves(TWO)) == (OK, DENIED)


def test_the_numbers_are_those_of_circuit_relay_v2() -> None:
    assert {each.name: each.value for each in RelayStatus} == {
        "OK": 100,
        "RESERVATION_REFUSED": 200,
        "RESOURCE_LIMIT_EXCEEDED": 201,
        "PERMISSION_DENIED": 202,
        "CONNECTION_FAILED": 203,
        "NO_RESERVATION": 204,
        "MALFORMED_MESSAGE": 400,
        "UNEXPECTED_MESSAGE": 401,
    }
