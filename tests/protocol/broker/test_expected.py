"""Routes that are known of and not there yet: indexed, and in no answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.broker import RoutingTable, SnapshotRoute, TagIndex, WellKnownKey, tag_set

NOW = 1_000_000
BROKER = bytes(16)
REGION = int(WellKnownKey.REGION)


def rid(number: int) -> bytes:
    return number.to_bytes(16)


def expected(number: int, region: str = "eu", weight: float = 1.0) -> SnapshotRoute:
    return SnapshotRoute(rid(number), "echo", ((REGION, region),), weight=weight)


def found(table: RoutingTable[str], region: str) -> set[str]:
    return {entry.target for entry in table.candidates(tag_set([(REGION, region)]))}


def add(table: RoutingTable[str], number: int, region: str = "eu") -> None:
    tags = ((REGION, region),)
    assert table.add(rid(number), BROKER, "echo", tags, NOW, f"r{number}", now=NOW).applied


def test_nothing_is_routed_to_what_is_expected() -> None:
    table = RoutingTable[str]()
    query = tag_set([(REGION, "eu")])
    assert not table.expects(query)
    assert table.expect(expected(1, weight=2.0))
    assert found(table, "eu") == set()
    assert table.pick(query, 0) is None
    assert table.count(query) == 0
    assert len(table) == 0
    assert rid(1) not in table
    assert table.expects(query)
    assert not table.expects(tag_set([(REGION, "us")]))
    assert [(each.route_id, each.weight) for each in table.expected()] == [(rid(1), 2.0)]
    assert table.statistics().expected == table.statistics().index.hidden == 1
    assert table.is_expected(rid(1))
    assert not table.is_expected(rid(2))
    assert table.expecting == 1


def test_a_route_that_comes_is_found_by_who_asked_before() -> None:
    table = RoutingTable[str]()
    table.expect(expected(1))
    assert found(table, "eu") == set()
    before = table.statistics().index
    add(table, 1)
    assert found(table, "eu") == {"r1"}
    after = table.statistics()
    assert (after.expected, after.index.hidden) == (0, 0)
    assert after.index.numbers == before.numbers == 1
    assert not table.expects(tag_set([(REGION, "eu")]))


def test_a_route_that_comes_with_other_tags_has_those() -> None:
    table = RoutingTable[str]()
    table.expect(expected(1, "eu"))
    assert found(table, "eu") == found(table, "us") == set()
    add(table, 1, "us")
    assert found(table, "eu") == set()
    assert found(table, "us") == {"r1"}
    assert not list(table.expected())


def test_what_is_there_is_not_expected() -> None:
    table = RoutingTable[str]()
    add(table, 1)
    assert not table.expect(expected(1))
    assert table.expect(expected(2))
    assert not table.expect(expected(2))
    assert found(table, "eu") == {"r1"}


def test_who_was_expected_longest_is_forgotten_first() -> None:
    table = RoutingTable[str]()
    for number in (3, 1, 2):
        table.expect(expected(number))
    assert table.forget_expected(2) == 2
    assert [each.route_id for each in table.expected()] == [rid(2)]
    assert table.forget_expected(5) == 1
    assert table.forget_expected(5) == 0
    assert table.statistics().index.routes == 0
    add(table, 1)
    assert found(table, "eu") == {"r1"}


def test_a_lasting_one_is_not_forgotten_with_the_others() -> None:
    table = RoutingTable[str]()
    for number in (1, 2, 3):
        assert table.expect(expected(number), lasting=number < 3)
    assert not table.expect(expected(1))
    assert table.forget_expected(5) == 1
    assert [each.route_id for each in table.expected()] == [rid(1), rid(2)]
    assert table.expecting == table.statistics().expected == 2
    assert table.forget(rid(1))
    assert not table.forget(rid(1))
    assert not table.is_expected(rid(1))
    add(table, 2)
    assert found(table, "eu") == {"r2"}
    assert not table.expecting


def test_there_is_no_hiding_what_is_not_there() -> None:
    index = TagIndex()
    for change in (index.hide, index.reveal):
        with pytest.raises(KeyError):
            change(0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["expect", "add", "remove", "forget", "ask"]),
        st.integers(0, 3),
        st.sampled_from(["eu", "us"]),
    ),
    max_size=40,
)


@settings(deadline=None)
@given(steps)
def test_a_table_that_expects_answers_as_one_that_does_not(
    taken: list[tuple[str, int, str]],
) -> None:
    # Whatever is expected, who is found is who has been added and not removed.
    table, plain = RoutingTable[str](), RoutingTable[str]()
    for at, (step, number, region) in enumerate(taken):
        if step == "expect":
            table.expect(expected(number, region))
        elif step == "forget":
            table.forget_expected(1)
        elif step == "ask":
            assert found(table, region) == found(plain, region)
        for each in (table, plain):
            if step == "add":
                each.add(
                    rid(number), BROKER, "echo", ((REGION, region),), at, f"r{number}", now=NOW
                )
            elif step == "remove":
                each.remove(rid(number), at, broker_id=BROKER, now=NOW)
    for region in ("eu", "us"):
        assert found(table, region) == found(plain, region)
    assert not {each.route_id for each in table.expected()} & {e.route_id for e in table}
    statistics = table.statistics()
    assert statistics.index.routes == statistics.routes + statistics.expected


def test_one_can_be_forgotten() -> None:
    table: RoutingTable[str] = RoutingTable()
    route = SnapshotRoute(bytes(16), "a")
    assert table.expect(route)
    assert table.forget(bytes(16))
    assert not table.forget(bytes(16))
    assert table.expecting == 0
    assert table.expect(route)
